"""Take the entry that is meant from what a network returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..errors import NetworkError


def select_output(result: Any, output: str | int | None, rows: int) -> Tensor:
    """Return the chosen entry of what a network returned; refuse one that does not hold one output per row.

    Args:
        result: What the network returned: a tensor, a dict or a tuple.
        output: The dict's key or the tuple's position; None for a tensor.
        rows: How many inputs there were.
    """
    entries: dict[Any, Any] = {}
    if isinstance(result, Mapping):
        entries = dict(result)
    elif isinstance(result, tuple | list):
        entries = dict(enumerate(result))
    result = entries.get(output, result)
    if not isinstance(result, Tensor):
        raise NetworkError(
            f"output: {output!r} was given and the network returns {type(result).__name__} with entries "
            f"{', '.join(map(repr, entries)) or 'unknown'}; name one of them with output=."
        )
    if result.dim() == 0 or result.shape[0] != rows:
        raise NetworkError(
            f"model: returned shape {tuple(result.shape)} for {rows} inputs; the first axis must hold one entry per "
            "input."
        )
    return result
