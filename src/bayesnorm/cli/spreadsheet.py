"""Text that a spreadsheet would take for a formula, marked on request so that it shows it instead.

CSV files hold labels exactly as they were learned, and a spreadsheet that opens one runs what looks like a formula: a
label of somebody else's table may be =HYPERLINK(...).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

SpreadsheetSafe = Annotated[
    bool, typer.Option("--spreadsheet-safe", help="Put ' before text that a spreadsheet would run, such as =1+1.")
]

# What a formula begins with, in the wide letters of East Asian keyboards too, after any blanks.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def harmless(value: Any) -> Any:
    """Return text with an apostrophe before it if a spreadsheet would run it, and any other value as it is."""
    runs = isinstance(value, str) and (value.startswith(("\t", "\r", "\n")) or value.lstrip().startswith(FORMULA))
    return f"'{value}" if runs else value


def harmless_table(frame: Any) -> Any:
    """Return a data frame whose names and cells are harmless."""
    return frame.rename(columns=harmless).apply(lambda each: each if each.dtype.kind in "biuf" else each.map(harmless))
