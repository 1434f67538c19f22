"""`bayesnorm report`: write the report of a run again, from the numbers stored in its folder."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ..errors import BayesNormError, FileFormatError, MissingExtraError
from ..writing import require_writable
from .printing import note
from .run_folder import CONTENTS, PAGE, RunFolder, read_json, read_runs, unchanged

if TYPE_CHECKING:
    from ..report import Report


def report(
    run: RunFolder,
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
    for folder, facts in runs:
        path = folder / PAGE if out is None else out
        require_writable(path, "--out")
        values = read_json(unchanged(folder, facts, CONTENTS))
        try:
            write_report(report_from_values(values), path)
        except (FileFormatError, MissingExtraError):
            raise
        except Exception as error:  # values of any kind can be in any place
            raise FileFormatError(
                f"RUN: the numbers in {folder / CONTENTS} are damaged ({error!r}). Run `bayesnorm fit` again."
            ) from error
        note(f"Wrote {path}.")


def report_from_values(values: Any) -> Report:
    """Return the report whose contents `json_value` converted."""
    from ..report import Report

    stored: Report = _read(Report, values)
    return stored


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as the type of a dataclass field; tuples and arrays are lists in JSON."""
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], entry) for entry in value)
    choices: list[Any] = [choice for choice in (kind, *get_args(kind)) if is_dataclass(choice)]
    if not choices or value is None:
        return value
    # If a field can hold one of two dataclasses, the names of their fields show which one it is.
    chosen = next(
        (choice for choice in choices if {field.name for field in fields(choice)} <= value.keys()), choices[0]
    )
    types = get_type_hints(chosen)
    # Runs of earlier versions lack newer fields, which have defaults.
    stored = [field.name for field in fields(chosen) if field.name in value]
    return chosen(**{name: _read(types[name], value[name]) for name in stored})
