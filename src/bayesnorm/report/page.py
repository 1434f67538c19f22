"""The page itself: one file that needs nothing else, neither a network nor another file."""

from __future__ import annotations

import base64
import hashlib
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from ..files import write_bytes
from .confusions import Confusions
from .contents import Column, Report
from .doubt_words import doubt_words, unlike_words
from .doubted_rows import DoubtedRows
from .headlines import advice, verdicts
from .pictures import pictures
from .regression import RegressionTest
from .score_table import score_table
from .themed_svg import colour_variables
from .verdict import SYMBOLS
from .words import count, duration, number, percent, unbroken

# Most categories that are named in the list of columns.
MOST_CATEGORIES = 6

# Most columns in that list.
MOST_COLUMNS = 200


def write_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all.

    Args:
        report: What the page shows.
        path: The HTML file; its folder must exist.
    """
    write_bytes(Path(path), render(report).encode())


def render(report: Report) -> str:
    """Return the page as HTML."""
    return rendered("page.html", **_context(report))


def rendered(template: str, **context: Any) -> str:
    """Return a template that lies beside this file, filled in, with the style sheet of all pages."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("reports need jinja2: pip install 'bayesnorm[report]'.") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {each.__name__: each for each in (number, percent, count, duration, unbroken)}
    return environment.from_string(_text(template)).render(css=_css(), **context)


def _context(report: Report) -> dict[str, Any]:
    """Return all that the template uses, by name."""
    test, table = report.test, report.table
    found = verdicts(report)
    grade, headline = advice(found)
    script = _text("page.js")
    rows = len(test)
    return {
        "report": report,
        "title": report.title or f"{table.target.name} from {table.file}",
        "script": script,
        # Only this script may run: whatever a cell of the table may hold, the browser refuses it.
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "regression": isinstance(test, RegressionTest),
        "verdicts": found,
        "grade": grade,
        "symbol": SYMBOLS[grade],
        "headline": headline,
        "test_rows": rows,
        "columns": [(column, _summary(column)) for column in table.columns[:MOST_COLUMNS]],
        "target_summary": _summary(table.target),
        "scores": score_table(test),
        "pictures": pictures(test),
        "doubted": DoubtedRows.of(report),
        "unlike": 0 if test.unlike is None else int(test.unlike.sum()),
        "confusions": None if isinstance(test, RegressionTest) else Confusions.of(test),
        "doubt_words": doubt_words(test),
        "unlike_words": unlike_words(test),
        "off_by": max(1, round(196 * (0.9 * 0.1 / rows) ** 0.5)),
        "settings": list(dict.fromkeys(name for setting in report.choice.settings for name in setting.values)),
    }


def _summary(column: Column) -> str:
    """Say in words what a column holds."""
    if column.kind == "category":
        named = ", ".join(name if len(name) <= 30 else name[:29] + "…" for name in column.categories[:MOST_CATEGORIES])
        more = ", …" if len(column.categories) > MOST_CATEGORIES else ""
        return f"{len(column.categories)} categories: {named}{more}" if column.categories else "categories"
    if column.low is None or column.high is None:
        return "numbers"
    middle = "" if column.median is None else f", median {number(column.median)}"
    return f"{number(column.low)} to {number(column.high)}{middle}"


def _css() -> str:
    """Return the style sheet with the pictures' colours of both themes."""
    css = _text("page.css")
    for theme in ("light", "dark"):
        css = css.replace(f"/* {theme} pictures */", colour_variables(theme))
    return css


def _text(name: str) -> str:
    """Read a file that lies beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
