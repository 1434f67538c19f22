"""`bayesnorm predict`: predict new rows, and say whether they have drifted from the training rows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from ..files import file_digest
from ..progress import long_progress
from ..words import format_count
from .decisions import decision_words, decisions_for, read_costs, read_quantiles
from .drift import drift_as_json
from .ending import UsageError
from .file_columns import require_columns
from .options import Encoding, Force, MaxSize, NewRows, RunFolder, SpreadsheetSafe, flag, option
from .output_files import (
    STDOUT,
    is_excel,
    is_parquet,
    load_openpyxl,
    prediction_file,
    require_free,
    require_not_input,
)
from .part_files import PART_CHUNKS, PartFiles, part_files
from .predictions import ALL_DIGITS, DIGITS, infinite_intervals_words
from .printing import note, show_json
from .ray_workers import ray_workers
from .run_folder import MODEL, read_runs, unchanged
from .scoring import CHUNK, Scored, Scoring, Totals, with_progress
from .tables import TableFile, open_table, pandas, read_chunks
from .typed_files import load_pyarrow

# Default of --max-size; files are read in parts.
MOST_MIB_IN_PARTS = 65536

# About how many rows, from the start of a file, are tested for drift.
MOST_COMPARED = 10_000

# Largest number of reasons in the JSON summary.
MOST_REASONS = 100


Runner = StrEnum("Runner", "local ray")


def predict(
    run: RunFolder,
    data: NewRows,
    out: Annotated[Path, option("FILE", "CSV, .parquet or .xlsx file to write, or - for standard output.")] = STDOUT,
    with_inputs: Annotated[
        bool, flag("--with-inputs", "Write all columns of the table after the predictions.")
    ] = False,
    ids: Annotated[
        list[str] | None, option("COLUMN", "Write this column before the predictions. Repeatable.", True, "--id")
    ] = None,
    level: Annotated[
        float, option("P", "Probability that the interval from lower to upper contains the target.")
    ] = 0.9,
    quantiles: Annotated[
        str | None, option("P,P,...", "Numbers: add a column for each of these quantiles, such as 0.05,0.5,0.95.", True)
    ] = None,
    sets: Annotated[
        bool,
        flag(
            "--sets",
            "Classes: add the column `set`, which contains the true class with the probability of --level if new rows "
            "come from the training distribution.",
        ),
    ] = False,
    cost: Annotated[
        list[str] | None,
        option(
            "NAME=NUMBER",
            "Classes: what it costs to miss a row of a class (others: 1). The class with the lowest expected cost is "
            "predicted. With two classes also false-negative=10, for the class that is rarer in training. Repeatable.",
        ),
    ] = None,
    digits: Annotated[
        int,
        option(
            "N",
            f"Round numbers to N significant digits of their standard deviation; {ALL_DIGITS} writes all digits.",
            min=1,
            max=ALL_DIGITS,
        ),
    ] = DIGITS,
    max_size: MaxSize = MOST_MIB_IN_PARTS,
    explain: Annotated[
        bool,
        flag(
            "--explain",
            "Add the column `uncertainty_from`: which input columns cause the epistemic uncertainty. Much slower.",
        ),
    ] = False,
    encoding: Encoding = None,
    force: Force = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    runner: Annotated[Runner, option("NAME", "Where to predict: local, or ray.")] = Runner.local,
    address: Annotated[
        str | None,
        option("HOST:PORT", "With --runner ray: a running cluster, or auto.", "a temporary one on this machine"),
    ] = None,
    workers: Annotated[
        int | None, option("N", "With --runner ray: number of workers.", "one per processor", min=1)
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print a summary as JSON. Needs --out.")] = False,
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
      bayesnorm predict run new.csv --quantiles 0.05,0.5,0.95 | head
      bayesnorm predict run new.csv --cost false-negative=10 --sets
      bayesnorm predict run big.parquet --out predictions.parquet --runner ray
    """
    if runner != Runner.ray and (address is not None or workers is not None):
        raise UsageError("--address and --workers need --runner ray. Add it, or leave them out.")
    if not 0 < level < 1:
        meant = f" Did you mean {level / 100:g}?" if 1 < level < 100 else ""
        raise UsageError(f"--level must be a number between 0 and 1, got {level:g}.{meant}")
    if as_json and out == STDOUT:
        raise UsageError("--json needs a file for the predictions. Add --out predictions.csv.")
    quantile_levels, costs = read_quantiles(quantiles), read_costs(cost)
    runs = read_runs(run)
    decisions = decisions_for(runs, level, quantile_levels, costs, sets)
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
    if is_parquet(out):
        load_pyarrow()
    from ..tabular import load

    models = [load(unchanged(folder, facts, MODEL)) for folder, facts in runs]
    columns = list(dict.fromkeys((*names, *id_names, *other_names)))
    scoring = Scoring(
        facts=[facts for _, facts in runs],
        models=models,
        source=str(file.source),
        decimal=file.decimal,
        level=level,
        digits=digits,
        explain=explain,
        ids=id_names,
        others=other_names,
        output="parquet" if is_parquet(out) else "frame" if is_excel(out) or out == STDOUT else "csv",
        typed=is_excel(out),
        spreadsheet_safe=spreadsheet_safe,
        decisions=decisions,
    )
    compared = list[Any]()

    def chunks() -> Iterator[Any]:
        """Yield the chunks of the table, and keep the inputs of the first of them for the test for drift."""
        rows = 0
        for part in parts:
            if rows < MOST_COMPARED:
                compared.append(scoring.inputs(part)[0].iloc[: MOST_COMPARED - rows])
            rows += len(part)
            yield part

    with (
        contextlib.closing(read_chunks(file, columns, CHUNK)) as parts,
        _output(out, file, scoring, [unchanged(folder, facts, MODEL) for folder, facts in runs]) as output,
        ray_workers(scoring, address, workers) if runner == Runner.ray else _in_this_process(scoring) as score,
        long_progress("predict") as tell,
    ):
        if output.totals.rows:
            note(f"Continuing after {format_count(output.totals.rows, 'row')} that an earlier command predicted.")
        for scored in with_progress(score(output.remaining(chunks())), file, output.totals.rows, tell):
            output.add(scored)
    rows, unusual, infinite, reasons = (
        getattr(output.totals, name) for name in ("rows", "unusual", "infinite", "reasons")
    )
    targets = [str(facts.get("target")) for _, facts in runs]
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
    for line in decision_words(decisions, runs):
        note(line)
    if infinite:
        note(infinite_intervals_words(infinite, rows, level))
    if unusual:
        note(_unusual_line(unusual, rows, reasons))
    if drift is not None and (drift.drifted or (out != STDOUT and not (rows == 1 and unusual))):
        note(_drift_line(drift, rows, shlex.join(["bayesnorm", "drift", str(run), data])))


class Streamed:
    """Predictions that are written as they come, and cannot be continued.

    Args:
        write: A function that writes a chunk.
    """

    def __init__(self, write: Callable[[Scored], None]) -> None:
        self._write, self.totals = write, Totals()

    def remaining(self, chunks: Iterable[Any]) -> Iterable[Any]:
        """Return all chunks."""
        return chunks

    def add(self, scored: Scored) -> None:
        """Write the predictions of the next chunk."""
        self._write(scored)
        self.totals.add(scored.totals)


@contextlib.contextmanager
def _in_this_process(scoring: Scoring) -> Iterator[Callable[[Iterable[Any]], Iterator[Scored]]]:
    """Yield a function that predicts chunks one after the other."""
    yield lambda chunks: map(scoring.score, chunks)


@contextlib.contextmanager
def _output(out: Path, file: TableFile, scoring: Scoring, models: list[Path]) -> Iterator[PartFiles | Streamed]:
    """Yield what takes predictions: parts of a file, a sheet, or standard output."""
    if scoring.output == "frame":
        with prediction_file(out, spreadsheet_safe=scoring.spreadsheet_safe) as write:
            yield Streamed(lambda scored: write(scored.content))
    else:
        settings = {name: value for name, value in vars(scoring).items() if name != "models"}
        content = [
            settings,
            CHUNK,
            PART_CHUNKS,
            sys.modules["bayesnorm"].__version__,
            file.fingerprint,
            [*map(file_digest, models)],
        ]
        with part_files(out, hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()) as files:
            yield files


def _unusual_line(unusual: int, rows: int, reasons: Counter[str]) -> str:
    """Return a line that says how many rows are unusual, and why."""
    from ..report import reason_words

    are = "row is" if rows == 1 else "rows is" if unusual == 1 else "rows are"
    return f"{unusual:,} of {rows:,} {are} unusual compared with the training rows: {reason_words(reasons)}."


def _drift_line(drift: Any, rows: int, command: str) -> str:
    """Return a line that says whether the rows as a whole have drifted."""
    from ..report import FEW_ROWS, moved_words

    which = "row" if rows == 1 else "rows" if drift.rows == rows else f"first {drift.rows:,} rows"
    if not drift.drifted and drift.rows < FEW_ROWS:
        does = "does" if rows == 1 else "do"
        return (
            f"No drift is visible: the {which} as a whole {does} not differ significantly from the training rows, but "
            "so few rows can show only large changes."
        )
    if not drift.drifted:
        return f"No drift: the {which} as a whole are like the training rows."
    return (
        f"Drift: the {which} as a whole {'differs' if rows == 1 else 'differ'} from the training rows. Columns that "
        f"changed: {moved_words(drift).rstrip('.')}. Run `{command}` for details."
    )
