"""Kernels for the networks of the papers' regression benchmark, where a GPU and Triton are there."""
