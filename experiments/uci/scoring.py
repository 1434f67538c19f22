"""Score many networks at once, in the target's units, with the noise precision that cross-validation chooses.

Both steps use the package: `calibrate`, with arguments for the paper's protocol (its range of precisions, equal weight
for every fold, no other batch size), and `bayesnorm.metrics` with one score for each network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesnorm import metrics
from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import Gaussian
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import GaussianPredictive, RegressionPredictive
from bayesnorm.selection import calibrate
from bayesnorm.stacked import StackedRows

from .asking import keeping, without_uncertainty

LEVEL = 0.95


def gaussian(precision: Tensor) -> Gaussian:
    """Return the noise of each network, (E,), or of one, (), on rows with padded lists."""
    if not precision.dim():
        return Gaussian(float(precision), missing=True)
    return Gaussian(tuple(precision.tolist()), axis=0, missing=True)


@dataclass(frozen=True, eq=False)
class Asked:
    """A posterior over networks with the rows to predict.

    Args:
        posterior: Over the networks of a stack, or over one network.
        x: The rows; `StackedRows`, or inputs.
        y: Their targets, (E, n, 1) padded with NaN, or (n, 1) for one network.
        samples: T, the number of samples.
        splits: Number of splits, each with as many networks.
        seed: Determines the samples.
    """

    posterior: Posterior
    x: Any
    y: Tensor
    samples: int
    splits: int
    seed: int = 0

    @classmethod
    def of_stack(cls, posterior: Posterior, rows: StackedRows, samples: int, splits: int, whole: bool = True) -> Asked:
        """Return predictions of rows with known targets, storing all outputs, or only their moments."""
        return cls(keeping(posterior, whole), rows, rows.own_targets.double(), samples, splits)

    @property
    def each(self) -> int:
        """Return the number of leading axes with a score for each entry: one if there are several networks."""
        return self.y.dim() - 2

    @property
    def networks(self) -> int:
        """Return the number of predictors."""
        return len(self.y) if self.each else 1

    @property
    def groups(self) -> Tensor | None:
        """Return the split of every network; None for one network."""
        return torch.arange(self.splits).repeat_interleave(self.networks // self.splits) if self.each else None

    def with_posterior(self, posterior: Posterior) -> Asked:
        """Return another posterior with the same rows."""
        return Asked(posterior, self.x, self.y, self.samples, self.splits, self.seed)

    def constant(self) -> Asked:
        """Return the mean alone, as a posterior."""
        return self.with_posterior(without_uncertainty(self.posterior))

    def predictive(self, precision: Tensor) -> RegressionPredictive:
        """Return the mixture over samples with noise of this precision."""
        engine = MonteCarlo(self.samples)
        return gaussian(precision).predictive(engine.outputs(self.posterior, self.x, self.seed))

    def matched(self, precision: Tensor) -> GaussianPredictive:
        """Return the Gaussian with the moments of the samples and noise of this precision, without stored outputs."""
        mean, variance = MonteCarlo(self.samples).moments(self.posterior, self.x, self.seed)
        return gaussian(precision).gaussian_predictive(mean, variance)

    def calibrated(self, between: tuple[float, float], score: Any = "crps", sizes: Any = False) -> Any:
        """Choose one precision for each split, and one of several effective batch sizes if these are given."""
        start = torch.ones(self.networks).double() if self.each else torch.ones(())
        return calibrate(
            self.posterior.with_likelihood(gaussian(start)),
            self.x,
            self.y,
            batch_size=sizes,
            noise=(1 / between[1], 1 / between[0]),
            score=score,
            samples=self.samples,
            groups=self.groups,
            seed=self.seed,
        )

    def best_precision(self, between: tuple[float, float], score: Any = "crps") -> Tensor:
        """Choose the precision of every split that minimises the mean score over its networks, (splits,)."""
        return self.per_split(1 / self.calibrated(between, score).likelihood.noise)

    def per_split(self, values: Tensor) -> Tensor:
        """Return the number that the networks of a split have in common."""
        return values.reshape(self.splits, -1)[:, 0]

    def each_network(self, per_split: Tensor) -> Tensor:
        """Return one value of each split, repeated for its networks; one network has only its own."""
        return per_split.repeat_interleave(self.networks // self.splits) if self.each else per_split[0]


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
        precision = asked.best_precision(between)
        reached = metrics.crps(asked.matched(asked.each_network(precision)), asked.y, each=asked.each)
        return cls(
            crps=precision,
            pll=asked.best_precision(between, "pll") if by_pll else None,
            constant_crps=constant.best_precision(between),
            constant_pll=constant.best_precision(between, "pll") if by_pll else None,
            cv_crps=reached.reshape(asked.splits, -1).mean(1),
        )


def scores(asked: Asked, noise: Noise) -> dict[str, Tensor]:
    """Return test scores of networks, (E,) each, with the precisions of their splits.

    `pll` and `normalised_pll` use the precision chosen by CRPS, as in the paper. `pll_own` and `normalised_pll_own` use
    one chosen by the likelihood, both for the method and for constant uncertainty.
    """
    y, each = asked.y, asked.each
    by_crps = asked.each_network(noise.crps)
    matched, constant = asked.matched(by_crps), _variance(asked, noise.constant_crps)
    found = {
        "rmse": metrics.rmse(matched, y, each=each),
        "crps": metrics.crps(matched, y, each=each),
        "normalised_crps": metrics.normalised_crps(matched, y, constant, each=each),
        "coverage_95": metrics.coverage(matched, y, LEVEL, each=each),
        "precision": by_crps,
        "cv_crps": asked.each_network(noise.cv_crps),
    }
    if noise.pll is not None and noise.constant_pll is not None:
        mixture, own = asked.predictive(by_crps), asked.predictive(asked.each_network(noise.pll))
        own_constant = _variance(asked, noise.constant_pll)
        found |= {
            "pll": metrics.pll(mixture, y, each=each),
            "normalised_pll": metrics.normalised_pll(mixture, y, constant, each=each),
            "pll_own": metrics.pll(own, y, each=each),
            "normalised_pll_own": metrics.normalised_pll(own, y, own_constant, each=each),
        }
    return {name: value.reshape(-1).cpu() for name, value in found.items()}


def _variance(asked: Asked, precision: Tensor) -> Tensor:
    """Return constant variances of the networks, in a shape that broadcasts over their predictions."""
    variance = 1 / asked.each_network(precision).to(asked.y)
    return variance[:, None, None] if asked.each else variance
