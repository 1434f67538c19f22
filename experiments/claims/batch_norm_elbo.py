"""Claims that batch norm does not change the ELBO of other methods, nor its optimum (Mukhoti et al., 2020).

The likelihood term of the ELBO is computed with the statistics of all rows, and as the mean over random batches that
are normalised by their own statistics. For the optimum, the last layer has a Gaussian posterior under a Gaussian prior:
then both ELBOs have their optimum in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, mean
from .toy import NOISE, friedman_rows, gaussian_log_prob, hidden_units, outputs, random_batches, trained

ROWS, TRAINED_WITH, BATCHES = 512, 32, 500
SIZES = (8, 32, 128, 256)
PRIOR_PRECISION = 1.0
SMALL_GAP = 0.01
"""Nats per row that count as no difference."""
SMALL_MOVE = 0.1
"""A move of the prediction, in standard deviations of the noise, that counts as none."""


def measure_gap(seed: int) -> Numbers:
    """Return by how much the mini-batch ELBO differs on average from that of all rows, in nats per row."""
    x, y, _ = friedman_rows(ROWS, seed)
    network = trained(x, y, batch_size=TRAINED_WITH, epochs=100, seed=seed)
    precision = 1 / NOISE**2
    with torch.no_grad():
        whole = float(gaussian_log_prob(outputs(network, x) - y, precision).mean())
        results: Numbers = {"all rows": whole}
        for size in SIZES:
            rows = random_batches(ROWS, size, BATCHES, seed)
            values = gaussian_log_prob(outputs(network, x[rows]) - y[rows], precision).mean((1, 2))
            error = float(values.std()) / BATCHES**0.5
            results[str(size)] = {"gap": float(values.mean()) - whole, "standard error": error}
    return results


def judge_gap(runs: Sequence[Numbers]) -> Verdict:
    """Judge the mean gap at the batch size of training, and at half of the rows."""
    gaps = {size: mean(runs, str(size), "gap") for size in SIZES}
    shown = ", ".join(f"{gap:+.3f} at M = {size}" for size, gap in gaps.items())
    word = HOLDS if abs(gaps[TRAINED_WITH]) < SMALL_GAP else PARTLY if abs(gaps[SIZES[-1]]) < SMALL_GAP else FAILS
    return Verdict(word, f"mean difference in nats per row, {ROWS} rows, trained with M = {TRAINED_WITH}: {shown}")


def measure_optimum(seed: int) -> Numbers:
    """Return how far the optimum of the last layer's posterior moves if the ELBO is that of mini-batches."""
    x, y, _ = friedman_rows(ROWS, seed)
    network = trained(x, y, batch_size=TRAINED_WITH, epochs=100, seed=seed)
    results: Numbers = {}
    with torch.no_grad():
        features = _with_constant(hidden_units(network, x)).double()
        best, covariance = _optimum(features.T @ features, features.T @ y.double())
        spread = _spread(features, covariance)
        for size in SIZES:
            rows = random_batches(ROWS, size, BATCHES, seed)
            batch, target = _with_constant(hidden_units(network, x[rows])).double(), y[rows].double()
            scale = ROWS / (size * BATCHES)
            square = scale * torch.einsum("bmi,bmj->ij", batch, batch)
            moved, moved_covariance = _optimum(square, scale * torch.einsum("bmi,bmo->io", batch, target))
            results[str(size)] = {
                "move": float((features @ (moved - best)).square().mean().sqrt()) / NOISE,
                "spread": float((_spread(features, moved_covariance) / spread).mean()),
            }
    return results


def judge_optimum(runs: Sequence[Numbers]) -> Verdict:
    """Judge the move of the mean and of the spread at the batch size of training, and at half of the rows."""

    def unmoved(size: int) -> bool:
        return mean(runs, str(size), "move") < SMALL_MOVE and abs(mean(runs, str(size), "spread") - 1) < SMALL_MOVE

    shown = ", ".join(f"{mean(runs, str(size), 'move'):.2f} at M = {size}" for size in SIZES)
    spreads = ", ".join(f"{mean(runs, str(size), 'spread'):.2f}" for size in SIZES)
    word = HOLDS if unmoved(TRAINED_WITH) else PARTLY if unmoved(SIZES[-1]) else FAILS
    return Verdict(
        word,
        f"predictions of the optimal last layer move by {shown} standard deviations of the noise; their standard "
        f"deviation changes by factors of {spreads}",
    )


def _with_constant(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones_like(features[..., :1])], -1)


def _optimum(square: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of the Gaussian posterior, from the sums of squares and products of all rows."""
    precision = 1 / NOISE**2
    covariance = torch.linalg.inv(PRIOR_PRECISION * torch.eye(len(square), dtype=square.dtype) + precision * square)
    return covariance @ (precision * product), covariance


def _spread(features: Tensor, covariance: Tensor) -> Tensor:
    """Return the standard deviation of the last layer's predictions, (rows,)."""
    return torch.einsum("ni,ij,nj->n", features, covariance, features).sqrt()


UNBIASED = Claim(
    "elbo-unbiased",
    "Mukhoti et al. (2020)",
    "the ELBO of a mini-batch is an unbiased estimate of that of all rows, in spite of batch norm",
    f"holds if the mean difference at the batch size of training (M = {TRAINED_WITH}) is below {SMALL_GAP} nats per "
    f"row; partly if it is so at M = {SIZES[-1]}",
    measure_gap,
    judge_gap,
)
OPTIMUM = Claim(
    "elbo-optimum",
    "Mukhoti et al. (2020)",
    "batch norm does not change the optimum of the ELBO",
    f"holds if the optimum of the last layer's posterior moves predictions by less than {SMALL_MOVE} standard "
    f"deviations of the noise, and their spread by less than {SMALL_MOVE:.0%}, at M = {TRAINED_WITH}; partly if so at "
    f"M = {SIZES[-1]}",
    measure_optimum,
    judge_optimum,
)
