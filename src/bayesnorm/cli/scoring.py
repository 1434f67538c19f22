"""Predict the rows of a table in chunks, in this process or in workers, with one progress bar and bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..progress import Progress
from .decisions import Decisions
from .file_columns import OddCells, read_as_in_training
from .output_files import arrow_table, csv_text
from .predictions import (
    add_table_columns,
    count_infinite_intervals,
    count_reasons,
    flag_odd_cells,
    join_targets,
    round_predictions,
)
from .tables import TableFile

# Rows predicted at a time.
CHUNK = 8_192

OutputFormat = Literal["frame", "csv", "parquet"]


@dataclass
class Totals:
    """Counts over rows.

    Args:
        rows: Number of rows.
        unusual: How many of them are unusual.
        infinite: How many of them have an infinite interval.
        reasons: How often each reason for unusual rows occurs.
    """

    rows: int = 0
    unusual: int = 0
    infinite: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: Totals) -> None:
        """Add the counts of other rows."""
        self.rows, self.unusual = self.rows + other.rows, self.unusual + other.unusual
        self.infinite += other.infinite
        self.reasons.update(other.reasons)

    def as_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {**vars(self), "reasons": dict(self.reasons)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Totals:
        """Return the counts from the result of `as_json`."""
        return cls(**{**values, "reasons": Counter(values["reasons"])})


@dataclass(frozen=True)
class Scored:
    """The predictions of a chunk.

    Args:
        content: The predictions: a data frame, lines of CSV, or an Arrow table.
        header: The line of CSV with the column names.
        totals: Counts over the rows.
    """

    content: Any
    header: bytes
    totals: Totals


@dataclass(frozen=True)
class Scoring:
    """How chunks of a table are predicted. Workers get a copy.

    Args:
        facts: The contents of `run.json` of each target.
        models: The fitted estimator of each target.
        source: The name of the table, for messages.
        decimal: The decimal point of the table.
        level: Probability of the intervals.
        digits: See `round_predictions`.
        explain: Whether to explain the epistemic uncertainty.
        ids: Columns of the table to write before the predictions.
        others: Columns of the table to write after them.
        output: What the predictions of a chunk are converted to.
        typed: Whether these columns are numbers and dates instead of the text of the file.
        spreadsheet_safe: Whether to mark CSV text that a spreadsheet would run as a formula.
        decisions: What is added to the predictions of each target.
    """

    facts: Sequence[Mapping[str, Any]]
    models: Sequence[Any]
    source: str
    decimal: str
    level: float
    digits: int
    explain: bool
    ids: list[str]
    others: list[str]
    output: OutputFormat
    typed: bool
    spreadsheet_safe: bool
    decisions: Sequence[Decisions]

    def inputs(self, part: Any) -> list[Any]:
        """Return the inputs of the estimator of each target."""
        return [inputs for inputs, _ in self._read(part)]

    def _read(self, part: Any) -> list[tuple[Any, OddCells]]:
        """Return the inputs of the estimator of each target, and the cells that cannot be read."""
        return [read_as_in_training(part, self.source, self.decimal, facts) for facts in self.facts]

    def score(self, part: Any) -> Scored:
        """Return the predictions of a chunk of the table."""
        from ..tabular import prediction_frame

        read, frames = self._read(part), []
        inputs = [values for values, _ in read]
        for model, (values, odd), decisions in zip(self.models, read, self.decisions, strict=True):
            predictive, uncertainty = model.predict_with_uncertainty(values)
            flag_odd_cells(uncertainty, part, odd)
            frame = prediction_frame(model, values, predictive, uncertainty, self.level)
            decisions.add(frame, model, values, predictive)
            if self.explain:
                frame["uncertainty_from"] = model.explain_uncertainty(values).words()
            frames.append(frame)
        rounded = [round_predictions(frame, self.digits) for frame in frames]
        targets = [str(facts.get("target")) for facts in self.facts]
        predictions = join_targets(dict(zip(targets, rounded, strict=True)))
        totals = Totals(
            len(predictions),
            int(predictions["unusual"].sum()),
            max(count_infinite_intervals(frame) for frame in frames),
            count_reasons(predictions["reason"]),
        )
        cells = part.assign(**{name: values[name] for values in inputs for name in values}) if self.typed else part
        content, header = add_table_columns(predictions, part[self.ids], cells[self.others]), b""
        if self.output == "csv":
            header, content = csv_text(content, self.spreadsheet_safe)
        elif self.output == "parquet":
            content = arrow_table(content)
        return Scored(content, header, totals)


def with_progress(scored: Iterable[Scored], file: TableFile, done: int, tell: Progress) -> Iterator[Scored]:
    """Yield predictions, and tell a progress bar about each of them.

    Args:
        scored: The predictions.
        file: The table.
        done: Number of rows that were predicted before.
        tell: The function of the progress bar.
    """
    for one in scored:
        yield one
        done += one.totals.rows
        tell(done, max(file.about_rows, done + 1) if file.about_rows else 0)
