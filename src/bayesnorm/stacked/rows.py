"""Hold the rows that each network of a stack is trained or evaluated on, and their scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import InputError
from ..network import as_input, as_tensor

# A column is constant up to rounding if its standard deviation is a smaller fraction of its mean.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Scales:
    """Means and standard deviations that each of E networks standardises with.

    Args:
        x_mean, x_std: (E, inputs).
        y_mean, y_std: (E, targets).
    """

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor

    def take(self, members: Tensor) -> Scales:
        return Scales(
            *(value[members.to(value.device)] for value in (self.x_mean, self.x_std, self.y_mean, self.y_std))
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> Scales:
        return Scales(*(value.to(device, dtype) for value in (self.x_mean, self.x_std, self.y_mean, self.y_std)))


@dataclass(frozen=True, eq=False)
class StackedRows:
    """Rows of E networks, which may have different ones, and different numbers of them; made by `of`.

    Args:
        x: All rows, (N, inputs).
        y: Targets, (N, targets), (N,) for classes, or None.
        table: Row numbers, (E, n) with the longest n; shorter lists are padded with their first entry.
        lengths: Number of rows of each network, (E,).
        scales: What networks standardise with, or None.
    """

    x: Tensor
    y: Tensor | None
    table: Tensor
    lengths: Tensor
    scales: Scales | None = None

    @classmethod
    def of(
        cls,
        x: Any,
        y: Any = None,
        rows: Sequence[Any] | None = None,
        *,
        networks: int | None = None,
        standardise: bool | Scales = False,
    ) -> Self:
        """Return rows of E networks.

        Args:
            x: One table for all, (N, inputs), or one for each network, (E, n, inputs).
            y: Targets of x, (N, targets) or (E, n, targets); real ones may omit the last axis.
            rows: For each network its row numbers in the common table, or in its own; None means all.
            networks: E, if one table is for all and `rows` is None.
            standardise: True uses means and standard deviations (ddof 0; 1 for constant columns) of each network's own
                rows; `Scales` are those of other rows, such as the training rows for validation rows.
        """
        values = as_tensor(x, "x")
        dtype = values.dtype if values.is_floating_point() else torch.get_default_dtype()
        values = as_input(values, "x", values.device, dtype).to(dtype)
        if values.dim() not in (2, 3):
            raise InputError(f"x has shape {tuple(values.shape)}. Pass (rows, inputs) or (networks, rows, inputs).")
        if networks is not None:
            networks = require_whole("networks", networks, error=InputError)
        if rows is not None and not hasattr(rows, "__len__"):
            raise InputError(f"rows must be a list of row numbers for each network, got {type(rows).__name__}.")
        own = len(values) if values.dim() == 3 else None
        targets = None if y is None else _targets(y, values)
        count = own if own is not None else len(rows) if rows is not None else networks
        if not count:
            raise InputError("networks: the number of networks is unknown. Pass networks= or rows=.")
        if networks not in (None, count) or (rows is not None and len(rows) != count):
            given = {"networks": networks, "x": own, "rows": None if rows is None else len(rows)}
            told = ", ".join(f"{name} for {n}" for name, n in given.items() if n is not None)
            raise InputError(
                f"rows: the arguments are for different numbers of networks ({told}). These numbers must be equal."
            )
        each = values.shape[-2]
        lists = [torch.arange(each)] * count if rows is None else [_numbers(r, i, each) for i, r in enumerate(rows)]
        lengths = torch.tensor([len(numbers) for numbers in lists])
        longest = int(lengths.max())
        table = torch.stack([torch.cat([r, r[:1].expand(longest - len(r))]) for r in lists])
        if own is not None:
            table = table + each * torch.arange(count)[:, None]
            values, targets = values.flatten(0, 1), None if targets is None else targets.flatten(0, 1)
        found = cls(values.contiguous(), targets, table.to(values.device), lengths)
        if isinstance(standardise, Scales):
            if len(standardise.x_mean) != count:
                raise InputError(
                    f"standardise: the scales are for {len(standardise.x_mean)} networks, but there are {count}. Pass "
                    "scales of the same networks."
                )
            if standardise.x_mean.shape[1] != values.shape[1]:
                raise InputError(
                    f"standardise: the scales have {standardise.x_mean.shape[1]} inputs, but x has {values.shape[1]}. "
                    "Pass scales of rows with the same inputs."
                )
            return replace(found, scales=standardise.to(values.device, values.dtype))
        return replace(found, scales=found._own_scales()) if standardise else found

    @property
    def networks(self) -> int:
        return len(self.lengths)

    @property
    def mask(self) -> Tensor:
        """Return True where the padded tables hold a row, (E, n)."""
        return torch.arange(self.table.shape[1])[None].lt(self.lengths[:, None]).to(self.x.device)

    def take(self, members: Tensor) -> Self:
        """Return the rows of some of the networks, by their indices."""
        members = members.cpu()
        lengths = self.lengths[members]
        table = self.table[members.to(self.table.device), : int(lengths.max())]
        return replace(self, table=table, lengths=lengths, scales=self.scales and self.scales.take(members))

    def thinned(self, rows: int) -> Self:
        """Return at most the first so many rows of each network."""
        return replace(self, table=self.table[:, :rows], lengths=self.lengths.clamp_max(rows))

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Return the rows on a device and in a dtype; the same object if nothing changes."""
        if (self.x.device, self.x.dtype) == (device, dtype):
            return self
        y = self.y if self.y is None else self.y.to(device, dtype if self.y.is_floating_point() else None)
        scales = self.scales and self.scales.to(device, dtype)
        return replace(self, x=self.x.to(device, dtype), y=y, table=self.table.to(device), scales=scales)

    def inputs(self, rows: Tensor | None = None) -> Tensor:
        """Return x in the networks' units, (E, n, inputs) padded to the longest, or for row numbers (..., E, n)."""
        rows = self.table if rows is None else rows
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, self.x.shape[1])
        return x if self.scales is None else x.sub_(self.scales.x_mean[:, None]).div_(self.scales.x_std[:, None])

    def targets(self, rows: Tensor | None = None) -> Tensor:
        """Return y in the networks' units, as `inputs` does."""
        if self.y is None:
            raise InputError("y: these rows have no targets. Use StackedRows.of(x, y, ...).")
        rows = self.table if rows is None else rows
        y = self.y.index_select(0, rows.reshape(-1)).view(*rows.shape, *self.y.shape[1:])
        if self.scales is None or not y.is_floating_point():
            return y
        return y.sub_(self.scales.y_mean[:, None]).div_(self.scales.y_std[:, None])

    @property
    def own_targets(self) -> Tensor:
        """Return real targets in their own units, (E, n, targets), padded with NaN, which likelihoods ignore."""
        if self.y is None or not self.y.is_floating_point():
            raise InputError("y: these rows have no real targets. Use StackedRows.of(x, y, ...).")
        y = self.y.index_select(0, self.table.reshape(-1)).view(*self.table.shape, -1)
        return torch.where(self.mask.unsqueeze(-1), y, torch.nan)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of values (E, n) over each network's own rows, in double precision: (E,)."""
        return _mean_over_rows(values.double(), self)

    def _own_scales(self) -> Scales:
        parts = []
        for values in (self.x, self.y):
            if values is None or not values.is_floating_point():
                parts += [self.x.new_zeros(self.networks, 1), self.x.new_ones(self.networks, 1)]
                continue
            means, stds = [], []
            for table, n in zip(self.table, self.lengths.tolist(), strict=True):
                std, mean = torch.std_mean(values.index_select(0, table[:n]).double(), dim=0, correction=0)
                means.append(mean)
                stds.append(torch.where(std > CONSTANT * mean.abs(), std, 1.0))
            parts += [torch.stack(means).to(values.dtype), torch.stack(stds).to(values.dtype)]
        return Scales(*parts)


def _mean_over_rows(values: Tensor, rows: StackedRows) -> Tensor:
    return torch.where(rows.mask, values, 0).sum(1) / rows.lengths.to(values.device)


def _targets(y: Any, x: Tensor) -> Tensor:
    tensor = as_tensor(y, "y").detach().to(x.device).contiguous()  # the kernels need this
    if tensor.shape[: x.dim() - 1] != x.shape[:-1]:
        raise InputError(
            f"y has shape {tuple(tensor.shape)}, but x has shape {tuple(x.shape)}. Pass one target per row of x."
        )
    if not tensor.is_floating_point():
        return tensor
    if not torch.isfinite(tensor).all():
        raise InputError("y has NaN or infinite values. Drop those rows.")
    tensor = tensor.to(x.dtype)
    return tensor.unsqueeze(-1) if tensor.dim() == x.dim() - 1 else tensor


def _numbers(rows: Any, index: int, available: int) -> Tensor:
    numbers = as_tensor(rows, f"rows[{index}]").cpu()
    if numbers.dim() != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InputError(
            f"rows[{index}] must be a list of row numbers, got shape {tuple(numbers.shape)} and {numbers.dtype}."
        )
    numbers = numbers.long()
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= available:
        raise InputError(
            f"rows[{index}] has numbers from {low} to {high}, but x has {available} rows. Use 0 to {available - 1}."
        )
    return numbers
