"""What `bayesnorm fit` does: read, hold rows out, train, predict them, and write it all down."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import BayesNormError
from ..files import write_bytes
from .fit_options import FitOptions
from .holding_out import hold_out
from .pages import can_write_pages
from .predictions import rows_of
from .report_json import json_value
from .run_folder import CONTENTS, MODEL, PAGE, TEST, new_run, write_facts, write_json
from .run_report import LEVEL, make_report
from .spreadsheet import harmless_table
from .table_source import Source
from .task import Task
from .training_table import Tell, load_training_table
from .versions import all_versions, cpu_name


def fit_run(
    data: str,
    out: Path,
    options: FitOptions,
    *,
    max_mib: float,
    encoding: str | None,
    spreadsheet_safe: bool,
    command: str,
    tell: Tell,
    progress: bool,
) -> dict[str, Any]:
    """Train on a table and make a run's folder, which is there as a whole or not at all.

    Args:
        data: The table's file, or what else `open_table` takes.
        out: The folder to make.
        options: What to train.
        max_mib: Largest size of the file that is read.
        encoding: The encoding of text; None to find it out.
        spreadsheet_safe: Whether text that a spreadsheet would run is marked in the predictions of held-out rows.
        command: The command that makes the same run again.
        tell: Called with a line for whoever waits.
        progress: Whether to show bars.

    Returns:
        What is known about the run, as written in its folder.
    """
    started = time.perf_counter()
    loaded = load_training_table(data, options, max_mib, tell, encoding)
    source = loaded.reading.file.source
    held = hold_out(loaded.y, loaded.task, options.test_fraction, options.seed, loaded.time, loaded.group)
    train, test, loaded = held.train, held.test, replace(loaded, warnings=(*held.told, *loaded.warnings))
    for line in held.told:
        tell(line)
    tell(f"training on {len(train):,} rows, holding out {len(test):,}")
    with new_run(out) as folder:
        model = _estimator(options, loaded.task, progress)
        model.fit(loaded.inputs.iloc[train], loaded.y[train], groups=held.groups)
        model.save(folder / MODEL)
        held_out = loaded.inputs.iloc[test]
        predictive, doubt = model.predict_with_doubt(held_out)
        frame = rows_of(model, held_out, predictive, doubt, LEVEL)
        report = make_report(
            model,
            loaded,
            train,
            test,
            predictive,
            frame,
            file=source.name,
            target=options.target,
            provenance={
                "versions": all_versions(),
                "hardware": cpu_name(),
                "date": datetime.now().astimezone().date().isoformat(),
                "command": command,
                "seconds": time.perf_counter() - started,
            },
        )
        frame.insert(1, "y", json_value(loaded.y[test]))
        written = harmless_table(frame) if spreadsheet_safe else frame
        write_bytes(folder / TEST, written.to_csv(index=False, lineterminator="\n").encode())
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
            "rows": {"training": len(train), "test": len(test)},
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


def _estimator(options: FitOptions, task: Task, progress: bool) -> Any:
    """Return the estimator that the options ask for, not fitted yet."""
    from ..tabular import BayesNormClassifier, BayesNormRegressor

    given: dict[str, Any] = {
        "method": options.method,
        "hidden": options.hidden,
        "epochs": options.epochs,
        "random_state": options.seed,
        "verbose": int(progress),
    }
    if options.effective_batch_size is not None:
        given["effective_batch_size"] = options.effective_batch_size
    if task is Task.classification:
        if options.heteroscedastic:
            raise BayesNormError("--heteroscedastic: is for regression; leave it out, or give --task regression.")
        return BayesNormClassifier(**given)
    return BayesNormRegressor(heteroscedastic=options.heteroscedastic, **given)


def _sha256(source: Source) -> str:
    with source.packed() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
