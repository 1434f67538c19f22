"""What comes of reading hostile files: an error of our own, or finite numbers. Anything else is a fault."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bayesnorm.errors import BayesNormError, FileFormatError

from .kinds import FileKind
from .mutations import mutated


@dataclass
class Outcomes:
    """Counts of what came of cases.

    Args:
        counts: Cases by kind of file and outcome.
        faults: What should not have come, in words.
        slowest: Seconds of the slowest case, and which it was.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "none")

    def as_json(self) -> str:
        return json.dumps({"counts": self.counts, "faults": self.faults, "slowest": self.slowest}, indent=1)


def tried(kinds: dict[str, FileKind], folder: Path, seeds: range) -> Outcomes:
    """Read one mutated file for every seed, of each kind in turn.

    Args:
        kinds: The kinds of files.
        folder: A folder with a valid file of each kind, by name.
        seeds: Which cases.
    """
    found, names = Outcomes(), list(kinds)
    case = folder / "case"
    for seed in seeds:
        name = names[seed % len(names)]
        case.write_bytes(mutated(folder / name, seed))
        start = time.monotonic()
        outcome = _outcome(kinds[name], case)
        found.slowest = max(found.slowest, (time.monotonic() - start, f"{name}, seed {seed}"))
        found.counts[outcome.partition(":")[0]] += 1
        if outcome.startswith("fault"):
            found.faults.append(f"{name}, seed {seed}: {outcome}")
    return found


def _outcome(kind: FileKind, path: Path) -> str:
    """Say what comes of a file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers = kind.use(path)
    except FileFormatError:
        return "refused as a file"
    except BayesNormError:
        return "refused otherwise"
    except BaseException as error:
        return f"fault: {type(error).__name__}: {error}"[:300]
    return "finite numbers" if all(bool(torch.isfinite(part).all()) for part in numbers) else "fault: not finite"
