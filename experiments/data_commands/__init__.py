"""The commands of `python -m experiments data`, one file each."""
