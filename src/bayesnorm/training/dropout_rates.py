"""Learn dropout rates by gradient descent (concrete dropout; Gal, Hron and Kendall, NeurIPS 2017).

In training, the mask of a unit is relaxed, so that it has a derivative with respect to the rate p:

    dropped = sigmoid((logit p + logit u) / t),   u ~ U(0, 1),   t = 0.1.

The loss gets the divergence of the approximate posterior, per training example. For a layer of weights W after dropout
of K inputs, and a Gaussian prior of the weights with standard deviation s, it is

    (|W|^2 / (2 s^2 (1 - p)) - K H(p)) / N,     H(p) = -p ln p - (1 - p) ln (1 - p).

The weights are those of a layer that divides its kept inputs by 1 - p. With many rows N, the entropy H matters little,
and the rates fall.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import require_positive
from ..errors import BayesNormError
from ..network import device_of, dtype_of
from .loop import train
from .objective import Loss
from .run import History

# Temperature of the relaxed masks, as published.
TEMPERATURE = 0.1

# Dropout layers, by the number of axes that share a unit of the mask.
SHARED_AXES: dict[type[nn.Module], int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}

# Layers whose weights can follow a dropout layer.
WEIGHT_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)

# Rates start at least this far from 0 and 1, where their logits would be infinite.
MARGIN = 1e-3

# Random numbers stay at least this far from 0 and 1.
EPS = 1e-7


def learn_dropout_rates(model: nn.Module, x: Any, y: Any, *, loss: Loss, prior: float = 1.0, **options: Any) -> History:
    """Train a network in place together with the rates of its dropout layers, and return the history.

    Each dropout layer whose output goes into a linear or convolutional layer gets the rate that the data support.
    `MCDropout` then samples masks with these rates. `add_dropout` adds dropout layers to a network without them.

    Reference: Gal, Hron and Kendall, "Concrete dropout", NeurIPS 2017.

    Args:
        model: The network. Its weights and the rates `p` of its dropout layers are changed.
        x: Inputs of shape (N, ...), a tensor or an array.
        y: Targets, (N, ...).
        loss: `loss(model(x), y)`: the mean negative log likelihood, such as `likelihood.loss`. Its noise must be right,
            because the divergence is weighed against it.
        prior: Standard deviation of the Gaussian prior of the weights. Default: 1.
        options: Further arguments of `train`: `epochs`, `batch_size`, `learning_rate`, `progress` and others.
    """
    if options.get("compiled"):
        raise BayesNormError("compiled: the rates cannot be learned by compiled steps. Leave compiled= out.")
    prior = require_positive("prior", prior)
    penalties, rows = tuple(options.pop("penalties", ())), len(x)
    taken = _weights_after_dropout(model, x[:2])
    with _relaxed([layer for layer, _ in taken]) as logits:

        def divergence(_: nn.Module, __: int) -> Tensor:
            parts = []
            for (_layer, taker), logit in zip(taken, logits, strict=True):
                squared = taker.weight.square().sum() / (2 * prior**2 * torch.sigmoid(-logit))
                parts.append(squared - _inputs(taker) * _entropy(logit))
            return torch.stack(parts).sum() / rows

        return train(model, x, y, loss=loss, penalties=[divergence, *penalties], **options)


@contextlib.contextmanager
def _relaxed(layers: list[nn.Module]) -> Iterator[list[nn.Parameter]]:
    """Give dropout layers relaxed masks whose rates can be trained; yield the rates' logits."""
    logits = []
    try:
        for layer in layers:
            rate = torch.tensor(float(layer.p))  # type: ignore[arg-type]
            logit = nn.Parameter(torch.logit(rate.clamp(MARGIN, 1 - MARGIN)))
            layer.register_parameter("logit", logit)
            layer.forward = partial(_relaxed_dropout, layer)
            logits.append(logit)
        yield logits
    finally:
        for layer in layers:
            if "logit" in layer._parameters:
                layer.p = float(torch.sigmoid(layer.logit.detach()))  # type: ignore[operator,assignment]
                del layer.logit, layer.forward


def _relaxed_dropout(layer: nn.Module, x: Tensor) -> Tensor:
    """Return inputs whose units are nearly kept or nearly dropped, in training; the inputs themselves otherwise."""
    if not layer.training:
        return x
    shared = SHARED_AXES[type(layer)]
    u = torch.rand(x.shape[: x.dim() - shared] + (1,) * shared, device=x.device, dtype=x.dtype)
    mask = torch.sigmoid(-(layer.logit + torch.logit(u, eps=EPS)) / TEMPERATURE)  # type: ignore[operator]
    return x * mask / torch.sigmoid(-layer.logit)  # type: ignore[operator]


def _entropy(logit: Tensor) -> Tensor:
    """Return the entropy of a coin with this logit, in nats."""
    p = torch.sigmoid(logit)
    return p * F.softplus(-logit) + (1 - p) * F.softplus(logit)


def _inputs(taker: Any) -> int:
    """Return the number of inputs, or input channels, of a linear or convolutional layer."""
    return int(taker.weight.shape[1]) * int(getattr(taker, "groups", 1))


def _weights_after_dropout(model: nn.Module, x: Tensor) -> list[tuple[nn.Module, Any]]:
    """Return each dropout layer with the weight layer that takes its output, found in one run of the network."""
    pairs: dict[nn.Module, nn.Module] = {}
    waiting: list[nn.Module] = []

    def note_dropout(module: nn.Module, _inputs: Any, _output: Any) -> None:
        waiting[:] = [module]

    def note_weights(module: nn.Module, _inputs: Any) -> None:
        if waiting:
            pairs.setdefault(waiting.pop(), module)

    modes = {module: module.training for module in model.modules()}
    handles = [m.register_forward_hook(note_dropout) for m in model.modules() if type(m) in SHARED_AXES]
    handles += [m.register_forward_pre_hook(note_weights) for m in model.modules() if isinstance(m, WEIGHT_LAYERS)]
    try:
        with torch.no_grad():
            model.eval()(torch.as_tensor(x).to(device_of(model), dtype_of(model)))
    finally:
        for module, training in modes.items():
            module.training = training
        for handle in handles:
            handle.remove()
    if not pairs:
        raise BayesNormError(
            "model has no dropout layer in front of a linear or convolutional layer. Add some with bn.add_dropout."
        )
    return list(pairs.items())
