"""Networks for the image experiments, each trained by one recipe and stored in files.

`networks.py` defines the networks, `datasets.py` their data, `recipes.py` the training recipes, and `training.py`
trains: `trained_network(...)` returns a network that is trained now or was trained before.
"""
