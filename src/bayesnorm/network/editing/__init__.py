"""Make modified copies of a network: with dropout, noise heads, sampled weights or fewer units."""
