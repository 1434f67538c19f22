"""Choose the layers to sample: only what follows the first of them runs once per sample, so late layers are cheap."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from ..arguments import as_number, require_seed
from ..engines import MonteCarlo
from ..errors import BayesNormError
from ..likelihoods import ClassTargets
from ..posterior import BatchNormPosterior, DeterministicPosterior, Posterior
from ..predictive import P_co
from ..progress import long_progress
from ..words import ShortRepr
from .calibrate import EVIDENCE, calibrate, require_noise
from .held_out_scores import Score, significantly_better
from .sampled_outputs import SampledOutputs, require_scorable

TIMED_ROWS, REPEATS = 64, 5


@dataclass(frozen=True)
class LayerOption(Generic[P_co]):
    """One choice of layers.

    Args:
        layers: Number of last batch-norm layers that are sampled; 0 is temperature scaling alone.
        posterior: The posterior over them at its best effective batch size.
        score: Its score on the validation data; lower is better.
        cost: Time of a prediction relative to one ordinary forward pass on the same examples.
    """

    layers: int
    posterior: Posterior[P_co]
    score: float
    cost: float


@dataclass(frozen=True, repr=False)
class LayerSuggestion(ShortRepr, Generic[P_co]):
    """The best option within the budget, and all options that were measured, fewest layers first."""

    best: LayerOption[P_co]
    options: tuple[LayerOption[P_co], ...]

    @property
    def posterior(self) -> Posterior[P_co]:
        """The suggested posterior."""
        return self.best.posterior

    def __str__(self) -> str:
        if self.best.layers:
            lines = [f"Sample the last {self.best.layers} batch-norm layers."]
        else:
            lines = [
                "Use temperature scaling alone: no choice of layers within the budget scores significantly better."
            ]
        lines.append(f"{'layers':>6} {'score':>9} {'cost (forward passes)':>22}")
        lines += [f"{option.layers:>6} {option.score:>9.4f} {option.cost:>22.2f}" for option in self.options]
        return "\n".join(lines)


def suggest_layers(
    posterior: BatchNormPosterior[P_co],
    x: Any,
    y: Any = None,
    budget: float = 2.0,
    *,
    samples: int = 32,
    noise: bool | None = None,
    score: Score | None = None,
    seed: int = 0,
) -> LayerSuggestion[P_co]:
    """Return the choice of last layers with the best score among those that cost at most `budget`.

    Use it to make predictions faster: sampling only late layers is cheaper than sampling all. It compares the last 1,
    2, 4, ... and all layers of the posterior, each at the effective batch size with the best validation score. For a
    classifier, each option gets its best temperature, and temperature scaling alone is one of the options (layers=0).
    It is the answer unless another option is better by more than two standard errors of the difference per example.
    Scores do not depend on the machine, but costs are measured on it. Returns a `LayerSuggestion` with the best
    posterior and all options.

    Args:
        posterior: A posterior over all layers that may be sampled.
        x: Validation inputs; or inputs with targets, such as a `DataLoader`, as for `calibrate`.
        y: Their targets. Default: None, those in `x`.
        budget: Maximum time of a prediction, as a multiple of one ordinary forward pass. Default: 2.
        samples: Samples per prediction. Default: 32.
        noise: Whether the noise (precision or temperature) is also fitted for each option. Default: None, which fits
            the temperature of a classifier and keeps the noise of a regression network.
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
    classes = isinstance(posterior.likelihood, ClassTargets)
    fit_noise = require_noise(classes if noise is None else noise)
    x, y = posterior.executable.labelled(x, y)
    require_scorable([(posterior, x, y)], posterior.likelihood, score, require_seed(seed))
    options: list[LayerOption[P_co]] = []
    rows: dict[int, Tensor] = {}  # by number of layers, the score of every example

    def add(count: int, option: Posterior[P_co], cost: float, samples: int) -> None:
        scored = SampledOutputs.sample([(option, x, y)], option.likelihood, score, samples, seed)
        rows[count] = scored.by_row(option.likelihood)
        options.append(LayerOption(count, option, float(scored.score(option.likelihood)), cost))

    if classes and fit_noise:
        network = DeterministicPosterior(posterior.executable, posterior.likelihood)
        add(0, calibrate(network, x, y, score=score), 1.0, 1)
    layers = len(posterior.layers)
    counts = [*(2**power for power in range(layers.bit_length()) if 2**power < layers), layers]
    with long_progress("suggest_layers") as tell:
        for number, count in enumerate(counts):
            tell(number, len(counts))
            candidate = posterior.at_layers(count)
            cost = prediction_cost(candidate, x[:TIMED_ROWS], samples)
            if count > 1 and cost > 2 * budget:
                break  # more layers cost more
            # As a fold, so that `calibrate` does not warn about sizes at the end of the range.
            best = calibrate(
                candidate,
                folds=[(candidate, x, y)],
                batch_size=True,
                noise=fit_noise,
                score=score,
                samples=samples,
                evidence=0 if fit_noise else EVIDENCE,
                seed=seed,
            )
            add(count, best, cost, samples)
    within = [option for option in options if option.cost <= budget]
    if not within:
        cheapest = min((option for option in options if option.layers), key=lambda option: option.cost)
        raise BayesNormError(
            f"No choice of layers costs at most {budget} times one forward pass with samples={samples}; the cheapest "
            f"costs {cheapest.cost:.2f} times. Use a larger budget or fewer samples."
        )
    best_option = min(within, key=lambda option: option.score)
    if 0 in rows and not significantly_better(rows[0], rows[best_option.layers], EVIDENCE):
        best_option = options[0]
    return LayerSuggestion(best_option, tuple(options))


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


def _now(x: Tensor) -> float:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter()
