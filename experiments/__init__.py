"""Tables and figures of the papers and of this package; available from a checkout, not in the wheel.

    python -m experiments --help

Each file or folder is one table or figure, and its `main` is the command of the same name. `uci/` is the benchmark
behind most tables. `networks/` and `data/` hold the papers' networks and the loaders of their data sets. `bench/`
computes and stores the results of experiments with many parts.
"""
