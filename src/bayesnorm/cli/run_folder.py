"""A folder with everything about one trained model, there as a whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import BayesNormError, FileFormatError
from ..files import VERSION, left_behind, partial_name, require_version, require_writable_folder, write_bytes
from ..schema import flag, later, listed, mapping, one_of, record, refuse, text
from .signals import uninterrupted
from .task import Task
from .written_dates import WAYS
from .written_numbers import DECIMALS

MODEL, FACTS, TEST, CONTENTS, PAGE = "model.bayesnorm", "run.json", "test_predictions.csv", "report.json", "report.html"
DRIFT_PAGE = "drift.html"
FORMAT = "bayesnorm-run"
# What commands take from a run's facts.
COLUMN = record(
    name=text,
    kind=one_of("number", "category", "date"),
    forgiving=later(flag),
    mark=later(text),
    decimal=later(one_of(*DECIMALS)),
    dates=later(one_of(*WAYS)),
)
USED = {"columns": listed(COLUMN, least=1), "task": one_of(*Task)}
# Characters of the folder of one of several targets.
LONGEST_PLACE = 60
# Ending of the name that a run has while another takes its place.
OLD = "-old"


def require_run_free(folder: Path, force: bool) -> None:
    """Refuse, before any work, a folder that would be overwritten; with `force`, one that is no run.

    What runs of this machine that were killed left beside it goes first.

    Args:
        folder: Where the run is to be.
        force: Whether to replace a run that is there.
    """
    require_writable_folder(folder.resolve().parent, "--out")
    _clean_up(folder.resolve())
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() and not (folder / FACTS).is_file():
        raise BayesNormError(f"--out: {folder} is there and is no run; another name would work.")
    if folder.exists() and not force:
        raise BayesNormError(f"--out: {folder} holds a run already; --force, or another name, would work.")


@contextlib.contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """Give a folder to work in, beside the final one, which it becomes when the block ends well.

    Errors name files by where they were to be.

    Args:
        folder: Where the run is to be.
    """
    final = folder.resolve()  # a link stays one, and what it points to becomes the run
    replaced = final.exists()
    working = final.parent / f"{partial_name(final)}-{secrets.token_hex(4)}"
    old = working.with_name(f"{working.name}{OLD}")
    try:
        try:
            working.mkdir()
        except OSError as error:
            raise BayesNormError(
                f"--out: {folder} cannot be made ({error.strerror}); a folder that you may write in would work."
            ) from None
        yield working
        if final.exists() and not replaced:
            raise BayesNormError(f"--out: {folder} was made by somebody else meanwhile; another name would work.")
        with uninterrupted():
            if final.exists():
                final.rename(old)
            working.rename(final)
    except OSError as error:
        error.filename = str(error.filename or folder).replace(str(working), str(folder))
        raise
    except BayesNormError as error:
        if str(working) not in str(error):
            raise
        raise type(error)(str(error).replace(str(working), str(folder))) from error
    finally:
        with uninterrupted():
            _settle(final, working, old)


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write what is known about a run."""
    write_json(folder / FACTS, {"format": FORMAT, "version": VERSION, **facts})


def run_places(targets: Sequence[str]) -> dict[str, str]:
    """Return the names of the folders that runs of several targets have."""
    found: dict[str, str] = {}
    for target in targets:
        plain = re.sub(r"[^\w-]+", "_", target)[:LONGEST_PLACE].strip("_") or "target"
        taken = {place.lower() for place in found.values()}
        tried = (plain if number == 1 else f"{plain}_{number}" for number in itertools.count(1))
        found[target] = next(place for place in tried if place.lower() not in taken)
    return found


def write_places(folder: Path, places: Mapping[str, str]) -> None:
    """Write which folders hold the runs of several targets."""
    write_json(folder / FACTS, {"format": FORMAT, "version": VERSION, "targets": dict(places)})


def write_json(path: Path, value: Any) -> None:
    """Write JSON values, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_facts(folder: Path, *, either: bool = False) -> dict[str, Any]:
    """Return what is known about a run, or say why a folder is none.

    Args:
        folder: The folder that `bayesnorm fit --out` made.
        either: Whether it may hold runs of several targets, of which their folders are all that is known.
    """
    if not (folder / FACTS).is_file():
        raise BayesNormError(f"RUN: {folder} is no run; a folder that `bayesnorm fit --out` made would work.")
    facts = read_json(folder / FACTS)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FileFormatError(f"RUN: {folder / FACTS} is not what `bayesnorm fit` writes; run it again.")
    require_version(folder, str(facts.get("version")), "RUN", "run `bayesnorm fit` again")
    if either and "targets" in facts:
        return facts
    for name, check in USED.items():
        check(facts.get(name), f"{name} of {folder / FACTS}")
    return facts


def read_runs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the runs in a folder, one for each target: their folders, and what is known about them."""
    facts = read_facts(folder, either=True)
    if "targets" not in facts:
        return [(folder, facts)]
    mapping(text, 2)(facts["targets"], f"targets of {folder / FACTS}")
    for place in facts["targets"].values():
        if re.fullmatch(r"[\w-]+", place) is None:
            refuse(f"targets of {folder / FACTS}", place, "the name of a folder in it")
    return [(folder / place, read_facts(folder / place)) for place in facts["targets"].values()]


def read_json(path: Path) -> Any:
    """Return the JSON values in a file of a run."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(f"RUN: {path} is missing; run `bayesnorm fit` again.") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"RUN: {path} is damaged ({error}); run `bayesnorm fit` again.") from error


def _clean_up(final: Path) -> None:
    """Remove what killed runs of this machine left beside a folder, or put the old run back."""
    for left in left_behind(final):
        _settle(final, left)


def _settle(final: Path, *left: Path) -> None:
    """Remove parts of a run, or put the old one back if no other has taken its place."""
    for part in left:
        if part.name.endswith(OLD) and part.exists() and not final.exists():
            part.rename(final)
        else:
            shutil.rmtree(part, ignore_errors=True)
