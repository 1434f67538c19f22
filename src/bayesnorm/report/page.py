"""Write pages, and the values on the page about a model: its data, how well it predicts, and its uncertainty.

Pages load nothing from the network or from other files.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import load_package
from ..words import (
    format_count,
    format_day,
    format_duration,
    format_number,
    format_percent,
    keep_together,
    truncate,
)
from ..writing import write_bytes
from .classification import Confusions
from .contents import Column, Report
from .honesty import honesty
from .influence import DependencePlot, Influence
from .next_steps import honesty_step, more_rows_words, prediction_step, usefulness_step
from .other_pages import DriftReport, MapsReport, drift_context, maps_context
from .page_plots import TIMES, LearningCurve
from .pictures import PagePicture, colour_variables, page_picture, pictures
from .regression import Array, RegressionTest
from .row_groups import row_labels
from .score_tables import score_table
from .skill import prediction, usefulness
from .uncertain_rows import UncertainRows, reason_pictures, unusual_words
from .verdict import SYMBOLS, Verdict, advice, leak_words

# Categories that the list of columns names at most, and characters of a category.
MOST_CATEGORIES, LONGEST_CATEGORY = 6, 30

# Most columns in that list.
MOST_COLUMNS = 200

# Printed in place of a page's name if these packages are missing.
WITHOUT_PAGE = "not written (pip install jinja2 matplotlib)"

# The limit of the split of uncertainty, unless networks that were trained on fewer rows were compared as well.
SUM_ALONE = (
    "Held-out rows confirm only the sum of the two parts, not the split. So this does not show whether more rows would "
    "help."
)


def can_write_pages() -> bool:
    """Return whether the packages for pages are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jinja2", "matplotlib"))


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
        return _fill("maps.html", scripts=("maps.js",), photos=True, **maps_context(report))
    if isinstance(report, DriftReport):
        return _fill("drift.html", **drift_context(report))
    return _fill("page.html", scripts=("page.js", "pictures.js"), **_context(report))


def _fill(template: str, *, scripts: tuple[str, ...] = (), photos: bool = False, **context: Any) -> str:
    """Fill in a template of this folder, and return it as HTML, with the style sheet of all pages.

    Args:
        template: File name of the template.
        scripts: File names of its scripts.
        photos: Whether the page contains images as data.
        **context: All other values that it uses, by name.
    """
    jinja2 = load_package("jinja2", "HTML reports need jinja2. Install it with: pip install jinja2")
    loader, undefined = jinja2.FunctionLoader(_text), jinja2.StrictUndefined
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=undefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        word.__name__: word for word in (format_number, format_percent, format_count, format_duration, keep_together)
    }
    code = "\n".join(map(_text, scripts))
    # The browser may run only these scripts, and no script from a cell of the table.
    script_hash = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page: str = environment.get_template(template).render(
        css=_css(), script=code, script_hash=script_hash, photos=photos, **context
    )
    return page


def _css() -> str:
    """Return the style sheet with the colours of the pictures in both themes."""
    css = _text("page.css")
    for theme in ("light", "dark"):
        css = css.replace(f"/* {theme} pictures */", colour_variables(theme))
    return css


def _text(name: str) -> str:
    """Read a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _context(report: Report) -> dict[str, Any]:
    """Return the values that the template uses, by name."""
    test, table = report.test, report.table
    answers = verdicts(report)
    grade, headline = advice(answers)
    if report.leaks:
        grade, headline = "poor" if grade == "poor" else "fair", leak_words(report.leaks, table.target.name)
    rows = len(test)
    return {
        "report": report,
        "title": report.title or f"{table.target.name} from {table.file}",
        "regression": isinstance(test, RegressionTest),
        "verdicts": answers,
        "grade": grade,
        "symbol": SYMBOLS[grade],
        "headline": headline,
        "test_rows": rows,
        "columns": [(column, _summary(column)) for column in table.columns[:MOST_COLUMNS]],
        "target_summary": _summary(table.target),
        "scores": score_table(report),
        "pictures": pictures(test, row_labels(report)),
        "uncertain": UncertainRows.from_report(report),
        "reasons": reason_pictures(report),
        "unusual": 0 if test.unusual is None else int(test.unusual.sum()),
        "confusions": None if isinstance(test, RegressionTest) else Confusions.from_test(test),
        "influence": influence_pictures(report.influence),
        "uncertainty_words": uncertainty_words(report),
        "more_rows_words": more_rows_words(report),
        "curve": _curve_picture(report.curve),
        "unusual_words": unusual_words(test),
        "off_by": max(1, round(196 * (0.9 * 0.1 / rows) ** 0.5)),
        "settings": list(dict.fromkeys(name for setting in report.choice.settings for name in setting.values)),
    }


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Return the verdicts: whether it predicts well, whether its uncertainty is honest, and whether it is useful."""
    answers = (
        (prediction(report.test), prediction_step),
        (honesty(report.test, row_labels(report)), honesty_step),
        (usefulness(report.test), usefulness_step),
    )
    return tuple(replace(verdict, next_step=verdict.next_step or step(verdict, report)) for verdict, step in answers)


def _summary(column: Column) -> str:
    """Describe the values of a column."""
    if column.kind == "category":
        named = ", ".join(truncate(name, LONGEST_CATEGORY) for name in column.categories[:MOST_CATEGORIES])
        more = ", …" if len(column.categories) > MOST_CATEGORIES else ""
        count = format_count(len(column.categories), "category", "categories")
        return f"{count}: {named}{more}" if column.categories else "categories"
    if column.low is None or column.high is None:
        return f"{column.kind}s"
    shown = format_day if column.kind == "date" else format_number
    middle = "" if column.median is None else f", median {shown(column.median)}"
    return f"{shown(column.low)} to {shown(column.high)}{middle}"


def _curve_picture(curve: LearningCurve | None) -> tuple[PagePicture, ...]:
    """Draw how the error falls with the number of rows; nothing without a learning curve."""
    if curve is None:
        return ()
    caption = (
        "Squares show single networks in cross-validation, trained on fewer rows and on all. The full circle is the "
        f"model on the held-out rows. The dashed line shows what to expect from {TIMES[0]} and {TIMES[1]} times as "
        "many rows."
    )
    return (page_picture("rows", curve, caption),)


def influence_pictures(influence: Influence | None) -> tuple[PagePicture, ...]:
    """Draw what drives predictions and their uncertainty; nothing if it is unknown."""
    if influence is None or not influence.columns:
        return ()
    bars = {
        "error": f"The rise of the {influence.score} on {influence.rows:,} rows if one column is shuffled.",
        "uncertainty": f"The mean absolute change of the {influence.uncertainty} of a row, compared with its mean.",
    }
    pictures = [page_picture("influence", influence.bars(by), text, f"Bars-{by}") for by, text in bars.items()]
    classes = influence.uncertainty == "mutual information"
    for number, dependence in enumerate(influence.dependence):
        plot = DependencePlot(dependence, influence.output, bands=not classes)
        pictures.append(page_picture("influence", plot, plot.caption, f"Dependence{number}"))
    return tuple(pictures)


def uncertainty_words(report: Report) -> str:
    """Say how large the uncertainty is and where it comes from, on average over the test rows."""
    test = report.test
    limit = f" {SUM_ALONE}" if report.curve is None else ""
    # Not where the learning curve shows the contrary.
    reducible = ": more data could reduce it" if report.curve is None or report.curve.helps else ""
    if isinstance(test, RegressionTest):
        share = _part(test.epistemic_std**2, test.std**2)
        least, middle, most = (format_number(float(value), 3) for value in np.quantile(test.std, (0, 0.5, 1)))
        return (
            f"The error bars (one standard deviation) are between ± {least} and ± {most}, with a median of ± {middle}. "
            f"The model attributes {share} of the predicted variance to itself (epistemic){reducible}. It attributes "
            f"the rest to noise in the target.{limit}"
        )
    if test.mutual_information is None:
        return ""
    share = _part(test.mutual_information, test.entropy)
    sure, unsure = (format_percent(float(value), 1) for value in np.quantile(test.confidence, (0.5, 0)))
    return (
        f"The probability of the predicted class is {sure} in the median row and {unsure} in the least certain row. "
        f"The model attributes {share} of the uncertainty (entropy) to itself (epistemic){reducible}. It attributes "
        f"the rest to overlap between the classes.{limit}"
    )


def _part(part: Array, whole: Array) -> str:
    """Write the mean of a part as a percentage of the mean of the whole."""
    return format_percent(float(part.mean()) / float(whole.mean()) if whole.mean() > 0 else 0.0)
