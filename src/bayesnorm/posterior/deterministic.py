"""The posterior that has no uncertainty about the network: one point, its weights as they are.

It makes the deterministic network one method among others: its predictive holds the likelihood's noise alone,
`calibrate` gives it a constant variance or a temperature (softmax with temperature), and ensembles are made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from ..arguments import require_seed
from ..engines import Passes
from ..likelihoods import Likelihood
from ..network import Executable, State, tensors_of
from .base import Posterior, require_samples


@dataclass(frozen=True, eq=False)
class DeterministicPosterior(Posterior):
    """All mass on the network as it is."""

    kind: ClassVar[str] = "deterministic"

    @property
    def default_samples(self) -> int:
        return 1

    def sample(self, n: int, seed: int = 0) -> State:
        require_seed(seed)
        whole = tensors_of(self.model)
        return {name: value.detach().expand(require_samples(n), *value.shape).clone() for name, value in whole.items()}

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        require_samples(n)
        return [Passes(self.executable, None)]

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restored(
        cls, executable: Executable, likelihood: Likelihood, tensors: dict[str, Tensor], config: dict[str, Any]
    ) -> Self:
        return cls(executable, likelihood)


def deterministic(
    model: nn.Module, likelihood: Likelihood, *, output: str | int | None = None
) -> DeterministicPosterior:
    """The network as it is, behind the face of a posterior.

    Args:
        model: The trained network; never modified.
        likelihood: How outputs become distributions of targets.
        output: Which entry to use where the network returns a dict or a tuple.
    """
    return DeterministicPosterior(Executable(model, output), likelihood)
