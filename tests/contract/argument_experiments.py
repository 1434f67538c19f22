"""Calls with numbers that only experiments need: the papers' networks and their data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from argument_kinds import FROM_1, Call, accepted, number, seed, whole

from experiments.bench import Store, run_local
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.toy_regression import toy_regression


def _run_local(**options):
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
        return run_local([], store, **options)


CALLS = {
    "paper_mlp": Call(
        lambda inputs, width, **options: dict(paper_mlp(inputs, hidden=(width,), **options).state_dict()),
        inputs=accepted(3),
        width=accepted(4),
        eps=number(0.5, "a number from 0, such as 1e-10", (-1.0,)),
        seed=seed(),
    ),
    "paper_dropout_mlp": Call(
        lambda rate, seed: [paper_dropout_mlp(3, rate, seed=seed)[0].p],
        rate=number(0.5, "a probability from 0 to below 1", (-1.0, 1)),
        seed=seed(),
    ),
    "toy_regression": Call(lambda seed: toy_regression(seed), seed=seed()),
    "run_local": Call(
        _run_local,
        workers=whole(0, "a whole number from 0", (-1,), none=True),
        threads=whole(1, FROM_1),
    ),
}
