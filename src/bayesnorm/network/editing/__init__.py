"""Make a changed copy of a network: dropout put in, heads for noise, weights that are drawn."""
