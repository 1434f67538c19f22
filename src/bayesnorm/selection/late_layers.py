"""Which layers to draw: only what follows the first of them runs once per draw, so late layers are cheap."""

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
        layers: How many of the last batch-norm layers are drawn.
        posterior: The posterior over them at its best effective batch size.
        score: Its score on the validation data; lower is better.
        cost: Time of a prediction, as a multiple of one deterministic pass on the same rows.
    """

    layers: int
    posterior: BatchNormPosterior
    score: float
    cost: float


@dataclass(frozen=True)
class LayerSuggestion:
    """The best option within the budget, and all that were looked at, cheapest layers first."""

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
    """Find the last layers that score best among those whose prediction costs at most `budget` deterministic passes.

    Looks at the last 1, 2, 4, ... and all layers of the posterior, each at the effective batch size that scores best on
    the validation data. Scores do not depend on the machine; costs are measured on it.

    Args:
        posterior: A posterior over all layers that may be drawn.
        x: Validation inputs.
        y: Their targets.
        budget: Most cost, in deterministic passes.
        samples: Samples per prediction.
        noise: Whether the noise (precision or temperature) is chosen anew for each option as well.
        score: What to minimise, as in `calibrate`.
        seed: Same seed, same scores.
    """
    if not isinstance(posterior, BatchNormPosterior):
        raise BayesNormError(f"posterior: {type(posterior).__name__} has no layers to choose; MCBN's has.")
    if not (as_number(budget) or 0) > 0:  # an infinite one is no limit
        raise BayesNormError(f"budget must be a positive number of deterministic passes, got {budget!r}.")
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
        # As a fold: of sizes at the end of their range nobody need be warned, other layers are looked at too.
        fold = (candidate, x, y)
        best = calibrate(candidate, folds=[fold], noise=noise, score=score, samples=samples, seed=seed)
        options.append(LayerOption(count, best, mean_score(best, x, y, score, samples, seed), cost))
    within = [option for option in options if option.cost <= budget]
    if not within:
        cheapest = min(options, key=lambda option: option.cost)
        raise BayesNormError(
            f"budget: {budget} deterministic passes with samples={samples}; the cheapest option costs "
            f"{cheapest.cost:.2f}. A larger budget or fewer samples would work."
        )
    return LayerSuggestion(min(within, key=lambda option: option.score), tuple(options))


def prediction_cost(posterior: BatchNormPosterior, x: Tensor, samples: int) -> float:
    """Median time of `samples` samples on `x` over that of one deterministic pass, measured alternately."""
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
