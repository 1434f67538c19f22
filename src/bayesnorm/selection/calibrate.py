"""Choose the noise and the effective batch size of a posterior on validation data.

Two numbers are left open when a network is trained: how noisy the targets are (the papers' tau, or a temperature), and
how far batch statistics should be let fluctuate (the effective batch size M'). Both are found here by the same score,
on rows that the network was not trained on: outputs are drawn once per candidate M', and for each the best noise is
searched over the stored outputs. A network without any doubt of its own is `point(model, likelihood)`: for it, this is
softmax with temperature, or constant uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from ..engines import MonteCarlo
from ..errors import BayesNormError, InputError
from ..likelihoods import Likelihood
from ..likelihoods.real_targets import RealTargets
from ..metrics import crps_points
from ..metrics.arguments import scored_labels
from ..posterior import Posterior
from ..predictive import ClassificationPredictive, Predictive, RegressionPredictive
from ..predictive.base import as_targets, at_least_single
from ..predictive.noise import NormalNoise
from .search import minimise_on_log_scale

Score = Literal["crps", "pll", "nll"]
P = TypeVar("P", bound=Posterior)

LARGEST_LOG2_BATCH_SIZE = 12
"""Effective batch sizes from 1 to 4096 are looked at."""


@dataclass(frozen=True)
class _Candidate:
    batch_size: float | None
    likelihood: Likelihood
    score: float


Case = tuple[Posterior, Any, Any]
"""A posterior with the validation rows that its network was not trained on: (posterior, x, y)."""


def calibrate(
    posterior: P,
    x: Any = None,
    y: Any = None,
    *,
    folds: Sequence[Case] | None = None,
    batch_size: bool = True,
    noise: bool = True,
    score: Score | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> P:
    """A new posterior whose noise and effective batch size score best on validation data.

    Never worse on that data, at the same draws, than the posterior it started from.

    Args:
        posterior: Any posterior; one without an effective batch size only gets its noise chosen.
        x: Validation inputs, not used in training.
        y: Their targets.
        folds: Instead of x and y, cross-validation: (posterior, x, y) of each fold, the posterior fitted without those
            rows. One noise and one batch size are chosen for all folds together, every row counting once, and given to
            `posterior`, which may then be that of a network trained on all rows.
        batch_size: False leaves the effective batch size alone (the MCBN paper's way: noise only).
        noise: False leaves the noise alone.
        score: What to minimise: "crps" (default for regression), "pll" (negative log density) or "nll" (the same for
            classes, their default).
        samples: Draws per candidate; None takes what a prediction takes.
        seed: Same seed, same choice.
    """
    cases = _cases(posterior, x, y, folds)
    draws = posterior.default_samples if samples is None else samples
    look = partial(_candidate, likelihood=posterior.likelihood, score=score, samples=draws, seed=seed)
    size = _batch_size(posterior)
    started = cases if folds is None or size is None else _at_batch_size(cases, size)
    candidates = [look(started, size, noise=False)]
    if noise:
        candidates.append(look(started, size, noise=True))
    if batch_size and size is not None:
        candidates += _over_batch_sizes(cases, partial(look, noise=noise))
    best = min(candidates, key=lambda candidate: candidate.score)
    calibrated: Any = posterior.with_likelihood(best.likelihood)
    return calibrated if best.batch_size is None else calibrated.at_batch_size(best.batch_size)


def mean_score(
    posterior: Posterior, x: Tensor, y: Any, score: Score | None = None, samples: int = 64, seed: int = 0
) -> float:
    """The score that `calibrate` minimises, of a posterior as it stands: the mean over the targets that are there."""
    predictive = posterior.likelihood.predictive(at_least_single(MonteCarlo(samples).outputs(posterior, x, seed)))
    points = _score(predictive, y, score)
    count = _present(predictive, y, points)
    if count == 0:
        raise InputError("y: all targets are missing; at least one that is not would work.")
    return points.sum().item() / count


def _cases(posterior: Posterior, x: Any, y: Any, folds: Sequence[Case] | None) -> list[Case]:
    if not isinstance(posterior, Posterior):
        raise BayesNormError(
            f"posterior: {type(posterior).__name__} was given; point(model, likelihood), or what a method's fit gives, "
            "would work."
        )
    if (folds is None) == (x is None or y is None):
        raise BayesNormError(
            "x, y, folds: validation rows are needed once; x and y, or folds=[(posterior, x, y), ...], would work."
        )
    if folds is None:
        return [(posterior, posterior.executable.input(x), y)]
    if not isinstance(folds, Iterable):
        raise BayesNormError(f"folds: {type(folds).__name__} was given; [(posterior, x, y), ...] would work.")
    cases = []
    for number, fold in enumerate(folds):
        if not isinstance(fold, tuple | list) or len(fold) != 3 or not isinstance(fold[0], Posterior):
            raise BayesNormError(f"folds: entry {number} is {type(fold).__name__}; (posterior, x, y) would work.")
        if (_batch_size(fold[0]) is None) != (_batch_size(posterior) is None):
            raise BayesNormError(f"folds: entry {number} is another kind of posterior than the one to calibrate.")
        cases.append((fold[0], fold[0].executable.input(fold[1]), fold[2]))
    if not cases:
        raise BayesNormError("folds: is empty; one (posterior, x, y) per fold would work.")
    return cases


def _batch_size(posterior: Posterior) -> float | None:
    """The effective batch size, where a posterior has one."""
    return getattr(posterior, "batch_size", None)


def _at_batch_size(cases: Sequence[Case], batch_size: float) -> list[Case]:
    return [(posterior.at_batch_size(batch_size), x, y) for posterior, x, y in cases]  # type: ignore[attr-defined]


def _over_batch_sizes(cases: Sequence[Case], look: Callable[[Sequence[Case], float], _Candidate]) -> list[_Candidate]:
    """Every power of four; then steps of two and of the root of two about the best so far."""
    found: dict[float, _Candidate] = {}

    def at(log_size: float) -> None:
        if log_size not in found and 0 <= log_size <= LARGEST_LOG2_BATCH_SIZE:
            found[log_size] = look(_at_batch_size(cases, 2**log_size), 2**log_size)

    for power in range(0, LARGEST_LOG2_BATCH_SIZE + 1, 2):
        at(float(power))
    for step in (1.0, 0.5):
        best = min(found, key=lambda log_size: found[log_size].score)
        at(best - step)
        at(best + step)
    return list(found.values())


def _candidate(
    cases: Sequence[Case],
    batch_size: float | None,
    likelihood: Likelihood,
    score: Score | None,
    samples: int,
    seed: int,
    noise: bool,
) -> _Candidate:
    """Posteriors with their batch size as it stands, scored under the likelihood's own noise or the best."""
    outputs = [at_least_single(MonteCarlo(samples).outputs(posterior, x, seed)) for posterior, x, _ in cases]
    targets = [y for _, _, y in cases]

    def points(likelihood: Likelihood) -> Tensor:
        scored = [_score(likelihood.predictive(f), y, score) for f, y in zip(outputs, targets, strict=True)]
        return torch.cat(scored)

    if not noise:
        return _Candidate(batch_size, likelihood, points(likelihood).mean().item())
    ranges = [likelihood.noise_range(f, y) for f, y in zip(outputs, targets, strict=True)]
    low = torch.stack([low for low, _ in ranges]).amin(0)
    high = torch.stack([high for _, high in ranges]).amax(0)

    def objective(level: Tensor) -> Tensor:
        found = points(likelihood.with_noise(level))
        if isinstance(likelihood, RealTargets) and level.dim():
            found = found.movedim(likelihood.axis, -1)
        return found.flatten(0, -2).mean(0) if level.dim() else found.mean()

    level, value = minimise_on_log_scale(objective, low, high)
    return _Candidate(batch_size, likelihood.with_noise(level), value.mean().item())


def _present(predictive: Predictive, y: Any, points: Tensor) -> int:
    """How many targets are not missing; the scores of those that are, are 0."""
    if isinstance(predictive, RegressionPredictive) and predictive.missing:
        return int((~as_targets(y, points.device).isnan()).sum())
    if isinstance(predictive, ClassificationPredictive):
        return int(scored_labels(predictive, as_targets(y, points.device), None).sum())
    return points.numel()


def _score(predictive: Predictive, y: Any, score: Score | None) -> Tensor:
    """Score per target, lower is better."""
    regression = isinstance(predictive, RegressionPredictive)
    score = score or ("crps" if regression else "nll")
    if score not in (("crps", "pll") if regression else ("nll",)):
        works = '"crps" or "pll"' if regression else '"nll"'
        raise BayesNormError(f"score: {score!r} was given for {type(predictive).__name__}; {works} would work.")
    if isinstance(predictive, RegressionPredictive) and score == "crps":
        # The paper's matched Gaussian would pass over the shape of noise that is not normal.
        if isinstance(predictive.noise, NormalNoise):
            return predictive.crps(y)
        target, seen = predictive.observed(y)
        found = crps_points(predictive, target, form="mixture")
        return found if seen is None else torch.where(seen, found, 0)
    return -predictive.log_prob(y)
