"""Check names that a user typed."""

from __future__ import annotations

from collections.abc import Iterable

from bayesnorm.cli.ending import UsageError


def require_known(option: str, chosen: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse names that do not exist.

    Args:
        option: The command-line option of the name.
        chosen: The given names.
        allowed: The allowed names.
    """
    allowed = tuple(allowed)
    for name in chosen:
        if name not in allowed:
            raise UsageError(f"{option} must be one of {', '.join(allowed)}, got {name!r}.")
