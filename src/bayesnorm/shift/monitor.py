"""Monitor a stream of batches for drift, with one false-alarm rate for the whole stream.

Every batch gives a p-value. It is ranked among the p-values expected from training data and those of the stream so far.
The rank is uniform as long as all of them are exchangeable, even if the p-values are only approximately correct. A bet
against uniformity, k r^(k-1) for a rank r, then has expected value 1. So has a product of bets that starts at any
batch. A share 1 / (s (s + 1)) of the stake starts at batch s. By Ville's inequality, the total value ever exceeds
1 / level with probability at most `level`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from bayesnorm_runtime import Drift

from .. import files
from ..arguments import require_number, require_seed
from ..errors import FileFormatError
from ..posterior import Posterior
from ..schema import LARGEST_WHOLE, Array, number, one_of, optional, record, refuse, require_tensors, whole
from .comparison import over_statistics, require_batches
from .drifting import drift

KIND = "drift-monitor"
BETS = (0.1, 0.3, 0.5, 0.7)
# The largest value of a stake. A stream that continues after its alarm would make it infinite, and files refuse that.
MOST = 1e250
# p-values are counted in bins of equal width in -log10 p; the last bin holds all smaller ones.
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
    """The state of a monitor after a batch.

    Args:
        alarm: Whether drift was detected, at this batch or an earlier one.
        evidence: The value of a stake of 1 bet against "no drift"; the alarm is raised at 1 / level.
        drift: The test of this batch alone, without the examples. For a classifier, the batch that raises the alarm has
            the estimated error.
    """

    alarm: bool
    evidence: float
    drift: Drift

    def summary(self) -> str:
        """Return the state as text: whether drift was detected and, at the alarm, how wrong the network probably is."""
        verdict = "was detected" if self.alarm else "was not detected so far"
        error = "" if self.drift.expected_error is None else f" {self.drift.expected_error}"
        return f"Drift {verdict} (evidence {self.evidence:.3g}).{error}"


class DriftMonitor:
    """Monitor a stream of batches, of any sizes, for drift; memory use is constant.

        monitor = DriftMonitor(posterior)
        for x in stream:
            if monitor.update(x).alarm: ...

    Args:
        posterior: The posterior that batches are compared with; see `drift`.
        level: The largest probability of ever raising a false alarm on a stream without drift, however long.
        seed: Seed for ranking p-values that fall into the same bin.
    """

    def __init__(self, posterior: Posterior, level: float = 0.05, seed: int = 0) -> None:
        self.level = require_number("level", level, above=0, below=1, requirement="a number between 0 and 1")
        self.posterior, self.seed = posterior, require_seed(seed)
        self.batches, self.rows = 0, 0
        self.alarm: int | None = None
        """The number of the batch that raised the alarm, counted from 1; None while there is no alarm."""
        self.evidence = 1.0
        edges = 10.0 ** -(np.arange(1 + BINS_PER_DECADE * DECADES) / BINS_PER_DECADE)
        seen = min(require_batches(part).counts[-1] for part in over_statistics(posterior))
        # Expected from training data: as many p-values as there were batches, spread uniformly.
        self._counts = seen * -np.diff(np.append(edges, 0.0))
        self._stakes = np.zeros(len(BETS))

    def __repr__(self) -> str:
        return f"DriftMonitor(alarm={self.alarm}, evidence={self.evidence:.3g}, batches={self.batches})"

    def update(self, x: Any) -> Watched:
        """Test the next batch of the stream, (n, ...), and return the state of the monitor."""
        result = drift(self.posterior, x)
        self.batches += 1
        self.rows += result.rows
        rank = self._rank(result.p_value)
        bets = np.array(BETS)
        # The share that starts at this batch is added; every product of bets continues.
        stakes = (self._stakes + 1 / (self.batches * (self.batches + 1))) * bets * rank ** (bets - 1)
        self._stakes = np.minimum(stakes, MOST)
        self.evidence = float(self._stakes.mean()) + 1 / (self.batches + 1)
        if self.alarm is None and self.evidence >= 1 / self.level:
            self.alarm = self.batches
        if self.alarm == self.batches:
            _ = result.expected_error  # the batch that raises the alarm says how wrong the network is
        return Watched(self.alarm is not None, self.evidence, result.without_inputs())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the monitor, without the posterior, to one safetensors file."""
        tensors = {"counts": torch.from_numpy(self._counts), "stakes": torch.from_numpy(self._stakes)}
        config = {"kind": KIND, "level": self.level, "seed": self.seed, "batches": self.batches, "rows": self.rows}
        files.write(Path(path), tensors, config | {"alarm": self.alarm})

    @classmethod
    def load(cls, path: str | os.PathLike[str], posterior: Posterior) -> Self:
        """Return the monitor that `save` wrote, ready for the next batch.

        Args:
            path: The file.
            posterior: The posterior that the saved monitor used.
        """
        tensors, config = files.read(Path(path))
        if config.get("kind") != KIND:
            raise FileFormatError(f"{path} is not a drift monitor. Pass a file that DriftMonitor.save wrote.")
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
        """Return the rank of a p-value among the earlier ones, from 0 to 1, and count it."""
        place = min(int(-math.log10(max(p_value, 1e-300)) * BINS_PER_DECADE), len(self._counts) - 1)
        chance = np.random.default_rng((self.seed, self.batches)).random()
        smaller = self._counts[place + 1 :].sum() + chance * (self._counts[place] + 1)
        rank = float(smaller / (self._counts.sum() + 1))
        self._counts[place] += 1
        return max(rank, 1e-12)
