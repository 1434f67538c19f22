"""A training loss whose noise level, the same for every input, is learned together with the network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from .base import Likelihood
from .scales import LOG_STD_BOUND, LOG_STD_LIMIT, bounded


class LearnedNoise(nn.Module):
    """A training loss: the loss of a likelihood whose noise level is a trainable parameter.

        noise = LearnedNoise(Gaussian())
        train(model, x, y, loss=noise, parameters=[*model.parameters(), *noise.parameters()], epochs=100, batch_size=32)
        posterior = MCBN(batch_size=32).fit(model, (x, y), likelihood=noise.likelihood())

    The parameter is the logarithm of the likelihood's `noise`: one variance, scale or temperature, or one per output
    if the likelihood has several (`Gaussian((1.0, 1.0))` for two outputs). For `MultiTask` there is one factor per
    task, which sets the weight of the task's loss. A network that overfits learns too little noise; `calibrate` on
    validation data corrects that.

    Args:
        likelihood: The likelihood to start from. Start with too much noise rather than too little, because Adam
            remembers the large first gradients of too little noise for a long time.
    """

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        if not isinstance(likelihood, Likelihood):
            raise BayesNormError(f"likelihood must be an object such as Gaussian(), got {type(likelihood).__name__}.")
        self._start = likelihood
        self.log_noise = nn.Parameter(likelihood.noise.log().to(torch.get_default_dtype()))

    @property
    def noise(self) -> Tensor:
        """The current noise, which is positive."""
        return bounded(self.log_noise, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND).exp()

    def forward(self, f: Tensor, y: Any) -> Tensor:
        """Return the likelihood's loss with the current noise, differentiable in outputs and noise."""
        return self._start.loss(f, y, self.noise)

    def likelihood(self) -> Likelihood:
        """Return the likelihood with the current noise as plain numbers."""
        return self._start.with_noise(self.noise.detach())
