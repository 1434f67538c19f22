"""What comes of hostile cases: an error of our own, or a sound result. Anything else is a fault."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch

from bayesnorm.errors import BayesNormError, FileFormatError

from .kinds import FileKind
from .mutations import mutated

# The seconds of processor time that no case may take.
LONGEST = 60


@dataclass
class Outcomes:
    """Counts of what came of cases.

    Args:
        counts: Cases by outcome.
        kinds: Cases by kind.
        faults: What should not have come, in words.
        slowest: Seconds of processor time of the slowest case, and which it was.
        peak: The largest memory of a process that read cases, in MiB.
    """

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "none")
    peak: int = 0

    def add(self, kind: str, seed: int, outcome: str, seconds: float) -> None:
        """Count one case; an outcome is a few words, and a fault begins with "fault: "."""
        if seconds > LONGEST:
            outcome = f"fault: {seconds:.0f} seconds"
        self.slowest = max(self.slowest, (round(seconds, 2), f"{kind}, seed {seed}"))
        self.counts[outcome.partition(":")[0]] += 1
        self.kinds[kind] += 1
        if outcome.startswith("fault"):
            self.faults.append(f"{kind}, seed {seed}: {outcome}")

    def include(self, other: Self) -> None:
        """Add the counts of another batch."""
        self.counts += other.counts
        self.kinds += other.kinds
        self.faults += other.faults
        self.slowest, self.peak = max(self.slowest, other.slowest), max(self.peak, other.peak)

    def as_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        counts, kinds = Counter(values.pop("counts")), Counter(values.pop("kinds"))
        return cls(counts, kinds, **values | {"slowest": tuple(values["slowest"])})


def tried(kinds: dict[str, FileKind], folder: Path, seeds: range) -> Outcomes:
    """Read one mutated file for every seed, of each kind in turn.

    Args:
        kinds: The kinds of files.
        folder: A folder with a valid file of each kind, by name.
        seeds: Which cases.
    """
    outcomes, names = Outcomes(), list(kinds)
    case = folder / "case"
    for seed in seeds:
        name = names[seed % len(names)]
        case.write_bytes(mutated(folder / name, seed))
        start = time.process_time()
        outcomes.add(name, seed, _outcome(kinds[name], case), time.process_time() - start)
    return outcomes


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
