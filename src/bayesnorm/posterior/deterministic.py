"""The posterior of a deterministic network: one point, its weights.

It makes the deterministic network one method among others. Its predictive only has the likelihood's noise, so
`calibrate` fits a constant noise level, or a temperature (temperature scaling). It is also a member of deep ensembles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from ..arguments import require_seed, require_whole
from ..engines import Passes
from ..likelihoods import Likelihood
from ..network import Executable, State, tensors_of
from ..predictive import P_co
from .base import Config, Posterior, Tensors


@dataclass(frozen=True, eq=False, repr=False)
class DeterministicPosterior(Posterior[P_co]):
    """A posterior with all probability on one network, without epistemic uncertainty."""

    kind: ClassVar[str] = "deterministic"

    @property
    def default_samples(self) -> int:
        return 1

    def sample(self, n: int, seed: int = 0) -> State:
        require_seed(seed)
        whole = tensors_of(self.model)
        return {
            name: value.detach().expand(require_whole("n", n), *value.shape).clone() for name, value in whole.items()
        }

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        require_whole("n", n)
        return [Passes(self.executable, None)]

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        return cls(executable, likelihood)


def deterministic(
    model: nn.Module,
    likelihood: Likelihood[P_co],
    *,
    output: str | int | None = None,
    forward_kwargs: Mapping[str, Any] | None = None,
) -> DeterministicPosterior[P_co]:
    """Wrap a deterministic network in the posterior interface, as a baseline without epistemic uncertainty.

    Returns a posterior that predicts with one forward pass. `calibrate` fits its noise level or its temperature.

    Args:
        model: The trained network. It is never modified.
        likelihood: How outputs become distributions of targets.
        output: The entry to use if the network returns several: a name, a position, or a path such as "heads.depth".
            Default: None.
        forward_kwargs: Further arguments of the network's forward, the same in every call. Default: None.
    """
    return DeterministicPosterior(Executable(model, output, forward_kwargs), likelihood)
