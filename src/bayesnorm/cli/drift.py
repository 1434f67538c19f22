"""`bayesnorm drift`: whether new rows are like the rows that a model was trained on."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ..files import require_writable
from .ending import DRIFTED
from .file_columns import as_in_training, require_columns
from .overwriting import require_other
from .pages import WITHOUT_PAGE, can_write_pages
from .predictions import reasons_in
from .printing import note, show_json, show_pairs
from .report_json import json_value
from .run_folder import DRIFT_PAGE, MODEL, read_runs
from .table_source import A_TABLE, Encoding
from .tables import MOST_MIB, open_table, read_chunks
from .versions import all_versions, cpu_name


def drift(
    run: Annotated[Path, typer.Argument(help="A folder that `bayesnorm fit --out` made.")],
    data: Annotated[str, typer.Argument(help=f"{A_TABLE} with the columns of training.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The HTML page; without, drift.html in the run.")
    ] = None,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="End with exit code 3 if the rows are unlike those of training.")
    ] = False,
    max_size: Annotated[float, typer.Option(min=0, metavar="MIB", help="Refuse larger files.")] = MOST_MIB,
    encoding: Encoding = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found for machines.")] = False,
) -> None:
    """Say whether new rows are like the training rows: overall, column by column, and in the network.

    Targets are not needed. Rows like those of training are called unlike them in at most 5 % of cases.

    \b
    bayesnorm drift run new.csv
    bayesnorm drift run new.csv --fail-on-drift --json
    """
    folder, facts = read_runs(run)[0]  # whose inputs are those of all targets
    file = open_table(data, max_size, encoding)
    kinds = {column["name"]: column["kind"] for column in facts["columns"]}
    require_columns(file, list(kinds), "DATA")
    page = run / DRIFT_PAGE if out is None else out
    require_writable(page, "--out")
    require_other(page, file.source.path)
    from ..report import DriftReport, Provenance, drift_words, write_report
    from ..tabular import load

    model = load(folder / MODEL)
    (rows,) = read_chunks(file, list(kinds), None)
    inputs = as_in_training(rows, file, facts)
    found = model.drift(inputs)
    why = reasons_in(model.uncertainty(inputs)["reason"]) if found.unusual else Counter[str]()
    command = shlex.join(["bayesnorm", "drift", str(run), data])
    date = datetime.now().astimezone().date().isoformat()
    provenance = Provenance(all_versions(), cpu_name(), date, command)
    written = can_write_pages()
    if written:
        write_report(DriftReport(file.source.name, str(facts.get("target")), found, provenance, why), page)
    if as_json:
        show_json({**told(found), "reason": dict(why), "found": json_value(found), "out": str(page) if written else None})
    else:
        words = {"rows": f"{drift_words.headline(found)} {drift_words.chance_words(found)}"}
        words["columns that moved"] = drift_words.moved_words(found)
        words |= {f"  {column.name}": drift_words.column_words(column) for column in found.moved}
        words |= {"network": drift_words.network_words(found), "single rows": drift_words.unlike_words(found, why)}
        show_pairs({**words, "page": str(page) if written else WITHOUT_PAGE})
    if found.drifted and fail_on_drift:
        note(f"{file.source} is unlike the training rows, and --fail-on-drift was given")
        raise typer.Exit(DRIFTED)


def told(found: Any) -> dict[str, Any]:
    """Return what a machine wants to know first."""
    return {"drifted": found.drifted, "p_value": found.p_value, "moved": [column.name for column in found.moved]}
