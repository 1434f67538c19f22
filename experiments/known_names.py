"""Check names that a user typed."""

from __future__ import annotations

from collections.abc import Iterable

from bayesnorm.cli.ending import UsageError


def require_known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that do not exist.

    Args:
        option: The command-line option of the name.
        given: The given names.
        known: The allowed names.
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            raise UsageError(f"{option} must be one of {', '.join(known)}, got {name!r}.")
