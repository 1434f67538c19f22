"""The report of a compression: sizes, bits and measurements before and after."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .measuring import Measured


@dataclass(frozen=True)
class LayerReport:
    """The sizes of one tensor of a network.

    Args:
        name: Its name.
        before: Its shape before compression.
        after: Its shape after compression.
        bits: Bits per value in the file.
    """

    name: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    bits: int


@dataclass(frozen=True)
class CompressionReport:
    """Sizes and bits, and with examples also error and time, before and after; `print` shows a table.

    Args:
        layers: The network's tensors.
        bytes_before: Bytes of all tensors before compression.
        bytes_after: Bytes of all tensors in the file, without its header.
        unremovable: For every reason, the number of units that are noise but could not be removed.
        before: Measurements before compression; None without examples.
        after: Measurements after compression; None without examples.
    """

    layers: list[LayerReport]
    bytes_before: int
    bytes_after: int
    unremovable: dict[str, int]
    before: Measured | None = None
    after: Measured | None = None

    @property
    def parameters_before(self) -> int:
        """The number of parameters, including batch-norm statistics, before compression."""
        return sum(math.prod(layer.before) for layer in self.layers)

    @property
    def parameters_after(self) -> int:
        """The number of parameters, including batch-norm statistics, after compression."""
        return sum(math.prod(layer.after) for layer in self.layers)

    def __str__(self) -> str:
        width = max(len(layer.name) for layer in self.layers)
        lines = [f"{'tensor':{width}}  {'before':>18}  {'after':>18}  bits"]
        for layer in self.layers:
            shapes = ("x".join(map(str, shape)) for shape in (layer.before, layer.after))
            lines.append(f"{layer.name:{width}}  {next(shapes):>18}  {next(shapes):>18}  {layer.bits:4}")
        rows = [
            ("parameters", self.parameters_before, self.parameters_after),
            ("bytes without file header", self.bytes_before, self.bytes_after),
        ]
        if self.before and self.after:
            rows.append(("multiply-adds per example", self.before.multiply_adds, self.after.multiply_adds))
        lines += ["", *(f"{name}: {old:,} -> {new:,} ({old / new:.1f} times fewer)" for name, old, new in rows)]
        if self.before and self.after:
            old, new = self.before, self.after
            lines.append(f"prediction time: {1e3 * old.seconds:.3f} ms -> {1e3 * new.seconds:.3f} ms")
            if old.loss is not None and old.error is not None and new.loss is not None and new.error is not None:
                lines.append(f"loss: {old.loss:.4f} -> {new.loss:.4f}")
                lines.append(f"error: {old.error:.4f} -> {new.error:.4f}")
        lines += [
            f"{count} unit{'s' if count != 1 else ''} of noise could not be removed: {reason}."
            for reason, count in self.unremovable.items()
        ]
        return "\n".join(lines)
