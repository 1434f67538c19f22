"""Hold the rows that each network of a stack is trained or evaluated on, and their scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor


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
        """Return the scales of some of the networks, by their indices."""
        return Scales(*(value[members.to(value.device)] for value in self._values))

    def to(self, device: torch.device, dtype: torch.dtype) -> Scales:
        """Return the scales on a device and in a dtype."""
        return Scales(*(value.to(device, dtype) for value in self._values))

    @property
    def _values(self) -> tuple[Tensor, ...]:
        return self.x_mean, self.x_std, self.y_mean, self.y_std


@dataclass(frozen=True, eq=False)
class StackedRows:
    """Rows of E networks, which may have different ones, and different numbers of them; made by `from_lists`.

    Args:
        x: All rows, (N, inputs).
        y: Targets, (N, targets).
        table: Row numbers, (E, n) with the longest n; shorter lists are padded with their first entry.
        lengths: Number of rows of each network, (E,).
        scales: What networks standardise with.
    """

    x: Tensor
    y: Tensor
    table: Tensor
    lengths: Tensor
    scales: Scales

    @classmethod
    def from_lists(cls, x: Tensor, y: Tensor, lists: Sequence[Tensor], scales: Scales) -> Self:
        """Return the rows of one network for each list of row numbers, standardised by its scales."""
        lengths = torch.tensor([len(numbers) for numbers in lists])
        longest = int(lengths.max())
        table = torch.stack([torch.cat([r, r[:1].expand(longest - len(r))]) for r in lists])
        return cls(x.contiguous(), y.to(x).contiguous(), table.to(x.device), lengths, scales.to(x.device, x.dtype))

    @property
    def mask(self) -> Tensor:
        """Return True where the padded tables hold a row, (E, n)."""
        return torch.arange(self.table.shape[1])[None].lt(self.lengths[:, None]).to(self.x.device)

    def take(self, members: Tensor) -> Self:
        """Return the rows of some of the networks, by their indices."""
        members = members.cpu()
        lengths = self.lengths[members]
        table = self.table[members.to(self.table.device), : int(lengths.max())]
        return replace(self, table=table, lengths=lengths, scales=self.scales.take(members))

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Return the rows on a device and in a dtype; the same object if nothing changes."""
        if (self.x.device, self.x.dtype) == (device, dtype):
            return self
        x, y = self.x.to(device, dtype), self.y.to(device, dtype)
        return replace(self, x=x, y=y, table=self.table.to(device), scales=self.scales.to(device, dtype))

    def inputs(self, rows: Tensor | None = None) -> Tensor:
        """Return x in the networks' units, (E, n, inputs) padded to the longest, or for row numbers (..., E, n)."""
        rows = self.table if rows is None else rows
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, self.x.shape[1])
        return x.sub_(self.scales.x_mean[:, None]).div_(self.scales.x_std[:, None])

    def targets(self, rows: Tensor | None = None) -> Tensor:
        """Return y in the networks' units, as `inputs` does."""
        rows = self.table if rows is None else rows
        y = self.y.index_select(0, rows.reshape(-1)).view(*rows.shape, self.y.shape[1])
        return y.sub_(self.scales.y_mean[:, None]).div_(self.scales.y_std[:, None])

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of values (E, n) over each network's own rows, in double precision: (E,)."""
        values = values.double()
        return torch.where(self.mask, values, 0).sum(1) / self.lengths.to(values.device)

    def unpadded(self, f: Tensor) -> Tensor:
        """Return outputs (samples, E, padded rows, outputs) of every network's own rows, one after the other."""
        return f.flatten(1, 2)[:, self.mask.flatten().to(f.device)]
