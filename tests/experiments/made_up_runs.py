"""Runs of the UCI benchmark with the means and errors that a test asks for."""

import itertools

import numpy as np

from experiments.data import UCI_SETS
from experiments.teye_tables.cells import paper_fact

FAMILIES = {"MCDropout": ("dropout", 0.05), "DO": ("dropout", 0.05), "MNF": ("mnf", "")}


def runs(dataset, method, *, splits=5, seeds=5, chosen=1, setting=None, seed=0, **means):
    """Rows of 25 runs whose scores scatter about given means, (mean, standard error) each; exactly those."""
    family, usual = FAMILIES.get(method, ("bn", 64))
    noise = np.random.default_rng(seed).normal(size=(splits * seeds, len(means)))
    noise = (noise - noise.mean(0)) / noise.std(0, ddof=1) * len(noise) ** 0.5
    values = {name: mean + error * noise[:, i] for i, (name, (mean, error)) in enumerate(means.items())}
    return [
        {
            "preset": "paper",
            "dataset": dataset,
            "family": family,
            "setting": usual if setting is None else setting,
            "split": split,
            "seed": one,
            "method": method,
            "chosen": chosen,
            **{name: float(column[i]) for name, column in values.items()},
        }
        for i, (split, one) in enumerate(itertools.product(range(1, splits + 1), range(1, seeds + 1)))
    ]


def the_papers(change=0.0):
    """Rows whose means and errors are the paper's; all means moved by `change` of those errors."""
    rows = []
    for dataset, method in itertools.product(UCI_SETS, ("MCBN", "MCDropout", "MNF", "BN", "DO")):
        means = {}
        for table, names in {4: ["normalised_crps"], 5: ["normalised_pll"], 6: ["crps", "pll"], 7: ["rmse"]}.items():
            for name in names:
                if fact := paper_fact(table, dataset, method, name):
                    error = fact.standard_error
                    means[name] = (fact.value + change * error, error)
        rows += runs(dataset, method, **means)
    return rows
