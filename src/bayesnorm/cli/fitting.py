"""The steps of `bayesnorm fit`: read the table, hold rows out, train, predict the held-out rows, write the run."""

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

# Default fraction of held-out rows.
FIFTH = 0.2


@dataclass(frozen=True)
class FitContext:
    """What all models of one command share.

    Args:
        spreadsheet_safe: Whether to mark text that a spreadsheet would run as a formula.
        command: The command that creates the same run again.
        tell: Called with every message for the user.
        progress: Whether to show progress bars.
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
    """Train on a table and create the run folder, completely or not at all.

    Args:
        data: The table, as `open_table` accepts it.
        out: The folder to create; for several targets it contains one run for each.
        targets: The columns to predict; one string can name several, separated by commas.
        options: What to train; its target is ignored.
        context: What all models share.
        max_mib: Largest accepted size of the file.
        encoding: The encoding of text; None detects it.

    Returns:
        For each target the contents of its `run.json`.
    """
    file = open_table(data, max_mib, encoding)
    names = named_targets(file, targets)
    told: dict[str, None] = {}
    others = {name: tuple(other for other in names if other != name) for name in names}
    asked = [replace(options, target=name, drop=(*options.drop, *others[name])) for name in names]
    # Read the columns of all targets before training, so that an error in one of them comes first.
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
    """Return the columns to predict, each once; a comma separates names unless a column's name contains it."""
    parted = [[each] if each in file.names else [part.strip() for part in each.split(",")] for each in given]
    names = list(dict.fromkeys(name for part in parted for name in part if name))
    require_columns(file, names or list(given), "--target")
    return names


def _tell_once(line: str, told: dict[str, None], tell: Tell) -> None:
    """Pass on a line unless it was printed before."""
    if line not in told:
        told[line] = None
        tell(line)


def _fit(loaded: TrainingTable, folder: Path, options: FitOptions, context: FitContext) -> dict[str, Any]:
    """Train on a table and fill the run folder; return the contents of its `run.json`."""
    from ..report.words import count

    started = time.perf_counter()
    source = loaded.reading.file.source
    held = _held_out(loaded, options)
    train, loaded = held.train, replace(loaded, warnings=(*held.told, *loaded.warnings))
    for line in held.told:
        context.tell(line)
    if len(held.test):
        context.tell(f"Training on {count(len(train), 'row')}, with {count(len(held.test), 'row')} held out.")
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
    """Return which rows are held out; by default none of a small table.

    Conformal intervals are always tested on held-out rows, because their guarantee is for rows that no network saw.
    """
    rows, fraction = len(loaded.y), options.test_fraction
    as_usual = fraction is None and loaded.time is None and loaded.group is None and not options.conformal
    if as_usual and rows < FEW_ROWS:
        told = f"{rows} rows are too few for a held-out set. The model is tested by cross-validation instead."
        return Split(np.arange(rows), np.arange(0), None, (told,))
    return hold_out(loaded.y, loaded.task, fraction or FIFTH, options.seed, loaded.time, loaded.group)


def _estimator(options: FitOptions, task: Task, progress: bool) -> Any:
    """Return the unfitted estimator for the options."""
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
                raise BayesNormError(
                    f"--{name} works only for regression, but the task is classification. Leave it out, or use --task "
                    "regression."
                )
        return BayesNormClassifier(**given)
    return BayesNormRegressor(heteroscedastic=not options.homoscedastic, conformal=options.conformal, **given)


def _sha256(source: Source) -> str:
    with source.packed() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
