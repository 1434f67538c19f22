"""Combine networks, boosted trees and a linear model into one predictive.

Every kind of member has a weight. For numbers, a sample is the weighted mean of one network under sampled statistics,
the trees of one fold and the linear model of one fold. The disagreement of the kinds, the weighted standard deviation
of their means, is added to the samples as normal deviations, times a factor `spread` that held-out rows choose. The
variance of all samples is the epistemic uncertainty. For classes, the probabilities are a mixture over all members.

All numbers here are in standard units: targets minus their mean, divided by their standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from ..likelihoods import HeteroscedasticGaussian, HeteroscedasticStudentT
from ..predictive import ClassificationPredictive, Predictive, RegressionPredictive
from .column_types import Numbers
from .linear import LinearModel
from .trees import BoostedTrees

KINDS = ("networks", "trees", "linear")
"""The kinds of members, in the order of all weights."""

Noise = HeteroscedasticGaussian | HeteroscedasticStudentT

ERROR_BARS = {
    "the same for all rows": (0.0, 0.0),
    "from the networks": (1.0, 0.0),
    "from the trees": (0.0, 1.0),
    "from networks and trees": (0.5, 0.5),
}
"""Forms of the noise: the exponents of the standard deviations that networks and trees predict for a row."""


# Smallest number of samples of a regression; networks can have more.
LEAST_SAMPLES = 16


@dataclass(frozen=True, eq=False)
class FoldModels:
    """The models of one kind, one for each fold.

    Args:
        models: The models.
    """

    models: tuple[BoostedTrees | LinearModel, ...]

    def predict(self, x: Numbers) -> Tensor:
        """Return the outputs of all models for rows of features: (models, rows, outputs)."""
        return torch.from_numpy(np.stack([model.predict(x) for model in self.models]))


@dataclass(frozen=True, eq=False)
class Combination:
    """How the kinds are combined.

    Args:
        weights: The weight of each kind in `KINDS`; they sum to 1.
        spread: Factor of the disagreement of the kinds.
        error_bars: The form of the noise, one of `ERROR_BARS`; "" for classes.
        ceiling: The largest scale of each target before the noise's own factor, (targets,).
        reach: The least and largest location of a member, (2, targets).
        noise: The noise of targets; None for classes.
        temperatures: What the logits of each kind are divided by; () for numbers.
    """

    weights: tuple[float, ...]
    spread: float
    error_bars: str
    ceiling: Tensor
    reach: Tensor
    noise: Noise | None
    temperatures: tuple[float, ...]

    def numbers(self, parts: list[Tensor | None], scale: Tensor) -> RegressionPredictive:
        """Return the predictive of targets that are numbers.

        Args:
            parts: The locations of the members of each kind, (members, rows, targets); None for kinds without weight.
            scale: The scale of each row's noise before its factor, (rows, targets).
        """
        assert self.noise is not None
        clamped = [None if part is None else torch.clamp(part, self.reach[0], self.reach[1]) for part in parts]
        present = [(part, weight) for part, weight in zip(clamped, self.weights, strict=True) if part is not None]
        count = max(LEAST_SAMPLES, *(len(part) for part, _ in present))
        loc, variance = pooled(
            torch.stack([part.mean(0) for part, _ in present]), torch.tensor([weight for _, weight in present])
        )
        for part, weight in present:
            loc = loc + weight * (part - part.mean(0))[torch.arange(count) % len(part)]
        if self.spread:
            loc = loc + self.spread * _deviates(count)[:, None, None] * variance.sqrt()
        factor, floor = self.noise.noise.to(scale), torch.as_tensor(self.noise.floor).to(scale)
        scale = ((factor * torch.minimum(scale, self.ceiling)).square() + floor.square()).sqrt()
        return RegressionPredictive(loc, scale, noise=self.noise.family)

    def classes(self, parts: list[Tensor | None]) -> ClassificationPredictive:
        """Return the predictive of classes.

        Args:
            parts: The logits of the members of each kind, (members, rows, classes); None for kinds without weight.
        """
        log_probs, shares = [], []
        for part, weight, temperature in zip(parts, self.weights, self.temperatures, strict=True):
            if part is not None:
                log_probs.append(torch.log_softmax(part.double() / temperature, -1))
                shares.append(torch.full((len(part),), weight / len(part), dtype=torch.float64))
        return ClassificationPredictive(torch.cat(log_probs), torch.cat(shares))


@dataclass(frozen=True, eq=False)
class Pool:
    """The members that are no networks, and how all kinds are combined.

    Args:
        combination: How they are combined.
        trees, linear: The models of targets, in standard units, or of logits.
        tree_scales: Models of the logarithm of each row's noise; None if it is not used.
        mean, std: The units of the targets, (targets,); 0 and 1 for classes.
    """

    combination: Combination
    trees: FoldModels
    linear: FoldModels
    tree_scales: FoldModels | None
    mean: Tensor
    std: Tensor

    def predictive(self, networks: Callable[[], Any], x: Any) -> Predictive:
        """Return the predictive of rows, in the units of the targets.

        Args:
            networks: Returns the predictive of the networks; it is not called if nothing depends on them.
            x: Features of the rows.
        """
        weights, bars = self.combination.weights, ERROR_BARS.get(self.combination.error_bars, (0.0, 0.0))
        others = [
            models.predict(x) if weight else None for models, weight in zip(self._others, weights[1:], strict=True)
        ]
        by_networks: Any = networks() if weights[0] or bars[0] else None
        if self.combination.noise is None:
            return self.combination.classes([by_networks.log_probs if weights[0] else None, *others])
        loc = (by_networks.loc - self.mean) / self.std if weights[0] else None
        log_scale = torch.zeros(x.shape[0], len(self.mean), dtype=torch.float64)
        if bars[0]:
            log_scale = log_scale + bars[0] * (network_scale(by_networks) / self.std).log()
        if bars[1]:
            assert self.tree_scales is not None
            log_scale = log_scale + bars[1] * self.tree_scales.predict(x).mean(0)
        result = self.combination.numbers([loc, *others], log_scale.exp())
        return RegressionPredictive(self.mean + self.std * result.loc, self.std * result.scale, noise=result.noise)

    def of_folds(self, mean: Tensor, scale: Tensor, x: Numbers) -> tuple[Tensor, Tensor]:
        """Return the mean and scale that the members of each fold predict together, each (folds, rows, targets).

        Args:
            mean, scale: Those of the networks, one for each fold.
            x: Features of the rows.
        """
        weights, bars = self.combination.weights, ERROR_BARS[self.combination.error_bars]
        log_scale = bars[0] * (scale / self.std).log()
        mean = weights[0] * (mean - self.mean) / self.std
        for models, weight in zip(self._others, weights[1:], strict=True):
            mean = mean + weight * models.predict(x)[: len(mean)] if weight else mean
        if bars[1]:
            assert self.tree_scales is not None
            log_scale = log_scale + bars[1] * self.tree_scales.predict(x)[: len(mean)]
        return self.mean + self.std * mean, self.std * torch.minimum(log_scale.exp(), self.combination.ceiling)

    @property
    def _others(self) -> tuple[FoldModels, FoldModels]:
        return self.trees, self.linear


def pooled(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted mean of the kinds' predictions, (kinds, rows, targets), and their variance around it."""
    weights = weights.to(points)
    mean = torch.tensordot(weights, points, 1)
    return mean, torch.tensordot(weights, (points - mean).square(), 1)


def _deviates(count: int) -> Tensor:
    """Return standard normal quantiles in a random order that is always the same, with variance 1."""
    deviates = ndtri((np.arange(count) + 0.5) / count)
    return torch.tensor(np.random.default_rng(0).permutation(deviates / deviates.std()).tolist(), dtype=torch.float64)


def network_scale(predictive: RegressionPredictive) -> Tensor:
    """Return the scale of the networks' noise for each row, (rows, targets)."""
    return predictive.scale.square().mean(0).sqrt()
