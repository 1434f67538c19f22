"""`bayesnorm report`: a run's page again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import BayesNormError, FileFormatError
from ..files import require_writable
from .printing import note
from .report_json import report_from_values
from .run_folder import CONTENTS, PAGE, read_json, read_runs


def report(
    run: Annotated[Path, typer.Argument(help="A folder that `bayesnorm fit --out` made.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; without, report.html in the run.")] = None,
) -> None:
    """Write the HTML report of a run again, from the numbers that it keeps.

    \b
    bayesnorm report run
    bayesnorm report run --out page.html
    """
    from ..report import write_report

    runs = read_runs(run)
    if out is not None and len(runs) > 1:
        raise BayesNormError(f"--out: {run} holds {len(runs)} targets; one of them, such as {runs[0][0]}, would work.")
    for folder, _ in runs:
        path = folder / PAGE if out is None else out
        require_writable(path, "--out")
        content = report_from_values(read_json(folder / CONTENTS))
        try:
            write_report(content, path)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, BayesNormError):
                raise
            raise FileFormatError(f"RUN: the report's numbers are damaged ({error!r}); fit it again.") from error
        note(f"wrote {path}")
