"""`bayesnorm bench export`: an experiment's results as a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..experiments import uci
from .bench_store import open_store, require_experiment
from .outputs import require_free
from .printing import note


def bench_export(
    store: Annotated[Path, typer.Argument(help="The file with the results.")],
    experiment: Annotated[str, typer.Option(help="Whose results.")],
    out: Annotated[Path, typer.Option(help="The CSV file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write one experiment's results as CSV.

    Of `bench uci` there is a row for each run of each method, and a JSON file beside it with what the run took.

    \b
    bayesnorm bench export bench.sqlite --experiment uci-paper --out uci_paper.csv
    """
    with open_store(store) as opened:
        require_experiment(opened, experiment)
        require_free(out, force)
        preset = experiment.removeprefix(uci.EXPERIMENT)
        if experiment.startswith(uci.EXPERIMENT) and preset in uci.PRESETS:
            require_free(out.with_suffix(".json"), force)
            uci.export(opened, preset, out)
        else:
            opened.export_csv(experiment, out)
    note(f"wrote {out}")
