"""Print tables of results: with rich on a terminal, as plain text in a pipe or a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bayesnorm.words import format_number

# Significant digits of a number.
DIGITS = 4

# Lists and dicts with more characters are shown by their length only.
LONG = 60


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Print rows to standard output.

    Args:
        columns: Names of the columns.
        rows: Values of any type; numbers are shown with four digits.
        title: Line above the table.
    """
    texts = [[cell(value) for value in row] for row in rows]
    right = [any(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    console = Console()
    if not console.is_terminal:
        print(plain_table(columns, texts, right, title), end="")
        return
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for name, number in zip(columns, right, strict=True):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    console.print(table)


def plain_table(columns: Sequence[str], texts: list[list[str]], right: list[bool], title: str) -> str:
    """Return a table as lines of text.

    Args:
        columns: Names of the columns.
        texts: Cells of each row.
        right: Which columns are right-aligned.
        title: Line above the table.
    """
    widths = [max(map(len, [name, *(row[i] for row in texts)])) for i, name in enumerate(columns)]
    lines = [title] if title else []
    for row in ([*columns], ["-" * width for width in widths], *texts):
        parts = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "".join(f"{line}\n" for line in lines)


def cell(value: Any) -> str:
    """Return a value as a short text on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return format_number(value, DIGITS)
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    if isinstance(value, list | dict) and len(text) > LONG:
        return f"({len(value)} entries)"
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
