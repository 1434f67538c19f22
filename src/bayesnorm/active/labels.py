"""What an active learner knows: the rows that it chose, their labels as they come, and the file that keeps both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import files
from ..errors import FileFormatError, InputError
from ..metrics.checks import real_tensor
from ..schema import FLOATS, Array, listed, mapping, one_of, record, refuse, require_tensors, text, whole

KIND = "active-learner"

_FILE = record(kind=one_of(KIND), settings=mapping(text), rounds=listed(whole()))
"""What the JSON of a file consists of."""

_LABELS = (
    *FLOATS,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
)
"""What labels may be."""


@dataclass
class Labels:
    """Rows in the order in which they were chosen; those of the last round may still wait for a label.

    Args:
        path: The file that holds all of this, or None.
        settings: What makes a run this one, as text by name; a file of another run is refused.
    """

    path: Path | None
    settings: dict[str, str]
    rows: list[int] = field(default_factory=list)
    values: dict[int, Tensor] = field(default_factory=dict)
    """Labels by row of the pool."""
    rounds: list[int] = field(default_factory=list)
    """How many rows each round chose."""
    written: int = 0
    """How many labels the file holds."""

    @property
    def waiting(self) -> list[int]:
        """Rows that were chosen and have no label yet."""
        return [row for row in self.rows if row not in self.values]

    def labelled(self) -> tuple[Tensor, Tensor]:
        """Return rows with a label, (k,), and their labels, (k, ...), in the order in which they were chosen."""
        rows = [row for row in self.rows if row in self.values]
        if not rows:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0)
        dtype = self.values[rows[0]].dtype
        for row in rows:
            dtype = torch.promote_types(dtype, self.values[row].dtype)
        return torch.tensor(rows), torch.stack([self.values[row].to(dtype) for row in rows])

    @property
    def kept(self) -> str:
        """Where the labels are, in words, also after a write that failed."""
        known, written = len(self.values), self.written
        if self.path is None:
            return f"{known} labels are kept in memory"
        return f"{written} labels are kept in {self.path}" + (
            f", and {known - written} in memory only" if written < known else ""
        )

    def choose(self, rows: Sequence[int]) -> None:
        """Begin a new round, whose rows wait for labels, also if the process dies now."""
        self.rows += rows
        self.rounds.append(len(rows))
        self.write()

    def answer(self, rows: Sequence[int], labels: Any) -> None:
        """Keep the labels of some rows. Good ones among bad ones are kept before the error is raised."""
        found = real_tensor("oracle", labels).detach().cpu().clone()
        if found.dim() == 0 or len(found) != len(rows):
            raise InputError(
                f"oracle: gave labels of shape {tuple(found.shape)} for {len(rows)} rows; one label per row, "
                f"({len(rows)}, ...), would work."
            )
        known = next(iter(self.values.values()), None)
        if known is not None and known.shape != found.shape[1:]:
            raise InputError(
                f"oracle: gave labels of shape {tuple(found.shape[1:])} per row, but those before had "
                f"{tuple(known.shape)}; labels of one shape would work."
            )
        good = torch.isfinite(found).reshape(len(rows), -1).all(1)
        kept = {row: label for row, label, is_good in zip(rows, found, good.tolist(), strict=True) if is_good}
        if kept:
            self.values.update(kept)
            self.write()
        if len(kept) < len(rows):
            bad = [row for row in rows if row not in kept]
            raise InputError(
                f"oracle: gave NaN or infinite labels for {len(bad)} of {len(rows)} rows, {_first_few(bad)}; finite "
                f"labels would work. The other {len(kept)} are kept."
            )

    def write(self) -> None:
        """Replace the file by what is known now."""
        if self.path is None:
            return
        rows, labels = self.labelled()
        tensors = {"chosen": torch.tensor(self.rows), "rows": rows, "labels": labels}
        files.write(self.path, tensors, {"kind": KIND, "settings": self.settings, "rounds": self.rounds})
        self.written = len(rows)

    def resume(self) -> None:
        """Take over what an earlier run wrote, where there is a file."""
        if self.path is None or not self.path.exists():
            return
        again = "delete it to begin anew, or give another path"
        try:
            tensors, config = files.read(self.path, again=again)
            _FILE(config, "config")
            chosen, rows, labels = _checked(tensors)
        except FileFormatError as error:
            told = str(error).removeprefix("path: ").removesuffix(f"; {again}.")
            raise FileFormatError(
                f"path: {self.path} holds no labels that an ActiveLearner wrote ({told}); {again}."
            ) from error
        settings, rounds, values = config["settings"], config["rounds"], dict(zip(rows, labels, strict=True))
        if sum(rounds) != len(chosen):
            raise FileFormatError(f"path: {self.path} holds {len(chosen)} rows for rounds of {rounds[:5]}; {again}.")
        files.require_same_run(self.path, settings, self.settings, "the same pool and settings", "path", again)
        self.rows, self.values, self.rounds, self.written = chosen, values, rounds, len(values)


def _checked(tensors: dict[str, Tensor]) -> tuple[list[int], list[int], Tensor]:
    """Return a file's chosen rows, those with a label, and these labels, or refuse what no learner writes."""
    labels = tensors.get("labels", torch.zeros(0))
    shape = (None, *labels.shape[1:]) if labels.dim() else (None,)
    numbers = Array((None,), (torch.int64,), empty=True)
    any_label = Array(shape, _LABELS, empty=True)
    require_tensors(tensors, {"chosen": numbers, "rows": numbers, "labels": any_label})
    chosen, rows = tensors["chosen"].tolist(), tensors["rows"].tolist()
    known = set(rows)
    if len(rows) != len(labels) or len({*chosen}) < len(chosen) or [row for row in chosen if row in known] != rows:
        refuse("rows", rows, f"one row for each of {len(labels)} labels, each once and chosen before,")
    return chosen, rows, labels


def _first_few(rows: list[int]) -> str:
    """Return the first row numbers in words."""
    return ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
