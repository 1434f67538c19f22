"""Compare the speed of several versions of bayesnorm: predictions and fits, before and after a change.

    git worktree add ../before SOME_COMMIT
    python -m benchmarks.versions before=../before/src after=src [--device cuda] [--out results/versions_cpu.json]

Each version runs in a process of its own, and the processes take turns, so that all versions meet the same noise. The
results are the medians over the rounds: milliseconds, and the ratio to one forward pass of the same network (for fits,
to forward passes over 64 batches), measured in turns in the same process. On a CPU they are CPU time of one thread, on
a GPU elapsed time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.machine import machine

WORKER = Path(__file__).with_name("versions_worker.py")


class Version:
    """A process that measures with one version's source."""

    def __init__(self, name: str, source: Path, device: str, turn_seconds: float) -> None:
        self.name = name
        environment = os.environ | {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(WORKER), device, str(turn_seconds)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cases: list[str] = self.answer()

    def ask(self, case: str) -> None:
        """Start one turn of a case."""
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)

    def answer(self) -> list:
        """Wait for milliseconds and the ratio to forward passes of the turn that was asked for."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"The process of version {self.name} ended; its error is above.")
        answer: list = json.loads(line)
        return answer


@contextmanager
def running(sources: dict[str, Path], device: str, turn_seconds: float) -> Iterator[list[Version]]:
    """Start the processes of all versions, and end them."""
    versions = [Version(name, source, device, turn_seconds) for name, source in sources.items()]
    try:
        yield versions
    finally:
        for version in versions:
            version.process.kill()


def turns_of(versions: list[Version], case: str, rounds: int) -> list[list[tuple[float, float]]]:
    """Return milliseconds and the ratio to forward passes for every round and version."""
    for version in versions:  # all prepare, such as compiling, at the same time
        version.ask(case)
    for version in versions:
        version.answer()
    turns = []
    for _ in range(rounds):
        turns.append([])
        for version in versions:
            version.ask(case)
            turns[-1].append(tuple(version.answer()))
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+", metavar="NAME=SOURCE", help="Name and source folder of each version.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="Where to measure. [default: cpu]")
    parser.add_argument("--rounds", type=int, default=7, help="Turns of each version for every case. [default: 7]")
    parser.add_argument("--turn", type=float, default=0.3, help="Seconds of a turn. [default: 0.3]")
    parser.add_argument("--only", default="", help="Measure only cases whose name contains this text.")
    parser.add_argument("--out", type=Path, help="Results file. [default: results/versions_DEVICE.json]")
    options = parser.parse_args()
    sources = {name: Path(source) for name, _, source in (version.partition("=") for version in options.versions)}
    rows = []
    with running(sources, options.device, options.turn) as versions:
        for case in [case for case in versions[0].cases if options.only in case]:
            rounds = turns_of(versions, case, options.rounds)
            for version, turns in zip(versions, zip(*rounds, strict=True), strict=True):
                milliseconds, ratios = zip(*turns, strict=True)
                row = {
                    "case": case,
                    "version": version.name,
                    "ms": round(statistics.median(milliseconds), 4),
                    "passes": round(statistics.median(ratios), 3),
                    "passes_lowest": round(min(ratios), 3),
                    "passes_highest": round(max(ratios), 3),
                }
                rows.append(row)
                print(f"{case:58} {version.name:10} {row['ms']:10.3f} ms {row['passes']:8.2f} passes", flush=True)
    names = " ".join(f"{name}=..." for name in sources)
    command = f"python -m benchmarks.versions {names} --device {options.device}"
    made_on = machine(options.device) | {"threads": 1, "rounds": options.rounds, "command": command}
    out = options.out or Path("results") / f"versions_{options.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": made_on, "speed": rows}, indent=1) + "\n")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
