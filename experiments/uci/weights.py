"""Score the methods with random weights (BayesByBackprop, MNF): one network per split and seed.

There is no grid for them: the prior replaces weight decay. A fifth of the training rows is held out, and no network is
trained on it. The error of a plain batch-norm network there is the noise for training the random weights. The CRPS
there chooses the precision of the predictions, as for the other methods.
"""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MNF, BayesByBackprop
from bayesnorm.posterior import VariationalPosterior
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, train_stacked
from bayesnorm.training import Rescaled

from ..networks import paper_mlp, plain_mlp
from ..stacked_networks import in_target_units
from .cross_validation import rmse
from .folds import Data, Fold
from .presets import PRECISIONS, preset_named
from .scoring import Asked, Noise, scores

METHODS: dict[str, type[BayesByBackprop | MNF]] = {"bbb": BayesByBackprop, "mnf": MNF}
NAMES = {"bbb": "BayesByBackprop", "mnf": "MNF"}
BATCH_SIZE = 100

WEIGHT_DECAY = 1e-3
"""Weight decay of the network that estimates the noise."""


def run(preset: str, dataset: str, family: str, split: int, seed: int) -> dict[str, Any]:
    """Return the row of one run.

    Args:
        preset: Of `PRESETS`.
        dataset: Of `UCI_SETS`.
        family: "bbb" or "mnf".
        split, seed: Numbers of the split and the seed.
    """
    started = time.perf_counter()
    chosen = preset_named(preset)
    data = Data(dataset, (split,), 5)
    fold, whole = data.validated[0], data.whole[0]
    x, y = data.table
    train = x[fold.train], y[fold.train, None]
    network = Rescaled.from_data(plain_mlp(data.inputs, hidden=(data.width,) * 2, seed=seed), *train)
    batch = min(BATCH_SIZE, len(fold.train))
    epochs = max(1, round(chosen.weight_steps / (len(fold.train) // batch)))
    method = METHODS[family](epochs=epochs, batch_size=batch)
    noise_level = _plain_error(data, fold, epochs, batch, seed)
    posterior = method.fit(network, train, Gaussian(1 / noise_level), seed=seed)
    of_fold, of_test = (
        _asked(posterior, x[rows], y[rows], chosen.weight_samples, seed) for rows in (fold.held, whole.held)
    )
    noise = Noise.chosen(of_fold, PRECISIONS[dataset])
    results = {name: float(value[0]) for name, value in scores(of_test, noise).items()}
    row = {"split": split, "seed": seed, "method": NAMES[family], **results, "epochs": epochs}
    return {
        "rows": [row],
        "network_steps": epochs * (len(fold.train) // batch),
        "unit_seconds": time.perf_counter() - started,
    }


def _plain_error(data: Data, fold: Fold, epochs: int, batch_size: int, seed: int) -> float:
    """Return the mean squared error of a network with batch norm on the held-out rows, at its best epoch."""
    stack = Stack.from_networks([paper_mlp(data.inputs, hidden=(data.width,) * 2, seed=seed)])
    train = data.train_rows([fold])
    held = data.held_rows([fold], train)

    def error(now: Stack) -> Tensor:
        return rmse(in_target_units(now, train).point(held), held)

    train_stacked(
        stack,
        train,
        epochs=epochs,
        batch_size=batch_size,
        weight_decay=[WEIGHT_DECAY],
        loss=HalfSquaredError(),
        evaluate=lambda now, _: error(now),
        evaluate_every=max(1, epochs // 20),
        seeds=[seed],
    )
    return float(error(stack)) ** 2


def _asked(posterior: VariationalPosterior, x: Tensor, y: Tensor, samples: int, seed: int) -> Asked:
    def outputs(n: int) -> Tensor:
        return MonteCarlo(n).outputs(posterior, x, seed)[:, None].double()

    return Asked.from_outputs(outputs, y[None, :, None].double(), samples, 1)
