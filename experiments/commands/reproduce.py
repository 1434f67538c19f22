"""`bayesnorm reproduce`: tables and figures of the papers, and this package's own evidence, by name."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.printing import show_table
from bayesnorm.cli.usage import UsageError
from bayesnorm.errors import BayesNormError

EXPERIMENTS: dict[str, tuple[str, str]] = {
    "teye-figure3": ("teye_figure3", "figures 3, 7 and 8 of the MCBN paper: are batch statistics normal?"),
    "teye-doubt": ("uci.figures", "uncertainty-error plots, batch sizes and draws of the regression benchmark"),
    "mukhoti-batch-size": ("mukhoti_batch_size", "the ELBO over batch sizes of a trained ResNet-32 (Mukhoti et al.)"),
    "kendall-doubt": ("noise_and_doubt", "both parts of the doubt (Kendall and Gal): gap, size, shift or retention"),
    "compare-methods": ("compare_methods", "every method side by side on small sets, and what it costs"),
    "active-digits": ("active_digits", "labels asked for by doubt, and at random, on handwritten digits"),
}
"""Name -> module of `bayesnorm.experiments` with a `main()`, and what it shows."""

FIGURE1 = "teye-figure1"


def reproduce(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="What to reproduce; without, they are listed.")] = None,
) -> None:
    """Compute a table or figure again; what follows its name goes to the experiment.

    \b
    bayesnorm reproduce
    bayesnorm reproduce teye-figure1 --out out
    bayesnorm reproduce teye-table4 --store bench.sqlite
    bayesnorm reproduce teye-figure3 --help
    """
    if name in ("--help", "-h"):
        print(context.get_help())
        return
    known = _known()
    if name is None:
        show_table(("name", "what"), [(each, text) for each, (text, _) in known.items()])
    elif name in known:
        known[name][1](context.args)
    else:
        raise UsageError(f"NAME: {name!r} was given; one of {', '.join(known)} would work.")


def _known() -> dict[str, tuple[str, Callable[[Sequence[str]], None]]]:
    """Everything that can be reproduced: what it shows, and what to call with the rest of the arguments."""
    from ..teye_tables import TABLES

    found: dict[str, tuple[str, Callable[[Sequence[str]], None]]] = {
        FIGURE1: ("figure 1 of the MCBN paper: a toy function, its bands, and constant doubt beside them", _figure1)
    }
    for name, (module, text) in EXPERIMENTS.items():
        found[name] = (text, partial(_main_of, name, module))
    for number, text in TABLES.items():
        found[f"teye-table{number}"] = (f"table {number} of the MCBN paper: {text}", partial(_table, number))
    return found


def _main_of(name: str, module: str, arguments: Sequence[str]) -> None:
    """Run an experiment's own `main()`, which reads the process's arguments."""
    before = sys.argv
    sys.argv = [_program(name), *arguments]
    try:
        importlib.import_module(f"bayesnorm.experiments.{module}").main()
    finally:
        sys.argv = before


def _table(number: int, arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog=_program(f"teye-table{number}"), description=f"Table {number}.")
    parser.add_argument("--rows", type=Path, help="our results as CSV (default: results/uci_paper.csv)")
    parser.add_argument("--store", type=Path, help="take them from this store of `bayesnorm bench uci` instead")
    options = parser.parse_args(arguments)
    if options.rows is not None and options.store is not None:
        parser.error("--rows and --store were given; one of them would work")
    if options.store is not None and not options.store.exists():
        raise BayesNormError(f"--store: there is no file {options.store}.")
    from .. import teye_tables

    print(teye_tables.render(number, options.rows, options.store))


def _figure1(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog=_program(FIGURE1), description="Figure 1 of the MCBN paper.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture (default: out)")
    parser.add_argument("--epochs", type=int, default=None, help="passes over the 20 points (default: 400)")
    options = parser.parse_args(arguments)
    from ..teye_figure1 import EPOCHS, figure1

    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "teye_figure1.png"
    figure1(epochs=EPOCHS if options.epochs is None else options.epochs).save(path)
    print(path)


def _program(name: str) -> str:
    return f"bayesnorm reproduce {name}"
