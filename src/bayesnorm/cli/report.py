"""`bayesnorm report`: write the report of a run again."""

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
    run: Annotated[Path, typer.Argument(help="Folder that `bayesnorm fit --out` created.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write.", show_default="report.html in the RUN folder"),
    ] = None,
) -> None:
    """Write the HTML report of a run again, from the numbers stored in its folder.

    \b
    Examples:
      bayesnorm report run
      bayesnorm report run --out page.html
    """
    from ..report import write_report

    runs = read_runs(run)
    if out is not None and len(runs) > 1:
        raise BayesNormError(
            f"--out needs a run with one target, but {run} has {len(runs)}. Use the folder of one target, such as "
            f"{runs[0][0]}."
        )
    for folder, _ in runs:
        path = folder / PAGE if out is None else out
        require_writable(path, "--out")
        content = report_from_values(read_json(folder / CONTENTS))
        try:
            write_report(content, path)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, BayesNormError):
                raise
            raise FileFormatError(
                f"RUN: the numbers of the report are damaged ({error!r}). Run `bayesnorm fit` again."
            ) from error
        note(f"Wrote {path}.")
