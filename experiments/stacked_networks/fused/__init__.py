"""Kernels for the networks of the papers' regression benchmark; they need a GPU and Triton."""
