"""The rows with the most uncertain predictions, as a table for the page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array
from .classification import ClassificationTest
from .contents import Column, Report
from .regression import RegressionTest
from .words import column_of_numbers, date, fraction, number, percent

# Most and fewest rows of the table, and the number of cells above which it gets shorter.
MOST_ROWS, FEWEST_ROWS, MOST_CELLS = 300, 50, 9000

# Input columns that are shown at most.
MOST_COLUMNS = 60

# Most characters in a cell.
LONGEST = 60

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
    def of(cls, report: Report) -> UncertainRows:
        """Return the table for a report."""
        test = report.test
        shown = report.table.columns[:MOST_COLUMNS]
        most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_CELLS // (len(shown) + 8)))
        order, also = _chosen(test, most)
        answers = _regression(test, order) if isinstance(test, RegressionTest) else _classification(test, order)
        answers = {"Row": [TableCell(str(report.rows.numbers[at])) for at in order], **answers}
        if test.unusual is not None:
            reasons = report.rows.reasons or ["unusual"] * len(test)
            answers[UNUSUAL] = [
                TableCell(_short(f"⚠ {reasons[at]}") if test.unusual[at] else "", numeric=False) for at in order
            ]
        notes = [_notes(report, at) for at in order]
        inputs = [
            [
                _input(column, report.rows.values[at][place], own.get(column.name, ""))
                for at, own in zip(order, notes, strict=True)
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


def _chosen(test: RegressionTest | ClassificationTest, most: int) -> tuple[list[int], int]:
    """Choose the most uncertain rows. Up to a third of the places go to unusual rows that are less uncertain.

    Returns their indices, the most uncertain first, and how many were chosen only because they are unusual.
    """
    order = np.argsort(-test.uncertainty, kind="stable")
    if test.unusual is None or len(order) <= most:
        return order[:most].tolist(), 0
    ranks = np.arange(len(order))
    kept = most - most // 3
    strange = ranks[kept:][test.unusual[order[kept:]]][: most // 3]
    ordinary = np.setdiff1d(ranks, strange)[: most - len(strange)]
    taken = np.sort(np.concatenate([ordinary, strange]))
    return order[taken].tolist(), int((taken != ranks[:most]).sum())


def _regression(test: RegressionTest, order: list[int]) -> dict[str, list[TableCell]]:
    """Return the columns of predicted numbers, by name."""

    def cells(values: Array) -> list[TableCell]:
        # The error bars set how many decimals of a prediction are meaningful.
        return [TableCell(text) for text in column_of_numbers(values[order].tolist(), 3, test.std.tolist())]

    greatest = float(test.std.max()) or 1.0
    bars = [float(test.std[at]) / greatest for at in order]
    return {
        "Predicted": cells(test.mean),
        "Standard deviation (±)": [
            TableCell(cell.text, bar=bar) for cell, bar in zip(cells(test.std), bars, strict=True)
        ],
        f"{percent(test.level)} from": cells(test.lower),
        "to": cells(test.upper),
        "True": cells(test.y),
        "Error": cells(test.y - test.mean),
        "In interval": [TableCell("yes" if test.inside[at] else "✗ no", numeric=False) for at in order],
    }


def _classification(test: ClassificationTest, order: list[int]) -> dict[str, list[TableCell]]:
    """Return the columns of predicted classes, by name."""
    most = float(np.log(len(test.classes))) or 1.0
    uncertainty = column_of_numbers(test.entropy[order].tolist(), 3)
    return {
        "Predicted": [TableCell(_short(test.classes[test.label[at]]), numeric=False) for at in order],
        "Probability": [TableCell(f"{fraction(100 * test.confidence[at], 1)} %") for at in order],
        "Entropy (nats)": [
            TableCell(text, bar=min(1.0, float(test.entropy[at]) / most))
            for text, at in zip(uncertainty, order, strict=True)
        ],
        "True": [TableCell(_short(test.classes[test.y[at]]), numeric=False) for at in order],
        "Right": [TableCell("yes" if test.right[at] else "✗ no", numeric=False) for at in order],
    }


def _notes(report: Report, at: int) -> dict[str, str]:
    """Return the columns that make a row unusual, with the reasons."""
    if report.test.unusual is None or not report.test.unusual[at] or not report.rows.reasons:
        return {}
    found = {}
    for part in report.rows.reasons[at].split("; "):
        named = [column.name for column in report.table.columns if part.startswith(f"{column.name} ")]
        if named:
            longest = max(named, key=len)
            found[longest] = part.removeprefix(f"{longest} ")
    return found


def _input(column: Column, value: object, note: str) -> TableCell:
    """Return the cell of an input, marked if it makes its row unusual."""
    return TableCell(_short(input_text(column, value)), note, numeric=column.kind == "number")


def input_text(column: Column, value: object) -> str:
    """Write the value of an input."""
    if column.kind == "date" and isinstance(value, float):
        return date(value)
    shown = value
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE:
        shown = int(value)  # in full, because it may be an id
    # Without thousands separators, because 2019 may be a year.
    return shown if isinstance(shown, str) else number(shown, 6).replace(",", "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
