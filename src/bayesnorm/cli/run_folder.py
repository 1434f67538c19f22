"""The folder of a run, with everything about one trained model; it is created completely or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BayesNormError, FileFormatError
from ..files import VERSION, file_digest, read_json_file, require_version
from ..schema import flag, later, listed, mapping, one_of, record, refuse, text
from ..writing import abandoned, exchange, locked, partial, require_writable_folder, resolved, write_bytes
from .ending import delay_signals
from .options import Task
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
CHECKS = {"columns": listed(COLUMN, least=1), "task": one_of(*Task)}
# Longest folder name of one of several targets, in characters.
LONGEST_NAME = 60
# Suffix of the name of an old run while a new one replaces it.
OLD_SUFFIX = "-old"


def require_run_free(folder: Path, force: bool) -> None:
    """Raise an error, before any work, if a folder would be overwritten; with `force`, only if it is not a run.

    This first removes what killed runs on this machine left next to the folder.

    Args:
        folder: The folder of the new run.
        force: Whether to replace an existing run.
    """
    final = resolved(folder, "--out")
    require_writable_folder(final.parent, "--out")
    _remove_or_restore(final, abandoned(final))
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not folder.exists():
        return
    if not (folder / FACTS).is_file():
        raise BayesNormError(f"--out: {folder} exists and is not a run of `bayesnorm fit`. Choose another name.")
    if not force:
        raise BayesNormError(
            f"--out: {folder} already contains a run. Use --force to replace it, or choose another name."
        )


@contextlib.contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """Yield a working folder next to the final one; it takes the place of the final one if the block succeeds.

    At every moment the old run or the new one is complete in its place, where the system can exchange two names.
    Folders and files keep the permissions of those that they replace. Errors name files by their final place.

    Args:
        folder: The folder of the new run.
    """
    final = resolved(folder, "--out")  # a link stays a link, and its target becomes the run
    existed = final.exists()

    def create(working: Path) -> None:
        try:
            working.mkdir(0o700 if existed else 0o777)
        except OSError as error:
            raise BayesNormError(
                f"--out: {folder} cannot be created ({error.strerror}). Choose a place where you may write."
            ) from None

    def remove(working: Path) -> None:
        with delay_signals():
            _remove_or_restore(final, (working, _old(working)))

    with partial(final, create, remove) as working:
        try:
            yield working
        except OSError as error:
            error.filename = str(error.filename or folder).replace(str(working), str(folder))
            raise
        except BayesNormError as error:
            if str(working) not in str(error):
                raise
            raise type(error)(str(error).replace(str(working), str(folder))) from error
        if final.exists() and not existed:
            raise BayesNormError(f"--out: another process created {folder} in the meantime. Choose another name.")
        with delay_signals():
            _replace(final, working)


def _replace(final: Path, working: Path) -> None:
    """Give a folder the place and the permissions of another one, if there is one."""
    if not final.exists():
        working.rename(final)
        return
    for path in [working, *working.rglob("*")]:
        before = final / path.relative_to(working)
        if before.exists():
            shutil.copymode(before, path)
    if not exchange(working, final):
        with locked(final, wait=False):  # nobody restores the old run meanwhile
            final.rename(_old(working))
            working.rename(final)


def _old(working: Path) -> Path:
    """Return the name of the old run while a new one takes its place, where names cannot be exchanged."""
    return working.with_name(f"{working.name}{OLD_SUFFIX}")


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the `run.json` of a run, or the one that lists the folders of several targets, after all other files."""
    parts = (folder / MODEL, folder / CONTENTS, *sorted(folder.glob(f"*/{FACTS}")))
    digests = {path.relative_to(folder).as_posix(): file_digest(path) for path in parts if path.exists()}
    content = {"format": FORMAT, "version": VERSION, **facts, "files": digests}
    write_json(folder / FACTS, {**content, "digest": facts_digest(content)})


def facts_digest(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the contents of a `run.json`, without the digest itself."""
    content = {name: value for name, value in facts.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def unchanged(folder: Path, facts: Mapping[str, Any], name: str) -> Path:
    """Return the path of a file of a run, or raise an error if it is not the one that `bayesnorm fit` wrote."""
    path = folder / name
    if not path.is_file():
        raise FileFormatError(f"RUN: {path} is missing. Run `bayesnorm fit` again.")
    if facts["files"].get(name) != file_digest(path):
        raise FileFormatError(f"RUN: {path} was changed after it was written. Run `bayesnorm fit` again.")
    return path


def target_folders(targets: Sequence[str]) -> dict[str, str]:
    """Return the folder names for the runs of several targets."""
    folders: dict[str, str] = {}
    for target in targets:
        plain = re.sub(r"[^\w-]+", "_", target)[:LONGEST_NAME].strip("_") or "target"
        taken = {folder.lower() for folder in folders.values()}
        candidates = (plain if number == 1 else f"{plain}_{number}" for number in itertools.count(1))
        folders[target] = next(folder for folder in candidates if folder.lower() not in taken)
    return folders


def json_value(value: Any) -> Any:
    """Return a value, dataclass, mapping, array or sequence as JSON values."""
    if hasattr(value, "__dataclass_fields__"):
        stored = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: json_value(entry) for name, entry in stored.items() if not callable(entry)}
    if isinstance(value, np.ndarray | np.generic):
        return json_value(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return str(value)  # JSON has no infinity, and NumPy reads this text
    return value


def write_json(path: Path, value: Any) -> None:
    """Write JSON values, completely or not at all."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_facts(folder: Path, *, or_several: bool = False) -> dict[str, Any]:
    """Return the contents of a run's `run.json`, or raise an error that says why the folder is not a run.

    Args:
        folder: The folder that `bayesnorm fit --out` created.
        or_several: Whether the folder may contain the runs of several targets.
    """
    if not (folder / FACTS).is_file():
        raise BayesNormError(f"RUN: {folder} is not a run. Pass a folder that `bayesnorm fit --out` created.")
    facts = read_json(folder / FACTS)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FileFormatError(f"RUN: {folder / FACTS} is not a file of `bayesnorm fit`. Run `bayesnorm fit` again.")
    require_version(folder, str(facts.get("version")), "RUN", "run `bayesnorm fit` again")
    if facts.get("digest") != facts_digest(facts):
        raise FileFormatError(f"RUN: {folder / FACTS} was changed after it was written. Run `bayesnorm fit` again.")
    mapping(text)(facts.get("files"), f"files of {folder / FACTS}")
    if or_several and "targets" in facts:
        return facts
    for name, check in CHECKS.items():
        check(facts.get(name), f"{name} of {folder / FACTS}")
    names = [column["name"] for column in facts["columns"]]
    if len(set(names)) < len(names):
        refuse(f"columns of {folder / FACTS}", names, "each name once")
    return facts


def read_runs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the folder and the `run.json` of each run in a folder, one for each target."""
    facts = read_facts(folder, or_several=True)
    if "targets" not in facts:
        return [(folder, facts)]
    mapping(text, 2)(facts["targets"], f"targets of {folder / FACTS}")
    for name in facts["targets"].values():
        if re.fullmatch(r"[\w-]+", name) is None:
            refuse(f"targets of {folder / FACTS}", name, "the name of a folder in it")
    return [
        (folder / name, read_facts(unchanged(folder, facts, f"{name}/{FACTS}").parent))
        for name in facts["targets"].values()
    ]


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file of a run."""
    try:
        return read_json_file(path, finite=False)
    except ValueError as error:
        raise FileFormatError(f"RUN: {path} is damaged ({error}). Run `bayesnorm fit` again.") from error


def _remove_or_restore(final: Path, parts: Iterable[Path]) -> None:
    """Remove parts of a run, or restore the old run if no new one has replaced it."""
    for part in parts:
        if part.name.endswith(OLD_SUFFIX) and part.exists() and not final.exists():
            part.rename(final)
        else:
            shutil.rmtree(part, ignore_errors=True)
