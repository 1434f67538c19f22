"""Distributions of a batch's deviation from the mean statistics, in the coordinates of `BatchNormPosterior`.

Tensors may have further axes before that of coordinates, such as deviations (S, E, P) of E networks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..engines import rounded_for_files
from ..schema import Array
from ..words import ShortRepr

FLUCTUATIONS: dict[str, type[Any]] = {}
"""All distributions by their names in files."""


class Fluctuations(ShortRepr, ABC):
    """A zero-mean distribution over P coordinates."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        FLUCTUATIONS[cls.kind] = cls

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Sample n deviations, (n, P)."""

    @abstractmethod
    def root(self) -> tuple[Tensor, Tensor | None]:
        """Return a factor F (R, P) and standard deviations d (P,) or None, with covariance F^T F + diag(d^2)."""

    def principal(self, rank: int) -> tuple[Tensor, Tensor]:
        """Return leading principal components (R, P), one standard deviation long, and cumulative variance shares."""
        factor, independent = self.root()
        if len(factor) == 0 and independent is not None:  # the components are then the axes, the largest first
            factor, independent = independent.diag()[independent.argsort(descending=True)], None
        gram = factor.double() @ factor.double().T
        values, vectors = torch.linalg.eigh(gram)
        components = vectors.flip(1)[:, :rank].T @ factor.double()
        total = factor.double().square().sum() + (0 if independent is None else independent.double().square().sum())
        shares = values.flip(0)[:rank].cumsum(0) / total
        return components.to(factor.dtype), shares.to(factor.dtype)

    def columns(self, chosen: Tensor) -> Self:
        """Return the marginal distribution of the coordinates with these indices."""
        return self._mapped(lambda values: values[..., chosen])

    def scaled(self, factor: Tensor) -> Self:
        """Return the distribution with every coordinate multiplied by its factor, (P,)."""
        return self._mapped(lambda values: values * factor)

    def to(self, device: torch.device) -> Self:
        """Return the distribution on another device."""
        return self._mapped(lambda values: values.to(device))

    def placed(self, columns: Tensor, width: int) -> Self:
        """Return a distribution over more coordinates, of which only those with these indices vary."""

        def place(values: Tensor) -> Tensor:
            return values.new_zeros(*values.shape[:-1], width).index_copy(-1, columns, values)

        return self._mapped(place)

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the distribution with a function applied to all of its tensors, whose last axis has P entries."""
        return type(self)(**{name: function(values) for name, values in vars(self).items()})

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save: the constructor's arguments by name."""

    @staticmethod
    @abstractmethod
    def arrays(width: int, dtypes: Collection[torch.dtype]) -> dict[str, Array]:
        """Describe the tensors of `tensors()`, given P and the dtype of the statistics."""


@dataclass(frozen=True, repr=False)
class Empirical(Fluctuations):
    """The deviations of S real batches. Each is sampled as a whole, so correlations are kept.

    Args:
        deviations: (S, P), mean 0 over S.
    """

    kind: ClassVar[str] = "empirical"

    deviations: Tensor

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Sample every batch once before any is sampled again."""
        states = len(self.deviations)
        rounds = [torch.randperm(states, generator=generator) for _ in range(-(-n // states))]
        chosen = torch.cat(rounds)[:n].to(self.deviations.device)
        return self.deviations[chosen]

    def root(self) -> tuple[Tensor, Tensor | None]:
        return self.deviations / len(self.deviations) ** 0.5, None

    def tensors(self) -> dict[str, Tensor]:
        return {"deviations": self.deviations}

    @staticmethod
    def arrays(width: int, dtypes: Collection[torch.dtype]) -> dict[str, Array]:
        return {"deviations": Array((None, width), dtypes)}


@dataclass(frozen=True, repr=False)
class LowRankGaussian(Fluctuations):
    """A normal distribution with covariance factor^T factor + diag(independent_std^2).

    Args:
        factor: (R, P); R may be 0.
        independent_std: Standard deviation of the independent part of each coordinate, (P,).
    """

    kind: ClassVar[str] = "low_rank_gaussian"

    factor: Tensor
    independent_std: Tensor

    @classmethod
    def fit(cls, deviations: Tensor, rank: int) -> Self:
        """Return the leading `rank` principal directions of deviations (S, P), and the remaining variances."""
        scaled = (deviations / len(deviations) ** 0.5).double().movedim(0, -2)
        states, width = scaled.shape[-2:]
        # The (S, S) Gram matrix and the (P, P) covariance have the same eigenvalues. The smaller one is decomposed.
        if width >= states or width < rank:
            _, vectors = torch.linalg.eigh(scaled @ scaled.mT)
            directions = vectors[..., -rank:].flip(-1).mT @ scaled
        else:
            values, vectors = torch.linalg.eigh(scaled.mT @ scaled)
            directions = (vectors * values.clamp_min(0).sqrt().unsqueeze(-2))[..., -rank:].flip(-1).mT
        factor = rounded_for_files(directions.movedim(-2, 0).to(deviations.dtype)).double()
        left = scaled.square().sum(-2) - factor.square().sum(0)
        return cls(factor.to(deviations.dtype), left.clamp_min(0).sqrt().to(deviations.dtype))

    @classmethod
    def independent(cls, std: Tensor) -> Self:
        """Return a distribution in which all coordinates are independent."""
        return cls(std.new_zeros(0, *std.shape), std)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        like, width = self.factor, self.factor.shape[-1]
        shared = torch.randn(n, len(like), generator=generator, dtype=torch.float32).to(like)
        noise = torch.randn(n, width, generator=generator, dtype=torch.float32).to(like)
        noise = noise.view(n, *[1] * (like.dim() - 2), width) * self.independent_std  # the same noise for all networks
        with torch.autocast(like.device.type, enabled=False):  # stored samples need full precision
            return torch.addmm(noise.flatten(1), shared, like.flatten(1)).view_as(noise)

    def root(self) -> tuple[Tensor, Tensor | None]:
        needed = not len(self.factor) or bool((self.independent_std > 0).any())
        return self.factor, self.independent_std if needed else None

    def tensors(self) -> dict[str, Tensor]:
        return {"factor": self.factor.bfloat16(), "independent_std": self.independent_std}

    @staticmethod
    def arrays(width: int, dtypes: Collection[torch.dtype]) -> dict[str, Array]:
        factor = Array((None, width), (torch.bfloat16,), empty=True)
        return {"factor": factor, "independent_std": Array((width,), dtypes, 0.0)}
