"""A loss whose noise is learned with the network and is the same for every input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from .base import Likelihood
from .scales import LOG_STD_BOUND, LOG_STD_LIMIT, bounded


class LearnedNoise(nn.Module):
    """The loss of a likelihood whose noise is a parameter, trained beside the network's own.

        noise = LearnedNoise(Gaussian())
        train(model, x, y, loss=noise, parameters=[*model.parameters(), *noise.parameters()], epochs=100, batch_size=32)
        posterior = MCBN(batch_size=32).fit(model, (x, y), likelihood=noise.likelihood())

    What is learned is the logarithm of the likelihood's `noise`: one variance, scale or temperature, or one per output
    where the likelihood has several (`Gaussian((1.0, 1.0))` for two); of `MultiTask`, one factor per task, by which
    their losses are weighted. On training rows it is what the network leaves over there, so that one that overfits
    learns too little: `calibrate` on validation rows corrects that.

    Args:
        likelihood: The likelihood to start from; rather with too much noise than with too little, whose large first
            gradients Adam remembers long.
    """

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        if not isinstance(likelihood, Likelihood):
            raise BayesNormError(f"likelihood must be Gaussian(), got {type(likelihood).__name__}.")
        self._start = likelihood
        self.log_noise = nn.Parameter(likelihood.noise.log().to(torch.get_default_dtype()))

    @property
    def noise(self) -> Tensor:
        """The noise as it stands, positive."""
        return bounded(self.log_noise, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND).exp()

    def forward(self, f: Tensor, y: Any) -> Tensor:
        """Return the likelihood's loss under the noise as it stands, with derivatives by outputs and noise."""
        return self._start.loss(f, y, self.noise)

    def likelihood(self) -> Likelihood:
        """Return the likelihood with the noise as it stands, as plain numbers."""
        return self._start.with_noise(self.noise.detach())
