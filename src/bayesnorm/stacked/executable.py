"""Run all networks of a stack under sampled states, as `network.Executable` does for one network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..network import State
from .fused.fused_passes import moments as fused_moments
from .masks import Masks
from .passes import for_drawn_outputs, stacked_outputs
from .rows import StackedRows
from .stack import Stack


class StackedExecutable:
    """E networks that are run together; outputs have an axis of networks after that of samples.

    Args:
        stack: The networks.
        scale: Factor of each network's outputs, (E, outputs); None: 1.
        shift: Added afterwards, (E, outputs); None: 0. Both convert outputs to the targets' units.
        consistent: Whether all rows of a sample share its dropout masks.
    """

    def __init__(
        self, stack: Stack, scale: Tensor | None = None, shift: Tensor | None = None, *, consistent: bool = True
    ) -> None:
        self.stack, self.consistent = stack, consistent
        # In double precision: a target's units may be far from those of the network.
        self.scale, self.shift = (
            None if part is None else part.to(stack.device, torch.float64)[:, None] for part in (scale, shift)
        )

    @classmethod
    def of(cls, stack: Stack, rows: StackedRows | None = None, *, consistent: bool = True) -> StackedExecutable:
        """Return a stack whose outputs are in the units of the targets that its networks were trained on."""
        if rows is not None:
            stack.require_rows(rows, "rows")
        if rows is None or rows.scales is None:
            return cls(stack, consistent=consistent)
        return cls(stack, rows.scales.y_std, rows.scales.y_mean, consistent=consistent)

    @property
    def device(self) -> torch.device:
        """Return the device of the networks."""
        return self.stack.device

    def input(self, x: Any, name: str = "x") -> Any:
        """Return rows on the networks' device and in their dtype, or refuse them; `name` is their name in messages."""
        return self.stack.placed(x, name) if isinstance(x, StackedRows) else self.stack.inputs(x, name)

    def point(self, x: Any) -> Tensor:
        """Return the networks' outputs in evaluation mode, (E, n, outputs), in the targets' units."""
        return self._in_units(stacked_outputs(self.stack, x))

    def run(self, states: State, x: Any, **_: Any) -> Tensor:
        """Return outputs under each state, (samples, E, n, outputs), in the targets' units.

        Args:
            states: Statistics of batch norm, `name.running_mean` and `name.running_var`, (samples, E, channels), or
                seeds of dropout, `name.seed`, (samples, E).
            x: `StackedRows`, (n, inputs) for all networks, or (E, n, inputs).
            _: Other arguments of `Executable.run`, which are ignored: a stack chooses its block sizes itself.
        """
        masks, values = self._prepared(states), self.stack.inputs(x)
        count = len(next(iter(states.values())))
        found = values.new_empty(count, len(self.stack), values.shape[-2], self.stack.widths[-1])

        def see(members: slice, rows: slice, f: Tensor) -> None:
            found[:, members, rows] = f

        for_drawn_outputs(self.stack, states, masks, values, see)
        return self._in_units(found)

    def moments(self, states: State, x: Any) -> tuple[Tensor, Tensor]:
        """Return mean and variance (ddof 0) of the outputs over states, (E, n, outputs) each, without storing all."""
        masks, values = self._prepared(states), self.stack.inputs(x)
        found = fused_moments(self.stack, states, masks, values)
        if found is None:
            mean = values.new_empty(len(self.stack), values.shape[-2], self.stack.widths[-1])
            var = torch.empty_like(mean)

            def see(members: slice, rows: slice, f: Tensor) -> None:
                mean[members, rows] = f.mean(0)
                var[members, rows] = (f - mean[members, rows]).square().mean(0)

            for_drawn_outputs(self.stack, states, masks, values, see)
            found = mean, var
        mean, var = found
        return self._in_units(mean), var if self.scale is None else var.double() * self.scale.square()

    def _prepared(self, states: State) -> Masks | None:
        """Check that states belong to the stack's networks, and make the dropout masks for them."""
        shapes: dict[str, tuple[int, ...]] = {f"{drop.name}.seed": (len(self.stack),) for drop in self.stack.drops}
        seeds = set(shapes)
        for norm in self.stack.norms:
            shapes |= {f"{norm.name}.running_{part}": (len(self.stack), norm.channels) for part in ("mean", "var")}
        wrong = [name for name, value in states.items() if shapes.get(name) != tuple(value.shape[1:])]
        if wrong or not states:
            found = f"{wrong[0]!r} of shape {tuple(states[wrong[0]].shape)} does not fit" if wrong else "none are for"
            raise InputError(
                f"states: {found} a stack of {len(self.stack)} networks. Pass samples of a posterior that was fitted "
                "on this stack."
            )
        return Masks(self.stack, states, self.consistent) if seeds & states.keys() else None

    def _in_units(self, f: Tensor) -> Tensor:
        if self.scale is not None:
            f = f.double() * self.scale
        return f if self.shift is None else f + self.shift


class OwnRowsExecutable:
    """Runs every row through its own network, such as that of the fold without this row.

    The networks of a cross-validation are then one predictor of all rows, and rows of different networks are scored
    together.

    Args:
        networks: The networks, which are run on `StackedRows`.
    """

    def __init__(self, networks: StackedExecutable) -> None:
        self.networks = networks

    @property
    def device(self) -> torch.device:
        """Return the device of the networks."""
        return self.networks.device

    def input(self, x: Any, name: str = "x") -> StackedRows:
        """Return rows on the networks' device and in their dtype, or refuse them; `name` is their name in messages."""
        return self.networks.stack.placed(x, name)

    def point(self, x: StackedRows) -> Tensor:
        """Return the networks' outputs in evaluation mode, (all rows, outputs)."""
        return _joined(self.networks.point(x)[None], x)[0]

    def run(self, states: State, x: StackedRows, **options: Any) -> Tensor:
        """Return outputs under each state, (samples, all rows, outputs)."""
        return _joined(self.networks.run(states, x, **options), x)


def _joined(f: Tensor, rows: StackedRows) -> Tensor:
    """Return outputs (samples, E, padded rows, outputs) of every network's own rows, one after the other."""
    return f.flatten(1, 2)[:, rows.mask.flatten().to(f.device)]
