"""Networks for the image experiments, trained by one recipe each and kept as files.

`networks.py` says which there are, `datasets.py` what they are trained on, `recipes.py` how, and `training.py` does it:
`trained_network(...)` returns a network that is trained, now or before.
"""
