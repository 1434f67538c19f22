"""`python -m experiments show`: show the content of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesnorm.cli.printing import note, show_json

from .bench import DEFAULT_STORE, Failure, Store, open_store, require_experiment
from .terminal_tables import show_table

COLUMNS = ("experiment", "results", "failures")


def main(
    store: Annotated[Path, typer.Argument(help="The file with the results.")] = DEFAULT_STORE,
    experiment: Annotated[
        str | None, typer.Option(help="Show the table of this experiment. [default: list all]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """List the experiments of a store, or show the results and failures of one.

    \b
    python -m experiments show bench.sqlite
    python -m experiments show bench.sqlite --experiment uci-quick
    """
    with open_store(store) as opened:
        if experiment is None:
            _list(opened, as_json)
        else:
            require_experiment(opened, experiment)
            _show(opened.rows(experiment), opened.failures(experiment), experiment, as_json)


def _list(store: Store, as_json: bool) -> None:
    """Print how many results and failures each experiment has."""
    counts = [(name, len(store.rows(name)), len(store.failures(name))) for name in store.experiments()]
    if as_json:
        show_json([dict(zip(COLUMNS, row, strict=True)) for row in counts])
    elif counts:
        show_table(COLUMNS, counts)
    else:
        note(f"{store.path} has no experiments yet.")


def _show(rows: list[dict[str, Any]], failures: list[Failure], experiment: str, as_json: bool) -> None:
    """Print the results of an experiment, and its failures below."""
    if as_json:
        told = [{"parameters": f.parameters, "error": f.error, "attempts": f.attempts} for f in failures]
        show_json({"experiment": experiment, "results": rows, "failures": told})
        return
    columns = [*dict.fromkeys(name for row in rows for name in row if name != "machine")]
    if rows:
        show_table(columns, [[row.get(name) for name in columns] for row in rows], f"{experiment}: {len(rows)} results")
    if rows and failures:
        print()
    if failures:
        lines = [(f.parameters, f.attempts, (f.error.strip().splitlines() or [""])[-1]) for f in failures]
        show_table(("parameters", "attempts", "last error"), lines, f"{experiment}: {len(failures)} failures")
