"""Make networks that also say how noisy the targets are: by a wider last layer, or by two heads joined to one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ...arguments import as_whole, require_number, require_whole
from ...errors import NetworkError
from ..copying import unwrap


def with_noise_head(
    model: nn.Module, layer: str | None = None, *, log_variance: float = 0.0, noises: int | None = None
) -> nn.Module:
    """Return a copy of a network whose last layer also predicts the noise of its outputs.

    It is meant for `HeteroscedasticGaussian`, `HeteroscedasticLaplace` and `LogitNoise`.

    The outputs of before come first and are the same; the new ones start at one value for every input. A trained
    network may be trained on from there.

    Args:
        model: The network; it is not modified.
        layer: The name of the layer that makes the outputs, linear or a convolution; None takes the last one with
            weights, in the order in which modules were made. What follows it must let all outputs through: no softmax.
        log_variance: What the new outputs start at: the logarithm of the targets' noise variance (for
            `HeteroscedasticLaplace`, of its scale).
        noises: How many outputs to add; None means as many as there are. 1 goes with `LogitNoise(per_class=False)`.
    """
    log_variance = require_number("log_variance", log_variance, error=NetworkError)
    added = None if noises is None else require_whole("noises", noises, error=NetworkError)
    network = copy.deepcopy(unwrap(model))
    head: Any = _head(network, layer)
    convolution = isinstance(head, _ConvNd)
    outputs = head.out_channels if convolution else head.out_features
    added = outputs if added is None else added
    axis = 1 if isinstance(head, _ConvTransposeNd) else 0
    with torch.no_grad():
        weight = head.weight
        zeros = weight.new_zeros([added if i == axis else size for i, size in enumerate(weight.shape)])
        head.weight = nn.Parameter(torch.cat([weight, zeros], dim=axis), requires_grad=weight.requires_grad)
        if head.bias is not None or log_variance:
            bias = weight.new_zeros(outputs) if head.bias is None else head.bias
            grad = weight.requires_grad if head.bias is None else bias.requires_grad
            start = bias.new_full((added,), log_variance)
            head.bias = nn.Parameter(torch.cat([bias, start]), requires_grad=grad)
    setattr(head, "out_channels" if convolution else "out_features", outputs + added)
    return network


def _head(network: nn.Module, layer: str | None) -> nn.Module:
    """Return the layer that makes the outputs; refuse one that cannot be widened."""
    modules = dict(network.named_modules())
    heads = [name for name, module in modules.items() if isinstance(module, nn.Linear | _ConvNd)]
    shown = ", ".join(map(repr, heads[-8:])) or "none"
    if layer is None:
        weighted = [name for name, module in modules.items() if any(True for _ in module.parameters(recurse=False))]
        layer = weighted[-1] if weighted else ""
        attention = any(layer.startswith(f"{n}.") for n, m in modules.items() if isinstance(m, nn.MultiheadAttention))
        if layer not in heads or attention:
            kind = type(modules[layer]).__name__
            raise NetworkError(
                f"layer: none was given, and the last module with weights is {layer!r} ({kind}), which is not where a "
                f"linear or convolutional head would be; name the layer that makes the outputs, one of {shown}."
            )
    if layer not in heads:
        raise NetworkError(f"layer: {layer!r} was given; a linear or convolutional layer would work: {shown}.")
    head: Any = modules[layer]
    if nn.parameter.is_lazy(head.weight):
        raise NetworkError(f"layer: {layer!r} is not initialised yet; run the network once on real data first.")
    if getattr(head, "groups", 1) != 1 or "weight" not in head._parameters:
        why = "is a grouped convolution" if "weight" in head._parameters else "computes its weight from other tensors"
        raise NetworkError(f"layer: {layer!r} {why}, which cannot be widened; a plain layer after it would work.")
    return head


def joined_outputs(model: nn.Module, entries: Sequence[str | int], *, axis: int = 1) -> nn.Module:
    """Return a network whose output is some entries of what `model` returns, side by side.

    So a network with two heads, `{"mean": ..., "log_var": ...}` or `(mean, log_var)`, can be used with
    `HeteroscedasticGaussian`, and one with a head per task with `MultiTask`. It holds `model` itself, not a copy.

    Args:
        model: The network, which returns a dict or a tuple of tensors (batch, ...).
        entries: Keys of the dict or positions in the tuple, in the order in which a likelihood wants them.
        axis: The axis along which they are put side by side; an entry of one axis (batch,) is one column.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
        raise NetworkError(f'entries: {entries!r} was given; a list such as ["mean", "log_var"] or [0, 1] would work.')
    position = as_whole(axis)
    if not position:  # 0 is the rows'
        raise NetworkError(f"axis must be 1, or -1 for the last, got {axis!r}.")
    return JoinedOutputs(unwrap(model), tuple(entries), position)


class JoinedOutputs(nn.Module):
    """A network whose output is some entries of another's; made by `joined_outputs`."""

    def __init__(self, model: nn.Module, entries: tuple[str | int, ...], axis: int) -> None:
        super().__init__()
        self.model, self.entries, self.axis = model, entries, axis
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        result = self.model(*args, **kwargs)
        known = dict(result) if isinstance(result, Mapping) else {}
        if isinstance(result, tuple | list):
            known = dict(enumerate(result))
        parts = []
        for entry in self.entries:
            part = known.get(entry)
            if not isinstance(part, Tensor):
                raise NetworkError(
                    f"entries: {entry!r} was given, and the network returns {type(result).__name__} with entries "
                    f"{', '.join(map(repr, known)) or 'unknown'}; tensors among them would work."
                )
            parts.append(part if part.dim() > 1 else part.unsqueeze(1))
        return torch.cat(parts, dim=self.axis)
