"""Read some thousand hostile files: `python -m tests.fuzzing models`, or `tables`."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from .child import in_a_child
from .outcomes import Outcomes, tried

# Tables that one process reads.
BATCH = 100


def read_models(folder: Path) -> Callable[[range], Outcomes]:
    """Return a function that reads hostile files of models."""
    from .kinds import kinds

    known = kinds()
    for kind_name, kind in known.items():
        kind.write(folder / kind_name)
    return lambda seeds: tried(known, folder, seeds)


def read_tables(folder: Path) -> Callable[[range], Outcomes]:
    """Return a function that reads hostile tables."""
    from .tables import read_hostile_tables

    warnings.simplefilter("ignore")
    return lambda seeds: read_hostile_tables(folder, seeds)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("what", choices=("models", "tables"), nargs="?", default="models", help="what to read")
parser.add_argument("--cases", type=int, help="how many files")
parser.add_argument("--first", type=int, default=0, help="the first case's seed")
options = parser.parse_args()
torch.set_num_threads(1)
is_table = options.what == "tables"
end = options.first + (options.cases or (2_000 if is_table else 10_000))
failed = False
with tempfile.TemporaryDirectory() as name:
    read = (read_tables if is_table else read_models)(Path(name))

    def read_all(seeds: range) -> None:
        """Read the cases of some seeds, and fail if there are faults."""
        outcomes = read(seeds)
        print(outcomes.as_json(), flush=True)
        assert not outcomes.faults

    size = BATCH if is_table else end - options.first
    for first in range(options.first, end, size):
        seeds = range(first, min(end, first + size))
        try:
            in_a_child(lambda seeds=seeds: read_all(seeds), more_memory=2**31 if is_table else 2**30, longest=24 * 3600)
        except AssertionError as error:
            print(f"seeds {seeds.start} to {seeds.stop - 1}: {error}", flush=True)
            failed = True
raise SystemExit(failed)
