"""The most uncertain rows: a table for the page, and charts of the columns that cause their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..words import format_column, format_count, format_day, format_decimals, format_number, format_percent, truncate
from .classification import ClassificationTest
from .contents import Column, Report, RowReasons, UncertaintyReasons
from .page_plots import Bars
from .pictures import PagePicture, page_picture
from .regression import Array, RegressionTest

# Most and fewest rows of the table, and the number of cells above which it gets shorter.
MOST_ROWS, FEWEST_ROWS, MOST_CELLS = 300, 50, 9000

# Most input columns, and most characters in a cell.
MOST_COLUMNS, LONGEST = 60, 60

# Rows with a chart. With the chart of all rows, they fill a page of two or three columns.
MOST_CHARTS = 5

# Bars in a chart, and characters in the label of a bar and in its value.
MOST_BARS, LONGEST_LABEL, LONGEST_VALUE = 6, 24, 12

# Whole numbers below this are written in full.
LARGEST_WHOLE = 1e15

# Name of the column with the reasons why rows are unusual.
UNUSUAL = "Unusual"


@dataclass(frozen=True)
class TableCell:
    """One cell of the table: a text, and optionally a bar or a mark.

    Args:
        text: The text.
        note: Reason why it is marked; "" if it is not.
        bar: Length of a bar from 0 to 1, or None.
        numeric: Whether the text is aligned to the right.
    """

    text: str
    note: str = ""
    bar: float | None = None
    numeric: bool = True


@dataclass(frozen=True)
class UncertainRows:
    """The table of the most uncertain rows.

    Args:
        answers: Names of the columns with predictions.
        inputs: Names of the input columns, which follow.
        rows: Cells of every row, the most uncertain row first.
        left_out_columns: Number of input columns that are not shown.
        also_unusual: Number of rows that are shown only because they are unusual compared with the training data.
    """

    answers: tuple[str, ...]
    inputs: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    left_out_columns: int
    also_unusual: int

    @classmethod
    def from_report(cls, report: Report) -> UncertainRows:
        """Return the table for a report."""
        test = report.test
        shown = report.table.columns[:MOST_COLUMNS]
        most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_CELLS // (len(shown) + 8)))
        order, also = _choose_rows(test, most)
        answers = _regression(test, order) if isinstance(test, RegressionTest) else _classification(test, order)
        answers = {"Row": [TableCell(str(report.rows.numbers[at])) for at in order], **answers}
        if test.unusual is not None:
            reasons = report.rows.reasons or ["unusual"] * len(test)
            answers[UNUSUAL] = [
                TableCell(truncate(f"⚠ {reasons[at]}", LONGEST) if test.unusual[at] else "", numeric=False)
                for at in order
            ]
        notes = [_notes(report, at) for at in order]
        inputs = [
            [
                TableCell(
                    truncate(_input_text(column, report.rows.values[at][place]), LONGEST),
                    row_notes.get(column.name, ""),
                    numeric=column.kind == "number",
                )
                for at, row_notes in zip(order, notes, strict=True)
            ]
            for place, column in enumerate(shown)
        ]
        return cls(
            tuple(answers),
            tuple(column.name for column in shown),
            tuple(zip(*answers.values(), *inputs, strict=True)),
            len(report.table.columns) - len(shown),
            also,
        )


def _choose_rows(test: RegressionTest | ClassificationTest, most: int) -> tuple[list[int], int]:
    """Choose the most uncertain rows. Up to a third of the places go to unusual rows that are less uncertain.

    Returns their indices, the most uncertain first, and how many were chosen only because they are unusual.
    """
    order = np.argsort(-test.uncertainty, kind="stable")
    if test.unusual is None or len(order) <= most:
        return order[:most].tolist(), 0
    ranks = np.arange(len(order))
    surely = most - most // 3
    strange = ranks[surely:][test.unusual[order[surely:]]][: most // 3]
    ordinary = np.setdiff1d(ranks, strange)[: most - len(strange)]
    taken = np.sort(np.concatenate([ordinary, strange]))
    return order[taken].tolist(), int((taken != ranks[:most]).sum())


def _regression(test: RegressionTest, order: list[int]) -> dict[str, list[TableCell]]:
    """Return the columns of predicted numbers, by name."""

    def cells(values: Array) -> list[TableCell]:
        # The error bars set how many decimals of a prediction are meaningful.
        return [TableCell(text) for text in format_column(values[order].tolist(), 3, test.std.tolist())]

    bars = test.std[order] / (float(test.std.max()) or 1.0)
    stds = [replace(cell, bar=float(bar)) for cell, bar in zip(cells(test.std), bars, strict=True)]
    return {
        "Predicted": cells(test.mean),
        "Standard deviation (±)": stds,
        f"{format_percent(test.level)} from": cells(test.lower),
        "to": cells(test.upper),
        "True": cells(test.y),
        "Error": cells(test.y - test.mean),
        "In interval": [TableCell("yes" if test.inside[at] else "✗ no", numeric=False) for at in order],
    }


def _classification(test: ClassificationTest, order: list[int]) -> dict[str, list[TableCell]]:
    """Return the columns of predicted classes, by name."""
    most = float(np.log(len(test.classes))) or 1.0
    uncertainty = format_column(test.entropy[order].tolist(), 3)
    return {
        "Predicted": [TableCell(truncate(test.classes[test.label[at]], LONGEST), numeric=False) for at in order],
        "Probability": [TableCell(f"{format_decimals(100 * test.confidence[at], 1)} %") for at in order],
        "Entropy (nats)": [
            TableCell(text, bar=min(1.0, float(test.entropy[at]) / most))
            for text, at in zip(uncertainty, order, strict=True)
        ],
        "True": [TableCell(truncate(test.classes[test.y[at]], LONGEST), numeric=False) for at in order],
        "Right": [TableCell("yes" if test.right[at] else "✗ no", numeric=False) for at in order],
    }


def _notes(report: Report, at: int) -> dict[str, str]:
    """Return the columns that make a row unusual, with the reasons."""
    if report.test.unusual is None or not report.test.unusual[at] or not report.rows.reasons:
        return {}
    notes = {}
    for part in report.rows.reasons[at].split("; "):
        named = [column.name for column in report.table.columns if part.startswith(f"{column.name} ")]
        if named:
            longest = max(named, key=len)
            notes[longest] = part.removeprefix(f"{longest} ")
    return notes


def _input_text(column: Column, value: object) -> str:
    """Write the value of an input."""
    if column.kind == "date" and isinstance(value, float):
        return format_day(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE:
        value = int(value)  # in full, because it may be an id
    # Without thousands separators, because 2019 may be a year.
    return value if isinstance(value, str) else format_number(value, 6).replace(",", "")


def unusual_words(test: RegressionTest | ClassificationTest) -> str:
    """Say how many rows are unusual compared with the training data, and how well they are predicted; "" if unknown."""
    if test.unusual is None:
        return ""
    rows = int(test.unusual.sum())
    if rows == 0:
        return "No held-out row is unusual compared with the training data."
    if rows == len(test):
        all_rows = "The only held-out row is" if rows == 1 else f"All {format_count(rows, 'held-out row')} are"
        return f"{all_rows} unusual compared with the training data."
    are = "is" if rows == 1 else "are"
    if isinstance(test, RegressionTest):
        error = np.abs(test.y - test.mean)
        here, others = (format_number(float(error[which].mean()), 3) for which in (test.unusual, ~test.unusual))
        compared = f"Their mean absolute error is {here}; for the other rows it is {others}."
    else:
        here, others = (format_percent(float(test.right[which].mean())) for which in (test.unusual, ~test.unusual))
        compared = f"{here} of them are right; of the other rows, {others} are."
    return f"{format_count(rows, 'held-out row')} {are} unusual compared with the training data. {compared}"


def reason_pictures(report: Report) -> tuple[PagePicture, ...]:
    """Draw the most common reasons, and those of the most uncertain rows; nothing if no reasons are known."""
    if report.reasons is None:
        return ()
    rows = [_row_picture(report, row, place) for place, row in enumerate(report.reasons.rows[:MOST_CHARTS])]
    return (_overall_picture(report.reasons), *rows)


def _overall_picture(reasons: UncertaintyReasons) -> PagePicture:
    """Draw how often each column is the main cause."""
    names, shares = list(reasons.first), list(reasons.first.values())
    if not names:
        names, shares = ["no column"], [1.0]
    title = f"The most frequent main cause is {' or '.join(names[: 1 if shares[0] > 0.5 else 2])}"
    if len(names) > MOST_BARS:
        rest = sum(shares[MOST_BARS - 1 :])
        names, shares = [*names[: MOST_BARS - 1], "other columns"], [*shares[: MOST_BARS - 1], rest]
    caption = (
        f"The column that adds most to the epistemic uncertainty, for the {format_count(reasons.explained, 'row')} "
        "where it is largest."
    )
    plot = Bars(title, tuple(truncate(name, LONGEST_LABEL) for name in names), tuple(shares), "share of rows")
    return page_picture("reasons", plot, caption, "Reasons")


def _row_picture(report: Report, reasons: RowReasons, place: int) -> PagePicture:
    """Draw how much the columns of a row add to its uncertainty."""
    names, shares, values = report.rows.names, np.array(reasons.shares), report.rows.values[reasons.row]
    order = np.argsort(-np.abs(shares), kind="stable")
    shown = order[: MOST_BARS - (len(order) > MOST_BARS)]
    shown = shown[np.argsort(-shares[shown], kind="stable")]
    labels, lengths = ["a typical row"], [1 - float(shares.clip(0).sum())]
    for at in shown:
        value = truncate(_input_text(report.table.columns[at], values[at]), LONGEST_VALUE)
        labels.append(f"{truncate(names[at], LONGEST_LABEL - 2 - len(value))}: {value}")
        lengths.append(float(shares[at]))
    if len(order) > len(shown):
        labels.append("other columns")
        lengths.append(float(shares.sum() - shares[shown].sum()))
    cause = f"mainly {reasons.words}" if reasons.words else "no single column"
    title = f"Row {report.rows.numbers[reasons.row]}: {cause}"
    plot = Bars(title, tuple(labels), tuple(lengths), "share of the epistemic uncertainty", usual=True)
    what, unit, power = "epistemic standard deviation", "", 0.5
    if not isinstance(report.test, RegressionTest):
        what, unit, power = "mutual information", " nats", 1.0
    total, usual = (format_number(value**power, 3) for value in (reasons.total, reasons.baseline))
    return page_picture("reasons", plot, f"The {what} is {total}{unit}; for a typical row, {usual}.", f"Reasons{place}")
