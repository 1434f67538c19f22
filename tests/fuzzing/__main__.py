"""Read some thousand hostile files: `python -m tests.fuzzing --cases 10000`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from .child import in_a_child
from .kinds import kinds
from .outcomes import tried

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--cases", type=int, default=10_000, help="how many files")
parser.add_argument("--first", type=int, default=0, help="the first case's seed")
options = parser.parse_args()
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as name:
    folder, known = Path(name), kinds()
    for kind_name, kind in known.items():
        kind.write(folder / kind_name)

    def try_all() -> None:
        """Try all cases, and end badly where there are faults."""
        found = tried(known, folder, range(options.first, options.first + options.cases))
        print(found.as_json(), flush=True)
        assert not found.faults

    in_a_child(try_all, more_memory=2**30, longest=24 * 3600)
