"""One file = one command of `python -m experiments`."""
