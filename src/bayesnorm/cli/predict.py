"""`bayesnorm predict`: write predictions and their uncertainty for the rows of a table."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..words import format_count
from .drift import drift_as_json
from .ending import UsageError
from .file_columns import read_as_in_training, require_columns
from .output_files import (
    STDOUT,
    SpreadsheetSafe,
    is_excel,
    load_openpyxl,
    prediction_file,
    require_free,
    require_not_input,
)
from .predictions import (
    ALL_DIGITS,
    DIGITS,
    add_table_columns,
    count_infinite_intervals,
    count_reasons,
    infinite_intervals_words,
    join_targets,
    prediction_frame,
    round_predictions,
)
from .printing import note, show_json
from .run_folder import MODEL, RunFolder, read_runs, unchanged
from .table_source import Encoding, MaxSize, NewRows
from .tables import open_table, pandas, read_chunks

# Default of --max-size; files are read in parts.
MOST_MIB_IN_PARTS = 65536

# About how many rows, from the start of a file, are tested for drift.
MOST_COMPARED = 10_000

# Largest number of reasons in the JSON summary.
MOST_REASONS = 100

# Rows predicted at a time: the samples of more rows do not fit into the processor's cache.
CHUNK = 2_000


def predict(
    run: RunFolder,
    data: NewRows,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV or .xlsx file to write, or - for standard output.")
    ] = STDOUT,
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Write all columns of the table after the predictions.")
    ] = False,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="Write this column before the predictions. Repeatable."),
    ] = None,
    level: Annotated[
        float, typer.Option(metavar="P", help="Probability that the interval from lower to upper contains the target.")
    ] = 0.9,
    digits: Annotated[
        int,
        typer.Option(
            min=1,
            max=ALL_DIGITS,
            metavar="N",
            help=f"Round numbers to N significant digits of their standard deviation; {ALL_DIGITS} writes all digits.",
        ),
    ] = DIGITS,
    max_size: MaxSize = MOST_MIB_IN_PARTS,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Add the column `uncertainty_from`: which input columns cause the epistemic uncertainty. Much slower.",
        ),
    ] = False,
    encoding: Encoding = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON. Needs --out.")] = False,
) -> None:
    """Predict every row of a table, with uncertainty.

    Regression: mean, standard deviation (std), prediction interval,
    epistemic_std and aleatoric_std. Classification: class probabilities,
    entropy and mutual information. With several targets, column names begin
    with the target.

    If `unusual` is True, the row differs clearly from the training rows, and
    `reason` says how. Do not trust its prediction. Use --spreadsheet-safe if
    you open labels from an untrusted table in a spreadsheet.

    \b
    Examples:
      bayesnorm predict run new.csv --out predictions.csv --id customer
      bayesnorm predict run new.xlsx --out predictions.xlsx --with-inputs
      bayesnorm predict run new.csv --level 0.5 | head
    """
    if not 0 < level < 1:
        meant = f" Did you mean {level / 100:g}?" if 1 < level < 100 else ""
        raise UsageError(f"--level must be a number between 0 and 1, got {level:g}.{meant}")
    if as_json and out == STDOUT:
        raise UsageError("--json needs a file for the predictions. Add --out predictions.csv.")
    runs = read_runs(run)
    file = open_table(data, max_size, encoding)
    names = list(dict.fromkeys(column["name"] for _, facts in runs for column in facts["columns"]))
    require_columns(file, names, "DATA")
    id_names = list(dict.fromkeys(ids or ()))
    require_columns(file, id_names, "--id")
    other_names = [name for name in file.names if name not in id_names] if with_inputs else []
    if out != STDOUT:
        require_free(out, force)
        require_not_input(out, file.source.path)
    if is_excel(out):
        load_openpyxl()  # raises an error before any work if openpyxl is missing
    from ..tabular import load

    models = [load(unchanged(folder, facts, MODEL)) for folder, facts in runs]
    targets = [str(facts.get("target")) for _, facts in runs]
    rows = unusual = infinite = 0
    reasons = Counter[str]()
    compared: list[Any] = []
    columns = list(dict.fromkeys((*names, *id_names, *other_names)))
    with (
        contextlib.closing(read_chunks(file, columns, CHUNK)) as parts,
        prediction_file(out, spreadsheet_safe=spreadsheet_safe) as write,
    ):
        for part in parts:
            inputs = [read_as_in_training(part, file, facts) for _, facts in runs]
            if rows < MOST_COMPARED:
                compared.append(inputs[0])
            frames = []
            for model, values in zip(models, inputs, strict=True):
                predictive, uncertainty = model.predict_with_uncertainty(values)
                frame = prediction_frame(model, values, predictive, uncertainty, level)
                if explain:
                    frame["uncertainty_from"] = model.explain_uncertainty(values).words()
                frames.append(frame)
            rounded = [round_predictions(frame, digits) for frame in frames]
            predictions = join_targets(dict(zip(targets, rounded, strict=True)))
            # Excel sheets get numbers and dates, CSV files the original text.
            cells = (
                part.assign(**{name: values[name] for values in inputs for name in values}) if is_excel(out) else part
            )
            write(add_table_columns(predictions, part[id_names], cells[other_names]))
            rows, unusual = rows + len(predictions), unusual + int(predictions["unusual"].sum())
            infinite += max(count_infinite_intervals(frame) for frame in frames)
            reasons.update(count_reasons(predictions["reason"]))
    drift = models[0].drift(pandas().concat(compared)) if compared else None
    if as_json:
        tasks = {target: facts["task"] for target, (_, facts) in zip(targets, runs, strict=True)}
        task = tasks if len(runs) > 1 else runs[0][1]["task"]
        summary: dict[str, Any] = {"rows": rows, "unusual": unusual, "out": str(out), "task": task}
        summary["reason"] = dict(reasons.most_common(MOST_REASONS))
        summary["drift"] = None if drift is None else drift_as_json(drift)
        show_json({**summary, "level": level} if "regression" in tasks.values() else summary)
        return
    if out != STDOUT:
        note(f"Wrote {format_count(rows, 'prediction')} to {out}.")
    if infinite:
        note(infinite_intervals_words(infinite, rows, level))
    if unusual:
        note(_unusual_line(unusual, rows, reasons))
    if drift is not None and (drift.drifted or out != STDOUT):
        note(_drift_line(drift, rows, shlex.join(["bayesnorm", "drift", str(run), data])))


def _unusual_line(unusual: int, rows: int, reasons: Counter[str]) -> str:
    """Return a line that says how many rows are unusual, and why."""
    from ..report import drift_page

    are = "row is" if rows == 1 else "rows is" if unusual == 1 else "rows are"
    return f"{unusual:,} of {rows:,} {are} unusual compared with the training rows: {drift_page.reason_words(reasons)}."


def _drift_line(drift: Any, rows: int, command: str) -> str:
    """Return a line that says whether the rows as a whole have drifted."""
    from ..report import drift_page

    which = "row" if rows == 1 else "rows" if drift.rows == rows else f"first {drift.rows:,} rows"
    if not drift.drifted:
        return f"No drift: the {which} as a whole {'is' if rows == 1 else 'are'} like the training rows."
    return (
        f"Drift: the {which} as a whole {'differs' if rows == 1 else 'differ'} from the training rows. Columns that "
        f"changed: {drift_page.moved_words(drift).rstrip('.')}. Run `{command}` for details."
    )
