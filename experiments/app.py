"""All experiments as one application: a command per table or figure, the benchmark and its store, and data sets.

A new table or figure is a file or folder with a `main`, whose arguments are its options and whose docstring is its
help, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from bayesnorm.cli.ending import run_commands

from . import (
    active_digits,
    atanov_table1,
    claims,
    compare_methods,
    compression,
    demo_digits,
    export,
    kendall_segmentation,
    kendall_uncertainty,
    known_noise,
    mukhoti_batch_size,
    mukhoti_figure1,
    noise_and_uncertainty,
    prune_channels,
    shift,
    show,
    temperature,
    teye_figure1,
    teye_figure2,
    teye_figure3,
    teye_table2,
    teye_uncertainty,
    train_image,
    train_segmentation,
    uci_luck,
    uncertainty_and_data,
)
from .data_commands.app import app as data_app
from .teye_tables import printing
from .uci import benchmark

PROGRAM = "python -m experiments"

TABLES_AND_FIGURES: dict[str, Callable[..., None]] = {
    **printing.COMMANDS,
    "teye-table2": teye_table2.main,
    "teye-figure1": teye_figure1.main,
    "teye-figure2": teye_figure2.main,
    "teye-figure3": teye_figure3.main,
    "teye-uncertainty": teye_uncertainty.main,
    "mukhoti-figure1": mukhoti_figure1.main,
    "mukhoti-batch-size": mukhoti_batch_size.main,
    "atanov-table1": atanov_table1.main,
    "uncertainty-and-data": uncertainty_and_data.main,
    "kendall-uncertainty": kendall_uncertainty.main,
    "kendall-segmentation": kendall_segmentation.main,
    "claims": claims.main,
    "compare-methods": compare_methods.main,
    "active-digits": active_digits.main,
    "uci-luck": uci_luck.main,
    "shift": shift.main,
    "temperature": temperature.main,
    "known-noise": known_noise.main,
    "noise-and-uncertainty": noise_and_uncertainty.main,
    "compression": compression.main,
    "prune-channels": prune_channels.main,
}
BENCHMARK: dict[str, Callable[..., None]] = {"uci": benchmark.main, "show": show.main, "export": export.main}
NETWORKS: dict[str, Callable[..., None]] = {
    "train-image": train_image.main,
    "train-segmentation": train_segmentation.main,
    "demo-digits": demo_digits.main,
}

app = typer.Typer(name=PROGRAM, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
PANELS = {"Tables and figures": TABLES_AND_FIGURES, "The benchmark and its store": BENCHMARK, "Networks": NETWORKS}
for title, commands in PANELS.items():
    for name, main in commands.items():
        app.command(name, rich_help_panel=title)(main)
app.add_typer(data_app, name="data", rich_help_panel="Data sets")


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of errors.")] = False,
) -> None:
    """Reproduce the papers' tables and figures, and this package's own results.

    \b
    python -m experiments teye-table4
    python -m experiments uci --preset quick --store quick.sqlite
    python -m experiments teye-table4 --store quick.sqlite
    python -m experiments data get cifar10
    """
    context.obj["debug"] = debug
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `python -m experiments`; see `run_commands`."""
    return run_commands(app, PROGRAM, arguments)
