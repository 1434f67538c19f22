"""Make networks that also predict the noise of the targets: with a wider last layer, or by joining two heads."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ...arguments import as_whole, require_number, require_whole
from ...errors import NetworkError
from ..calling import output_entries
from ..copying import unwrap


def with_noise_head(
    model: nn.Module, layer: str | None = None, *, log_variance: float = 0.0, noises: int | None = None
) -> nn.Module:
    """Return a copy of a network whose last layer also predicts the noise of its outputs.

    Use it with `HeteroscedasticGaussian`, `HeteroscedasticLaplace` and `LogitNoise`.

    The original outputs come first and are unchanged. The new outputs start with the same value for every input.
    Training can continue from there.

    Args:
        model: The network; it is not modified.
        layer: The name of the linear or convolutional layer that computes the outputs; None takes the last module with
            weights, in the order in which modules were created. Everything after it must pass all outputs on: no
            softmax.
        log_variance: Initial value of the new outputs: the logarithm of the targets' noise variance (for
            `HeteroscedasticLaplace`, of its scale).
        noises: Number of outputs to add; None doubles the outputs. Use 1 with `LogitNoise(per_class=False)`.
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
    """Return the layer that computes the outputs; refuse one that cannot be widened."""
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
                f"layer=None takes the last module with weights, but {layer!r} ({kind}) is not a linear or "
                f"convolutional layer. Name the layer that computes the outputs, one of {shown}."
            )
    if layer not in heads:
        raise NetworkError(
            f"layer={layer!r} is not a linear or convolutional layer of the network. Use one of {shown}."
        )
    head: Any = modules[layer]
    if nn.parameter.is_lazy(head.weight):
        raise NetworkError(f"layer: {layer!r} is not initialised yet. Run the network once on real data first.")
    if getattr(head, "groups", 1) != 1 or "weight" not in head._parameters:
        why = "is a grouped convolution" if "weight" in head._parameters else "computes its weight from other tensors"
        raise NetworkError(f"layer: {layer!r} {why}, which cannot be widened. Add a plain layer after it.")
    return head


def joined_outputs(model: nn.Module, entries: Sequence[str | int], *, axis: int = 1) -> nn.Module:
    """Return a network whose output consists of entries of the output of `model`, side by side.

    Use it for a network with two heads, `{"mean": ..., "log_var": ...}` or `(mean, log_var)`, and
    `HeteroscedasticGaussian`, or for one head per task and `MultiTask`. It holds `model` itself, not a copy.

    Args:
        model: The network, which returns a dict or a tuple of tensors (batch, ...).
        entries: Keys of the dict or positions in the tuple, in the order that the likelihood expects.
        axis: The axis along which they are joined; an entry of shape (batch,) is one column.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
        raise NetworkError(f'entries must be a list such as ["mean", "log_var"] or [0, 1], got {entries!r}.')
    position = as_whole(axis)
    if not position:  # axis 0 holds the examples
        raise NetworkError(f"axis must be 1, or -1 for the last axis, got {axis!r}.")
    return JoinedOutputs(unwrap(model), tuple(entries), position)


class JoinedOutputs(nn.Module):
    """A network whose output consists of entries of another network's output; made by `joined_outputs`."""

    def __init__(self, model: nn.Module, entries: tuple[str | int, ...], axis: int) -> None:
        super().__init__()
        self.model, self.entries, self.axis = model, entries, axis
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        result = self.model(*args, **kwargs)
        entries = output_entries(result)
        parts = []
        for entry in self.entries:
            part = entries.get(entry)
            if not isinstance(part, Tensor):
                raise NetworkError(
                    f"entries: {entry!r} is not a tensor in the output of the network, which returns "
                    f"{type(result).__name__} with entries {', '.join(map(repr, entries)) or 'unknown'}. Use tensors "
                    "among these."
                )
            parts.append(part if part.dim() > 1 else part.unsqueeze(1))
        return torch.cat(parts, dim=self.axis)
