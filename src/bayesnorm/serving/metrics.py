"""What `/metrics` shows, in the text format of Prometheus; its memory does not grow."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .models import Batch

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Histogram:
    """Counts of values in buckets, with their sum.

    Args:
        bounds: The upper bounds of the buckets.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        """Return the lines of the text format."""
        below = np.cumsum(self.counts).tolist()
        bounds = [*map(str, self.bounds), "+Inf"]
        buckets = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in zip(bounds, below, strict=True)]
        return [*buckets, f"{name}_sum {self.sum:g}", f"{name}_count {below[-1]}"]


class Metrics:
    """The counters of a server.

    Args:
        in_flight: Returns the number of requests that wait or are being predicted.
        most_in_flight: The number above which requests are refused.
    """

    def __init__(self, in_flight: Callable[[], int], most_in_flight: int) -> None:
        self._in_flight, self._most = in_flight, most_in_flight
        self.requests = Counter[tuple[str, int]]()
        self.seconds, self.batch_rows = Histogram(SECONDS), Histogram(ROWS)
        self._sums, self._rows, self._unusual = defaultdict[str, float](float), 0, 0
        self._drift: dict[str, float] = {}

    def request(self, route: str, status: int, seconds: float | None) -> None:
        """Count a request, and the seconds of one that predicts."""
        self.requests[route, status] += 1
        if seconds is not None:
            self.seconds.add(seconds)

    def batch(self, rows: int) -> None:
        """Count rows that are predicted together."""
        self.batch_rows.add(rows)

    def uncertainty(self, outputs: Batch) -> None:
        """Add up the outputs that measure uncertainty, and count the unusual rows."""
        for name, values in outputs.items():
            if values.ndim == 1 and name.endswith(("std", "entropy", "mutual_information")):
                self._sums[name] += float(np.nan_to_num(values).sum())
            elif name == "unusual":
                self._unusual += int(values.sum())
        self._rows += len(next(iter(outputs.values())))

    def drift(self, numbers: Mapping[str, float]) -> None:
        """Store the result of the last test for drift, and count the tests."""
        if numbers:
            self._drift = {**numbers, "tests": self._drift.get("tests", 0) + 1}

    def text(self) -> str:
        """Return all numbers in the text format."""
        count = 'bayesnorm_requests_total{{route="{}",status="{}"}} {}'.format
        sums = [f'bayesnorm_uncertainty_sum{{output="{_escaped(name)}"}} {v:.10g}' for name, v in self._sums.items()]
        families = (
            ("requests_total", "counter", [count(*key, value) for key, value in sorted(self.requests.items())]),
            ("request_seconds", "histogram", self.seconds.lines("bayesnorm_request_seconds")),
            ("batch_rows", "histogram", self.batch_rows.lines("bayesnorm_batch_rows")),
            ("in_flight", "gauge", [f"bayesnorm_in_flight {self._in_flight()}"]),
            ("in_flight_limit", "gauge", [f"bayesnorm_in_flight_limit {self._most}"]),
            ("rows_total", "counter", [f"bayesnorm_rows_total {self._rows}"]),
            ("unusual_rows_total", "counter", [f"bayesnorm_unusual_rows_total {self._unusual}"]),
            ("uncertainty_sum", "counter", sums),
            *(
                (f"drift_{name}", "gauge", [f"bayesnorm_drift_{name} {value:.10g}"])
                for name, value in self._drift.items()
            ),
        )
        lines = [line for name, kind, part in families for line in (f"# TYPE bayesnorm_{name} {kind}", *part)]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
