"""Segmentation networks for CamVid's road scenes: data, training and evaluation.

`frames.py` loads the images, and `plans.py` says which networks there are and how they are trained; `trained_network`
of the image experiments trains and stores them. `pixels.py` predicts every pixel of the test images and computes
scores.
"""
