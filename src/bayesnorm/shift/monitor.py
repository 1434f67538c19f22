"""Watch a stream of batches for drift, with one false-alarm rate for all of it.

Every batch gives a p-value. It is ranked among those that training rows would give and those of the stream so far: the
rank is uniform as long as all of them are exchangeable, also where the p-values themselves are only nearly right. A
bet against uniformity, k r^(k-1) for a rank r, is then worth 1 on average, and so is a product of bets that begins at
any batch; shares of the stake wait for every batch s to begin there, 1 / (s (s + 1)) each. What all of it is worth
exceeds 1 / level with a chance of at most `level`, at any time (Ville's inequality).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from .. import files
from ..arguments import as_number, require_seed
from ..errors import BayesNormError, FileFormatError
from ..posterior import Posterior
from ..schema import LARGEST_WHOLE, Array, number, one_of, optional, record, refuse, require_tensors, whole
from .comparison import over_statistics, require_batches
from .drifting import Drift, drift

KIND = "drift-monitor"
BETS = (0.1, 0.3, 0.5, 0.7)
# What a stake is worth at most: a stream that goes on after its alarm would make it infinite, which no file may hold.
MOST = 1e250
# p-values are remembered in bins of equal width in -log10 p, the last for all that are smaller.
BINS_PER_DECADE, DECADES = 16, 12

_SCHEMA = record(
    kind=one_of(KIND),
    level=number(above=0, most=1),
    seed=whole(),
    batches=whole(),
    rows=whole(),
    alarm=optional(whole(1)),
)


@dataclass(frozen=True)
class Watched:
    """What a monitor says after a batch.

    Args:
        alarm: Whether the stream has drifted, now or at an earlier batch.
        evidence: What a stake of 1 against "no drift" is worth now; an alarm rings at 1 / level.
        drift: The test of this batch alone.
    """

    alarm: bool
    evidence: float
    drift: Drift


class DriftMonitor:
    """Watches batches of any sizes, one after the other, in bounded memory.

        monitor = DriftMonitor(posterior)
        for x in stream:
            if monitor.update(x).alarm: ...

    Args:
        posterior: What batches are held against; see `drift`.
        level: The chance that a stream without drift ever rings, however long it is.
        seed: Decides ranks among p-values that are alike.
    """

    def __init__(self, posterior: Posterior, level: float = 0.05, seed: int = 0) -> None:
        found = as_number(level)
        if found is None or not 0 < found < 1:
            raise BayesNormError(f"level must be a number between 0 and 1, got {level!r}.")
        self.posterior, self.level, self.seed = posterior, found, require_seed(seed)
        self.batches, self.rows = 0, 0
        self.alarm: int | None = None
        """The number of the batch that rang, from 1; None as long as none did."""
        self.evidence = 1.0
        edges = 10.0 ** -(np.arange(1 + BINS_PER_DECADE * DECADES) / BINS_PER_DECADE)
        seen = min(require_batches(part).counts[-1] for part in over_statistics(posterior))
        # What training rows would give: as many p-values as there were batches, evenly spread.
        self._counts = seen * -np.diff(np.append(edges, 0.0))
        self._stakes = np.zeros(len(BETS))

    def update(self, x: Any) -> Watched:
        """Take the next batch of the stream, (n, ...), and say whether the stream has drifted."""
        found = drift(self.posterior, x)
        self.batches += 1
        self.rows += found.rows
        rank = self._rank(found.p_value)
        bets = np.array(BETS)
        # Shares that wait for this batch enter; each product of bets goes on.
        stakes = (self._stakes + 1 / (self.batches * (self.batches + 1))) * bets * rank ** (bets - 1)
        self._stakes = np.minimum(stakes, MOST)
        self.evidence = float(self._stakes.mean()) + 1 / (self.batches + 1)
        if self.alarm is None and self.evidence >= 1 / self.level:
            self.alarm = self.batches
        return Watched(self.alarm is not None, self.evidence, found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write where the monitor stands (not the posterior) as one safetensors file."""
        tensors = {"counts": torch.from_numpy(self._counts), "stakes": torch.from_numpy(self._stakes)}
        config = {"kind": KIND, "level": self.level, "seed": self.seed, "batches": self.batches, "rows": self.rows}
        files.write(Path(path), tensors, config | {"alarm": self.alarm})

    @classmethod
    def load(cls, path: str | os.PathLike[str], posterior: Posterior) -> Self:
        """Go on where `save` left off.

        Args:
            path: The file.
            posterior: The posterior that the monitor had.
        """
        tensors, config = files.read(Path(path))
        if config.get("kind") != KIND:
            raise FileFormatError(f"path: {path} holds no drift monitor; one that DriftMonitor.save wrote would work.")
        _SCHEMA(config, "config")
        monitor = cls(posterior, config["level"], config["seed"])
        double = (torch.float64,)
        require_tensors(
            tensors,
            {"counts": Array((len(monitor._counts),), double, 0.0), "stakes": Array((len(BETS),), double, 0.0)},
        )
        for name, most in {"counts": float(LARGEST_WHOLE), "stakes": MOST}.items():
            if float(tensors[name].max()) > most:
                refuse(name, float(tensors[name].max()), f"numbers up to {most:g}")
        monitor._counts, monitor._stakes = tensors["counts"].numpy(), tensors["stakes"].numpy()
        monitor.batches, monitor.rows, monitor.alarm = config["batches"], config["rows"], config["alarm"]
        monitor.evidence = float(monitor._stakes.mean()) + 1 / (monitor.batches + 1)
        return monitor

    def _rank(self, p_value: float) -> float:
        """Return where a p-value stands among those that are known, 0 to 1, and remember it."""
        place = min(int(-math.log10(max(p_value, 1e-300)) * BINS_PER_DECADE), len(self._counts) - 1)
        chance = np.random.default_rng((self.seed, self.batches)).random()
        smaller = self._counts[place + 1 :].sum() + chance * (self._counts[place] + 1)
        rank = float(smaller / (self._counts.sum() + 1))
        self._counts[place] += 1
        return max(rank, 1e-12)
