"""What the parts of a training step take, measured in the loop itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from ..arguments import require_whole


@dataclass
class StepTimes:
    """Measure the parts of some steps, for `train(..., times=)`: data, transform, forward, backward, optimiser.

    Of a recorded step, forward and backward are one part, which the transform belongs to.
    In the steps that are measured, the device is waited for after every part, so that these are slower than others.

    Args:
        after: Steps before the first one that is measured: compiling and warming up are no part of it.
        steps: Steps that are measured.
        seconds: Per part, the seconds of all measured steps; filled by `train`.
        measured: Steps that were measured so far.
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
        """The mean milliseconds of each part; nothing where no step was measured."""
        return {part: 1000 * seconds / self.measured for part, seconds in self.seconds.items() if self.measured}

    def begin(self) -> None:
        """Note that a step begins, unless the epoch is over."""
        if self._measuring:
            self._last = _now()

    def mark(self, part: str) -> None:
        """Note that a part of the step is over."""
        if self._measuring:
            now = _now()
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
            self._last = now
        if part == "optimiser":  # the last one
            self.measured += self._measuring
            self._seen += 1

    @property
    def _measuring(self) -> bool:
        return self.after <= self._seen < self.after + self.steps


def _now() -> float:
    """Return the time, after all that the device still has to do."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
