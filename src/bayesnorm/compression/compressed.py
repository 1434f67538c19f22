"""A compressed network, its report, and its file, in which weights are rounded and packed into bytes.

A tensor's values are multiples of one step, value = step (lowest + n), with whole n from 0 to 2^bits - 1. Rounding
moves a value by at most half a step. `step` is a share of the root of the harmonic mean of the posterior variances. So
the mean squared rounding error, in units of each weight's variance, is share^2 / 12.
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import files
from ..errors import NetworkError
from ..likelihoods import Likelihood
from ..network import Executable, own_copy, renewed_statistics, resized, tensors_of, unwrap
from ..schema import FLOATS, Array, listed, mapping, number, optional, record, refuse, require_tensors, whole
from .report import CompressionReport, LayerReport, measured

# The bits of a float32 mantissa; more bits would store nothing more.
MOST_BITS = 24


@dataclass(frozen=True)
class Precision:
    """How the values of a tensor are stored.

    Args:
        bits: Bits per value.
        step: The distance between neighbouring values.
        lowest: The lowest value, in steps.
    """

    bits: int
    step: float
    lowest: int

    @classmethod
    def from_variances(cls, values: Tensor, variances: Tensor, share: float) -> Precision:
        """Return the precision for weights with these means and variances; the step is a share of their deviation."""
        positive = variances[variances > 0].double()  # weights that were set to zero have variance 0
        return cls.of_step(values, share * float((1 / positive).mean().rsqrt()) if len(positive) else math.inf)

    @classmethod
    def of_step(cls, values: Tensor, step: float) -> Precision:
        """Return the precision for values with this step, or with the nearest step that can be stored."""
        low, high = float(values.min()), float(values.max())
        # The step is limited to what MOST_BITS can store, and to the largest value.
        largest = max(abs(low), abs(high)) or 1.0
        step = min(max(step, largest / 2 ** (MOST_BITS - 2)), largest)
        return cls._between(round(low / step), round(high / step), step)

    @classmethod
    def of_whole(cls, values: Tensor) -> Precision:
        """Return the precision for whole numbers."""
        return cls._between(int(values.min()), int(values.max()), 1.0)

    @classmethod
    def _between(cls, lowest: int, highest: int, step: float) -> Precision:
        return cls(max(1, math.ceil(math.log2(highest - lowest + 1))), step, lowest)

    def packed(self, values: Tensor) -> Tensor:
        """Return values as bytes."""
        whole = torch.round(values.detach().cpu().double() / self.step).long().flatten().numpy() - self.lowest
        bits = (whole[:, None] >> np.arange(self.bits)) & 1
        return torch.from_numpy(np.packbits(bits.astype(np.uint8)))

    def unpacked(self, packed: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the unpacked values in this shape, as float64."""
        count = math.prod(shape)
        bits = np.unpackbits(packed.numpy(), count=count * self.bits).reshape(count, self.bits).astype(np.int64)
        whole = (bits << np.arange(self.bits)).sum(1) + self.lowest
        return torch.from_numpy(self.step * whole.astype(np.float64)).view(shape)

    def rounded(self, values: Tensor) -> Tensor:
        """Return the values after packing and unpacking."""
        return (self.step * torch.round(values.double() / self.step)).to(values.dtype)

    def holds(self, values: Tensor) -> bool:
        """Return whether values are the same after packing and unpacking."""
        whole = torch.round(values.double() / self.step) - self.lowest
        within = bool(((whole >= 0) & (whole < 2**self.bits)).all())
        return within and torch.equal(self.rounded(values), values)

    def size(self, shape: tuple[int, ...]) -> int:
        """Return the number of bytes for values of this shape."""
        return -(-self.bits * math.prod(shape) // 8)


FORMAT = "bayesnorm-compressed"

_FILE = record(
    tensors=mapping(
        record(
            shape=listed(whole(1)),
            precision=optional(record(bits=whole(1, 64), step=number(above=0), lowest=whole(-(2**53), 2**53))),
        ),
        1,
    )
)


@dataclass(frozen=True, eq=False)
class Compressed:
    """A smaller network whose weights are rounded to their posterior precision.

    The network can be fine-tuned. Its weights are then no longer rounded, and files and reports contain them at full
    precision until you call `rounded`.

    Args:
        network: The smaller network, an ordinary module in evaluation mode.
        before: The network before units were removed.
        precisions: The rounding of every tensor that is stored with fewer bits.
        unremovable: For every reason, the number of units that are noise but could not be removed.
        likelihood: The likelihood, which maps outputs to distributions of targets.
        output: The entry of the network's output that is used.
    """

    network: nn.Module = dataclasses.field(repr=False)
    before: nn.Module = dataclasses.field(repr=False)
    precisions: dict[str, Precision] = dataclasses.field(repr=False)
    unremovable: dict[str, int]
    likelihood: Likelihood
    output: str | int | None = None

    def __repr__(self) -> str:
        after, before = (sum(v.numel() for v in tensors_of(n).values() if v.dim()) for n in (self.network, self.before))
        old, new = tensors_of(self.before), tensors_of(self.network)
        widths = {name.removesuffix(".weight"): (len(old[name]), len(v)) for name, v in new.items() if v.dim() > 1}
        pruned = {name: f"{name} {a} -> {b}" for name, (a, b) in widths.items() if a != b}
        most = min(pruned, key=lambda name: widths[name][1] / widths[name][0], default="")
        what = f"{len(pruned)} of {len(widths)} layers are narrower, most of all {pruned[most]}; " if pruned else ""
        return f"Compressed({after:,} parameters, {before:,} before compression; {what}see report())"

    def report(self, x: Any = None, y: Any = None, *, batch_size: int = 64) -> CompressionReport:
        """Return sizes and bits; with `x`, also multiply-adds, error and time before and after.

        Args:
            x: Examples that were used neither in training nor in compression.
            y: Their targets.
            batch_size: The number of examples per timed prediction.
        """
        before, after = tensors_of(self.before), tensors_of(self.network)
        layers = [
            LayerReport(name, tuple(before[name].shape), tuple(value.shape), self._bits(name, value))
            for name, value in after.items()
            if name in before and value.dim()
        ]
        old_bytes = sum(value.nbytes for value in before.values())
        new_bytes = sum(self._size(name, value) for name, value in after.items())
        report = CompressionReport(layers, old_bytes, new_bytes, dict(self.unremovable))
        if x is None:
            return report
        networks = (self.before, self.network)
        old, new = measured(networks, self.likelihood, self.output, x, y, batch_size)
        return dataclasses.replace(report, before=old, after=new)

    @torch.inference_mode(False)
    @torch.no_grad()
    def rounded(self, x: Any = None) -> Compressed:
        """Return a copy whose weights are rounded to their posterior precision again; use it after fine-tuning.

        Args:
            x: Examples for new batch statistics, if the network has batch norm.
        """
        network, precisions = own_copy(self.network), {}
        tensors = tensors_of(network)
        for name, precision in self.precisions.items():
            precisions[name] = Precision.of_step(tensors[name], precision.step)
            tensors[name].copy_(precisions[name].rounded(tensors[name]))
        if x is not None:
            network = renewed_statistics(network, Executable(network, self.output).input(x))
        return dataclasses.replace(self, network=network, precisions=precisions)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network's packed tensors to a file, which `load_compressed` reads."""
        tensors, described = {}, {}
        for name, value in tensors_of(self.network).items():
            precision = self._precision(name, value)
            described[name] = {"shape": list(value.shape), "precision": precision and dataclasses.asdict(precision)}
            tensors[name] = precision.packed(value) if precision else value
        files.write(files.as_path(path), tensors, {"tensors": described}, FORMAT)

    def _precision(self, name: str, value: Tensor) -> Precision | None:
        if not value.is_floating_point() and value.dim():
            return Precision.of_whole(value)
        precision = self.precisions.get(name)
        return precision if precision is not None and precision.holds(value) else None

    def _bits(self, name: str, value: Tensor) -> int:
        precision = self._precision(name, value)
        return precision.bits if precision else 8 * value.element_size()

    def _size(self, name: str, value: Tensor) -> int:
        precision = self._precision(name, value)
        return precision.size(tuple(value.shape)) if precision else value.nbytes


def load_compressed(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Return the compressed network from a file, in evaluation mode.

    Args:
        path: The file that `Compressed.save` wrote.
        model: A network with the architecture before compression; only its structure, device and dtype are used.
    """
    tensors, config = files.read(files.as_path(path), FORMAT)
    _FILE(config, "compressed")
    model = unwrap(model)
    model_tensors, described = tensors_of(model), config["tensors"]
    expected: dict[str, Array] = {}
    for name, told in described.items():
        shape, precision = tuple(told["shape"]), told["precision"]
        linear = model_tensors.get(_weight_of(name)) if name.endswith(".columns") else None
        old = model_tensors.get(name, linear)
        whole_shape = () if old is None else tuple(old.shape[1:] if linear is not None else old.shape)
        small = len(shape) == len(whole_shape) and all(n <= size for n, size in zip(shape, whole_shape, strict=True))
        if old is None or not small:
            refuse(name[:60], shape, "a tensor of the network, or a part of one")
        if precision is None:
            expected[name] = _plain(name, shape, old)
        elif precision["bits"] > (
            MOST_BITS if name not in model_tensors or model_tensors[name].is_floating_point() else 64
        ):
            refuse(name[:60], precision["bits"], f"at most {MOST_BITS} bits")
        else:
            expected[name] = Array((-(-precision["bits"] * math.prod(shape) // 8),), [torch.uint8])
    require_tensors(tensors, expected)
    missing = set(model_tensors) - set(described)
    if missing:
        raise NetworkError(
            f"model has {min(missing)!r}, but the file does not. Pass a network with the architecture before "
            "compression."
        )
    device, values = next(iter(model_tensors.values())).device, {}
    for name, told in described.items():
        value = tensors[name]
        if told["precision"] is not None:
            value = Precision(**told["precision"]).unpacked(value, tuple(told["shape"]))
            if name in model_tensors and model_tensors[name].is_floating_point():
                Array(tuple(told["shape"])).require(value.to(model_tensors[name].dtype), name[:60])
        values[name] = value.to(device, model_tensors[name].dtype if name in model_tensors else torch.int64)
        if name not in model_tensors and (
            values[name].min() < 0 or values[name].max() >= model_tensors[_weight_of(name)].shape[1]
        ):
            refuse(name[:60], "other numbers", "columns of the layer")
    return resized(model, values)


def _plain(name: str, shape: tuple[int, ...], old: Tensor) -> Array:
    """Return the expected shape, dtype and limit of a tensor that is stored without packing."""
    least = 0.0 if name.endswith("running_var") else -math.inf
    return Array(shape, FLOATS if old.is_floating_point() else [old.dtype], least)


def _weight_of(columns: str) -> str:
    """Return the name of the weight that selected columns belong to."""
    return columns.removesuffix("columns") + "weight"
