"""Trace a network into a graph, and make graphs that run it under many samples at once."""
