"""`bayesnorm fit`: train a model on a table, and write the model and a report."""

from __future__ import annotations

import shlex
import time as time_module
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context

from .fitting import FitContext, fit_run
from .options import (
    A_TABLE,
    KINDS,
    Device,
    Encoding,
    FitOptions,
    Holdout,
    MaxSize,
    SpreadsheetSafe,
    Task,
    UncertaintyMethod,
    flag,
    option,
)
from .printing import show_json, show_pairs
from .run_folder import PAGE, require_run_free, target_folders
from .tables import MOST_MIB, open_table

# Columns that the user names.
Columns = list[str] | None

# The largest seed that scikit-learn accepts.
LARGEST_SEED = 2**32 - 1


def fit(
    context: Context,
    data: Annotated[str, Argument(help=f"{A_TABLE} The first line holds the column names.")],
    target: Annotated[list[str], option("COLUMN", "Column to predict. Repeat it for several targets.")],
    out: Annotated[Path, option("FOLDER", "Folder to create for the model and the report.")],
    task: Annotated[Task | None, option("TASK", "regression or classification.", "guessed from the target")] = None,
    method: Annotated[
        UncertaintyMethod, option("NAME", f"Method for the epistemic uncertainty: {', '.join(UncertaintyMethod)}.")
    ] = UncertaintyMethod.mcbn,
    drop: Annotated[list[str] | None, option("COLUMN", "Column to leave out. Repeatable.")] = None,
    keep: Annotated[Columns, option("COLUMN", "Column to use even if it looks like an id. Repeatable.")] = None,
    categorical: Annotated[Columns, option("COLUMN", "Column whose numbers are categories. Repeatable.")] = None,
    as_: Annotated[
        list[str] | None,
        option(
            "COLUMN=KIND",
            f"Read a column as {', '.join(KINDS[:-1])} or {KINDS[-1]}. Text columns are left out. Repeatable.",
            True,
            "--as",
        ),
    ] = None,
    test_fraction: Annotated[
        float | None,
        option(
            "FRACTION",
            "Fraction of rows held out for the report, at most 0.5. With 0, the report uses cross-validation.",
            "0.2; below 150 rows: cross-validation",
        ),
    ] = None,
    holdout: Annotated[
        Holdout | None, option("WHICH", "Rows to hold out: random, or last (the end of the file).", "random")
    ] = None,
    time: Annotated[
        str | None, option("COLUMN", "Column with dates or numbers: hold out the rows with the latest values.")
    ] = None,
    group: Annotated[
        str | None,
        option("COLUMN", "Rows with the same value in this column are never split between training and test."),
    ] = None,
    weight: Annotated[
        str | None,
        option("COLUMN", "Column with the weight of each row in training, 0 or more. It is not an input."),
    ] = None,
    seed: Annotated[int, option("N", "Random seed. The same seed gives the same model.", min=0, max=LARGEST_SEED)] = 0,
    epochs: Annotated[int | None, option("N", "Number of training epochs.", "cross-validated", min=1)] = None,
    hidden: Annotated[
        str | None, option("UNITS", "Units of each hidden layer, such as 128,128.", "cross-validated")
    ] = None,
    members: Annotated[
        int | None,
        option("N", "Number of networks that are averaged.", "6; 10 with --networks-only up to 2,500 rows", min=1),
    ] = None,
    networks_only: Annotated[
        bool, flag("--networks-only", "Train networks only, without boosted trees and a linear model.")
    ] = False,
    fast: Annotated[
        bool,
        flag(
            "--fast",
            "Train one configuration with half the training budget: 2 to 9 times faster, with a CRPS up to 15 % worse.",
        ),
    ] = False,
    interruptible: Annotated[
        bool, flag("--interruptible", "Let Ctrl-C stop the training and keep the networks trained so far.")
    ] = False,
    conformal: Annotated[
        bool,
        flag(
            "--conformal",
            "Regression: conformal intervals. Their coverage is guaranteed if new rows come from the training "
            "distribution.",
        ),
    ] = False,
    homoscedastic: Annotated[
        bool, flag("--homoscedastic", "Regression: one noise level for all rows, instead of one for each row.")
    ] = False,
    effective_batch_size: Annotated[
        str | None,
        option(
            "M",
            "Effective batch size: cross-validated, elbo, or a positive number. A smaller number gives a larger "
            "epistemic uncertainty.",
            "cross-validated",
        ),
    ] = None,
    device: Annotated[Device, option("NAME", "Training device: cpu, cuda, or auto (GPU if available).")] = Device.cpu,
    max_rows: Annotated[
        int | None, option("N", "Train on at most N rows, sampled at random.", "all rows", min=1)
    ] = None,
    max_size: MaxSize = MOST_MIB,
    encoding: Encoding = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    force: Annotated[bool, flag("--force", "Replace an existing run.")] = False,
    quiet: Annotated[bool, flag("--quiet", "Print only errors.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the summary as JSON.")] = False,
) -> None:
    """Train a Bayesian neural network on a table, test it on held-out rows, and write the model and a report.

    Cells can be numbers, dates, text or empty; 12 % and $1,234 are read as
    numbers. Columns without information, such as ids, are left out, and the
    command names them. All settings of the network are chosen by
    cross-validation.

    \b
    Examples:
      bayesnorm fit houses.csv --target price --out run
      bayesnorm fit houses.csv --target price --target rent --out run
      bayesnorm fit patients.csv --target outcome --group patient --out run
      bayesnorm fit sales.csv --target sold --time date --out run
    """
    started = time_module.perf_counter()
    require_run_free(out, force)
    # Most arguments are read from here, under the names that the options have in a run folder.
    options = FitOptions.from_command_line(context.params)
    command = shlex.join(["bayesnorm", "fit", *_arguments(context)])
    fit_context = FitContext(spreadsheet_safe, command, quiet, started)
    runs = fit_run(open_table(data, max_size, encoding), out, target, options, fit_context)
    if as_json:
        first, *others = runs.values()
        show_json({**({"targets": runs} if others else first), "out": str(out)})
    elif not quiet:
        _show_summaries(runs, out)


def _show_summaries(runs: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Print the summary of each target.

    Args:
        runs: For each target the contents of its `run.json`.
        out: The folder of the run.
    """
    from ..report import WITHOUT_PAGE

    folders = {name: out / folder for name, folder in target_folders(list(runs)).items()} if len(runs) > 1 else {}
    for name, facts in runs.items():
        page = str(folders.get(name, out) / PAGE) if facts["report"] else WITHOUT_PAGE
        target_line = {"target": name} if folders else {}
        show_pairs({**target_line, **facts["summary"], "report": page})


def _arguments(context: Context) -> list[str]:
    """Return the arguments with which the same command can be run again."""
    arguments: list[str] = [context.params["data"]]
    for name, value in context.params.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if name in ("data", "quiet", "force", "as_json") or value is None or value is False:
            continue
        for entry in value if isinstance(value, list | tuple) else [value]:
            arguments += [flag] if entry is True else [flag, str(entry)]
    return arguments
