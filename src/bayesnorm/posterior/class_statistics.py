"""The statistics of single classes at a network's batch-norm layers, and what validation data say about a classifier.

Statistics of classes, with the network's own running statistics, separate a changed mix of classes from changed inputs.
Let a and b be an example's average over pixels of z and of z^2, where z is a layer's input in units of the running
statistics, (h - running_mean) / sqrt(running_var + eps). Their averages over examples are linear in the class mix, so
the mix explains the mean a and the variance b - a^2. An example's class is the one that the network predicts: on
training data that is nearly always the label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from bayesnorm_runtime import ClassMoments

from ..errors import NetworkError
from ..likelihoods import Likelihood
from ..network import (
    BatchNormLayer,
    Executable,
    MiniBatches,
    RowStatistics,
    isolated_randomness,
    select_output,
)
from ..predictive import ClassificationPredictive
from ..schema import Array, number, record, whole

# With more classes, their moments are kept as combinations of this many rows (principal components and the mean).
MOST_ROWS = 33
# Networks with more numbers than this for all classes have no class statistics; 1,000 classes of a ResNet-50 fit. While
# they are collected, they take twice 256 MiB.
MOST_NUMBERS = 2**26
# A file holds numbers whose squares are finite in single precision.
LARGEST = 1e19
# Columns of moments that are converted to double precision together.
COLUMNS = 4096
# Examples per class, and the least number of examples in all, that class statistics are computed from.
PER_CLASS, LEAST_EXAMPLES = 64, 1024

TENSORS = ("counts", "loadings", "rows", "within")


@dataclass(frozen=True)
class ClassStatistics:
    """The moments of K classes at all recorded layers with C channels in total; tensors on the CPU.

    Args:
        counts: Number of examples of each class, (K,), double.
        loadings: The moments of class k are `loadings[k] @ rows`, (K, R).
        rows: Averages of a, then of b, (R, 2C).
        within: Variance of a, covariance of a and b, and variance of b over the examples of a class, (3, C).
    """

    counts: Tensor
    loadings: Tensor
    rows: Tensor
    within: Tensor

    @classmethod
    def from_sums(cls, counts: Tensor, sums: Tensor, products: Tensor) -> Self:
        """Return the statistics, given sums over examples.

        Args:
            counts: Number of examples of each class, (K,).
            sums: Sums of a, then of b, by class, (K, 2C).
            products: Sums of a^2, a b and b^2 over all examples, (3, C).
        """
        counts, total = counts.double(), float(counts.sum())
        shares, half = counts / total, sums.shape[1] // 2
        moments = sums.float() / counts.clamp_min(1).float()[:, None]
        center, between = torch.zeros(2 * half, dtype=torch.float64), torch.zeros(3, half, dtype=torch.float64)
        for columns in torch.arange(half).split(COLUMNS):  # a copy of all moments in double precision may not fit
            a, b = moments[:, columns].double(), moments[:, half + columns].double()
            center[columns], center[half + columns] = shares @ a, shares @ b
            between[:, columns] = torch.stack([shares @ (a * a), shares @ (a * b), shares @ (b * b)])
        moments[counts == 0] = center.float()  # nothing is known of these classes
        within = products.double() / total - between
        within[0].clamp_min_(0)
        within[2].clamp_min_(0)
        loadings, rows = torch.eye(len(counts)), moments
        if len(counts) > MOST_ROWS:
            weights = shares.sqrt().float()[:, None]
            weighted = moments.sub_(center.float()).mul_(weights)
            _, _, directions = torch.svd_lowrank(weighted, q=MOST_ROWS - 1, niter=4)
            scores = torch.where(weights > 0, weighted @ directions / weights, 0.0)
            loadings = torch.cat([torch.ones(len(counts), 1), scores], dim=1)
            rows = torch.cat([center.float()[None], directions.T])
        return cls(counts, loadings, rows, within.float())

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return len(self.counts)

    @cached_property
    def moments(self) -> ClassMoments:
        """The arithmetic on these numbers."""
        return ClassMoments(**{name: tensor.numpy() for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save."""
        return {name: getattr(self, name) for name in TENSORS}

    @staticmethod
    def arrays(classes: int, width: int) -> dict[str, Array]:
        """Describe the tensors of `tensors()` for K classes and 2C coordinates."""
        single, rows = (torch.float32,), min(classes, MOST_ROWS)
        return {
            "counts": Array((classes,), (torch.float64,), 0.0),
            "loadings": Array((classes, rows), single),
            "rows": Array((rows, width), single),
            "within": Array((3, width // 2), single),
        }

    @classmethod
    def restored(cls, tensors: dict[str, Tensor]) -> Self:
        """Return the object that `tensors()` described."""
        return cls(**{name: tensor.cpu() for name, tensor in tensors.items()})


def collect_class_statistics(
    executable: Executable, likelihood: Likelihood, layers: tuple[BatchNormLayer, ...], batches: MiniBatches
) -> ClassStatistics | None:
    """Run training batches with the network's running statistics, and return the statistics of the predicted classes.

    Returns None if the network does not predict one class for each example, if it has too many classes, if a layer does
    not get one entry for each example, such as the tokens of all images, or if inputs are so far from their running
    statistics, as in some untrained networks, that no file could hold their squares.

    Args:
        executable: The network, and which of its outputs is used.
        likelihood: Turns outputs into class probabilities.
        layers: The recorded layers.
        batches: Training batches; as many are run as contain `PER_CLASS` examples for each class, or every example once
            if there are not so many.
    """
    probs = class_probabilities(likelihood, executable.point(executable.input(batches.first())[:2]))
    channels = sum(layer.channels for layer in layers)
    if probs is None or probs.shape[1] * 2 * channels > MOST_NUMBERS:
        return None
    classes = probs.shape[1]
    count = math.ceil(max(LEAST_EXAMPLES, PER_CLASS * classes) / batches.batch_size)
    network = RowStatistics(executable.model, [layer.name for layer in layers], executable.forward_kwargs)
    counts, sums = torch.zeros(classes, dtype=torch.float64), torch.zeros(classes, 2 * channels)
    products = torch.zeros(3, channels, dtype=torch.float64)
    averages: list[Tensor] = []  # a and b of every layer, (2, n, channels)

    def note(name: str, moments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        mean, var, eps = network.running(name)
        averages.append(torch.stack(standardised_averages(moments, mean, var + eps)))
        return mean, var

    with isolated_randomness(batches.seed, executable.device):
        for batch in replace(batches, count=min(count, batches.count)).at_most_once():
            averages.clear()
            x = network.input(executable.input(batch))
            try:
                f = select_output(network.run_rule(x, note), executable.output, len(x))
            except NetworkError:  # `row_averages` need one entry per example
                return None
            probs = class_probabilities(likelihood, f)
            a, b = torch.cat(averages, dim=-1).cpu().double()
            if probs is None or len(a) != len(x):
                return None
            label = probs.argmax(1).cpu()
            counts += torch.bincount(label, minlength=classes)
            sums.index_add_(0, label, torch.cat([a, b], dim=1).float())
            products += torch.stack([(a * a).sum(0), (a * b).sum(0), (b * b).sum(0)])
        if int((counts > 0).sum()) < 2:
            return None
        statistics = ClassStatistics.from_sums(counts, sums, products)
    return statistics if all(bool((t.abs() <= LARGEST).all()) for t in statistics.tensors().values()) else None


def standardised_averages(moments: tuple[Tensor, ...], mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Return every example's averages a and b, (n, C) each; `var` includes eps."""
    batch_mean, _, deviations, squares = moments
    shift = batch_mean - mean
    a = deviations + shift
    return a / var.sqrt(), (squares + 2 * deviations * shift + shift.square()) / var


def class_probabilities(likelihood: Likelihood, f: Tensor) -> Tensor | None:
    """Return class probabilities (n, K) for outputs (n, ...); None unless each example has one class."""
    predictive = likelihood.predictive(f[None])
    if not isinstance(predictive, ClassificationPredictive) or predictive.probs.dim() != 2:
        return None
    return predictive.probs


VALIDATION = record(
    rows=whole(1),
    error=number(0, 1),
    temperature=number(above=0),
    least_confidence=number(0, 1),
    most_entropy=number(0),
)
