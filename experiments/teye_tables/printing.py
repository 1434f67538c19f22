"""`python -m experiments teye-table1`, `teye-table4` ... `teye-table11`, and `teye-verdicts`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.ending import UsageError

from .acceptance import verdicts
from .cells import TABLES
from .layout import render
from .rows import read_rows

RowsFile = Annotated[
    Path | None, typer.Option("--rows", help="CSV file of our results. [default: results/uci_paper.csv]")
]
StoreFile = Annotated[Path | None, typer.Option("--store", help="Read the results from this store of `uci` instead.")]
Experiment = Annotated[str | None, typer.Option(help="The name of the run, if the store has several.")]


def _table_command(number: int) -> Callable[..., None]:
    """Return the command that prints a table of the paper."""

    def main(rows: RowsFile = None, store: StoreFile = None, experiment: Experiment = None) -> None:
        _require_one_source(rows, store)
        print(render(number, rows, store, experiment))

    main.__doc__ = f"""Table {number} of the MCBN paper: {TABLES[number]}.

    Our results stand beside the paper's, with a verdict for each cell.

    \b
    python -m experiments teye-table{number}
    python -m experiments teye-table{number} --store bench.sqlite
    """
    return main


def _print_verdicts(rows: RowsFile = None, store: StoreFile = None, experiment: Experiment = None) -> None:
    """Summarise the tables of the MCBN paper: which of its claims hold on which sets.

    \b
    python -m experiments teye-verdicts
    python -m experiments teye-verdicts --store bench.sqlite
    """
    _require_one_source(rows, store)
    print(verdicts(read_rows(rows, store, experiment)))


def _require_one_source(rows: Path | None, store: Path | None) -> None:
    if rows is not None and store is not None:
        raise UsageError("--rows and --store were both given. Pass only one of them.")


COMMANDS: dict[str, Callable[..., None]] = {
    **{f"teye-table{number}": _table_command(number) for number in TABLES},
    "teye-verdicts": _print_verdicts,
}
