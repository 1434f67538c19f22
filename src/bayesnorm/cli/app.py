"""The `bayesnorm` application with all of its commands; `report` and `data csv`, the short ones, are here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BayesNormError, FileFormatError, MissingExtraError, load_package, quoted
from ..writing import require_writable
from .compare import compare
from .demo import demo
from .doctor import doctor
from .drift import drift
from .ending import UsageError, run_commands
from .export import export
from .fit import fit
from .maps import maps
from .new_rows import predict
from .options import Force, RunFolder, SpreadsheetSafe, option
from .output_files import mark_formula, require_free, write_table
from .printing import note
from .run_folder import CONTENTS, PAGE, read_json, read_runs, unchanged
from .serve import serve
from .stored_report import report_from_values

if TYPE_CHECKING:
    pass

# The name of each table, and the scikit-learn function that loads it. The last column is called "target".
BUNDLED = {
    "sklearn:diabetes": "load_diabetes",
    "sklearn:breast_cancer": "load_breast_cancer",
    "sklearn:iris": "load_iris",
    "sklearn:wine": "load_wine",
    "sklearn:digits": "load_digits",
}


def report(
    run: RunFolder,
    out: Annotated[Path | None, option("FILE", "HTML file to write.", "report.html in the RUN folder")] = None,
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


def data_csv(
    name: Annotated[str, typer.Argument(help=f"Table to write: {', '.join(BUNDLED)}.")],
    out: Annotated[Path, typer.Option(help="CSV file to write, or - for standard output.")],
    force: Force = False,
    spreadsheet_safe: SpreadsheetSafe = False,
) -> None:
    """Write an example table of scikit-learn as a CSV file.

    The columns keep their names. The last column is called target.

    \b
    Example:
      bayesnorm data csv sklearn:diabetes --out diabetes.csv
    """
    if name not in BUNDLED:
        raise UsageError(f"NAME must be one of {', '.join(BUNDLED)}, got {quoted(name)}.")
    if str(out) != "-":
        require_free(out, force)
    frame = load_bundled(name)
    columns, rows = [str(column) for column in frame.columns], frame.astype(object).values.tolist()
    if spreadsheet_safe:
        columns, rows = [*map(mark_formula, columns)], [[*map(mark_formula, row)] for row in rows]
    write_table(columns, rows, out)


def load_bundled(name: str) -> Any:
    """Return a table as a data frame, in its original units and with class names instead of class numbers.

    Args:
        name: One of `BUNDLED`.
    """
    advice = f"{name} needs scikit-learn and pandas. Run: pip install scikit-learn pandas"
    load_package("pandas", advice)
    datasets = load_package("sklearn.datasets", advice)
    options = {"scaled": False} if name == "sklearn:diabetes" else {}
    bunch = getattr(datasets, BUNDLED[name])(as_frame=True, **options)
    frame = bunch.frame.copy()
    if name != "sklearn:digits" and hasattr(bunch, "target_names"):
        frame["target"] = [str(bunch.target_names[number]) for number in frame["target"]]
    return frame


app = typer.Typer(name="bayesnorm", pretty_exceptions_enable=False, rich_markup_mode="rich")
data = typer.Typer(rich_markup_mode="rich", help="Write example tables, which come with scikit-learn, as CSV files.")

app.command("fit")(fit)
app.command("predict")(predict)
app.command("drift")(drift)
app.command("report")(report)
app.command("compare")(compare)
app.command("export")(export)
app.command("serve")(serve)
app.command("maps")(maps)
app.command("doctor")(doctor)
app.command("demo")(demo)
data.command("csv")(data_csv)
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Predictions with calibrated uncertainty, for tables and for trained batch-normalised networks.

    \b
    Examples:
      bayesnorm data csv sklearn:diabetes --out diabetes.csv
      bayesnorm fit diabetes.csv --target target --out run
      bayesnorm predict run diabetes.csv --out predictions.csv
      bayesnorm drift run diabetes.csv
    """
    context.obj["debug"] = debug
    if version:
        print(f"bayesnorm {sys.modules['bayesnorm'].__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `bayesnorm`; see `run_commands`."""
    return run_commands(app, "bayesnorm", arguments)
