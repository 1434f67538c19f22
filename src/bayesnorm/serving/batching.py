"""Micro-batching: while the model predicts, requests wait, and all that wait are predicted together."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from ..errors import BayesNormError
from .log import write_log
from .metrics import Metrics
from .models import Batch, Model

# Rounds of the event loop that read and decode what has arrived at the server's connections.
ROUNDS = 2

# Rows of recent requests that are tested for drift together.
WATCHED_ROWS = 500

# Largest fraction of the time that tests for drift take.
WATCHED_TIME = 0.05


@dataclass(eq=False)
class Waiting:
    """A request that waits for its outputs."""

    batch: Batch
    rows: int
    outputs: asyncio.Future[Batch]


class Batcher:
    """Predict requests together, in one thread beside that of the server.

    A request that cannot be predicted fails alone: the others of its batch are predicted again without it.

    Args:
        model: The model.
        metrics: Counts batches and what they contain.
        most_rows: About how many rows are predicted together. One request can have more.
    """

    def __init__(self, model: Model, metrics: Metrics, most_rows: int) -> None:
        self.model, self.metrics, self.most_rows = model, metrics, most_rows
        self._waiting = deque[Waiting]()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "model")
        self._recent: list[Batch] = []
        self._recent_rows, self._next_watch = 0, 0.0

    async def predict(self, batch: Batch, rows: int) -> Batch:
        """Return the outputs of the rows of a request, after those that wait already."""
        request = Waiting(batch, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        return await request.outputs

    async def run(self) -> None:
        """Predict what arrives, until the task is cancelled."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while together := await self._next():
                    await self._in_thread(self._predict, together)
                    self._remember(together)
                    if self._recent_rows >= WATCHED_ROWS and monotonic() >= self._next_watch:
                        await self._in_thread(self._watch)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _next(self) -> list[Waiting]:
        """Take requests that nobody has given up from the queue, as many as are predicted together."""
        together, rows, before = list[Waiting](), 0, 0
        while before < len(self._waiting) < self.most_rows:
            before = len(self._waiting)
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
        while self._waiting and (not together or rows + self._waiting[0].rows <= self.most_rows):
            request = self._waiting.popleft()
            if not request.outputs.done():
                together.append(request)
                rows += request.rows
        return together

    async def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _predict(self, together: list[Waiting]) -> None:
        """Predict requests together; if that fails, one by one."""
        self.metrics.batch(sum(request.rows for request in together))
        try:
            outputs = self.model.predict(_joined([request.batch for request in together]))
            self.metrics.uncertainty(outputs)
        except Exception as error:
            if len(together) > 1:
                for request in together:
                    self._predict([request])
                return
            self._reply(together[0], error)
            return
        ends = np.cumsum([request.rows for request in together]).tolist()
        for request, end in zip(together, ends, strict=True):
            self._reply(request, {name: array[end - request.rows : end] for name, array in outputs.items()})

    def _reply(self, request: Waiting, result: Batch | Exception) -> None:
        def finish() -> None:
            if request.outputs.done():
                return
            if isinstance(result, Exception):
                request.outputs.set_exception(result)
            else:
                request.outputs.set_result(result)

        request.outputs.get_loop().call_soon_threadsafe(finish)

    def _remember(self, together: list[Waiting]) -> None:
        """Store the rows of answered requests for the next test for drift."""
        for request in together:
            if self._recent_rows < WATCHED_ROWS:
                part = {name: array[:WATCHED_ROWS] for name, array in request.batch.items()}
                self._recent.append(part)
                self._recent_rows += min(request.rows, WATCHED_ROWS)

    def _watch(self) -> None:
        """Test the stored rows for drift; wait long enough before the next test."""
        started = monotonic()
        try:
            self.metrics.drift(self.model.watch(_joined(self._recent)))
        except BayesNormError:  # a stored request could not be predicted
            pass
        except Exception:
            write_log({"level": "error", "message": f"The test for drift failed. {traceback.format_exc()}"})
        self._recent, self._recent_rows = [], 0
        ended = monotonic()
        self._next_watch = ended + (ended - started) / WATCHED_TIME


def _joined(batches: list[Batch]) -> Batch:
    """Return the rows of several batches as one."""
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
