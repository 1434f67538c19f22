"""The evidence: tables and figures of the papers, and this package's own; from a checkout, not in the wheel.

    python -m experiments --help

One file, or one folder, is one table or figure: its `main` is the command of the same name. `uci/` is the benchmark
that most tables come from; `bench/` keeps the results of experiments of many parts, and computes them.
"""
