"""Networks for every pixel of CamVid's road scenes: what they are trained on, how, and what they are asked about.

`frames.py` has the frames, `plans.py` says which networks there are and how they are trained; `trained_network` of the
image experiments trains and keeps them. `pixels.py` has what a method says about every pixel of the test frames, and
scores of it.
"""
