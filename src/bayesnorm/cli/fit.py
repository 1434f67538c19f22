"""`bayesnorm fit`: from a table to a model that knows what it does not know, with a report."""

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

# The largest seed that scikit-learn takes.
LARGEST_SEED = 2**32 - 1


def fit(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help=f"{A_TABLE} with names in its first line.")],
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="The column to predict; may be repeated.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to make.")],
    task: Annotated[
        Task | None, typer.Option(metavar="TASK", help="regression or classification; without, guessed.")
    ] = None,
    method: Annotated[
        UncertaintyMethod,
        typer.Option(metavar="NAME", help=f"Where uncertainty comes from: {', '.join(UncertaintyMethod)}."),
    ] = UncertaintyMethod.mcbn,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave out this column; may be repeated.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Use it even if it looks like an id; may be repeated.")
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Its numbers are categories; may be repeated.")
    ] = None,
    as_: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="COLUMN=KIND", help=f"Read it as one of {', '.join(KINDS)}; may be repeated."),
    ] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(metavar="PART", help="Part of the rows that only the report sees; without, .2 of 150 or more."),
    ] = None,
    holdout: Annotated[
        Holdout | None, typer.Option(metavar="WHICH", help="Which rows these are: random, or the last of the file.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Train on the past by this column, hold out the last rows.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Its rows belong together: none are on both sides.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, metavar="N", help="The same number gives the same model.")
    ] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Passes over the rows; without, chosen.")
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(metavar="UNITS", help="Units of each hidden layer, as 128,128; without, chosen.")
    ] = None,
    members: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of networks; without, 6 or 10, as rows ask for.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Try one setting alone, for half as long.")] = False,
    interruptible: Annotated[
        bool, typer.Option("--interruptible", help="Let Ctrl-C end the training and keep what is trained so far.")
    ] = False,
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Intervals with a guarantee, for any data (regression).")
    ] = False,
    homoscedastic: Annotated[
        bool, typer.Option("--homoscedastic", help="One noise for all rows, not one for each (regression).")
    ] = False,
    effective_batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="How samples are scaled: cross-validated (which it is without), elbo, a number."
        ),
    ] = None,
    device: Annotated[
        Device, typer.Option(metavar="NAME", help="Where to train: cpu, cuda, or auto: a GPU where there is one.")
    ] = Device.cpu,
    max_rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Use so many rows, drawn at random.")] = None,
    max_size: Annotated[float, typer.Option(min=0, metavar="MIB", help="Refuse larger files.")] = MOST_MIB,
    encoding: Encoding = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary for machines.")] = False,
) -> None:
    """Train a Bayesian network on a table, check it on held-out rows, and write model and report.

    Cells may be numbers, dates, text or empty; 12 % and $1,234 are numbers too. Columns that nothing can be learned
    from, such as ids, are named and left out. Everything about the network is chosen by cross-validation.

    \b
    bayesnorm fit houses.csv --target price --out run
    bayesnorm fit houses.csv --target price --target rent --out run
    bayesnorm fit patients.csv --target outcome --group patient --categorical ward --out run
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
    """Return the command's arguments as they could be given again, from what was parsed."""
    found: list[str] = [context.params["data"]]
    for name, value in context.params.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if name in ("data", "quiet", "force", "as_json") or value is None or value is False:
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            found += [flag] if each is True else [flag, str(each)]
    return found


def _test_fraction(value: float | None) -> float | None:
    """Return the share of rows to test on, or refuse it."""
    if value is not None and not 0 < value <= 0.5:
        raise UsageError(f"--test-fraction must be more than 0 and at most 0.5, got {value:g}.")
    return value


def _holdout(given: Holdout | None, time: str | None, group: str | None) -> Holdout:
    """Return which rows are held out, or refuse what says two things."""
    if group is not None and (time is not None or given is Holdout.last):
        raise UsageError("--group: was given with --time or --holdout last; one of them would work.")
    if time is not None and given is Holdout.random:
        raise UsageError("--time: was given with --holdout random; one of them would work.")
    return Holdout.last if time is not None else given or Holdout.random


def _read_as(text: str) -> tuple[str, str]:
    """Return a column's name and what it is to be read as, from what was given as NAME=KIND."""
    name, equals, kind = text.rpartition("=")
    if not equals or kind not in KINDS:
        raise UsageError(f"--as must be COLUMN=KIND, one of {', '.join(KINDS)}, got {quoted(text)}.")
    return name, kind


def _units(text: str) -> tuple[int, ...]:
    """Return the units of hidden layers, such as 128,128, as numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--hidden must be units per hidden layer, such as 128,128, got {quoted(text)}.")
    return tuple(int(part) for part in parts)


def _effective_batch_size(text: str | None) -> str | float | None:
    """Return what the effective batch size is chosen by, or the number that it is."""
    if text is None or text in ("cross-validated", "elbo"):
        return text
    with contextlib.suppress(ValueError):
        if 0 < (size := float(text)) < math.inf:
            return size
    raise UsageError(f"--effective-batch-size must be uncertainty, elbo or a positive number, got {quoted(text)}.")
