"""`bayesnorm predict`: predictions for a new table, with what there is to doubt about each."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from ..files import replacing
from .drift import told
from .file_columns import as_in_training, require_columns
from .overwriting import require_free, require_other
from .predictions import predict_rows, side_by_side
from .printing import note, show_json, standard_output
from .run_folder import MODEL, read_runs
from .spreadsheet import SpreadsheetSafe, harmless_table
from .table_source import A_TABLE, Encoding
from .tables import open_table, pandas, read_chunks
from .usage import UsageError

# What stands for standard output.
STDOUT = Path("-")

# Size of a file above which it takes --max-size to read it part by part.
MOST_MIB_IN_PARTS = 65536

# Rows, the first of a file, that are held against those of training; about so many.
MOST_COMPARED = 10_000

# Reasons for calling rows unlike that are told in one line, and for machines.
MOST_TOLD, MOST_REASONS = 3, 100

# Rows at a time: draws of more no longer fit into the processor's cache.
CHUNK = 2_000


def predict(
    run: Annotated[Path, typer.Argument(help="A folder that `bayesnorm fit --out` made.")],
    data: Annotated[str, typer.Argument(help=f"{A_TABLE} with the columns of training.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The CSV file to write; - for standard output.")] = STDOUT,
    level: Annotated[float, typer.Option(metavar="P", help="Probability of the interval from lower to upper.")] = 0.9,
    max_size: Annotated[float, typer.Option(min=0, metavar="MIB", help="Refuse larger files.")] = MOST_MIB_IN_PARTS,
    encoding: Encoding = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary for machines.")] = False,
) -> None:
    """Predict every row of a table: mean, deviation, interval and both parts of the doubt, or class probabilities.

    Of several targets, names of columns begin with the target's.

    Where `unlike` is True, a row is unlike those of training, and `why` says in what: do not trust its numbers. Labels
    are written exactly as they were learned; give --spreadsheet-safe if others' labels are to be opened in a
    spreadsheet.

    \b
    bayesnorm predict run new.csv --out predictions.csv
    bayesnorm predict run new.csv --level 0.5 | head
    """
    if not 0 < level < 1:
        raise UsageError(f"--level: {level:g} was given; a number between 0 and 1 would work.")
    if as_json and out == STDOUT:
        raise UsageError("--json: needs a file for the predictions; --out predictions.csv would work.")
    runs = read_runs(run)
    file = open_table(data, max_size, encoding)
    names = list(dict.fromkeys(column["name"] for _, facts in runs for column in facts["columns"]))
    require_columns(file, names, "DATA")
    if out != STDOUT:
        require_free(out, force)
        require_other(out, file.source.path)
    from ..report.words import count
    from ..tabular import load

    models = [load(folder / MODEL) for folder, _ in runs]
    rows = unlike = 0
    why = Counter[str]()
    compared: list[Any] = []
    with contextlib.closing(read_chunks(file, names, CHUNK)) as parts, _opened(out) as target:
        for part in parts:
            inputs = [as_in_training(part, file, facts) for _, facts in runs]
            if models[0].training_columns_ is not None and rows < MOST_COMPARED:
                compared.append(inputs[0])
            each = [predict_rows(model, own, level) for model, own in zip(models, inputs, strict=True)]
            found = side_by_side({str(facts.get("target")): own for (_, facts), own in zip(runs, each, strict=True)})
            shown = harmless_table(found) if spreadsheet_safe else found
            shown.to_csv(target, index=False, header=rows == 0, lineterminator="\n")
            rows, unlike = rows + len(found), unlike + int(found["unlike"].sum())
            why.update(part for told in found.loc[found["unlike"], "why"] for part in told.split("; "))
    drift = models[0].drift(pandas().concat(compared)) if compared else None
    if as_json:
        tasks = {str(facts.get("target")): facts["task"] for _, facts in runs}
        task = tasks if len(runs) > 1 else runs[0][1]["task"]
        summary: dict[str, Any] = {"rows": rows, "unlike": unlike, "out": str(out), "task": task}
        summary["why"] = dict(why.most_common(MOST_REASONS))
        summary["drift"] = None if drift is None else told(drift)
        show_json({**summary, "level": level} if "regression" in tasks.values() else summary)
        return
    if out != STDOUT:
        note(f"wrote {count(rows, 'prediction')} to {out}")
    if unlike:
        note(_unlike_line(unlike, rows, why))
    if drift is not None and (drift.drifted or out != STDOUT):
        note(_drift_line(drift, rows, shlex.join(["bayesnorm", "drift", str(run), data])))


def _unlike_line(unlike: int, rows: int, why: Counter[str]) -> str:
    """Say in one line how many rows are unlike those of training, and in what."""
    parts = [f"{part} ({number:,})" for part, number in why.most_common(MOST_TOLD)]
    more = f" and {len(why) - MOST_TOLD:,} more reasons" if len(why) > MOST_TOLD else ""
    are = "row is" if rows == 1 else "rows is" if unlike == 1 else "rows are"
    return f"{unlike:,} of {rows:,} {are} unlike the training rows: {'; '.join(parts)}{more}"


def _drift_line(drift: Any, rows: int, command: str) -> str:
    """Say in one line whether the rows as a whole are like those of training."""
    from ..report.drift_words import moved_words

    which = "taken together, the rows" if drift.rows == rows else f"taken together, the first {drift.rows:,} rows"
    if not drift.drifted:
        return f"{which} are like the training rows"
    return f"{which} are unlike the training rows; moved: {moved_words(drift)}; `{command}` says more"


@contextlib.contextmanager
def _opened(out: Path) -> Iterator[IO[str]]:
    """Give standard output, or a file that is there as a whole or not at all."""
    if out == STDOUT:
        with standard_output() as stream:
            yield stream
        return
    try:
        with replacing(out) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            try:
                yield text
            finally:
                text.detach()
    except OSError as error:
        if error.filename is None:  # as in writing to a full disk
            error.filename = str(out)
        raise
