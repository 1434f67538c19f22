"""Score many networks at once, in the target's units, with the noise precision that cross-validation chooses.

The paper's protocol: a range of precisions for every data set, equal weight for every fold. The search, the predictives
and `bayesnorm.metrics` are those of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from bayesnorm import metrics
from bayesnorm.calibration import minimise_on_log_scale
from bayesnorm.predictive import GaussianPredictive, RegressionPredictive

from ..stacked_networks import network_means

LEVEL = 0.95

# Golden-section steps in the search for a precision.
REFINEMENTS = 20


def matched(mean: Tensor, variance: Tensor, precision: Tensor) -> GaussianPredictive:
    """Return the Gaussians with the moments of samples, (E, n, 1), and noise of each network's precision, (E,)."""
    return GaussianPredictive(mean, variance, _per_network(1 / precision, mean), missing=True)


def _per_network(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like)[:, None, None]


@dataclass(frozen=True, eq=False)
class Asked:
    """Predictions of E networks for rows with known targets.

    Args:
        outputs: Returns the outputs of a number of samples, (samples, E, n, 1); None if only moments are needed.
        moments: Returns the mean and variance of a number of samples, (E, n, 1) each.
        y: The targets, (E, n, 1), padded with NaN.
        samples: T, the number of samples.
        splits: Number of splits, each with as many networks.
    """

    outputs: Callable[[int], Tensor] | None
    moments: Callable[[int], tuple[Tensor, Tensor]]
    y: Tensor
    samples: int
    splits: int

    @classmethod
    def from_outputs(cls, outputs: Callable[[int], Tensor], y: Tensor, samples: int, splits: int) -> Asked:
        """Return predictions that store the outputs of all samples, so that several scores cost one run."""
        stored = lru_cache(maxsize=1)(outputs)

        def moments(n: int) -> tuple[Tensor, Tensor]:
            variance, mean = torch.var_mean(stored(n), 0, correction=0)
            return mean, variance

        return cls(stored, moments, y, samples, splits)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moments", lru_cache(maxsize=1)(self.moments))

    @property
    def networks(self) -> int:
        """Return the number of predictors."""
        return len(self.y)

    def constant(self) -> Asked:
        """Return the mean over samples as the only sample: the prediction without epistemic uncertainty."""
        stored, moments = self.outputs, self.moments

        def mean_alone(n: int) -> tuple[Tensor, Tensor]:
            mean, _ = moments(n)
            return mean, torch.zeros_like(mean)

        outputs = None if stored is None else lambda n: stored(n).mean(0, keepdim=True)
        return replace(self, outputs=outputs, moments=mean_alone)

    def predictive(self, precision: Tensor) -> RegressionPredictive:
        """Return the mixture over samples with noise of each network's precision, (E,)."""
        assert self.outputs is not None
        f = self.outputs(self.samples)
        scale = _per_network((0.5 * (1 / precision).log()).exp(), f)
        return RegressionPredictive(f, scale, missing=True)

    def matched(self, precision: Tensor) -> GaussianPredictive:
        """Return the Gaussian with the moments of the samples and noise of each network's precision, (E,)."""
        return matched(*self.moments(self.samples), precision)

    def best_precision(self, between: tuple[float, float], score: str = "crps") -> tuple[Tensor, Tensor]:
        """Return the precision of every split with the lowest mean score over its networks, and that score."""
        low, high = (torch.full((self.splits,), 1 / end, dtype=torch.float64) for end in reversed(between))

        def objective(noise: Tensor) -> Tensor:
            precision = self.each_network(1 / noise)
            if score == "pll":
                predictive = self.predictive(precision)
                points = -metrics.pll_points(predictive, self.y)
            else:
                predictive = self.matched(precision)
                points = predictive.crps(self.y)
            return self.per_split_mean(network_means(points, ~self.y.isnan()).double().cpu())

        noise, value = minimise_on_log_scale(objective, low, high, refinements=REFINEMENTS)
        return 1 / noise, value

    def per_split_mean(self, values: Tensor) -> Tensor:
        """Return the mean over the networks of each split, (splits,)."""
        return values.reshape(self.splits, -1).mean(1)

    def each_network(self, per_split: Tensor) -> Tensor:
        """Return one value of each split, repeated for its networks, (E,)."""
        return per_split.repeat_interleave(self.networks // self.splits)


@dataclass(frozen=True, eq=False)
class Noise:
    """Precisions that cross-validation chose for every split, (splits,) each.

    Args:
        crps, pll: By CRPS, and by the likelihood of the mixture.
        constant_crps, constant_pll: The same for constant uncertainty with the same means.
        cv_crps: The lowest CRPS.
    """

    crps: Tensor
    pll: Tensor | None
    constant_crps: Tensor
    constant_pll: Tensor | None
    cv_crps: Tensor

    @classmethod
    def chosen(cls, asked: Asked, between: tuple[float, float], by_pll: bool = True) -> Noise:
        """Choose precisions by predictions for held-out rows.

        Args:
            asked: The networks of the folds, and their held-out rows.
            between: The paper's search range of the precision.
            by_pll: Whether to choose by the likelihood too, which stores the outputs of all samples.
        """
        constant = asked.constant()
        precision, _ = asked.best_precision(between)
        reached = for_each(metrics.crps, asked.matched(asked.each_network(precision)), asked.y)
        return cls(
            crps=precision,
            pll=asked.best_precision(between, "pll")[0] if by_pll else None,
            constant_crps=constant.best_precision(between)[0],
            constant_pll=constant.best_precision(between, "pll")[0] if by_pll else None,
            cv_crps=asked.per_split_mean(reached.cpu()),
        )


def scores(asked: Asked, noise: Noise) -> dict[str, Tensor]:
    """Return test scores of networks, (E,) each, with the precisions of their splits.

    `pll` and `normalised_pll` use the precision chosen by CRPS, as in the paper. `pll_own` and `normalised_pll_own` use
    one chosen by the likelihood, both for the method and for constant uncertainty.
    """
    y, by_crps = asked.y, asked.each_network(noise.crps)
    gaussians, constant = asked.matched(by_crps), 1 / asked.each_network(noise.constant_crps)
    values = {
        "rmse": for_each(metrics.rmse, gaussians, y),
        "crps": for_each(metrics.crps, gaussians, y),
        "normalised_crps": for_each(metrics.normalised_crps, gaussians, y, constant),
        "coverage_95": for_each(metrics.coverage, gaussians, y, torch.full((asked.networks,), LEVEL).double()),
        "precision": by_crps,
        "cv_crps": asked.each_network(noise.cv_crps),
    }
    if noise.pll is not None and noise.constant_pll is not None:
        mixture, separate = asked.predictive(by_crps), asked.predictive(asked.each_network(noise.pll))
        own_constant = 1 / asked.each_network(noise.constant_pll)
        values |= {
            "pll": for_each(metrics.pll, mixture, y),
            "normalised_pll": for_each(metrics.normalised_pll, mixture, y, constant),
            "pll_own": for_each(metrics.pll, separate, y),
            "normalised_pll_own": for_each(metrics.normalised_pll, separate, y, own_constant),
        }
    return {name: value.cpu() for name, value in values.items()}


def for_each(metric: Callable[..., Tensor], predictive: Any, y: Tensor, numbers: Tensor | None = None) -> Tensor:
    """Return a metric of the package for every network, (E,).

    Args:
        metric: A function of a predictive, its targets, and a number if there are `numbers`.
        predictive: Of all networks, `GaussianPredictive` or `RegressionPredictive`.
        y: The targets, (E, n, 1).
        numbers: One for each network, (E,).
    """
    values = []
    for i in range(len(y)):
        if isinstance(predictive, GaussianPredictive):
            one: Any = GaussianPredictive(
                predictive.mean[i], predictive.epistemic[i], predictive.aleatoric[i], missing=True
            )
        else:
            one = RegressionPredictive(predictive.loc[:, i], predictive.scale[:, i], missing=True)
        values.append(metric(one, y[i], *(() if numbers is None else (float(numbers[i]),))))
    return torch.stack(values)
