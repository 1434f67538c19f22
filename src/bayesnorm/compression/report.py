"""What compression did to a network, in numbers and as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .measuring import Measured


@dataclass(frozen=True)
class LayerReport:
    """One tensor of a network.

    Args:
        name: Its name.
        before: Its shape before.
        after: Its shape now.
        bits: Bits of each of its values in the file.
    """

    name: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    bits: int


@dataclass(frozen=True)
class CompressionReport:
    """Sizes, bits and, where there were rows to measure on, error and time before and after; `print` shows a table.

    Args:
        layers: The network's tensors.
        bytes_before: Bytes of all tensors before.
        bytes_after: Bytes of all tensors in the file, which has a header beside them.
        kept: Reasons why units were kept that the posterior calls noise, and how many there are.
        before: What was measured before.
        after: What was measured after.
    """

    layers: list[LayerReport]
    bytes_before: int
    bytes_after: int
    kept: dict[str, int]
    before: Measured | None = None
    after: Measured | None = None

    @property
    def parameters_before(self) -> int:
        """How many numbers the network had."""
        return sum(math.prod(layer.before) for layer in self.layers)

    @property
    def parameters_after(self) -> int:
        """How many numbers the network has."""
        return sum(math.prod(layer.after) for layer in self.layers)

    def __str__(self) -> str:
        width = max(len(layer.name) for layer in self.layers)
        lines = [f"{'tensor':{width}}  {'before':>18}  {'after':>18}  bits"]
        for layer in self.layers:
            shapes = ("x".join(map(str, shape)) for shape in (layer.before, layer.after))
            lines.append(f"{layer.name:{width}}  {next(shapes):>18}  {next(shapes):>18}  {layer.bits:4}")
        rows = [
            ("numbers", self.parameters_before, self.parameters_after),
            ("bytes", self.bytes_before, self.bytes_after),
        ]
        if self.before and self.after:
            rows.append(("multiply-adds", self.before.multiply_adds, self.after.multiply_adds))
        lines += ["", *(f"{name}: {old:,} -> {new:,} ({old / new:.1f} times fewer)" for name, old, new in rows)]
        if self.before and self.after:
            old, new = self.before, self.after
            lines.append(f"milliseconds: {1e3 * old.seconds:.3f} -> {1e3 * new.seconds:.3f}")
            if old.loss is not None and old.error is not None and new.loss is not None and new.error is not None:
                lines.append(f"loss: {old.loss:.4f} -> {new.loss:.4f}")
                lines.append(f"error: {old.error:.4f} -> {new.error:.4f}")
        lines += [f"kept though noise: {count} units, because {reason}" for reason, count in self.kept.items()]
        return "\n".join(lines)
