"""The `bayesnorm` application with all of its commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .data_csv import data_csv
from .drift import drift
from .ending import UsageError, run_commands
from .fit import fit
from .maps import maps
from .predict import predict
from .report import report

# Commands that were removed from `bayesnorm`, and what to run instead.
MOVED = {
    "bench": "python -m experiments uci (or show, export)",
    "reproduce": "python -m experiments teye-table1 (or another table or figure; --help lists them)",
}


class Commands(TyperGroup):
    """A group of commands that also knows the commands that have moved."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command with this name, or None; raise an error that says where a command has moved to."""
        if cmd_name in MOVED:
            raise UsageError(f"`bayesnorm {cmd_name}` has moved. Run {MOVED[cmd_name]} in a checkout instead.")
        return super().get_command(ctx, cmd_name)


app = typer.Typer(cls=Commands, name="bayesnorm", pretty_exceptions_enable=False, rich_markup_mode="rich")
data = typer.Typer(rich_markup_mode="rich", help="Write example tables, which come with scikit-learn, as CSV files.")

app.command("fit")(fit)
app.command("predict")(predict)
app.command("drift")(drift)
app.command("report")(report)
app.command("maps")(maps)
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
