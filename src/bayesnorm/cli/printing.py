"""Print tables and values: with rich on a terminal, as plain text in a pipe or a file."""

from __future__ import annotations

import contextlib
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import shortened
from ..words import format_number

# Significant digits of a number.
DIGITS = 4

# Answers are wrapped at this many characters.
TEXT_WIDTH = 100

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


def show_pairs(pairs: Mapping[str, str]) -> None:
    """Print names and values to standard output, one pair per line; a question has its answer on the next lines."""
    console = Console()
    width = max((len(name) for name in pairs if not name.endswith("?")), default=0)
    for name, text in pairs.items():
        title = Text(name, style="bold" if console.is_terminal else "")
        if name.endswith("?"):
            console.print(title, soft_wrap=True)
            lines = textwrap.wrap(text, min(console.width, TEXT_WIDTH) - 2, break_long_words=False)
            console.print(Text(textwrap.indent("\n".join(lines), "  ")), soft_wrap=True)
        elif console.is_terminal:
            table = Table.grid(padding=(0, 2))
            table.add_column(min_width=width)
            table.add_row(title, Text(text))
            console.print(table)
        else:
            print(f"{name.ljust(width)}  {text}")


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


def show_json(value: Any) -> None:
    """Print a value as JSON, with null for NaN and infinities."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False))


@contextlib.contextmanager
def standard_output() -> Iterator[IO[str]]:
    """Yield standard output; errors of writing, such as a full disk, then name it."""
    try:
        yield sys.stdout
    except OSError as error:
        if error.filename is None:
            error.filename = "standard output"
        raise


def note(text: str) -> None:
    """Print a message on standard error, apart from the results on standard output."""
    print(shortened(text), file=sys.stderr)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> Any:
    """Return a JSON value with None for NaN and infinities."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
