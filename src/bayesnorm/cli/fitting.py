"""What `bayesnorm fit` does: read, hold rows out, train, predict them, and write it all down."""

from __future__ import annotations

import hashlib
import importlib.util
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BayesNormError, InputError
from ..files import write_bytes
from .columns import Kind, require_columns, typed
from .predictions import rows_of
from .run_folder import CONTENTS, MODEL, PAGE, TEST, new_run, write_facts, write_json
from .run_report import LEVEL, make_report, report_values
from .tables import open_table, pandas, read_table
from .task import Task, guess_task, require_targets, split
from .usage import UsageError
from .versions import all_versions, cpu_name


@dataclass(frozen=True)
class FitOptions:
    """What to train, and how; see the command's options."""

    target: str
    task: Task | None
    method: str
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    test_fraction: float
    seed: int
    epochs: int | None
    hidden: tuple[int, ...]
    effective_batch_size: str | float | None
    heteroscedastic: bool
    max_rows: int | None


@dataclass(frozen=True)
class Loaded:
    """A table ready for training.

    Args:
        inputs: Typed columns, rows numbered as in the file.
        y: Targets, numbers or labels.
        kinds: What the inputs are.
        task: What is to be predicted.
        warnings: What the reader must know, in sentences.
    """

    inputs: Any
    y: Any
    kinds: dict[str, Kind]
    task: Task
    warnings: tuple[str, ...]


Tell = Callable[[str], None]


def fit_run(
    data: Path, out: Path, options: FitOptions, *, max_mib: float, command: str, tell: Tell, progress: bool
) -> dict[str, Any]:
    """Make a run's folder; it is there as a whole or not at all.

    Args:
        data: The table.
        out: The folder.
        options: What to train.
        max_mib: Largest file.
        command: What to run to get it again.
        tell: Takes a line for whoever waits.
        progress: Whether to show bars.

    Returns:
        What is known about the run.
    """
    started = time.perf_counter()
    loaded = load(data, options, max_mib, tell)
    train, test = split(loaded.y, options.test_fraction, options.seed, loaded.task)
    tell(f"training on {len(train):,} rows, holding out {len(test):,}")
    with new_run(out) as folder:
        model = _estimator(options, loaded.task, progress)
        model.fit(loaded.inputs.iloc[train], loaded.y[train])
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
            file=data.name,
            target=options.target,
            provenance={
                "versions": all_versions(),
                "hardware": cpu_name(),
                "date": datetime.now().astimezone().date().isoformat(),
                "command": command,
                "seconds": time.perf_counter() - started,
            },
        )
        frame.insert(1, "y", [_plain(value) for value in loaded.y[test]])
        write_bytes(folder / TEST, frame.to_csv(index=False, lineterminator="\n").encode())
        values = report_values(report.content)
        write_json(folder / CONTENTS, values)
        has_page = importlib.util.find_spec("jinja2") is not None and importlib.util.find_spec("matplotlib") is not None
        if has_page:
            from ..report import write_report

            write_report(report.content, folder / PAGE)
        facts = {
            "task": str(loaded.task),
            "target": options.target,
            "columns": [{"name": name, "kind": kind} for name, kind in loaded.kinds.items()],
            "classes": [_plain(value) for value in model.classes_] if loaded.task is Task.classification else None,
            "data": {"file": data.name, "sha256": _hash(data), "rows": len(loaded.y)},
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


def load(data: Path, options: FitOptions, max_mib: float, tell: Tell) -> Loaded:
    """Read a table and look whether it can be learned from.

    Args:
        data: The file.
        options: Target, columns to leave out, categories, most rows.
        max_mib: Largest file.
        tell: Takes a line for whoever waits.
    """
    pd = pandas()
    file = open_table(data, max_mib)
    require_columns(file, [options.target], "--target")
    require_columns(file, options.drop, "--drop")
    require_columns(file, options.categorical, "--categorical")
    if options.target in options.drop:
        raise UsageError(f"--drop: {options.target!r} is the target; another column would work.")
    names = [name for name in file.names if name != options.target and name not in options.drop]
    if not names:
        raise InputError(f"{data} has no column beside {options.target!r} to predict it from; one would work.")
    frame = read_table(file)
    warnings = []
    known = frame[options.target].notna().to_numpy()
    if not known.all():
        left = f"{int((~known).sum()):,} rows without a value in {options.target} were left out."
        warnings.append(f"{left} (Words such as NA, None and null are no values.)")
        frame = frame[known]
    if options.max_rows is not None and len(frame) > options.max_rows:
        warnings.append(f"{options.max_rows:,} of {len(frame):,} rows were drawn at random (--max-rows).")
        kept = np.random.default_rng(options.seed).permutation(len(frame))[: options.max_rows]
        frame = frame.iloc[np.sort(kept)]
    for line in warnings:
        tell(line)
    if not len(frame):
        raise InputError(f"{data}: no row has a {options.target!r}; rows with one would work.")
    columns, kinds = typed(frame[[options.target]], data, categorical=options.categorical, decimal=file.decimal)
    values, kind = columns[options.target].to_numpy(), kinds[options.target]
    guess = guess_task(options.target, values, kind)
    task = options.task or guess.task
    y = require_targets(data, options.target, values, kind, task)
    inputs, kinds = typed(frame[names], data, categorical=options.categorical, decimal=file.decimal)
    if options.task is None:
        tell(f"{task}: {guess.reason} (--task says otherwise)")
    assert isinstance(inputs, pd.DataFrame)
    rare = [line for name in names if kinds[name] == "category" and (line := _mostly_rare(name, inputs[name]))]
    for line in rare:
        tell(line)
    warnings += rare
    return Loaded(inputs, y, kinds, task, tuple(warnings))


def _estimator(options: FitOptions, task: Task, progress: bool) -> Any:
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


def _mostly_rare(name: str, column: Any) -> str:
    """What to say of a column of text that is different in most rows, such as dates; else nothing."""
    from ..tabular.preprocessing import CategoricalColumn

    rare = column[column.isin(CategoricalColumn.fit(name, column.to_numpy(object)).rare)]
    if len(rare) <= len(column) / 2:
        return ""
    return (
        f"{name} holds text such as {rare.iloc[0]!r} that is different in most rows, so that little can be learned "
        f"from it: numbers in its place would work, or --drop {shlex.quote(name)}."
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
