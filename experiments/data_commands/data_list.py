"""`python -m experiments data list`: list the known data sets and where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.printing import show_json

from ..data import (
    IMAGE_FILES,
    IMAGE_PARTS,
    UCI_SETS,
    WHOLE_SETS,
    DataNotFoundError,
    find,
    find_first,
    uci_file,
    whole_file,
)
from ..terminal_tables import show_table

# The files of each set, relative to a data folder. For sets that exist in part, these are the files of the part.
FILES: dict[str, tuple[str, ...]] = {**{name: (uci_file(name),) for name in UCI_SETS}, **IMAGE_FILES}

# The files of complete image sets.
WHOLE: dict[str, tuple[str, ...]] = {
    name: tuple(whole_file(name, split) for split in made.splits) for name, made in WHOLE_SETS.items()
}


def data_list(as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the data sets that have loaders, the folder of each, and whether it is complete.

    \b
    Example:
      python -m experiments data list
    """
    rows = [_row(name) for name in dict.fromkeys([*FILES, *WHOLE])]
    if as_json:
        show_json([{"part": None, **row} for row in rows])
        return
    show_table(
        ("name", "kind", "found", "part"),
        [(row["name"], row["kind"], row["found"] or "no", row.get("part")) for row in rows],
    )


def _row(name: str) -> dict[str, str | None]:
    """Return one line of the list; loaders use the first folder that has any file of the set."""
    kind = "table" if name in UCI_SETS else "images"
    whole, part = _place(WHOLE.get(name, ())), _place(FILES.get(name, ()))
    is_part = part is not None and name in IMAGE_PARTS and (whole is None or _comes_before(name))
    return {
        "name": name,
        "kind": kind,
        "found": part if is_part or whole is None else whole,
        "part": IMAGE_PARTS[name] if is_part else None,
    }


def _comes_before(name: str) -> bool:
    """Return whether the folder with a part of the set is searched before the folder with the complete set."""
    return find_first(WHOLE[name][-1], FILES[name][-1]).name != Path(WHOLE[name][-1]).name


def _place(files: tuple[str, ...]) -> str | None:
    """Return the folder of a data set, or None if one of its files is missing."""
    places: list[Path] = []
    for file in files:
        try:
            places.append(find(file).parent)
        except DataNotFoundError:
            return None
    return str(places[0]) if places else None
