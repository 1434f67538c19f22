"""Attack the package with hostile files, folders and kills: `python -m tests.fuzzing models|tables|runs|maps|kills`.

Every case has a seed, and the same seed gives the same case. The results are added to `--out`, so the command continues
where an earlier one stopped; `--first` with `--cases` tries some seeds without storing anything.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import resource
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from bayesnorm.files import parse_json
from experiments.machine import machine

from .child import in_a_child
from .outcomes import Outcomes, tried
from .tables import memory, read_hostile_tables

Read = Callable[[range], Outcomes]

# Bytes of memory that a process may take beyond what it has at its start.
CAP = 2**31

# Cases of each kind, and how many of them one process tries.
CASES = {"models": 6_000, "tables": 2_000, "runs": 3_000, "maps": 1_000, "kills": 200}
TOGETHER = {"models": 500, "tables": 100, "runs": 250, "maps": 100, "kills": 20}

PACKAGES = ("numpy", "pandas", "pyarrow", "openpyxl", "pillow", "safetensors", "scikit-learn")


def read_models(folder: Path) -> Read:
    """Return a function that reads hostile files of models."""
    from .kinds import kinds

    names = kinds()
    for kind_name, kind in names.items():
        kind.write(folder / kind_name)
    return lambda seeds: tried(names, folder, seeds)


def read_folders(folder: Path, what: str) -> Read:
    """Return a function that reads hostile runs or maps, or kills what writes them."""
    from .folders import Maps, Runs, read_hostile_folders
    from .kills import Kills

    cases = {"runs": Runs, "maps": Maps, "kills": Kills}[what](folder)
    return lambda seeds: read_hostile_folders(cases, seeds)


def reader(what: str, folder: Path) -> Read:
    """Return a function that tries cases of a kind."""
    if what == "models":
        return read_models(folder)
    return (lambda seeds: read_hostile_tables(folder, seeds)) if what == "tables" else read_folders(folder, what)


def attempt(read: Read, seeds: range, result: Path) -> Outcomes:
    """Try some seeds in a process with a cap on its memory, and return what came of them."""

    def work() -> None:
        outcomes = read(seeds)
        outcomes.peak = memory("VmHWM") >> 20
        result.write_text(outcomes.as_json())

    result.unlink(missing_ok=True)
    try:
        in_a_child(work, more_memory=CAP, longest=24 * 3600)
    except AssertionError as error:
        return Outcomes(Counter({"fault": len(seeds)}), faults=[f"seeds {seeds.start} to {seeds.stop - 1}: {error}"])
    return Outcomes.from_json(result.read_text())


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that ended."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def untried(done: list[list[int]], start: int, stop: int, size: int) -> list[range]:
    """Return the seeds of each process that is still to run; `done` has the first seed and the stop of each part."""
    firsts = [first for first in range(start, stop, size) if not any(a <= first < b for a, b in done)]
    return [range(first, min(stop, first + size)) for first in firsts]


def joined(parts: list[list[int]]) -> list[list[int]]:
    """Return parts of the seeds in order, with neighbours as one."""
    together: list[list[int]] = []
    for first, stop in sorted(parts):
        if together and together[-1][1] == first:
            together[-1][1] = stop
        else:
            together.append([first, stop])
    return together


def main() -> bool:
    """Try the cases, and return whether there are faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=CASES, nargs="?", default="models", help="what to attack")
    parser.add_argument("--cases", type=int, help="how many cases, with those of earlier commands")
    parser.add_argument("--first", type=int, help="the first case's seed; nothing is stored")
    parser.add_argument("--out", type=Path, default=Path("results/attack.json"), help="file of the results")
    options = parser.parse_args()
    what, cases = options.what, options.cases or CASES[options.what]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    is_stored = options.first is None
    results = parse_json(options.out.read_bytes()) if is_stored and options.out.exists() else {}
    stored = results.get(what, {})
    total = Outcomes.from_json(json.dumps(stored["outcomes"])) if stored else Outcomes()
    done, start = stored.get("seeds", []), options.first or 0
    seconds_before = stored.get("CPU seconds", 0)
    with tempfile.TemporaryDirectory() as name:
        read = reader(what, Path(name).resolve())
        for seeds in untried(done, start, start + cases, TOGETHER[what]):
            began = time.monotonic()
            outcomes = attempt(read, seeds, Path(name) / "outcomes.json")
            total.include(outcomes)
            print(f"{what}: seeds to {seeds.stop - 1}, {time.monotonic() - began:.0f} s, {dict(outcomes.counts)}")
            print(*outcomes.faults, sep="\n", end="\n" if outcomes.faults else "", flush=True)
            done = joined([*done, [seeds.start, seeds.stop]])
            if is_stored:
                versions = {package: importlib.metadata.version(package) for package in PACKAGES}
                results = parse_json(options.out.read_bytes()) if options.out.exists() else {}
                results[what] = {
                    "seeds": done,
                    "machine": machine(),
                    "versions": versions,
                    "memory cap (MiB)": CAP >> 20,
                    "CPU seconds": round(seconds_before + processor_seconds()),
                    "outcomes": json.loads(total.as_json()),
                }
                options.out.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    return bool(total.faults)


if __name__ == "__main__":
    raise SystemExit(main())
