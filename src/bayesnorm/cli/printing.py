"""Print values: with rich on a terminal, as plain text in a pipe or a file."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import shortened

# Control characters, characters that change the direction of text, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Answers are wrapped at this many characters.
TEXT_WIDTH = 100


def show_pairs(pairs: Mapping[str, str]) -> None:
    """Print names and values to standard output, one pair per line; a question has its answer on the next lines."""
    console = Console()
    width = max((len(name) for name in pairs if not name.endswith("?")), default=0)
    for name, text in ((escape_controls(name), escape_controls(text)) for name, text in pairs.items()):
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


def show_json(value: Any) -> None:
    """Print a value as JSON, with null for NaN and infinities."""
    print(escape_controls(json.dumps(_finite(value), indent=2, ensure_ascii=False), keep="\n"))


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
    print(escape_controls(shortened(text)), file=sys.stderr)


def escape_controls(text: str, keep: str = "") -> str:
    """Return a text whose control characters are written like \\u001b, so that a terminal does not run them.

    Args:
        text: The text.
        keep: Control characters to keep, such as line ends.
    """
    return _CONTROL.sub(lambda match: match[0] if match[0] in keep else f"\\u{ord(match[0]):04x}", text)


def _finite(value: Any) -> Any:
    """Return a JSON value with None for NaN and infinities."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
