"""The claim of a lecture that some priors of weights are sparse: the same network under five of them.

Each network is trained on Friedman's function of the first five of eight columns, so the weights of three columns
should vanish. The spike-and-slab is the scale mixture of Blundell et al. (2015); lasso is the most probable network
under a Laplace prior; half-Cauchy and log-uniform scales of groups are those of Louizos et al. (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import BayesByBackprop, GroupHorseshoe, GroupNormalJeffreys
from bayesnorm.training import train

from ..networks import plain_mlp
from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column, mean, significantly_above
from .toy import NOISE, friedman_rows

ROWS, NEW_ROWS, BATCH_SIZE, EPOCHS = 500, 2_000, 32, 300
RELEVANT = 5
"""Friedman's function depends on so many of the columns."""
SMALL = 0.02
"""A weight counts as zero below this share of the largest weight of its layer."""
LEARNING_RATE = 5e-3
SCALE = 0.5**0.5
"""The scale of the Laplace prior, whose variance is then 1, as that of the Gaussian prior."""
SPARSE = ("spike and slab", "lasso", "half-Cauchy", "log-uniform")


def measure(seed: int) -> Numbers:
    """Return by prior the share of weights near zero, the weight of irrelevant columns, and the error on new rows."""
    x, y, _ = friedman_rows(ROWS, seed)
    new, _, truth = friedman_rows(NEW_ROWS, seed + 2_000)
    likelihood = Gaussian(precision=1 / NOISE**2)
    options: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
    methods = {
        "Gaussian": BayesByBackprop(**options),
        "spike and slab": BayesByBackprop(prior=(0.5, 1.0, 0.05), **options),
        "half-Cauchy": GroupHorseshoe(**options),
        "log-uniform": GroupNormalJeffreys(**options),
    }
    results: Numbers = {"lasso": _numbers(*_lasso(x, y, new, seed), truth)}
    for name, method in methods.items():
        posterior = method.fit(plain_mlp(x.shape[1], seed=seed), (x, y), likelihood, seed=seed)
        sampled = posterior.sample(64, seed)
        weight = next(value for key, value in sampled.items() if key.endswith("weight"))
        results[name] = _numbers(weight.mean(0), posterior.predict(new, samples=64).mean, truth)
    return results


def judge(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether every sparse prior leaves significantly more weights near zero than the Gaussian prior."""
    wins = [
        significantly_above(
            [a - b for a, b in zip(column(runs, name, "near zero"), column(runs, "Gaussian", "near zero"), strict=True)]
        )
        for name in SPARSE
    ]
    shown = "; ".join(
        f"{name}: {mean(runs, name, 'near zero'):.0%} near zero, irrelevant columns have "
        f"{mean(runs, name, 'irrelevant'):.1%} of the weights, error {mean(runs, name, 'rmse'):.3f}"
        for name in ("Gaussian", *SPARSE)
    )
    return Verdict(HOLDS if all(wins) else PARTLY if any(wins) else FAILS, f"first layer. {shown}")


def _lasso(x: Tensor, y: Tensor, new: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the first layer's weights and the predictions of the most probable network under a Laplace prior."""
    network = plain_mlp(x.shape[1], seed=seed)
    factor = 2 * NOISE**2 / (ROWS * SCALE)  # of the mean squared error

    def penalty(model: nn.Module, _epoch: int) -> Tensor:
        return factor * torch.stack([weight.abs().sum() for weight in model.parameters()]).sum()

    def schedule(optimiser: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)

    train(
        *(network, x, y),
        loss=mse_loss,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        schedule=schedule,
        penalties=[penalty],
        seed=seed,
    )
    with torch.no_grad():
        first = network[0]
        assert isinstance(first, nn.Linear)
        return first.weight.detach(), network(new)


def _numbers(weight: Tensor, predicted: Tensor, truth: Tensor) -> Numbers:
    size = weight.abs()
    return {
        "near zero": float((size < SMALL * size.max()).double().mean()),
        "irrelevant": float(size[:, RELEVANT:].sum() / size.sum()),
        "rmse": float((predicted - truth).square().mean().sqrt()),
    }


CLAIM = Claim(
    "sparse-priors",
    "lecture on Bayesian neural networks",
    "Laplace, spike-and-slab, half-Cauchy and log-uniform priors induce sparsity",
    f"holds if each leaves significantly more weights of the first layer below {SMALL:.0%} of the largest one than a "
    "Gaussian prior (t-test over seeds, 5 %); partly if some do",
    measure,
    judge,
)
