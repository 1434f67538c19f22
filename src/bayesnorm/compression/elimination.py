"""Choose the channels to remove, and adjust the remaining weights to compensate.

A layer with input channels x computes W x. Without channel r, the other channels predict x_r as well as their
covariance C over examples and positions allows. The remaining error of the outputs has the variance

    sum over outputs o of  f_o |w_or|^2 / (C^-1)_rr,

where f_o is the importance of output o. The weights of the remaining channels become
w_ok - w_or (C^-1)_rk / (C^-1)_rr. This is the step of optimal brain surgeon (Hassibi and Stork 1993), for channels.
Channels are removed one by one, always the one with the smallest error summed over all layers that use it. So of two
channels with the same content, one stays.

Errors of all layers are on one scale: the lost share of the outputs' variance, averaged over the layer's outputs.
Before batch norm, each output counts with its squared scale. Layers keep at least a twentieth of their inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError
from ..network import Units, call_network, find_batchnorm, own_copy
from ..progress import long_progress

# Input numbers used for covariances, the smallest number of examples, and input numbers per forward pass.
NUMBERS, LEAST_ROWS, AT_ONCE = 2**23, 64, 2**20

# A layer with more inputs uses only their variances, because the covariance would not fit into memory.
MOST_INPUTS = 4096

# The importance of an output that no batch norm follows: most often it is one of the network's, which nothing makes up
# for. Of 1, 3 and 10 on three small networks, training images favoured 3 once and 10 twice.
LAST = 3.0

# The smallest share of its inputs that a layer keeps.
LEAST_SHARE = 0.05

# Added to the diagonal of a covariance, as a share of the diagonal's mean.
RIDGE = 1e-4


@dataclass(eq=False)
class Reader:
    """A layer that uses channels, with the moments of its inputs.

    Args:
        layer: The layer.
        units: The unit of every input; None if it cannot be removed.
        mean: The mean of every input.
        covariance: The covariance of the inputs, (inputs, inputs), or only their variances if there are many.
        matters: The importance f_o of every output.
    """

    layer: nn.Module
    units: Sequence[int | None]
    mean: Tensor
    covariance: Tensor
    matters: Tensor

    def weights(self) -> Tensor:
        """Return the layer's weights, (outputs, inputs, positions of a kernel)."""
        weight: Any = self.layer.weight
        return weight.detach().double().reshape(*weight.shape[:2], -1)


def readers(network: nn.Module, units: Units, x: Tensor, variances: Mapping[str, Tensor]) -> list[Reader]:
    """Return the layers whose inputs can be removed, with the moments of these inputs.

    Args:
        network: The network.
        units: Its units.
        x: Examples.
        variances: For batch-norm layers, the variances relative to which a change of their inputs is measured. They
            only weigh the channels of a layer against each other. Default for a layer: its running variance.
    """
    layers = find_batchnorm(network)
    result = []
    for name, (mean, covariance) in _moments(network, units, x).items():
        layer: Any = network.get_submodule(name)
        if not bool(torch.isfinite(covariance).all()):
            raise NetworkError(
                f"x gives NaN or infinite inputs to layer {name!r}. Pass training examples, scaled as in training."
            )
        norm = units.normalised.get(name, "")
        if layer.bias is None and norm not in layers and covariance.dim() == 2:  # nothing can absorb another mean
            mean, covariance = torch.zeros_like(mean), covariance + torch.outer(mean, mean)
        made = Reader(layer, units.read[name], mean, covariance, mean.new_ones(len(layer.weight)))
        running = layers[norm].running_var if norm in layers else None
        if running is None:
            made.matters = LAST / _output_variance(made).clamp_min(1e-12)
        else:
            running, scale = running.double().clamp_min(1e-12), layers[norm].weight
            squares = torch.ones_like(running) if scale is None else scale.detach().double().square()
            weights = squares / variances.get(norm, running).double().clamp_min(1e-12)
            made.matters = weights * (squares.sum() / (weights * running).sum().clamp_min(1e-300))
        made.matters /= len(made.matters)
        result.append(made)
    return result


def eliminated(layers: Sequence[Reader], removable: set[int]) -> Iterator[int]:
    """Yield units in order of removal, without the last inputs of a layer."""
    heard = {unit for reader in layers for unit in reader.units if unit in removable}
    names = sorted(unit for unit in heard if unit is not None)
    numbers = {unit: number for number, unit in enumerate(names)}
    states = [_State(reader, numbers) for reader in layers]
    missed = torch.zeros(len(names) + 1, dtype=torch.float64, device=layers[0].mean.device if layers else None)
    missed[-1] = math.inf  # inputs that cannot be removed
    readers_of: list[list[_State]] = [[] for _ in names]
    for state in states:
        missed.index_add_(0, state.owners, state.missed)
        for number in state.left:
            readers_of[number].append(state)
    while len(names) and bool((best := missed.min()).isfinite()):
        number = int((missed == best).nonzero()[0])
        missed[number] = math.inf
        if all(len(state.left) > state.least for state in readers_of[number]):
            yield names[number]
            for state in readers_of[number]:
                missed.index_add_(0, state.owners, state.remove(number))


@torch.no_grad()
def make_up(layers: Sequence[Reader], gone: set[int]) -> None:
    """Change weights in place so that the remaining inputs compensate for the removed ones as far as possible."""
    for reader in layers:
        lost = [i for i, unit in enumerate(reader.units) if unit in gone]
        left = [i for i, unit in enumerate(reader.units) if unit not in gone]
        if not lost or not left or reader.covariance.dim() < 2:
            continue
        covariance = _ridged(reader.covariance)
        told = torch.linalg.solve(covariance[left][:, left], covariance[left][:, lost])  # (left, lost)
        layer: Any = reader.layer
        weight = layer.weight
        lacking = weight[:, lost].double()
        weight[:, left] += torch.einsum("or...,kr->ok...", lacking, told).to(weight)
        if layer.bias is not None:
            rest = reader.mean[lost] - told.T @ reader.mean[left]
            layer.bias += torch.einsum("or...,r->o", lacking, rest).to(weight)


class _State:
    """A reader during elimination: its weights, scaled by importance, and the inverse covariance of its inputs."""

    def __init__(self, reader: Reader, numbers: Mapping[int, int]) -> None:
        weights = reader.weights() * reader.matters.sqrt()[:, None, None]
        self.weights = weights.transpose(0, 1).flatten(1).contiguous()  # (inputs, outputs and positions)
        whole = reader.covariance.dim() == 2
        self.inverse = torch.linalg.inv(_ridged(reader.covariance)) if whole else None
        self.variances = reader.covariance.diagonal() if whole else reader.covariance
        owners = [len(numbers) if unit is None else numbers.get(unit, len(numbers)) for unit in reader.units]
        self.owners = torch.tensor(owners, device=self.weights.device)
        self.left = set(owners) - {len(numbers)}
        self.least = max(1, round(LEAST_SHARE * len(self.left)))
        self.missed = self._missed()

    def remove(self, number: int) -> Tensor:
        """Remove a unit's inputs, let the others compensate, and return by how much every input's error grows."""
        self.left.remove(number)
        before = self.missed
        if self.inverse is not None:
            for column in (self.owners == number).nonzero()[:, 0].tolist():
                column_values, share = self.inverse[column].clone(), self.inverse[column] / self.inverse[column, column]
                self.weights.addr_(share, self.weights[column].clone(), alpha=-1)
                self.inverse.addr_(column_values, share, alpha=-1)
                self.inverse[column, column] = 1.0  # no longer used: its weight is 0
            self.missed = self._missed()
        return self.missed - before

    def _missed(self) -> Tensor:
        """Return the error of the layer's outputs without each of its inputs."""
        alone = self.variances
        if self.inverse is not None:  # the ridge would make a channel without variance look larger
            alone = torch.minimum(alone, 1 / self.inverse.diagonal())
        return self.weights.square().sum(1) * alone


def _ridged(covariance: Tensor) -> Tensor:
    return covariance + RIDGE * covariance.diagonal().mean().clamp_min(1e-12) * torch.eye(len(covariance)).to(
        covariance
    )


def _output_variance(reader: Reader) -> Tensor:
    """Return the variance of every output, treating positions of a kernel as independent."""
    weights, covariance = reader.weights(), reader.covariance
    if covariance.dim() < 2:
        return (weights.square() * covariance[None, :, None]).sum((1, 2))
    return torch.einsum("oip,ij,ojp->o", weights, covariance, weights)


@torch.no_grad()
def _moments(network: nn.Module, units: Units, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return mean and covariance of the layers' inputs over examples and positions; variances for many inputs."""
    watched, sums = own_copy(network), dict[str, Any]()
    for name, read in units.read.items():
        layer: Any = watched.get_submodule(name)
        if layer.weight.shape[1] == len(read):
            layer.register_forward_pre_hook(partial(_add, sums, name))
    size = max(1, x[0].numel())
    parts = x[: max(LEAST_ROWS, NUMBERS // size)].split(max(1, AT_ONCE // size))
    with long_progress("prune_channels") as tell:
        for done, part in enumerate(parts, start=1):
            call_network(watched, part.clone(), "x")
            tell(done, len(parts))
    moments = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        product = torch.outer(mean, mean) if squares.dim() == 2 else mean.square()
        moments[name] = mean, squares / count - product
    return moments


def _add(sums: dict[str, Any], name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    h = inputs[0].double()
    rows = h.flatten(0, -2) if isinstance(layer, nn.Linear) else h.movedim(1, -1).flatten(0, -2)
    squares = rows.T @ rows if rows.shape[1] <= MOST_INPUTS else rows.square().sum(0)
    count, total, before = sums.get(name, (0, 0.0, 0.0))
    sums[name] = count + len(rows), total + rows.sum(0), before + squares
