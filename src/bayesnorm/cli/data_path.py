"""`bayesnorm data path`: print the folders that are searched for data."""

from __future__ import annotations

from typing import Annotated

import typer

from ..data import data_folders
from .printing import show_json


def data_path(as_json: Annotated[bool, typer.Option("--json", help="Print the folders as JSON.")] = False) -> None:
    """Print the folders that bayesnorm searches for data sets, in order.

    These are the folders in the environment variable BAYESNORM_DATA, then your
    cache folder.

    \b
    Example:
      BAYESNORM_DATA=~/data bayesnorm data path
    """
    folders = data_folders()
    if as_json:
        show_json([{"folder": str(folder), "exists": folder.is_dir()} for folder in folders])
        return
    for folder in folders:
        print(f"{folder}{'' if folder.is_dir() else '  (does not exist)'}")
