"""`python -m experiments data csv`: write a UCI table as a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.ending import UsageError
from bayesnorm.cli.output_files import require_free, write_table
from bayesnorm.errors import quoted

from ..data import UCI_SETS, load_uci


def data_csv(
    name: Annotated[str, typer.Argument(help=f"Table to write: {', '.join(UCI_SETS)}.")],
    out: Annotated[Path, typer.Option(help="CSV file to write, or - for standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a UCI table as a CSV file with the columns x1, x2, ... and y.

    \b
    Example:
      python -m experiments data csv yacht --out yacht.csv
    """
    if name not in UCI_SETS:
        raise UsageError(f"NAME must be one of {', '.join(UCI_SETS)}, got {quoted(name)}.")
    if str(out) != "-":
        require_free(out, force)
    inputs, target = load_uci(name)
    columns = [*(f"x{i + 1}" for i in range(inputs.shape[1])), "y"]
    write_table(columns, [[*row, y] for row, y in zip(inputs.tolist(), target.tolist(), strict=True)], out)
