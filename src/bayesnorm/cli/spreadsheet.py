"""Mark text that a spreadsheet would run as a formula, on request.

CSV files contain labels exactly as they are in the training table. A spreadsheet runs text that looks like a formula,
and a label of an untrusted table can be =HYPERLINK(...).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

SpreadsheetSafe = Annotated[
    bool, typer.Option("--spreadsheet-safe", help="Put ' before text that a spreadsheet would run as a formula.")
]

# Characters that start a formula after any blanks, also in the full-width forms of East Asian keyboards.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def harmless(value: Any) -> Any:
    """Return text that a spreadsheet would run with an apostrophe before it, and any other value unchanged."""
    runs = isinstance(value, str) and (value.startswith(("\t", "\r", "\n")) or value.lstrip().startswith(FORMULA))
    return f"'{value}" if runs else value


def harmless_table(frame: Any) -> Any:
    """Return a data frame with `harmless` applied to its names and cells."""
    return frame.rename(columns=harmless).apply(lambda each: each if each.dtype.kind in "biuf" else each.map(harmless))
