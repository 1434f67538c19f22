"""The methods with random weights (BayesByBackprop, MNF): one network for a split and a seed.

There is no grid for them: the prior stands in for weight decay. A fifth of the training rows is held out, and no
network is trained on it: the error there of a plain batch-norm network is the noise that the random weights are trained
with, and the CRPS there chooses the precision of the predictions, as for the other methods.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MNF, BayesByBackprop
from bayesnorm.nets import Rescaled, paper_mlp, plain_mlp
from bayesnorm.stacked import Stack, StackedRows, train_stacked

from .folds import Data, Fold
from .presets import PRECISIONS, preset_named
from .scoring import Drawn, Noise, scores

METHODS: dict[str, type[BayesByBackprop | MNF]] = {"bbb": BayesByBackprop, "mnf": MNF}
NAMES = {"bbb": "BayesByBackprop", "mnf": "MNF"}
BATCH_SIZE = 100

WEIGHT_DECAY = 1e-3
"""Of the network that tells the noise."""


def run(preset: str, dataset: str, family: str, split: int, seed: int) -> dict[str, Any]:
    """The row of one run.

    Args:
        preset: Of `PRESETS`.
        dataset: Of `UCI_SETS`.
        family: "bbb" or "mnf".
        split, seed: Which of them.
    """
    started = time.perf_counter()
    chosen = preset_named(preset)
    data = Data(dataset, (split,), 5)
    fold, whole = data.validated[0], data.whole[0]
    x, y = data.table
    train = x[fold.train], y[fold.train, None]
    network = Rescaled.of(plain_mlp(data.inputs, hidden=(data.width,) * 2, seed=seed), *train)
    batch = min(BATCH_SIZE, len(fold.train))
    epochs = max(1, round(chosen.weight_steps / (len(fold.train) // batch)))
    method = METHODS[family](epochs=epochs, batch_size=batch)
    noise_level = _plain_error(data, fold, epochs, batch, seed)
    posterior = method.fit(network, train, Gaussian(1 / noise_level), seed=seed)
    drawn = []
    for rows in (fold.held, whole.held):
        f = posterior.outputs(chosen.weight_draws, x[rows], seed).squeeze(-1)
        drawn.append(_drawn(data, Fold(split, fold.train, rows), f))
    noise = Noise.chosen(drawn[0], PRECISIONS[dataset], 1)
    found = {name: float(value[0]) for name, value in scores(drawn[1], noise).items()}
    row = {"split": split, "seed": seed, "method": NAMES[family], **found, "epochs": epochs}
    return {
        "rows": [row],
        "network_steps": epochs * (len(fold.train) // batch),
        "unit_seconds": time.perf_counter() - started,
    }


def _plain_error(data: Data, fold: Fold, epochs: int, batch_size: int, seed: int) -> float:
    """Mean squared error on the held rows of a network with batch norm, at its best epoch."""
    stack = Stack.of([paper_mlp(data.inputs, hidden=(data.width,) * 2, seed=seed)])
    train = data.train_rows([fold])
    held = data.held_rows([fold], train)
    train_stacked(
        stack,
        train,
        epochs=epochs,
        batch_size=batch_size,
        weight_decay=WEIGHT_DECAY,
        evaluate=lambda now, _: held.rmse(now.predict(held)),
        evaluate_every=max(1, epochs // 20),
        seed=seed,
    )
    return float(held.rmse(stack.predict(held))) ** 2


def _drawn(data: Data, fold: Fold, f: torch.Tensor) -> Drawn:
    """Outputs (S, n) in the target's units."""
    mean = f.double().mean(0)
    rows = StackedRows.of(*data.table, [fold.held])
    return Drawn(rows, mean[None], (f.double() - mean).square().mean(0)[None], f[:, None])
