"""`bayesnorm drift`: test new rows for drift from the training rows."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from typer import Exit

from ..words import format_count
from ..writing import require_writable
from .ending import DRIFTED
from .file_columns import read_as_in_training, require_columns
from .options import AsJson, Encoding, MaxSize, NewRows, RunFolder, flag, option
from .output_files import require_not_input
from .predictions import count_reasons
from .printing import note, show_json, show_pairs
from .run_folder import DRIFT_PAGE, MODEL, json_value, read_runs, unchanged
from .tables import MOST_MIB, open_table, read_table


def drift(
    run: RunFolder,
    data: NewRows,
    out: Annotated[Path | None, option("FILE", "HTML page to write.", "drift.html in the RUN folder")] = None,
    fail_on_drift: Annotated[bool, flag("--fail-on-drift", "Exit with code 3 if the rows have drifted.")] = False,
    max_size: MaxSize = MOST_MIB,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Test new rows for drift from the training rows: overall, column by column, and in the network.

    The target column is not needed. The false-alarm rate is at most 5 %: if the
    rows come from the training distribution, at most one test in 20 reports
    drift.

    \b
    Examples:
      bayesnorm drift run new.csv
      bayesnorm drift run new.csv --fail-on-drift --json
    """
    folder, facts = read_runs(run)[0]  # runs of several targets have the same inputs
    file = open_table(data, max_size, encoding)
    kinds = {column["name"]: column["kind"] for column in facts["columns"]}
    require_columns(file, list(kinds), "DATA")
    page = run / DRIFT_PAGE if out is None else out
    require_writable(page, "--out")
    require_not_input(page, file.source.path)
    from ..report import WITHOUT_PAGE, DriftReport, Provenance, can_write_pages, drift_summary, write_report
    from ..tabular import load

    model = load(unchanged(folder, facts, MODEL))
    inputs, odd = read_as_in_training(read_table(file, list(kinds)), file.source, file.decimal, facts)
    for name, cells in odd.items():
        count = int(cells.sum())
        note(f"{format_count(count, 'cell')} of {name} cannot be read and count{'s' * (count == 1)} as missing.")
    result = model.drift(inputs)
    reasons = count_reasons(model.uncertainty(inputs)["reason"]) if result.unusual else Counter[str]()
    provenance = Provenance.now(shlex.join(["bayesnorm", "drift", str(run), data]))
    expected = None if result.network is None else result.network.expected_error
    has_page = can_write_pages()
    if has_page:
        write_report(DriftReport(file.source.name, str(facts.get("target")), result, provenance, reasons), page)
    if as_json:
        details = {"reason": dict(reasons), "found": json_value(result), "expected_error": json_value(expected)}
        details["out"] = str(page) if has_page else None
        show_json({**drift_as_json(result), **details})
    else:
        show_pairs({**drift_summary(result, reasons), "page": str(page) if has_page else WITHOUT_PAGE})
    if result.drifted and fail_on_drift:
        note(f"The rows of {file.source} have drifted from the training rows (--fail-on-drift: exit code {DRIFTED}).")
        raise Exit(DRIFTED)


def drift_as_json(result: Any) -> dict[str, Any]:
    """Return the result of a drift test as JSON values."""
    return {"drifted": result.drifted, "p_value": result.p_value, "moved": [column.name for column in result.moved]}
