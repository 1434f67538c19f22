"""Several kinds of randomness in one network: a sample combines one sample of each part, e.g. statistics and masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from ..errors import BayesNormError, FileFormatError
from ..files import grouped, prefixed
from ..likelihoods import Likelihood
from ..network import Executable, State
from ..predictive import P_co
from ..schema import Array, listed, record
from .base import PART, Config, Move, Posterior, Tensors, derived_seeds, effective_batch_size


@dataclass(frozen=True, eq=False, repr=False)
class CombinedPosterior(Posterior[P_co]):
    """Independent posteriors over disjoint parts of one network's state.

    Args:
        parts: At least two posteriors over the same network.
    """

    kind: ClassVar[str] = "combined"
    schema = record(parts=listed(PART, 2, 1000))

    parts: tuple[Posterior[P_co], ...]

    @property
    def batch_size(self) -> float | None:
        """The effective batch size of the part that has one."""
        sizes = [size for part in self.parts if (size := effective_batch_size(part)) is not None]
        return sizes[0] if sizes else None

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the posterior with another effective batch size of its part over batch-norm statistics."""
        if self.batch_size is None:
            return super().at_batch_size(batch_size)
        parts = [part if effective_batch_size(part) is None else part.at_batch_size(batch_size) for part in self.parts]
        return dataclasses.replace(self, parts=tuple(parts))

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.replaced for part in self.parts))

    def over(self, move: Move) -> Self:
        return dataclasses.replace(super().over(move), parts=tuple(part.over(move) for part in self.parts))

    def sample(self, n: int, seed: int = 0) -> State:
        sampled: State = {}
        for part, part_seed in zip(self.parts, derived_seeds(seed, len(self.parts)), strict=True):
            sampled |= part.sample(n, part_seed)
        return sampled

    def tensors(self) -> Tensors:
        return {f"{i}.{name}": value for i, part in enumerate(self.parts) for name, value in part.tensors().items()}

    def config(self) -> Config:
        return {"parts": [part.part() for part in self.parts]}

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        parts = grouped(tensors)
        arrays: dict[str, Array] = {}
        if len(config["parts"]) > len(list(model.modules())):  # each part samples the state of at least one module
            raise FileFormatError(
                f"path: the file has {len(config['parts'])} parts, more than the network has modules. Save it again."
            )
        for i, part in enumerate(config["parts"]):
            arrays |= prefixed(f"{i}.", Posterior.part_arrays(part, model, parts.get(str(i), {})))
        return arrays

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        groups = grouped(tensors)
        parts = [
            Posterior.restored_part(part, executable, likelihood, groups.get(str(i), {}))
            for i, part in enumerate(config["parts"])
        ]
        _require_disjoint(parts)
        return cls(_widest(parts), likelihood, tuple(parts))


def combine(*posteriors: Posterior[P_co]) -> CombinedPosterior[P_co]:
    """Return one posterior whose samples have the randomness of all, e.g. MC dropout and MCBN of the same network.

    Args:
        posteriors: Two or more posteriors of one network, over different parts of its state. The likelihood of the
            first one is used.
    """
    if len(posteriors) < 2:
        raise BayesNormError(f"combine needs two or more posteriors, got {len(posteriors)}.")
    if any(part.model is not posteriors[0].model for part in posteriors):
        raise BayesNormError("The posteriors belong to different networks. Fit all of them on one network object.")
    _require_disjoint(posteriors)
    return CombinedPosterior(_widest(posteriors), posteriors[0].likelihood, tuple(posteriors))


def _require_disjoint(parts: Sequence[Posterior]) -> None:
    """Raise an error if two parts sample the same state, or if no copy of the network has the state of all parts."""
    seen: set[str] = set()
    for part in parts:
        names = set(part.sample(1))
        if twice := seen & names:
            raise BayesNormError(
                f"Two of the posteriors sample {sorted(twice)[0]!r}. Each must sample a different part of the network."
            )
        seen |= names
    if unknown := seen - _widest(parts).names:
        raise BayesNormError(
            "These posteriors cannot be combined, because no copy of the network has the state of all of them "
            f"({sorted(unknown)[0]!r})."
        )


def _widest(parts: Sequence[Posterior]) -> Executable:
    """Return the executable whose network has the state of all parts: the one with the most names."""
    widest: Executable = max((part.executable for part in parts), key=lambda executable: len(executable.names))
    return widest
