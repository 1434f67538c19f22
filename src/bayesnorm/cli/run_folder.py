"""The folder of a run, with everything about one trained model; it is created completely or not at all."""

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
# The parts of `run.json` that commands use.
COLUMN = record(
    name=text,
    kind=one_of("number", "category", "date"),
    forgiving=later(flag),
    mark=later(text),
    decimal=later(one_of(*DECIMALS)),
    dates=later(one_of(*WAYS)),
)
USED = {"columns": listed(COLUMN, least=1), "task": one_of(*Task)}
# Longest folder name of one of several targets, in characters.
LONGEST_PLACE = 60
# Suffix of the name of an old run while a new one replaces it.
OLD = "-old"


def require_run_free(folder: Path, force: bool) -> None:
    """Raise an error, before any work, if a folder would be overwritten; with `force`, only if it is not a run.

    This first removes what killed runs on this machine left next to the folder.

    Args:
        folder: The folder of the new run.
        force: Whether to replace an existing run.
    """
    require_writable_folder(folder.resolve().parent, "--out")
    _clean_up(folder.resolve())
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() and not (folder / FACTS).is_file():
        raise BayesNormError(f"--out: {folder} exists and is not a run of `bayesnorm fit`. Choose another name.")
    if folder.exists() and not force:
        raise BayesNormError(
            f"--out: {folder} already contains a run. Use --force to replace it, or choose another name."
        )


@contextlib.contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """Yield a working folder next to the final one; it is renamed to the final one if the block succeeds.

    Errors name files by their final place.

    Args:
        folder: The folder of the new run.
    """
    final = folder.resolve()  # a link stays a link, and its target becomes the run
    replaced = final.exists()
    working = final.parent / f"{partial_name(final)}-{secrets.token_hex(4)}"
    old = working.with_name(f"{working.name}{OLD}")
    try:
        try:
            working.mkdir()
        except OSError as error:
            raise BayesNormError(
                f"--out: {folder} cannot be created ({error.strerror}). Choose a place where you may write."
            ) from None
        yield working
        if final.exists() and not replaced:
            raise BayesNormError(f"--out: another process created {folder} in the meantime. Choose another name.")
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
    """Write the `run.json` of a run."""
    write_json(folder / FACTS, {"format": FORMAT, "version": VERSION, **facts})


def run_places(targets: Sequence[str]) -> dict[str, str]:
    """Return the folder names for the runs of several targets."""
    found: dict[str, str] = {}
    for target in targets:
        plain = re.sub(r"[^\w-]+", "_", target)[:LONGEST_PLACE].strip("_") or "target"
        taken = {place.lower() for place in found.values()}
        tried = (plain if number == 1 else f"{plain}_{number}" for number in itertools.count(1))
        found[target] = next(place for place in tried if place.lower() not in taken)
    return found


def write_places(folder: Path, places: Mapping[str, str]) -> None:
    """Write the `run.json` that lists the folders of several targets."""
    write_json(folder / FACTS, {"format": FORMAT, "version": VERSION, "targets": dict(places)})


def write_json(path: Path, value: Any) -> None:
    """Write JSON values, completely or not at all."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_facts(folder: Path, *, either: bool = False) -> dict[str, Any]:
    """Return the contents of a run's `run.json`, or raise an error that says why the folder is not a run.

    Args:
        folder: The folder that `bayesnorm fit --out` created.
        either: Whether the folder may contain the runs of several targets.
    """
    if not (folder / FACTS).is_file():
        raise BayesNormError(f"RUN: {folder} is not a run. Pass a folder that `bayesnorm fit --out` created.")
    facts = read_json(folder / FACTS)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FileFormatError(f"RUN: {folder / FACTS} is not a file of `bayesnorm fit`. Run `bayesnorm fit` again.")
    require_version(folder, str(facts.get("version")), "RUN", "run `bayesnorm fit` again")
    if either and "targets" in facts:
        return facts
    for name, check in USED.items():
        check(facts.get(name), f"{name} of {folder / FACTS}")
    return facts


def read_runs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the folder and the `run.json` of each run in a folder, one for each target."""
    facts = read_facts(folder, either=True)
    if "targets" not in facts:
        return [(folder, facts)]
    mapping(text, 2)(facts["targets"], f"targets of {folder / FACTS}")
    for place in facts["targets"].values():
        if re.fullmatch(r"[\w-]+", place) is None:
            refuse(f"targets of {folder / FACTS}", place, "the name of a folder in it")
    return [(folder / place, read_facts(folder / place)) for place in facts["targets"].values()]


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file of a run."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(f"RUN: {path} is missing. Run `bayesnorm fit` again.") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"RUN: {path} is damaged ({error}). Run `bayesnorm fit` again.") from error


def _clean_up(final: Path) -> None:
    """Remove what killed runs on this machine left next to a folder, or restore the old run."""
    for left in left_behind(final):
        _settle(final, left)


def _settle(final: Path, *left: Path) -> None:
    """Remove parts of a run, or restore the old run if no new one has replaced it."""
    for part in left:
        if part.name.endswith(OLD) and part.exists() and not final.exists():
            part.rename(final)
        else:
            shutil.rmtree(part, ignore_errors=True)
