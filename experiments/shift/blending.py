"""Known methods for new batch-norm statistics: prediction-time batch norm, and a blend with the network's own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class BlendedNetwork:
    """A copy of a network whose batch-norm layers get statistics of new examples, layer by layer.

    Args:
        model: The network, in evaluation mode; it is not modified.
    """

    def __init__(self, model: nn.Module) -> None:
        self.network = copy.deepcopy(model).eval()
        self._training_rows = 0.0
        for layer in self.network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.running_mean is not None
                assert layer.running_var is not None
                layer.register_forward_pre_hook(self._blend_with(layer.running_mean.clone(), layer.running_var.clone()))
        self._collecting = False

    @torch.no_grad()
    def take(self, x: Tensor, training_rows: float) -> nn.Module:
        """Return the network with the statistics of n examples, blended with its own, which count as N examples.

        The mean of a layer is N / (N + n) times its own plus n / (N + n) times the examples', and likewise its variance
        (Schneider et al. 2020). With N = 0 it is the examples' alone (prediction-time batch norm, Nado et al. 2020).
        The same object is returned every time, with other statistics.

        Args:
            x: The examples.
            training_rows: N.
        """
        self._training_rows, self._collecting = training_rows, True
        try:
            self.network(x)
        finally:
            self._collecting = False
        return self.network

    def _blend_with(self, own_mean: Tensor, own_var: Tensor):  # type: ignore[no-untyped-def]
        def blend(layer: nn.BatchNorm2d, inputs: tuple[Tensor]) -> None:
            if not self._collecting:
                return
            var, mean = torch.var_mean(inputs[0], (0, 2, 3), correction=0)
            share = len(inputs[0]) / (self._training_rows + len(inputs[0]))
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.copy_(torch.lerp(own_mean, mean, share))
            layer.running_var.copy_(torch.lerp(own_var, var, share))

        return blend
