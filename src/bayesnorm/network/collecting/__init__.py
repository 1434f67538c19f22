"""Compute statistics of training batches."""
