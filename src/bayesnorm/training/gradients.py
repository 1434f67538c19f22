"""The gradients of one step: computed directly, or on a GPU by replaying a recorded step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BayesNormError
from ..network import capture_graph
from .batching import Pair
from .objective import GRAPH, Objective

# Steps before recording, in which libraries choose kernels and allocate memory.
WARM_UP = 3

Transform = Callable[[Tensor, Tensor], Pair]
"""Returns the network's inputs and targets, given those of a batch."""


class Gradients:
    """Compute the gradients of the objective for a batch and store them in the trained tensors.

    Args:
        objective: The objective to minimise.
        transform: Augmentation of a batch, or None.
        trained: The tensors that get gradients.
    """

    def __init__(self, objective: Objective, transform: Transform | None, trained: list[Tensor]) -> None:
        self.objective, self.transform, self.trained = objective, transform, trained

    def __call__(self, batch: Pair, epoch: int) -> Tensor:
        """Return the objective's value, still on the device."""
        if self.transform is not None:
            batch = self.transform(*batch)
        for tensor in self.trained:
            tensor.grad = None
        value = self.objective(batch, epoch)
        value.backward()
        return value.detach()


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    epoch: int
    batch: Pair  # the inputs of the graph
    value: Tensor  # its result, the objective
    gradients: list[Tensor | None]  # and the gradients


class RecordedGradients(Gradients):
    """Gradients on a GPU, whose kernels are recorded once and then launched together.

    Batches of another shape than the recorded one run directly. If there are penalties, a step is recorded again in
    every epoch, because penalties may change between epochs.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._side = torch.cuda.Stream()
        self._steps_left = WARM_UP  # before recording
        self._recording: _Recording | None = None

    def __call__(self, batch: Pair, epoch: int) -> Tensor:
        outdated = self._recording is None or (self.objective.penalties and self._recording.epoch != epoch)
        if outdated and self._steps_left == 0:
            self._record(batch, epoch)
        recording = self._recording
        if recording is None or any(
            new.shape != recorded.shape for new, recorded in zip(batch, recording.batch, strict=True)
        ):
            return self._as_it_is(batch, epoch)
        for new, recorded in zip(batch, recording.batch, strict=True):
            recorded.copy_(new)
        recording.graph.replay()
        for tensor, gradient in zip(self.trained, recording.gradients, strict=True):
            tensor.grad = gradient
        return recording.value.clone()

    def _as_it_is(self, batch: Pair, epoch: int) -> Tensor:
        if self._steps_left:
            self._steps_left -= 1
            # Not on the default stream, which cannot be recorded.
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                value = super().__call__(batch, epoch)
            torch.cuda.current_stream().wait_stream(self._side)
            return value
        return super().__call__(batch, epoch)

    def _record(self, batch: Pair, epoch: int) -> None:
        """Record the step. Nothing is computed during recording."""
        recorded = batch[0].clone(), batch[1].clone()
        try:
            graph, value = capture_graph(lambda: Gradients.__call__(self, recorded, epoch))
        except (RuntimeError, BayesNormError) as error:
            why = str(error).strip().splitlines()[0]
            raise BayesNormError(f'compiled="graph" cannot record a step ({why}). Use compiled=False.') from error
        self._recording = _Recording(graph, epoch, recorded, value, [tensor.grad for tensor in self.trained])


def new_gradients(
    objective: Objective,
    transform: Transform | None,
    trained: list[Tensor],
    compiled: bool | str,
    device: torch.device,
) -> Gradients:
    """Return the object that computes gradients: a recording one if compiled="graph" and there is a GPU."""
    kind = RecordedGradients if compiled == GRAPH and device.type == "cuda" else Gradients
    return kind(objective, transform, trained)
