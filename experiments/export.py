"""`python -m experiments export`: write the results of an experiment as a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.output_files import require_free
from bayesnorm.cli.printing import note
from bayesnorm.errors import BayesNormError

from . import uci
from .bench import open_store, require_experiment
from .uci.results import computed_twice


def main(
    store: Annotated[Path, typer.Argument(help="The file with the results.")],
    experiment: Annotated[str, typer.Option(help="The experiment whose results are written.")],
    out: Annotated[Path, typer.Option(help="The CSV file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write the results of one experiment as CSV.

    For `uci` there is one row per run and method, and a JSON file with the cost of the run.

    \b
    python -m experiments export bench.sqlite --experiment uci-paper --out uci_paper.csv
    """
    with open_store(store) as opened:
        require_experiment(opened, experiment)
        preset = experiment.removeprefix(uci.EXPERIMENT)
        _require_place(out, store, force)
        if experiment.startswith(uci.EXPERIMENT) and preset in uci.PRESETS:
            _require_place(out.with_suffix(".json"), store, force)
            uci.export(opened, preset, out)
            if said := computed_twice(opened, preset):
                note(said)
        else:
            opened.export_csv(experiment, out)
        if failed := len(opened.failures(experiment)):
            note(f"{failed} units failed and are not in the file")
    note(f"wrote {out}")


def _require_place(path: Path, store: Path, force: bool) -> None:
    """Refuse, before any work, a file that cannot be written, would be overwritten, or is the store."""
    require_free(path, force)
    if path.exists() and path.samefile(store):
        raise BayesNormError(f"--out: {path} is the store itself. Choose another name.")
