"""The times of the parts of a training step, measured in the training loop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from ..arguments import require_whole


@dataclass
class StepTimes:
    """Measure the parts of some steps, for `train(..., times=)`: data, transform, forward, backward, optimiser.

    In a recorded step (compiled="graph"), forward and backward are one part, which includes the transform. Measured
    steps are slower than others, because they wait for the device after every part.

    Args:
        after: Number of steps before the first measured one, to leave out compilation and warm-up. Default: 10.
        steps: Number of steps to measure. Default: 40.
        seconds: Total seconds of the measured steps, by part; filled in by `train`.
        measured: Number of steps measured so far.
    """

    after: int = 10
    steps: int = 40
    seconds: dict[str, float] = field(default_factory=dict)
    measured: int = 0
    _seen: int = field(default=0, repr=False)
    _last: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self.after, self.steps = require_whole("after", self.after, 0), require_whole("steps", self.steps)

    @property
    def milliseconds(self) -> dict[str, float]:
        """The mean milliseconds of each part; empty if no step was measured."""
        return {part: 1000 * seconds / self.measured for part, seconds in self.seconds.items() if self.measured}

    def begin(self) -> None:
        """Record that a step begins, unless the epoch is over."""
        if self._measuring:
            self._last = _now()

    def mark(self, part: str) -> None:
        """Record that a part of the step is finished."""
        if self._measuring:
            now = _now()
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
            self._last = now
        if part == "optimiser":  # the last part
            self.measured += self._measuring
            self._seen += 1

    @property
    def _measuring(self) -> bool:
        return self.after <= self._seen < self.after + self.steps


def _now() -> float:
    """Return the time after the device has finished its work."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
