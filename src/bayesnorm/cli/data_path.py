"""`bayesnorm data path`: where data is looked for."""

from __future__ import annotations

from typing import Annotated

import typer

from ..data import data_folders
from .printing import show_json


def data_path(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False) -> None:
    """Print the folders where data is looked for, in order.

    They are those in the variable BAYESNORM_DATA, then the user's cache.

    \b
    BAYESNORM_DATA=~/data bayesnorm data path
    """
    folders = data_folders()
    if as_json:
        show_json([{"folder": str(folder), "exists": folder.is_dir()} for folder in folders])
        return
    for folder in folders:
        print(f"{folder}{'' if folder.is_dir() else '  (no such folder)'}")
