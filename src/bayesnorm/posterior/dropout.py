"""The posterior of MC dropout: a draw holds a seed for every dropout layer, and masks are functions of seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..arguments import require_seed
from ..errors import FileFormatError
from ..likelihoods import Likelihood
from ..network import SEEDS, DropoutExecutable, Executable, State
from .base import Posterior, require_draws


@dataclass(frozen=True, eq=False)
class DropoutPosterior(Posterior):
    """Independent random masks in the dropout layers of a network.

    Args:
        rates: The rate of each layer by name; 0 for what stays off.
        consistent: Whether all rows of a draw share its masks.
    """

    kind: ClassVar[str] = "dropout"

    rates: dict[str, float]
    consistent: bool

    def sample(self, n: int, seed: int = 0) -> State:
        seeds = mask_seeds(self.rates, n, seed)
        return {f"{name}.seed": column.to(self.executable.device) for name, column in seeds.items()}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def config(self) -> dict[str, Any]:
        return {"rates": dict(self.rates), "consistent": self.consistent}

    @classmethod
    def restored(
        cls, executable: Executable, likelihood: Likelihood, tensors: dict[str, Tensor], config: dict[str, Any]
    ) -> Self:
        rates = {str(name): float(rate) for name, rate in config["rates"].items()}
        consistent = config["consistent"]
        if not isinstance(consistent, bool) or not all(0 <= rate <= 1 for rate in rates.values()):
            raise FileFormatError(f"path: dropout rates {rates} with consistent {consistent!r} are none.")
        own = DropoutExecutable(executable.model, executable.output, rates=rates, consistent=consistent)
        return cls(own, likelihood, rates, consistent)


def mask_seeds(rates: Mapping[str, float], n: int, seed: int) -> dict[str, Tensor]:
    """Draw the seeds of n masks, (n,), for every dropout layer whose rate is not 0."""
    names = [name for name, rate in rates.items() if rate > 0]
    generator = torch.Generator().manual_seed(require_seed(seed))
    seeds = torch.randint(SEEDS, (require_draws(n), len(names)), generator=generator)
    return dict(zip(names, seeds.T.contiguous(), strict=True))
