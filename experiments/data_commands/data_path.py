"""`python -m experiments data path`: print the folders that are searched for data."""

from __future__ import annotations

from typing import Annotated

import typer

from bayesnorm.cli.printing import show_json

from ..data import data_folders


def data_path(as_json: Annotated[bool, typer.Option("--json", help="Print the folders as JSON.")] = False) -> None:
    """Print the folders that the loaders search for data sets, in order.

    These are the folders in the environment variable BAYESNORM_DATA, then your
    cache folder.

    \b
    Example:
      BAYESNORM_DATA=~/data python -m experiments data path
    """
    folders = data_folders()
    if as_json:
        show_json([{"folder": str(folder), "exists": folder.is_dir()} for folder in folders])
        return
    for folder in folders:
        print(f"{folder}{'' if folder.is_dir() else '  (does not exist)'}")
