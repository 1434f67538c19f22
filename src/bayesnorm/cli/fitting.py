"""What `bayesnorm fit` does: read, hold rows out, train, predict them, and write it all down."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BayesNormError
from .file_columns import require_columns
from .fit_options import FitOptions
from .holding_out import Split, hold_out
from .judging import FEW_ROWS, LEVEL, judge_by_folds, judge_held_out
from .pages import can_write_pages
from .prediction_file import prediction_file
from .predictions import DIGITS, no_end_words, readable, without_end
from .report_json import json_value
from .run_folder import CONTENTS, MODEL, PAGE, TEST, new_run, run_places, write_facts, write_json, write_places
from .run_report import make_report
from .table_source import Source
from .tables import TableFile, open_table
from .task import Task
from .training_table import Tell, TrainingTable, load_training_table
from .versions import all_versions, cpu_name

# Part of the rows that is held out where nobody says otherwise.
FIFTH = 0.2


@dataclass(frozen=True)
class FitContext:
    """What all models of a command share.

    Args:
        spreadsheet_safe: Whether text that a spreadsheet would run is marked in the predictions of held-out rows.
        command: The command that makes the same run again.
        tell: Called with a line for whoever waits.
        progress: Whether to show bars.
    """

    spreadsheet_safe: bool
    command: str
    tell: Tell
    progress: bool


def fit_run(
    data: str,
    out: Path,
    targets: Sequence[str],
    options: FitOptions,
    context: FitContext,
    *,
    max_mib: float,
    encoding: str | None,
) -> dict[str, dict[str, Any]]:
    """Train on a table and make a run's folder, which is there as a whole or not at all.

    Args:
        data: The table's file, or what else `open_table` takes.
        out: The folder to make; where there are several targets, it holds a run for each.
        targets: The columns to predict, or several in one with commas between them.
        options: What to train; its target is not looked at.
        context: What all models share.
        max_mib: Largest size of the file that is read.
        encoding: The encoding of text; None to find it out.

    Returns:
        For each target what is known about its run, as written there.
    """
    file = open_table(data, max_mib, encoding)
    names = named_targets(file, targets)
    told: dict[str, None] = {}
    others = {name: tuple(other for other in names if other != name) for name in names}
    asked = [replace(options, target=name, drop=(*options.drop, *others[name])) for name in names]
    # All are read before any is trained on: what is wrong with one of them is said first.
    loaded = [load_training_table(file, each, lambda line: _tell_once(line, told, context.tell)) for each in asked]
    with new_run(out) as folder:
        if len(names) == 1:
            return {names[0]: _fit(loaded[0], folder, asked[0], context)}
        found, places = {}, run_places(names)
        for table, each in zip(loaded, asked, strict=True):
            context.tell(f"{each.target}:")
            part = folder / places[each.target]
            part.mkdir()
            found[each.target] = _fit(table, part, each, context)
        write_places(folder, places)
    return found


def named_targets(file: TableFile, given: Sequence[str]) -> list[str]:
    """Return the names of the columns to predict, each once; a comma parts names where no column has it in its own."""
    parted = [[each] if each in file.names else [part.strip() for part in each.split(",")] for each in given]
    names = list(dict.fromkeys(name for part in parted for name in part if name))
    require_columns(file, names or list(given), "--target")
    return names


def _tell_once(line: str, told: dict[str, None], tell: Tell) -> None:
    """Pass a line on that was not told before."""
    if line not in told:
        told[line] = None
        tell(line)


def _fit(loaded: TrainingTable, folder: Path, options: FitOptions, context: FitContext) -> dict[str, Any]:
    """Train on a table and fill a run's folder; return what is known about it, as written there."""
    from ..report.words import count

    started = time.perf_counter()
    source = loaded.reading.file.source
    held = _held_out(loaded, options)
    train, loaded = held.train, replace(loaded, warnings=(*held.told, *loaded.warnings))
    for line in held.told:
        context.tell(line)
    if len(held.test):
        context.tell(f"training on {count(len(train), 'row')}, holding out {len(held.test):,}")
    model = _estimator(options, loaded.task, context.progress)
    model.fit(loaded.inputs.iloc[train], loaded.y[train], groups=held.groups)
    model.save(folder / MODEL)
    judged = judge_held_out(model, loaded, held.test) if len(held.test) else judge_by_folds(model, loaded)
    if endless := without_end(judged.frame):
        line = no_end_words(endless, len(judged.rows), LEVEL)
        loaded = replace(loaded, warnings=(line, *loaded.warnings))
        context.tell(line)
    report = make_report(
        model,
        loaded,
        train,
        judged,
        file=source.name,
        target=options.target,
        provenance={
            "versions": all_versions(),
            "hardware": cpu_name(),
            "date": datetime.now().astimezone().date().isoformat(),
            "command": context.command,
            "seconds": time.perf_counter() - started,
        },
    )
    frame = readable(judged.frame, DIGITS)
    frame.insert(1, "y", json_value(loaded.y[judged.rows]))
    with prediction_file(folder / TEST, spreadsheet_safe=context.spreadsheet_safe) as write:
        write(frame)
    values = json_value(report.content)
    write_json(folder / CONTENTS, values)
    has_page = can_write_pages()
    if has_page:
        from ..report import write_report

        write_report(report.content, folder / PAGE)
    facts = {
        "task": str(loaded.task),
        "target": options.target,
        "columns": loaded.columns(),
        "left_out": loaded.left_out,
        "leaks": loaded.leaks,
        "classes": json_value(model.classes_) if loaded.task is Task.classification else None,
        "data": {"file": source.name, "sha256": _sha256(source), "rows": len(loaded.y)},
        "rows": {"training": len(train), "test": len(judged.rows)}
        | ({"cross_validated": True} if judged.cross_validated else {}),
        "settings": {**asdict(options), "task": str(loaded.task)},
        "chosen": report.chosen,
        "scores": report.scores,
        "summary": report.summary,
        "warnings": list(loaded.warnings),
        "report": has_page,
        **values["provenance"],
    }
    write_facts(folder, facts)
    return facts


def _held_out(loaded: TrainingTable, options: FitOptions) -> Split:
    """Return which rows are held out: none of few, if nobody says otherwise.

    A guarantee of intervals is for rows that no member of the model has learned from.
    """
    rows, fraction = len(loaded.y), options.test_fraction
    as_usual = fraction is None and loaded.time is None and loaded.group is None and not options.conformal
    if as_usual and rows < FEW_ROWS:
        told = f"{rows} rows are too few to hold some out: each is judged by networks that did not see it."
        return Split(np.arange(rows), np.arange(0), None, (told,))
    return hold_out(loaded.y, loaded.task, fraction or FIFTH, options.seed, loaded.time, loaded.group)


def _estimator(options: FitOptions, task: Task, progress: bool) -> Any:
    """Return the estimator that the options ask for, not fitted yet."""
    from ..tabular import BayesNormClassifier, BayesNormRegressor

    given: dict[str, Any] = {
        "method": options.method,
        "hidden": options.hidden,
        "epochs": options.epochs,
        "members": options.members,
        "fast": options.fast,
        "interruptible": options.interruptible,
        "device": str(options.device),
        "random_state": options.seed,
        "verbose": int(progress),
    }
    if options.effective_batch_size is not None:
        given["effective_batch_size"] = options.effective_batch_size
    if task is Task.classification:
        for name in ("conformal", "homoscedastic"):
            if getattr(options, name):
                raise BayesNormError(f"--{name}: is for regression; leave it out, or give --task regression.")
        return BayesNormClassifier(**given)
    return BayesNormRegressor(heteroscedastic=not options.homoscedastic, conformal=options.conformal, **given)


def _sha256(source: Source) -> str:
    with source.packed() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
