"""`bayesnorm fit`: train a model on a table, and write the model and a report."""

from __future__ import annotations

import contextlib
import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..errors import quoted
from .fit_options import KINDS, Device, FitOptions
from .fitting import FitContext, fit_run
from .holding_out import Holdout
from .pages import WITHOUT_PAGE
from .printing import note, show_json, show_pairs
from .run_folder import PAGE, require_run_free, run_places
from .spreadsheet import SpreadsheetSafe
from .table_source import A_TABLE, Encoding
from .tables import MOST_MIB
from .task import Task
from .uncertainty_method import UncertaintyMethod
from .usage import UsageError

# The largest seed that scikit-learn accepts.
LARGEST_SEED = 2**32 - 1


def fit(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help=f"{A_TABLE} The first line holds the column names.")],
    target: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="Column to predict. Repeat it for several targets.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to create for the model and the report.")],
    task: Annotated[
        Task | None,
        typer.Option(metavar="TASK", help="regression or classification.", show_default="guessed from the target"),
    ] = None,
    method: Annotated[
        UncertaintyMethod,
        typer.Option(metavar="NAME", help=f"Method for the epistemic uncertainty: {', '.join(UncertaintyMethod)}."),
    ] = UncertaintyMethod.mcbn,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out. Repeatable.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to use even if it looks like an id. Repeatable."),
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column whose numbers are categories. Repeatable.")
    ] = None,
    as_: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="COLUMN=KIND",
            help=f"Read a column as {', '.join(KINDS[:-1])} or {KINDS[-1]}. Text columns are left out. Repeatable.",
        ),
    ] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Fraction of rows held out for the report, at most 0.5.",
            show_default="0.2; below 150 rows: cross-validation",
        ),
    ] = None,
    holdout: Annotated[
        Holdout | None,
        typer.Option(
            metavar="WHICH", help="Rows to hold out: random, or last (the end of the file).", show_default="random"
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with dates or numbers: hold out the rows with the latest values."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Rows with the same value in this column are never split between training and test.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=LARGEST_SEED, metavar="N", help="Random seed. The same seed gives the same model."),
    ] = 0,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of training epochs.", show_default="cross-validated"),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            metavar="UNITS", help="Units of each hidden layer, such as 128,128.", show_default="cross-validated"
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of networks that are averaged.",
            show_default="10; 6 with --fast or above 2,500 training rows",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Train one configuration with half the training budget: 2 to 9 times faster, with a CRPS up to 15 % "
            "worse.",
        ),
    ] = False,
    interruptible: Annotated[
        bool,
        typer.Option("--interruptible", help="Let Ctrl-C stop the training and keep the networks trained so far."),
    ] = False,
    conformal: Annotated[
        bool,
        typer.Option(
            "--conformal",
            help="Regression: conformal intervals. Their coverage is guaranteed if new rows come from the training "
            "distribution.",
        ),
    ] = False,
    homoscedastic: Annotated[
        bool,
        typer.Option("--homoscedastic", help="Regression: one noise level for all rows, instead of one for each row."),
    ] = False,
    effective_batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="M",
            help="Effective batch size: cross-validated, elbo, or a positive number. A smaller number gives a larger "
            "epistemic uncertainty.",
            show_default="cross-validated",
        ),
    ] = None,
    device: Annotated[
        Device, typer.Option(metavar="NAME", help="Training device: cpu, cuda, or auto (GPU if available).")
    ] = Device.cpu,
    max_rows: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Train on at most N rows, sampled at random.", show_default="all rows"),
    ] = None,
    max_size: Annotated[float, typer.Option(min=0, metavar="MIB", help="Refuse larger files.")] = MOST_MIB,
    encoding: Encoding = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
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
    require_run_free(out, force)
    options = FitOptions(
        target=target[0],
        task=task,
        method=str(method),
        drop=tuple(drop or ()),
        keep=tuple(keep or ()),
        categorical=tuple(categorical or ()),
        read_as=dict(map(_read_as, as_ or ())),
        test_fraction=_test_fraction(test_fraction),
        holdout=_holdout(holdout, time, group),
        time=time,
        group=group,
        seed=seed,
        epochs=epochs,
        hidden=None if hidden is None else _units(hidden),
        members=members,
        fast=fast,
        interruptible=interruptible,
        conformal=conformal,
        homoscedastic=homoscedastic,
        effective_batch_size=_effective_batch_size(effective_batch_size),
        device=device,
        max_rows=max_rows,
    )
    tell = (lambda _: None) if quiet else note
    command = shlex.join(["bayesnorm", "fit", *_arguments(context)])
    shared = FitContext(spreadsheet_safe, command, tell, progress=not quiet)
    found = fit_run(data, out, target, options, shared, max_mib=max_size, encoding=encoding)
    places = {name: out / place for name, place in run_places(list(found)).items()} if len(found) > 1 else {}
    if as_json:
        one, *others = found.values()
        show_json({**({"targets": found} if others else one), "out": str(out)})
    elif not quiet:
        for name, facts in found.items():
            page = str(places.get(name, out) / PAGE) if facts["report"] else WITHOUT_PAGE
            named = {"target": name} if places else {}
            show_pairs({**named, **facts["summary"], "report": page})


def _arguments(context: typer.Context) -> list[str]:
    """Return the arguments with which the same command can be run again."""
    found: list[str] = [context.params["data"]]
    for name, value in context.params.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if name in ("data", "quiet", "force", "as_json") or value is None or value is False:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            found += [flag] if each is True else [flag, str(each)]
    return found


def _test_fraction(value: float | None) -> float | None:
    """Return the fraction of rows to hold out, or raise an error."""
    if value is not None and not 0 < value <= 0.5:
        raise UsageError(f"--test-fraction must be a number above 0 and at most 0.5, got {value:g}.")
    return value


def _holdout(given: Holdout | None, time: str | None, group: str | None) -> Holdout:
    """Return which rows are held out, or raise an error if the options contradict each other."""
    if group is not None and (time is not None or given is Holdout.last):
        raise UsageError("--group cannot be combined with --time or --holdout last. Use one of them.")
    if time is not None and given is Holdout.random:
        raise UsageError("--time cannot be combined with --holdout random. Use one of them.")
    return Holdout.last if time is not None else given or Holdout.random


def _read_as(text: str) -> tuple[str, str]:
    """Return the column and the kind of an option value such as NAME=KIND."""
    name, equals, kind = text.rpartition("=")
    if not equals or kind not in KINDS:
        raise UsageError(f"--as must be COLUMN=KIND with a kind of {', '.join(KINDS)}, got {quoted(text)}.")
    return name, kind


def _units(text: str) -> tuple[int, ...]:
    """Return the units of the hidden layers, from text such as 128,128."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--hidden must be the units of each hidden layer, such as 128,128, got {quoted(text)}.")
    return tuple(int(part) for part in parts)


def _effective_batch_size(text: str | None) -> str | float | None:
    """Return the effective batch size, or the name of the rule that chooses it."""
    if text is None or text in ("cross-validated", "elbo"):
        return text
    with contextlib.suppress(ValueError):
        if 0 < (size := float(text)) < math.inf:
            return size
    raise UsageError(f"--effective-batch-size must be cross-validated, elbo or a positive number, got {quoted(text)}.")
