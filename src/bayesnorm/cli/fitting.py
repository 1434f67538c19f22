"""The steps of `bayesnorm fit`: read the table, hold rows out, train, predict the held-out rows, write the run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BayesNormError
from ..words import format_count, format_duration
from .file_columns import require_columns
from .held_out import FEW_ROWS, LEVEL, RowSplit, hold_out, keep_all, predict_by_folds, predict_held_out
from .options import FitOptions, Task
from .output_files import prediction_file
from .predictions import DIGITS, count_infinite_intervals, infinite_intervals_words, round_predictions
from .printing import note
from .run_folder import CONTENTS, MODEL, PAGE, TEST, json_value, new_run, target_folders, write_facts, write_json
from .run_report import make_report
from .table_source import Source
from .tables import TableFile
from .training_table import Tell, TrainingTable, load_training_table

# Default fraction of held-out rows.
TEST_FRACTION = 0.2


@dataclass(frozen=True)
class FitContext:
    """What all models of one command share.

    Args:
        spreadsheet_safe: Whether to mark text that a spreadsheet would run as a formula.
        command: The command that creates the same run again.
        quiet: Whether to show neither messages nor progress bars.
        started: When the command started, in seconds of `time.perf_counter`.
    """

    spreadsheet_safe: bool
    command: str
    quiet: bool
    started: float

    def tell(self, line: str) -> None:
        """Print a message."""
        if not self.quiet:
            note(line)


def fit_run(
    file: TableFile, out: Path, targets: Sequence[str], options: FitOptions, context: FitContext
) -> dict[str, dict[str, Any]]:
    """Train on a table and create the run folder, completely or not at all.

    Args:
        file: The table, from `open_table`.
        out: The folder to create; for several targets it contains one run for each.
        targets: The columns to predict; one string can name several, separated by commas.
        options: What to train; its target is ignored.
        context: What all models share.

    Returns:
        For each target the contents of its `run.json`.
    """
    names = split_target_names(file, targets)
    others = {name: tuple(other for other in names if other != name) for name in names}
    target_options = [replace(options, target=name, drop=(*options.drop, *others[name])) for name in names]
    # Read the columns of all targets before training, so that an error in one of them comes first.
    tell = _tell_once(context.tell)
    tables = [load_training_table(file, one_target, tell) for one_target in target_options]
    with new_run(out) as folder:
        if len(names) == 1:
            return {names[0]: _fit_target(tables[0], folder, target_options[0], context)}
        runs, folders = {}, target_folders(names)
        for table, one_target in zip(tables, target_options, strict=True):
            context.tell(f"{one_target.target}:")
            target_folder = folder / folders[one_target.target]
            target_folder.mkdir()
            runs[one_target.target] = _fit_target(table, target_folder, one_target, context)
        write_facts(folder, {"targets": folders})
    return runs


def split_target_names(file: TableFile, targets: Sequence[str]) -> list[str]:
    """Return the columns to predict, each once; a comma separates names unless a column's name contains it."""
    parts = [[text] if text in file.names else [part.strip() for part in text.split(",")] for text in targets]
    names = list(dict.fromkeys(name for part in parts for name in part if name))
    require_columns(file, names or list(targets), "--target")
    return names


def _tell_once(tell: Tell) -> Tell:
    """Return a function that passes on a line unless it was printed before."""
    printed: set[str] = set()

    def tell_new(line: str) -> None:
        if line not in printed:
            printed.add(line)
            tell(line)

    return tell_new


def _fit_target(table: TrainingTable, folder: Path, options: FitOptions, context: FitContext) -> dict[str, Any]:
    """Train on a table and fill the run folder; return the contents of its `run.json`."""
    from ..report import Provenance, can_write_pages, write_report

    started = time.perf_counter()
    source = table.source
    split = _split_rows(table, options)
    train, warnings = split.train, [*split.messages, *table.warnings]
    for line in split.messages:
        context.tell(line)
    if len(split.test):
        context.tell(
            f"Training on {format_count(len(train), 'row')}, with {format_count(len(split.test), 'row')} held out."
        )
    model = _estimator(options, table.task, not context.quiet)
    weights = None if table.weight is None else table.weight[train]
    model.fit(table.inputs.iloc[train], table.y[train], sample_weight=weights, groups=split.groups)
    if line := model.preprocessing_.screening_words:
        warnings.insert(0, line)
    model.save(folder / MODEL)
    if len(split.test):
        predictions = predict_held_out(model, table.inputs, table.y, split.test)
    else:
        predictions = predict_by_folds(model, table.inputs)
    if infinite := count_infinite_intervals(predictions.frame):
        warnings.insert(0, infinite_intervals_words(infinite, len(predictions.rows), LEVEL))
        context.tell(warnings[0])
    provenance = Provenance.now(context.command, time.perf_counter() - started)
    table = replace(table, warnings=tuple(warnings))
    report = make_report(
        model, table, train, predictions, file=source.name, target=options.target, provenance=provenance
    )
    frame = round_predictions(predictions.frame, DIGITS)
    frame.insert(1, "y", json_value(table.y[predictions.rows]))
    with prediction_file(folder / TEST, spreadsheet_safe=context.spreadsheet_safe) as write:
        write(frame)
    values = json_value(report.content)
    write_json(folder / CONTENTS, values)
    has_page = can_write_pages()
    if has_page:
        write_report(report.content, folder / PAGE)
    # What the user has waited so far, with reading the table and drawing the page.
    waited = {"time": format_duration(time.perf_counter() - context.started)}
    facts = {
        "task": str(table.task),
        "target": options.target,
        "columns": table.columns,
        "left_out": table.left_out,
        "leaks": table.leaks,
        "classes": json_value(model.classes_) if table.task is Task.classification else None,
        "data": {"file": source.name, "sha256": _sha256(source), "rows": len(table.y)},
        "rows": {"training": len(train), "test": len(predictions.rows)}
        | ({"cross_validated": True} if predictions.cross_validated else {}),
        "settings": {**asdict(options), "task": str(table.task)},
        "chosen": report.chosen,
        "scores": report.scores,
        "summary": {**report.summary, **waited},
        "warnings": warnings,
        "report": has_page,
        **values["provenance"],
    }
    write_facts(folder, facts)
    return facts


def _split_rows(table: TrainingTable, options: FitOptions) -> RowSplit:
    """Return which rows are held out; by default none of a small table.

    Conformal intervals are always tested on held-out rows, because their guarantee is for rows that no network saw.
    """
    rows, fraction = len(table.y), options.test_fraction
    no_preference = fraction is None and table.time is None and table.group is None and not options.conformal
    if no_preference and rows < FEW_ROWS:
        message = f"{rows} rows are too few for a held-out set. The model is tested by cross-validation instead."
        return RowSplit(np.arange(rows), np.arange(0), None, (message,))
    if fraction == 0:
        if options.conformal:
            raise BayesNormError(
                "--conformal needs held-out rows, because its guarantee is for rows that no member saw. Leave out "
                "--test-fraction 0."
            )
        return keep_all(rows, table.time, table.group)
    return hold_out(table.y, table.task, fraction or TEST_FRACTION, options.seed, table.time, table.group)


def _estimator(options: FitOptions, task: Task, progress: bool) -> Any:
    """Return the unfitted estimator for the options."""
    from ..tabular import BayesNormClassifier, BayesNormRegressor

    names = ["method", "hidden", "epochs", "members", "networks_only", "fast", "interruptible"]
    if options.effective_batch_size is not None:
        names.append("effective_batch_size")
    settings = {name: getattr(options, name) for name in names}
    settings |= {"device": str(options.device), "random_state": options.seed, "verbose": int(progress)}
    if task is Task.classification:
        for name in ("conformal", "homoscedastic"):
            if getattr(options, name):
                raise BayesNormError(
                    f"--{name} works only for regression, but the task is classification. Leave it out, or use --task "
                    "regression."
                )
        return BayesNormClassifier(**settings)
    return BayesNormRegressor(heteroscedastic=not options.homoscedastic, conformal=options.conformal, **settings)


def _sha256(source: Source) -> str:
    with source.packed_stream() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
