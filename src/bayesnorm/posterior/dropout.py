"""The posterior of MC dropout: a sample has one seed per dropout layer, which determines the masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..arguments import require_seed, require_whole
from ..likelihoods import Likelihood
from ..network import SEEDS, DropoutExecutable, Executable, State
from ..predictive import P_co
from ..schema import Array, flag, mapping, number, record, refuse
from .base import Config, Posterior, Tensors


@dataclass(frozen=True, eq=False, repr=False)
class DropoutPosterior(Posterior[P_co]):
    """Independent random masks in the dropout layers of a network.

    Args:
        rates: Dropout rate of each layer by name; 0 if it stays off.
        consistent: Whether all examples of a sample share its masks.
    """

    kind: ClassVar[str] = "dropout"
    schema = record(rates=mapping(number(0, 1)), consistent=flag)

    rates: dict[str, float]
    consistent: bool

    def sample(self, n: int, seed: int = 0) -> State:
        seeds = mask_seeds(self.rates, n, seed)
        return {f"{name}.seed": column.to(self.executable.device) for name, column in seeds.items()}

    def config(self) -> Config:
        return {"rates": dict(self.rates), "consistent": self.consistent}

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        unknown = config["rates"].keys() - {name for name, _ in model.named_modules()}
        if unknown or not any(config["rates"].values()):
            refuse("posterior.rates", config["rates"], "rates of the network's dropout layers, at least one above 0,")
        return {}

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        rates, consistent = {name: float(rate) for name, rate in config["rates"].items()}, config["consistent"]
        dropout = DropoutExecutable(
            *(executable.model, executable.output),
            rates=rates,
            consistent=consistent,
            forward_kwargs=executable.forward_kwargs,
        )
        return cls(dropout, likelihood, rates, consistent)


def mask_seeds(rates: Mapping[str, float], n: int, seed: int) -> dict[str, Tensor]:
    """Sample the seeds of n masks, (n,), for every dropout layer whose rate is not 0."""
    names = [name for name, rate in rates.items() if rate > 0]
    generator = torch.Generator().manual_seed(require_seed(seed))
    seeds = torch.randint(SEEDS, (require_whole("n", n), len(names)), generator=generator)
    return dict(zip(names, seeds.T.contiguous(), strict=True))
