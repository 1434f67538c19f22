"""How the statistics of training batches vary, as a reference for new data.

Statistics of n examples do not simply fluctuate more than those of M examples. With few examples, variances are smaller
(batch variance is biased) and their logarithms are skewed. Also, every layer normalises the input of the next one, so
the deeper the network, the less M / n describes the difference. Therefore a fit records batches of several sizes. More
examples than a batch are compared in groups of about one batch each, whose mean is exact.

A *part* is the means, or the log-variances, of one layer. Its distance is the mean over channels of the squared
deviation from the centre, each divided by its variance; it is 1 for training examples. Channels and layers vary
together, so a distance has no standard distribution. Its distribution is estimated from training batches, each compared
with all others: mean, standard deviation and skewness of its logarithm (a Pearson III distribution). The mean over G
groups approaches the distribution of a quadratic form in normal variables, whose variance and third cumulant come from
the inner products of batches. The excess of a single batch falls as 1/G and 1/G^2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor

from bayesnorm_runtime import BatchReference

from ..network import BatchNormLayer
from ..schema import Array, listed, number, record, refuse, text, whole
from ..words import ShortRepr
from .batch_variation import Parts, variation

LAYERS = listed(record(name=text, channels=whole(1), eps=number(0)), 1, 100_000)
SCHEMA = record(layers=LAYERS, rows=whole(2), sizes=listed(whole(1), 1, 64), counts=listed(whole(2), 1, 64))
TENSORS = ("centers", "variance", "widths", "logs", "moments", "shares")


@dataclass(frozen=True, repr=False)
class TrainingBatches(ShortRepr):
    """Training batches of J sizes at L layers with C channels in total; 2C coordinates, 2L parts. Tensors on the CPU.

    Args:
        layers: The layers, in running order.
        rows: Number of training examples, N.
        sizes: Examples per batch, ascending, (J,); the last is the batch size of the fit.
        counts: Number of batches of each size, (J,).
        centers: Mean of their coordinates, (J, 2C).
        variance: Variance of coordinates between batches of the last size, (2C,).
        widths: Variance of a part relative to that variance times (last size / size), (J, 2L).
        logs: Mean, standard deviation and skewness of log distances, for all parts and for their mean, (J, 2L + 1, 3).
        moments: Mean, variance and third cumulant of the distances at the last size, and the limits of variance and
            third cumulant for many groups, (2L + 1, 5).
        shares: Share of a part's variance that is a sum of contributions of single examples, (2L,). The rest is
            randomness of each batch, which averages out over the whole training data.
    """

    layers: tuple[BatchNormLayer, ...]
    rows: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    centers: Tensor
    variance: Tensor
    widths: Tensor
    logs: Tensor
    moments: Tensor
    shares: Tensor

    @classmethod
    def from_statistics(
        cls,
        layers: tuple[BatchNormLayer, ...],
        rows: int,
        coordinates: Mapping[int, Tensor],
        halved: Sequence[int] = (),
    ) -> Self | None:
        """Estimate the variation from coordinates of batches. Return None if there are too few of the largest size.

        Args:
            layers: The layers, in running order.
            rows: Number of training examples, N.
            coordinates: Coordinates of batches, (batches, 2C), by size.
            halved: Indices of the largest batches whose halves are the batches of half the size.
        """
        learned = variation(Parts(layers, next(iter(coordinates.values())).device), coordinates, halved)
        return None if learned is None else cls(layers, rows, **learned)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save."""
        return {name: getattr(self, name) for name in TENSORS}

    def config(self) -> dict[str, Any]:
        """Return the JSON values to save."""
        return {
            "layers": [asdict(layer) for layer in self.layers],
            "rows": self.rows,
            "sizes": list(self.sizes),
            "counts": list(self.counts),
        }

    @staticmethod
    def arrays(config: dict[str, Any], dtypes: Collection[torch.dtype]) -> dict[str, Array]:
        """Describe the tensors of `tensors()`, given a checked `config()`."""
        sizes, parts = len(config["sizes"]), 2 * len(config["layers"])
        rising = all(a < b for a, b in pairwise(config["sizes"]))
        if not rising or len(config["counts"]) != sizes or config["rows"] <= config["sizes"][-1]:
            refuse("training_batches", config["sizes"], "ascending sizes below the number of rows, one per count")
        width, double = 2 * sum(layer["channels"] for layer in config["layers"]), (torch.float64,)
        return {
            "centers": Array((sizes, width), dtypes),
            "variance": Array((width,), dtypes, 0.0),
            "widths": Array((sizes, parts), double, 0.0),
            "logs": Array((sizes, parts + 1, 3), double),
            "moments": Array((parts + 1, 5), double),
            "shares": Array((parts,), double, 0.0),
        }

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], config: dict[str, Any]) -> Self:
        """Return the object that `tensors()` and `config()` described."""
        layers = tuple(BatchNormLayer(**layer) for layer in config["layers"])
        arrays = {name: tensor.cpu() for name, tensor in tensors.items()}
        return cls(layers, config["rows"], tuple(config["sizes"]), tuple(config["counts"]), **arrays)

    @cached_property
    def parts(self) -> Parts:
        """The parts of the coordinates."""
        return Parts(self.layers, self.variance.device)

    @cached_property
    def reference(self) -> BatchReference:
        """The arithmetic on these numbers, in double precision."""
        arrays = {name: tensor.double().numpy() for name, tensor in self.tensors().items()}
        return BatchReference(self.layers, self.rows, self.sizes, self.counts, **arrays)

    @property
    def batch_size(self) -> int:
        """The batch size M of the fit."""
        return self.sizes[-1]
