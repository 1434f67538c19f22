"""The checkpoint of a training: safetensors and JSON, written completely or not at all, no pickle."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import files, writing
from ..errors import BayesNormError, FileFormatError
from ..schema import anything, mapping, record, text

FORMAT = "bayesnorm-training"

_FILE = record(settings=mapping(text), state=anything)
"""The schema of a file's JSON. `Run.restore` checks the state."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint file of one run.

    Args:
        path: The file's path; its folder exists.
        settings: The settings that identify a run, as text by name. A file of another run raises an error.
    """

    path: Path
    settings: dict[str, str]

    def __post_init__(self) -> None:
        writing.require_place(self.path, "checkpoint")

    def require_writable(self) -> None:
        """Raise an error if the folder is not writable, before time is spent on training."""
        writing.require_writable(self.path, "checkpoint")

    def write(self, state: Any) -> None:
        """Replace the file's content atomically: other processes see the old state or the new one, never a part.

        Args:
            state: Dicts, lists and tuples of tensors and plain values, nested in any way.
        """
        tensors: dict[str, Tensor] = {}
        content = {"settings": self.settings, "state": _packed(state, tensors, "state")}
        files.write(self.path, tensors, content, FORMAT, "checkpoint")

    def read(self) -> Any:
        """Return the state that `write` stored, with tensors on the CPU; None if there is no file yet."""
        if not self.path.exists():
            return None
        again = "delete it to train from the start, or use another path"
        tensors, content = files.read(self.path, FORMAT, "checkpoint", again)
        try:
            _FILE(content, "checkpoint")
            settings, state = content["settings"], _unpacked(content["state"], tensors)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise FileFormatError(
                f"checkpoint: {self.path} does not contain a valid state ({error!r}). Please {again}."
            ) from error
        files.require_same_run(self.path, settings, self.settings, "the same call", "checkpoint", again)
        return state


def described(value: object, state: Any) -> str:
    """Return an optimiser or schedule as text: its class and its plain values."""
    if value is None:
        return "None"
    return f"{type(value).__name__} {json.dumps(state, default=lambda other: type(other).__name__)}"


def _packed(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """Return `value` as JSON that refers to tensors by name. Copies of the tensors are added to `tensors`."""
    if isinstance(value, Tensor):
        key = f"{len(tensors)} {name}"
        tensors[key] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": key}
    if isinstance(value, Mapping):
        pairs = [[key, _packed(entry, tensors, f"{name}.{key}")] for key, entry in value.items()]
        return {"counter" if isinstance(value, Counter) else "dict": pairs}
    if isinstance(value, tuple | list):
        entries = [_packed(entry, tensors, f"{name}.{i}") for i, entry in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": entries}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise BayesNormError(
        f"checkpoint: {name} is of type {type(value).__name__}, which cannot be saved. Use tensors, numbers, text, and "
        "dicts, lists and tuples of them."
    )


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value that `_packed` turned into JSON."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float(content)
    if kind in ("dict", "counter"):
        pairs = {key: _unpacked(entry, tensors) for key, entry in content}
        return Counter(pairs) if kind == "counter" else pairs
    entries = [_unpacked(entry, tensors) for entry in content]
    return tuple(entries) if kind == "tuple" else entries
