"""The state of an active learner: the examples it chose, their labels, and the file that stores both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import files
from ..errors import FileFormatError, InputError
from ..metrics import real_tensor
from ..schema import FLOATS, Array, listed, mapping, one_of, record, refuse, require_tensors, text, whole

KIND = "active-learner"

_FILE = record(kind=one_of(KIND), settings=mapping(text), rounds=listed(whole()))
"""The structure of the JSON in a file."""

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
"""The dtypes that labels may have."""


@dataclass
class Labels:
    """Examples of the pool in the order in which they were chosen; those of the last round may have no label yet.

    Args:
        path: The file that stores them, or None.
        settings: The settings of the run as text, by name; a file of a run with other settings raises an error.
    """

    path: Path | None
    settings: dict[str, str]
    rows: list[int] = field(default_factory=list)
    values: dict[int, Tensor] = field(default_factory=dict)
    """Labels by index in the pool."""
    rounds: list[int] = field(default_factory=list)
    """The number of examples chosen in each round."""
    written: int = 0
    """The number of labels in the file."""

    @property
    def waiting(self) -> list[int]:
        """Indices of examples that were chosen and have no label yet."""
        return [row for row in self.rows if row not in self.values]

    def labelled(self) -> tuple[Tensor, Tensor]:
        """Return the indices of labelled examples, (k,), and their labels, (k, ...), in the order of choice."""
        rows = [row for row in self.rows if row in self.values]
        if not rows:
            return torch.zeros(0, dtype=torch.long), torch.zeros(0)
        dtype = self.values[rows[0]].dtype
        for row in rows:
            dtype = torch.promote_types(dtype, self.values[row].dtype)
        return torch.tensor(rows), torch.stack([self.values[row].to(dtype) for row in rows])

    @property
    def storage(self) -> str:
        """A phrase that says where the labels are stored, also after a failed write."""
        count, written = len(self.values), self.written
        if self.path is None:
            return f"{count} labels are kept in memory"
        return f"{written} labels are saved in {self.path}" + (
            f", and {count - written} are in memory only" if written < count else ""
        )

    def choose(self, rows: Sequence[int]) -> None:
        """Start a new round and save its choice at once, so that it survives if the process stops."""
        self.rows += rows
        self.rounds.append(len(rows))
        self.write()

    def answer(self, rows: Sequence[int], labels: Any) -> None:
        """Store the labels of some examples. If some are invalid, the valid ones are stored before the error."""
        values = real_tensor("oracle", labels).detach().cpu().clone()
        if values.dim() == 0 or len(values) != len(rows):
            raise InputError(
                f"oracle must return one label per example, of shape ({len(rows)}, ...), got shape "
                f"{tuple(values.shape)} for {len(rows)} examples."
            )
        earlier = next(iter(self.values.values()), None)
        if earlier is not None and earlier.shape != values.shape[1:]:
            raise InputError(
                f"oracle must return labels of one shape, got shape {tuple(values.shape[1:])} per example, but earlier "
                f"labels had {tuple(earlier.shape)}."
            )
        good = torch.isfinite(values).reshape(len(rows), -1).all(1)
        valid = {row: label for row, label, is_good in zip(rows, values, good.tolist(), strict=True) if is_good}
        if valid:
            self.values.update(valid)
            self.write()
        if len(valid) < len(rows):
            bad = [row for row in rows if row not in valid]
            raise InputError(
                f"oracle returned NaN or infinite labels for {len(bad)} of {len(rows)} examples: {_first_few(bad)}. "
                f"The other {len(valid)} labels are kept. Call run() again with an oracle that returns finite labels."
            )

    def write(self) -> None:
        """Write the current state to the file."""
        if self.path is None:
            return
        rows, labels = self.labelled()
        tensors = {"chosen": torch.tensor(self.rows), "rows": rows, "labels": labels}
        files.write(self.path, tensors, {"kind": KIND, "settings": self.settings, "rounds": self.rounds})
        self.written = len(rows)

    def resume(self) -> None:
        """Read the state that an earlier run wrote, if there is a file."""
        if self.path is None or not self.path.exists():
            return
        again = "delete it to start again, or pass another path"
        try:
            tensors, config = files.read(self.path, again=again)
            _FILE(config, "config")
            chosen, rows, labels = _checked(tensors)
        except FileFormatError as error:
            reason = str(error).removeprefix("path: ").removesuffix(f" To fix this, {again}.").removesuffix(".")
            raise FileFormatError(
                f"path: {self.path} has no labels that an ActiveLearner wrote ({reason}). To fix this, {again}."
            ) from error
        settings, rounds, values = config["settings"], config["rounds"], dict(zip(rows, labels, strict=True))
        if sum(rounds) != len(chosen):
            raise FileFormatError(
                f"path: {self.path} has {len(chosen)} chosen examples, but its rounds are {rounds[:5]}. To fix this, "
                f"{again}."
            )
        files.require_same_run(self.path, settings, self.settings, "the same pool and settings", "path", again)
        self.rows, self.values, self.rounds, self.written = chosen, values, rounds, len(values)


def _checked(tensors: dict[str, Tensor]) -> tuple[list[int], list[int], Tensor]:
    """Return a file's chosen indices, those with a label, and their labels, or raise an error if they do not fit."""
    labels = tensors.get("labels", torch.zeros(0))
    shape = (None, *labels.shape[1:]) if labels.dim() else (None,)
    numbers = Array((None,), (torch.int64,), empty=True)
    any_label = Array(shape, _LABELS, empty=True)
    require_tensors(tensors, {"chosen": numbers, "rows": numbers, "labels": any_label})
    chosen, rows = tensors["chosen"].tolist(), tensors["rows"].tolist()
    labelled = set(rows)
    if len(rows) != len(labels) or len({*chosen}) < len(chosen) or [row for row in chosen if row in labelled] != rows:
        refuse("rows", rows, f"one chosen index for each of {len(labels)} labels, all different")
    return chosen, rows, labels


def _first_few(rows: list[int]) -> str:
    """Return the first indices as text."""
    return ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
