"""`bayesnorm data list`: which data sets are here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..data import IMAGE_FILES, UCI_SETS, find, uci_file
from ..errors import DataNotFoundError
from .bundled_data import BUNDLED, has_bundled
from .printing import show_json, show_table

# Where the files of each set lie in a data folder.
FILES: dict[str, tuple[str, ...]] = {**{name: (uci_file(name),) for name in UCI_SETS}, **IMAGE_FILES}


def data_list(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False) -> None:
    """List the data sets that this package can read, and where they were found.

    \b
    bayesnorm data list
    """
    found = [(name, "table" if name in UCI_SETS else "images", _place(files)) for name, files in FILES.items()]
    found += [(name, "table", "scikit-learn" if has_bundled() else None) for name in BUNDLED]
    if as_json:
        show_json([{"name": name, "kind": kind, "found": place} for name, kind, place in found])
        return
    show_table(("name", "kind", "found"), [(name, kind, place or "no") for name, kind, place in found])


def _place(files: tuple[str, ...]) -> str | None:
    """Return the folder that a data set was found in; None where one of its files is missing."""
    places: list[Path] = []
    for file in files:
        try:
            places.append(find(file).parent)
        except DataNotFoundError:
            return None
    return str(places[0])
