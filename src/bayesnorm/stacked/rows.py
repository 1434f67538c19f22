"""Which rows each network of a stack learns from or is asked about, and in which units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import InputError
from ..network import as_input, as_tensor

# A column whose standard deviation is a smaller share of its mean is constant but for rounding.
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
        table: Row numbers, (E, n) with the longest n; shorter lists are filled up with their own first entry.
        lengths: Rows of each network, (E,).
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
        """Rows of E networks.

        Args:
            x: One table for all, (N, inputs), or one for each network, (E, n, inputs).
            y: Targets beside it, (N, targets) or (E, n, targets); real ones may lack the last axis.
            rows: For each network its row numbers in the common table, or in its own; None means all.
            networks: E, where one table is for all and `rows` is None.
            standardise: True takes means and standard deviations (ddof 0; 1 for constant columns) of each network's own
                rows; `Scales` are those of other rows, such as the training rows for validation rows.
        """
        values = as_tensor(x, "x")
        dtype = values.dtype if values.is_floating_point() else torch.get_default_dtype()
        values = as_input(values, "x", values.device, dtype).to(dtype)
        if values.dim() not in (2, 3):
            raise InputError(
                f"x: has shape {tuple(values.shape)}; (rows, inputs) or (networks, rows, inputs) would work."
            )
        if networks is not None:
            networks = require_whole("networks", networks, error=InputError)
        if rows is not None and not hasattr(rows, "__len__"):
            raise InputError(f"rows must be a list of row numbers for each network, got {type(rows).__name__}.")
        own = len(values) if values.dim() == 3 else None
        targets = None if y is None else _targets(y, values)
        count = own if own is not None else len(rows) if rows is not None else networks
        if not count:
            raise InputError("networks: how many networks share the rows was not told; networks= or rows= would tell.")
        if networks not in (None, count) or (rows is not None and len(rows) != count):
            given = {"networks": networks, "x": own, "rows": None if rows is None else len(rows)}
            told = ", ".join(f"{name} for {n}" for name, n in given.items() if n is not None)
            raise InputError(f"rows: arguments are for different numbers of networks ({told}); they must agree.")
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
                    f"standardise: scales of {len(standardise.x_mean)} networks were given for {count}; those of the "
                    "same networks would work."
                )
            if standardise.x_mean.shape[1] != values.shape[1]:
                raise InputError(
                    f"standardise: scales of {standardise.x_mean.shape[1]} inputs were given beside x of "
                    f"{values.shape[1]}; those of rows with the same inputs would work."
                )
            return replace(found, scales=standardise.to(values.device, values.dtype))
        return replace(found, scales=found._own_scales()) if standardise else found

    @property
    def networks(self) -> int:
        return len(self.lengths)

    @property
    def mask(self) -> Tensor:
        """True where the padded tables hold a row, (E, n)."""
        return torch.arange(self.table.shape[1])[None].lt(self.lengths[:, None]).to(self.x.device)

    def take(self, members: Tensor) -> Self:
        """The rows of some of the networks, by their numbers."""
        members = members.cpu()
        lengths = self.lengths[members]
        table = self.table[members.to(self.table.device), : int(lengths.max())]
        return replace(self, table=table, lengths=lengths, scales=self.scales and self.scales.take(members))

    def thinned(self, rows: int) -> Self:
        """At most the first so many rows of each network."""
        return replace(self, table=self.table[:, :rows], lengths=self.lengths.clamp_max(rows))

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Rows on a device and with a dtype; themselves where they are."""
        if (self.x.device, self.x.dtype) == (device, dtype):
            return self
        y = self.y if self.y is None else self.y.to(device, dtype if self.y.is_floating_point() else None)
        scales = self.scales and self.scales.to(device, dtype)
        return replace(self, x=self.x.to(device, dtype), y=y, table=self.table.to(device), scales=scales)

    def inputs(self, rows: Tensor | None = None) -> Tensor:
        """x in the networks' units, (E, n, inputs) padded to the longest; or of other row numbers (..., E, n)."""
        rows = self.table if rows is None else rows
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, self.x.shape[1])
        return x if self.scales is None else x.sub_(self.scales.x_mean[:, None]).div_(self.scales.x_std[:, None])

    def targets(self, rows: Tensor | None = None) -> Tensor:
        """y in the networks' units, as `inputs`."""
        if self.y is None:
            raise InputError("y: these rows hold no targets; StackedRows.of(x, y, ...) would work.")
        rows = self.table if rows is None else rows
        y = self.y.index_select(0, rows.reshape(-1)).view(*rows.shape, *self.y.shape[1:])
        if self.scales is None or not y.is_floating_point():
            return y
        return y.sub_(self.scales.y_mean[:, None]).div_(self.scales.y_std[:, None])

    @property
    def own_targets(self) -> Tensor:
        """Real targets in their own units, (E, n, targets), padded with NaN: missing ones, to a likelihood."""
        if self.y is None or not self.y.is_floating_point():
            raise InputError("y: these rows hold no real targets; StackedRows.of(x, y, ...) would work.")
        y = self.y.index_select(0, self.table.reshape(-1)).view(*self.table.shape, -1)
        return torch.where(self.mask.unsqueeze(-1), y, torch.nan)

    def mean(self, values: Tensor) -> Tensor:
        """Mean of values (E, n) over each network's own rows, in double precision: (E,)."""
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
    tensor = as_tensor(y, "y").detach().to(x.device).contiguous()  # kernels count on it
    if tensor.shape[: x.dim() - 1] != x.shape[:-1]:
        raise InputError(f"y: has shape {tuple(tensor.shape)} beside x of {tuple(x.shape)}; rows must agree.")
    if not tensor.is_floating_point():
        return tensor
    if not torch.isfinite(tensor).all():
        raise InputError("y: holds NaN or infinite values; drop those rows.")
    tensor = tensor.to(x.dtype)
    return tensor.unsqueeze(-1) if tensor.dim() == x.dim() - 1 else tensor


def _numbers(rows: Any, index: int, available: int) -> Tensor:
    numbers = as_tensor(rows, f"rows[{index}]").cpu()
    if numbers.dim() != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InputError(
            f"rows[{index}]: has shape {tuple(numbers.shape)} and {numbers.dtype}; a list of row numbers would work."
        )
    numbers = numbers.long()
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= available:
        raise InputError(
            f"rows[{index}]: goes from {low} to {high}, but x has {available} rows; 0 to {available - 1} would work."
        )
    return numbers
