"""Choose the noise and the effective batch size of a posterior on validation data.

Two numbers are left open when a network is trained: how noisy the targets are (the papers' tau, or a temperature), and
how far batch statistics should be let fluctuate (the effective batch size M'). Both are found here by the same score,
on rows that the network was not trained on: outputs are drawn once per candidate M', and for each the best noise is
searched over the stored outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from torch import Tensor

from ..batchnorm_posterior import BatchNormPosterior
from ..engines import MonteCarlo
from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..posterior import Posterior
from ..predictive import Predictive, RegressionPredictive
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


def calibrate(
    posterior: P,
    x: Any,
    y: Any,
    *,
    batch_size: bool = True,
    noise: bool = True,
    score: Score | None = None,
    samples: int = 64,
    seed: int = 0,
) -> P:
    """A new posterior whose noise and effective batch size score best on validation data.

    Never worse on that data, at the same draws, than the posterior it started from.

    Args:
        posterior: Any posterior; one without an effective batch size only gets its noise chosen.
        x: Validation inputs, not used in training.
        y: Their targets.
        batch_size: False leaves the effective batch size alone (the MCBN paper's way: noise only).
        noise: False leaves the noise alone.
        score: What to minimise: "crps" (default for regression), "pll" (negative log density) or "nll" (the same for
            classes, their default).
        samples: Draws per candidate.
        seed: Same seed, same choice.
    """
    x = posterior.executable.input(x)
    look = partial(_candidate, x=x, y=y, score=score, samples=samples, seed=seed)
    candidates = [look(posterior, noise=False)]
    if noise:
        candidates.append(look(posterior, noise=True))
    if batch_size and isinstance(posterior, BatchNormPosterior):
        candidates += _over_batch_sizes(posterior, partial(look, noise=noise))
    best = min(candidates, key=lambda candidate: candidate.score)
    calibrated: Any = posterior.with_likelihood(best.likelihood)
    return calibrated if best.batch_size is None else calibrated.at_batch_size(best.batch_size)


def mean_score(
    posterior: Posterior, x: Tensor, y: Any, score: Score | None = None, samples: int = 64, seed: int = 0
) -> float:
    """The score that `calibrate` minimises, of a posterior as it stands."""
    return _candidate(posterior, x, y, score, samples, seed, noise=False).score


def _over_batch_sizes(
    posterior: BatchNormPosterior, candidate: Callable[[BatchNormPosterior], _Candidate]
) -> list[_Candidate]:
    """Every power of four; then steps of two and of the root of two about the best so far."""
    found: dict[float, _Candidate] = {}

    def look(log_size: float) -> None:
        if log_size not in found and 0 <= log_size <= LARGEST_LOG2_BATCH_SIZE:
            found[log_size] = candidate(posterior.at_batch_size(2**log_size))

    for power in range(0, LARGEST_LOG2_BATCH_SIZE + 1, 2):
        look(float(power))
    for step in (1.0, 0.5):
        best = min(found, key=lambda log_size: found[log_size].score)
        look(best - step)
        look(best + step)
    return list(found.values())


def _candidate(
    posterior: Posterior, x: Tensor, y: Any, score: Score | None, samples: int, seed: int, noise: bool
) -> _Candidate:
    """A posterior with its batch size as it stands, scored with its own noise or with the best."""
    f = MonteCarlo(samples).outputs(posterior, x, seed)
    likelihood = posterior.likelihood
    size = posterior.batch_size if isinstance(posterior, BatchNormPosterior) else None
    if not noise:
        return _Candidate(size, likelihood, _score(likelihood.predictive(f), y, score).mean().item())
    low, high = likelihood.noise_range(f, y)

    def objective(level: Tensor) -> Tensor:
        points = _score(likelihood.with_noise(level).predictive(f), y, score)
        return points.flatten(0, -2).mean(0) if level.dim() else points.mean()

    level, value = minimise_on_log_scale(objective, low, high)
    return _Candidate(size, likelihood.with_noise(level), value.mean().item())


def _score(predictive: Predictive, y: Any, score: Score | None) -> Tensor:
    """Score per target, lower is better."""
    regression = isinstance(predictive, RegressionPredictive)
    score = score or ("crps" if regression else "nll")
    if score not in (("crps", "pll") if regression else ("nll",)):
        works = '"crps" or "pll"' if regression else '"nll"'
        raise BayesNormError(f"score: {score!r} was given for {type(predictive).__name__}; {works} would work.")
    if isinstance(predictive, RegressionPredictive) and score == "crps":
        return predictive.crps(y)
    return -predictive.log_prob(y)
