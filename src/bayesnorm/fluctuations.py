"""Distributions of a batch's deviation from the mean statistics, in the coordinates of `BatchNormPosterior`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from .errors import FileFormatError

_KINDS: dict[str, type[Fluctuations]] = {}


class Fluctuations(ABC):
    """A zero-mean distribution over P coordinates."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n deviations, (n, P)."""

    @abstractmethod
    def columns(self, chosen: Tensor) -> Self:
        """The marginal distribution of some coordinates, by their numbers."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What is saved; the constructor's arguments by name."""


def fluctuations_from(kind: str, tensors: dict[str, Tensor]) -> Fluctuations:
    """The distribution that was saved as `kind` with these tensors."""
    if kind not in _KINDS:
        raise FileFormatError(f"path: fluctuations of kind {kind!r}; known are {', '.join(sorted(_KINDS))}.")
    return _KINDS[kind](**tensors)


@dataclass(frozen=True)
class Empirical(Fluctuations):
    """The deviations of S real batches, each drawn whole: what is correlated stays correlated.

    Args:
        deviations: (S, P), mean 0 over S.
    """

    kind: ClassVar[str] = "empirical"

    deviations: Tensor

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Every batch is drawn once before any is drawn again."""
        states = len(self.deviations)
        rounds = [torch.randperm(states, generator=generator) for _ in range(-(-n // states))]
        chosen = torch.cat(rounds)[:n].to(self.deviations.device)
        return self.deviations[chosen]

    def columns(self, chosen: Tensor) -> Self:
        return type(self)(self.deviations[:, chosen])

    def tensors(self) -> dict[str, Tensor]:
        return {"deviations": self.deviations}
