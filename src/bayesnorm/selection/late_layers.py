"""Choose the layers to sample: only what follows the first of them runs once per sample, so late layers are cheap."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_number, require_seed
from ..engines import MonteCarlo
from ..errors import BayesNormError
from ..posterior import BatchNormPosterior
from .calibrate import calibrate, require_noise
from .scored_outputs import Score, mean_score, require_scorable

TIMED_ROWS, REPEATS = 64, 5


@dataclass(frozen=True)
class LayerOption:
    """One choice of layers.

    Args:
        layers: Number of last batch-norm layers that are sampled.
        posterior: The posterior over them at its best effective batch size.
        score: Its score on the validation data; lower is better.
        cost: Time of a prediction relative to one ordinary forward pass on the same examples.
    """

    layers: int
    posterior: BatchNormPosterior
    score: float
    cost: float


@dataclass(frozen=True)
class LayerSuggestion:
    """The best option within the budget, and all options that were measured, fewest layers first."""

    best: LayerOption
    options: tuple[LayerOption, ...]

    @property
    def posterior(self) -> BatchNormPosterior:
        """The suggested posterior."""
        return self.best.posterior


def suggest_layers(
    posterior: BatchNormPosterior,
    x: Any,
    y: Any,
    budget: float = 2.0,
    *,
    samples: int = 32,
    noise: bool = False,
    score: Score | None = None,
    seed: int = 0,
) -> LayerSuggestion:
    """Return the choice of last layers with the best score among those that cost at most `budget`.

    Use it to make predictions faster: sampling only late layers is cheaper than sampling all. It compares the last 1,
    2, 4, ... and all layers of the posterior, each at the effective batch size with the best validation score. Scores
    do not depend on the machine, but costs are measured on it. Returns a `LayerSuggestion` with the best posterior and
    all options.

    Args:
        posterior: A posterior over all layers that may be sampled.
        x: Validation inputs.
        y: Their targets.
        budget: Maximum time of a prediction, as a multiple of one ordinary forward pass. Default: 2.
        samples: Samples per prediction. Default: 32.
        noise: Whether the noise (precision or temperature) is also fitted for each option. Default: False.
        score: The score to minimise, as in `calibrate`. Default: None.
        seed: Seed of the samples. Default: 0.
    """
    if not isinstance(posterior, BatchNormPosterior):
        raise BayesNormError(
            f"posterior must be over batch-norm statistics, such as that of MCBN, got {type(posterior).__name__}."
        )
    if not (as_number(budget) or 0) > 0:  # infinity means no limit
        raise BayesNormError(f"budget must be a positive number (times one forward pass), got {budget!r}.")
    MonteCarlo(samples)
    require_noise(noise)
    x = posterior.executable.input(x)
    require_scorable([(posterior, x, y)], posterior.likelihood, score, require_seed(seed))
    options: list[LayerOption] = []
    for count in _counts(len(posterior.layers)):
        candidate = posterior.at_layers(count)
        cost = prediction_cost(candidate, x[:TIMED_ROWS], samples)
        if options and cost > 2 * budget:
            break  # more layers cost more
        # As a fold, so that `calibrate` does not warn about sizes at the end of the range.
        fold = (candidate, x, y)
        best = calibrate(candidate, folds=[fold], noise=noise, score=score, samples=samples, seed=seed)
        options.append(LayerOption(count, best, mean_score(best, x, y, score, samples, seed), cost))
    within = [option for option in options if option.cost <= budget]
    if not within:
        cheapest = min(options, key=lambda option: option.cost)
        raise BayesNormError(
            f"No choice of layers costs at most {budget} times one forward pass with samples={samples}; the cheapest "
            f"costs {cheapest.cost:.2f} times. Use a larger budget or fewer samples."
        )
    return LayerSuggestion(min(within, key=lambda option: option.score), tuple(options))


def prediction_cost(posterior: BatchNormPosterior, x: Tensor, samples: int) -> float:
    """Return the median time of `samples` samples on `x` relative to one forward pass, measured alternately."""
    engine = MonteCarlo(samples)
    engine.outputs(posterior, x)
    posterior.executable.point(x)
    ratios = []
    for _ in range(REPEATS):
        start = _now(x)
        posterior.executable.point(x)
        middle = _now(x)
        engine.outputs(posterior, x)
        ratios.append((_now(x) - middle) / (middle - start))
    return statistics.median(ratios)


def _counts(layers: int) -> list[int]:
    powers = [2**power for power in range(layers.bit_length()) if 2**power < layers]
    return [*powers, layers]


def _now(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()
