"""Ways to ask trained networks: what they said is kept, or only its mean."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import torch
from torch import Tensor

from bayesnorm.engines import TakesMoments
from bayesnorm.network import State
from bayesnorm.posterior import Posterior

P = TypeVar("P", bound=Posterior)


class _Kept:
    """Runs what it wraps once for the same states and rows, so that several scores of them cost one run."""

    def __init__(self, executable: Any) -> None:
        self.executable = executable
        self.last: tuple[Any, Any, Tensor] | None = None

    @property
    def device(self) -> torch.device:
        return self.executable.device

    def input(self, x: Any, name: str = "x") -> Any:
        return self.executable.input(x, name)

    def point(self, x: Any) -> Tensor:
        return self.run(None, x)[0]

    def run(self, states: State | None, x: Any, **options: Any) -> Tensor:
        if self.last is None or self.last[0] is not states or self.last[1] is not x:
            f = self.executable.point(x)[None] if states is None else self.executable.run(states, x, **options)
            self.last = states, x, f.double()
        return self.last[2]


class _MeanOnly(_Kept):
    """Gives the mean over draws as the only draw: what the network would say without its doubt."""

    def run(self, states: State | None, x: Any, **options: Any) -> Tensor:
        return super().run(states, x, **options).mean(0, keepdim=True)

    def moments(self, states: State, x: Any) -> tuple[Tensor, Tensor]:
        inner = self.executable
        mean = inner.moments(states, x)[0] if isinstance(inner, TakesMoments) else self.run(states, x)[0]
        return mean, torch.zeros_like(mean)


def keeping_outputs(posterior: P) -> P:
    """Return the posterior over networks whose latest outputs are kept, in double precision."""
    return dataclasses.replace(posterior, executable=_Kept(posterior.executable))  # type: ignore[arg-type]


def without_doubt(posterior: P) -> P:
    """Return the posterior whose outputs are their own mean: constant uncertainty about the same prediction."""
    return dataclasses.replace(posterior, executable=_MeanOnly(posterior.executable))  # type: ignore[arg-type]
