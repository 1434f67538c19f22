"""The page about a model: its training data, how well it predicts, and how good its uncertainty is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..files import write_bytes
from .confusions import Confusions
from .contents import Column, Report
from .drift_page import DriftReport, drift_context
from .headlines import advice, leak_words, verdicts
from .maps_page import MapsReport, maps_context
from .pictures import curve_picture, pictures
from .regression import RegressionTest
from .score_table import score_table
from .template import rendered
from .uncertain_rows import UncertainRows
from .uncertainty_reasons import reason_pictures
from .uncertainty_words import more_rows_words, uncertainty_words, unusual_words
from .verdict import SYMBOLS
from .words import count, date, number

# Categories that the list of columns names at most.
MOST_CATEGORIES = 6

# Most columns in that list.
MOST_COLUMNS = 200


def write_report(report: Report | DriftReport | MapsReport, path: str | os.PathLike[str]) -> None:
    """Write the page to a file. If that fails, an earlier file stays as it was.

    Args:
        report: The contents of the page: of a model, of new rows, or of uncertainty maps.
        path: The HTML file. Its folder must exist.
    """
    write_bytes(Path(path), render(report).encode())


def render(report: Report | DriftReport | MapsReport) -> str:
    """Return the page as HTML."""
    if isinstance(report, MapsReport):
        return rendered("maps.html", script="maps.js", photos=True, **maps_context(report))
    if isinstance(report, DriftReport):
        return rendered("drift.html", **drift_context(report))
    return rendered("page.html", script="page.js", **_context(report))


def _context(report: Report) -> dict[str, Any]:
    """Return the values that the template uses, by name."""
    test, table = report.test, report.table
    found = verdicts(report)
    grade, headline = advice(found)
    if report.leaks:
        grade, headline = "poor" if grade == "poor" else "fair", leak_words(report.leaks, table.target.name)
    rows = len(test)
    return {
        "report": report,
        "title": report.title or f"{table.target.name} from {table.file}",
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
        "uncertain": UncertainRows.of(report),
        "reasons": reason_pictures(report),
        "unusual": 0 if test.unusual is None else int(test.unusual.sum()),
        "confusions": None if isinstance(test, RegressionTest) else Confusions.of(test),
        "uncertainty_words": uncertainty_words(report),
        "more_rows_words": more_rows_words(report),
        "curve": curve_picture(report.curve),
        "unusual_words": unusual_words(test),
        "off_by": max(1, round(196 * (0.9 * 0.1 / rows) ** 0.5)),
        "settings": list(dict.fromkeys(name for setting in report.choice.settings for name in setting.values)),
    }


def _summary(column: Column) -> str:
    """Describe the values of a column."""
    if column.kind == "category":
        named = ", ".join(name if len(name) <= 30 else name[:29] + "…" for name in column.categories[:MOST_CATEGORIES])
        more = ", …" if len(column.categories) > MOST_CATEGORIES else ""
        return (
            f"{count(len(column.categories), 'category', 'categories')}: {named}{more}"
            if column.categories
            else "categories"
        )
    if column.low is None or column.high is None:
        return f"{column.kind}s"
    shown = date if column.kind == "date" else number
    middle = "" if column.median is None else f", median {shown(column.median)}"
    return f"{shown(column.low)} to {shown(column.high)}{middle}"
