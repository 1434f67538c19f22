"""Run the trained networks of a table in single precision, several times as fast as their posterior does in double.

Batch norm is part of the linear layer before it, so that a hidden layer is one matrix product and a ReLU. Only the last
hidden layer is sampled. With its input z, and the scale s_t and the shift b_t of each sample t,

    relu(s_t z + b_t) = |s_t| (max(sign(s) z, m_t) - m_t),     m_t = -b_t / |s_t|,

because the sign of a scale is that of the layer's weight in every sample. |s_t| and m_t become part of the last linear
layer, so that a sample costs one maximum for each unit and one product with few columns. A skip connection over this
layer is the same for all samples. Outputs are converted to the units of the targets in double precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..network import State
from ..posterior import EnsemblePosterior, Posterior
from ..training import Rescaled
from .networks import Encoded, PiecewiseLinear
from .stacked import Skip

# Rows for which all layers run, and rows for which all samples run: larger blocks do not fit the processor's caches.
BLOCK, SAMPLE_BLOCK = 2_048, 512

# A unit whose scale is at most this fraction of its shift is constant in single precision.
SMALLEST_SCALE = 1e-20

# Bins up to which a matrix product is faster than looking up the bin of each input.
MOST_MULTIPLIED = 512


@dataclass(frozen=True, eq=False)
class FastNetwork:
    """One network under its samples of batch statistics.

    Args:
        first: The encoding of inputs and the first linear layer.
        hidden: The weight and the bias of each further hidden layer, and whether it has a skip connection.
        skip: Whether the sampled layer, which is the last one of these, has a skip connection.
        limits: The limit m_t of each unit of the sampled layer, (samples, units, 1).
        weights: The weights of the last linear layer for limited values, (samples, outputs, units).
        direct: The weights of the last linear layer for the skip connection, (outputs, units).
        shifts: What is added to outputs, (samples, outputs, 1), double.
        mean, std: The units of the outputs, (outputs, 1) or (1, 1), double.
    """

    first: Callable[[Tensor], Tensor]
    hidden: tuple[tuple[Tensor, Tensor, bool], ...]
    skip: bool
    limits: Tensor
    weights: Tensor
    direct: Tensor
    shifts: Tensor
    mean: Tensor
    std: Tensor

    @classmethod
    def from_network(cls, network: nn.Module, states: State) -> Self | None:
        """Return a network with its samples; None for another kind of network, or if an earlier layer is sampled.

        Args:
            network: The network, which predicts in the units of the targets.
            states: Overrides of statistics, each with a leading axis of samples; empty for one sample without any.
        """
        if not (isinstance(network, Rescaled) and isinstance(network.network, Encoded)):
            return None
        encoder, *layers, head = network.network.children()
        blocks = _blocks(layers, first=1)
        if bool((network.x_mean != 0).any() or (network.x_std != 1).any()) or not blocks:
            return None
        maps = [_map(norm, states, name) for name, _, norm, _ in blocks]
        sampled = {f"{name}.{kind}" for name, *_ in blocks for kind in ("running_mean", "running_var")}
        if not states.keys() <= sampled or any(bool((part != part[:1]).any()) for pair in maps[:-1] for part in pair):
            return None
        scale, shift = maps[-1]
        # The sampled layer's input is divided by the mean scale, so that limits are of moderate size.
        usual = scale.abs().mean(0)
        ratio = scale.abs() / torch.where(usual > 0, usual, 1.0)
        constant = ratio <= SMALLEST_SCALE * shift.abs()
        maps[-1] = (usual * scale.sign())[:1], torch.zeros_like(usual)[None]
        weight, bias = (head.get_parameter(name).detach().double() for name in ("weight", "bias"))
        # Beside the limited value, the ReLU of a unit is b_t, or a constant.
        beside = torch.where(constant, shift.clamp_min(0), shift)
        folded = [_folded(linear, *pair) for (_, linear, _, _), pair in zip(blocks, maps, strict=True)]
        skips = [skip for *_, skip in blocks]
        return cls(
            first=_first_layer(encoder, *folded[0]),
            hidden=tuple((_packed(w.float()), b, s) for (w, b), s in zip(folded[1:], skips[1:], strict=True)),
            skip=skips[-1],
            limits=torch.where(constant, 0.0, -shift / torch.where(constant, 1.0, ratio)).float()[:, :, None],
            weights=(torch.where(constant, 0.0, ratio)[:, None] * weight).float(),
            direct=weight.float(),
            shifts=(beside @ weight.T + bias)[:, :, None],
            mean=network.y_mean.double()[:, None],
            std=network.y_std.double()[:, None],
        )

    def write(self, x: Tensor, outputs: Tensor) -> None:
        """Write the outputs of rows of inputs, in single precision, to a tensor (samples, outputs, rows) in double."""
        z, before = self._sampled_input(x)
        sums = x.new_empty(len(self.limits), len(self.direct), len(x))
        limited = x.new_empty(z.shape[1], SAMPLE_BLOCK)
        for start in range(0, len(x), SAMPLE_BLOCK):
            rows = slice(start, start + SAMPLE_BLOCK)
            part = z[rows].T.contiguous()
            values = limited[:, : part.shape[1]]
            for limit, weight, result in zip(self.limits, self.weights, sums[:, :, rows], strict=True):
                torch.maximum(part, limit, out=values)
                torch.mm(weight, values, out=result)
        if self.skip:
            sums += self.direct @ before.T
        torch.add(sums, self.shifts, out=outputs)
        outputs.mul_(self.std).add_(self.mean)

    def _sampled_input(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the sampled batch norm, and that of its skip connection: (rows, units)."""
        z = before = self.first(x)
        skip = False
        for weight, bias, next_skip in self.hidden:
            output = torch.relu_(z)
            before, skip = output.add_(before) if skip else output, next_skip
            z = _product(before, weight, bias)
        return (z.to_dense(), before.to_dense()) if z.is_mkldnn else (z, before)


@dataclass(frozen=True, eq=False)
class FastNetworks:
    """The networks of an estimator's posterior, each under its samples.

    Args:
        networks: The networks.
        order: The place of each sample in the outputs of all networks together, (samples,).
    """

    networks: tuple[FastNetwork, ...]
    order: Tensor

    @classmethod
    def from_posterior(cls, posterior: Posterior, samples: int, seed: int) -> Self | None:
        """Return the networks with the samples that a prediction with `MonteCarlo(samples)` uses; None if impossible.

        Args:
            posterior: The posterior of an estimator.
            samples: Number of samples.
            seed: Seed of the samples.
        """
        passes, order = posterior.passes(samples, seed), torch.arange(samples)
        if isinstance(posterior, EnsemblePosterior) and posterior.certain:
            pairs = [(member.model, dict[str, Tensor]()) for member in posterior.members]
            if passes[0].sources is not None and samples == len(pairs):
                order = passes[0].sources
        else:
            if any(part.sources is not None for part in passes):
                return None
            pairs = [(part.executable.model, part.states or {}) for part in passes]
            if all(part.places is not None for part in passes):
                order = torch.cat([part.places for part in passes if part.places is not None]).argsort()
        networks = [FastNetwork.from_network(*pair) for pair in pairs]
        if any(network is None for network in networks):
            return None
        return cls(tuple(network for network in networks if network is not None), order)

    @torch.inference_mode()
    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs under all samples, (samples, rows, outputs), in double precision.

        Args:
            x: Inputs of the networks, (rows, inputs), in single precision.
        """
        sizes = [len(network.limits) for network in self.networks]
        results = x.new_empty(sum(sizes), len(self.networks[0].direct), len(x), dtype=torch.float64)
        for start in range(0, len(x), BLOCK):
            rows = slice(start, start + BLOCK)
            for network, part in zip(self.networks, results.split(sizes), strict=True):
                network.write(x[rows], part[:, :, rows])
        return results[self.order].transpose(1, 2)


def _blocks(layers: Sequence[nn.Module], first: int) -> list[tuple[str, nn.Linear, nn.BatchNorm1d, bool]]:
    """Return the hidden layers: the name of their batch norm, both parts, and whether there is a skip connection.

    Args:
        layers: The layers of a network between its encoding and its last linear layer.
        first: The number of the first of them in the network.

    Returns:
        The hidden layers; empty if one is of another kind than those of `network_for`.
    """
    blocks = []
    numbered = [(f"network.{number}", layer) for number, layer in enumerate(layers, first)]
    while numbered:
        name, layer = numbered[0]
        skip = isinstance(layer, Skip)
        parts = [(f"{name}.{number}", part) for number, part in layer.named_children()] if skip else numbered
        match [part for _, part in parts[:4]]:
            case [nn.Linear() as linear, nn.BatchNorm1d() as norm, nn.ReLU(), *rest]:
                blocks.append((parts[1][0], linear, norm, skip))
            case _:
                return []
        dropout = bool(rest) and isinstance(rest[0], nn.Dropout)
        numbered = numbered[1 if skip else 3 + dropout :]
    return blocks


def _map(norm: nn.BatchNorm1d, states: State, name: str) -> tuple[Tensor, Tensor]:
    """Return the scale and the shift of a batch norm under each sample, (samples, units), in double precision."""
    count = len(next(iter(states.values()))) if states else 1
    mean, var = (
        states.get(f"{name}.running_{kind}", getattr(norm, f"running_{kind}").expand(count, -1)).double()
        for kind in ("mean", "var")
    )
    scale = norm.weight.detach().double() * torch.rsqrt(var + norm.eps)
    return scale, norm.bias.detach().double() - mean * scale


def _folded(linear: nn.Linear, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight, in double precision, and the bias of a linear layer and the map after it."""
    bias = 0.0 if linear.bias is None else linear.bias.detach().double()
    return scale[0][:, None] * linear.weight.detach().double(), (scale[0] * bias + shift[0]).float()


def _first_layer(encoder: nn.Module, weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function of inputs that encodes them and runs a linear layer, whose weight is in double precision."""
    bias = bias.float()
    if not isinstance(encoder, PiecewiseLinear):
        packed, other = _packed(weight.float()), copy.deepcopy(encoder).float()
        return lambda x: _product(_packed(other(x)), packed, bias)
    inputs = weight.shape[1] - len(encoder.column)
    if len(encoder.column) > MOST_MULTIPLIED:
        bins, linear = copy.deepcopy(encoder).float(), nn.utils.skip_init(nn.Linear, weight.shape[1], len(weight))
        linear.weight, linear.bias = nn.Parameter(weight.float()), nn.Parameter(bias)
        return lambda x: _packed(bins(x, linear))
    # The inputs themselves, without limits, come before the bins, whose widths are part of the weight.
    column = torch.cat([torch.arange(inputs), encoder.column])
    low = F.pad(encoder.low.float(), (inputs, 0))
    least = F.pad(torch.zeros_like(low[inputs:]), (inputs, 0), value=-math.inf)
    most = F.pad(encoder.width.float(), (inputs, 0), value=math.inf)
    packed = _packed((weight / F.pad(encoder.width.double(), (inputs, 0), value=1.0)).float())
    return lambda x: _product(_packed(x.index_select(1, column).sub_(low).clamp_(least, most)), packed, bias)


def _packed(values: Tensor) -> Tensor:
    """Return values in the form of oneDNN, whose products are twice as fast as the default, where it is available."""
    return values.to_mkldnn() if torch.backends.mkldnn.is_available() else values


def _product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return a linear function of inputs."""
    return torch.ops.aten.mkldnn_linear(x, weight, bias) if weight.is_mkldnn else F.linear(x, weight, bias)
