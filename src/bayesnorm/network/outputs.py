"""Select the relevant entry of a network's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..errors import NetworkError


def select_output(result: Any, output: str | int | None, rows: int) -> Tensor:
    """Return the chosen entry of a network's output; refuse one without one entry per input.

    Args:
        result: The output of the network: a tensor, a dict or a tuple.
        output: The dict's key or the tuple's position; None for a tensor.
        rows: The number of inputs.
    """
    entries: dict[Any, Any] = {}
    if isinstance(result, Mapping):
        entries = dict(result)
    elif isinstance(result, tuple | list):
        entries = dict(enumerate(result))
    result = entries.get(output, result)
    if not isinstance(result, Tensor):
        raise NetworkError(
            f"output={output!r}, but the network returns {type(result).__name__} with entries "
            f"{', '.join(map(repr, entries)) or 'unknown'}. Choose one of them with output=."
        )
    if result.dim() == 0 or result.shape[0] != rows:
        raise NetworkError(
            f"model: it returned shape {tuple(result.shape)} for {rows} inputs. The first axis must have one entry "
            "per input."
        )
    return result
