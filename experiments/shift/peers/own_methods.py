"""The package's own methods: `adapt` with every batch, and `AdaptiveStream`."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.func import functional_call

import bayesnorm as bn
from bayesnorm import shift
from bayesnorm.errors import BayesNormWarning

from .sources import Source


class AdaptToBatch:
    """`adapt` with each batch of one stream by itself, and the network at the centre of the adapted posterior."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        posterior = self.source.posterior
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BayesNormWarning)  # of single images
            adapted = bn.adapt(posterior, x[:, 0])
        logits: Tensor = functional_call(self.source.network, adapted.state(adapted.location), (x[:, 0],))
        return logits[:, None]


class Following:
    """`AdaptiveStream` on one stream; its probabilities have the temperature of the posterior."""

    def __init__(self, source: Source) -> None:
        self.stream = shift.AdaptiveStream(source.posterior)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self.stream.update(x[:, 0])[:, None].to(x).clamp_min(1e-12).log()
