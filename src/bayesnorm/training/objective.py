"""The objective of training (the loss in the chosen precision, penalties, weight decay) and its gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError, InputError
from ..network import call_network, capture_graph
from .batching import Pair

# The value of `train(compiled=)` for steps that are recorded, not compiled; see `RecordedGradients`.
GRAPH = "graph"

# Steps before recording, in which libraries choose kernels and allocate memory.
WARM_UP = 3

# Maximum count of input numbers of a validation batch, unless a training batch has more.
VALIDATION_ELEMENTS = 2**20


Loss = Callable[[Any, Tensor], Tensor]
"""`loss(model(x), y)`, a scalar: a mean over examples."""

Penalty = Callable[[nn.Module, int], Tensor]
"""`penalty(model, epoch)`, a scalar; epochs count from 1."""

Transform = Callable[[Tensor, Tensor], Pair]
"""Returns the network's inputs and targets, given those of a batch."""


class Objective:
    """The sum of all terms: `objective(batch, epoch)`.

    Args:
        model: The network.
        loss: The loss of its output.
        penalties: Further terms.
        weight_decay: lambda in lambda/2 |W|^2 over tensors of `trained` with two or more dimensions.
        trained: The tensors that are trained.
        mixed_precision: Whether network and loss run in bfloat16 on a GPU that supports it.
        device: The network's device.
        compiled: Whether steps run the compiled network, or the compile mode; see `train`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        penalties: Iterable[Penalty],
        weight_decay: float,
        trained: list[Tensor],
        mixed_precision: bool,
        device: torch.device,
        compiled: bool | str = False,
    ) -> None:
        if not isinstance(penalties, Iterable):
            raise BayesNormError(f"penalties must be a list of functions, got {type(penalties).__name__}.")
        penalties = list(penalties)
        for name, function in [("loss", loss), *((f"penalties[{i}]", entry) for i, entry in enumerate(penalties))]:
            if not callable(function):
                raise BayesNormError(f"{name} must be a function, got {type(function).__name__}.")
        self.model, self.loss, self.penalties, self.weight_decay = model, loss, penalties, weight_decay
        self.matrices = [tensor for tensor in trained if tensor.dim() >= 2] if weight_decay else []
        self.half = _half_precision(mixed_precision, device)
        self.network = _compiled(model, compiled, device)

    def __call__(self, batch: Pair, epoch: int) -> Tensor:
        with self._precision():
            value = self.loss(_outputs(self.network, batch[0], "data"), batch[1])
        _require_scalar(value, "loss")
        for i, penalty in enumerate(self.penalties):
            term = penalty(self.model, epoch)
            _require_scalar(term, f"penalties[{i}]")
            value = value + term
        if self.matrices:
            value = value + 0.5 * self.weight_decay * torch.stack([w.square().sum() for w in self.matrices]).sum()
        if not value.requires_grad:
            raise BayesNormError(
                "loss does not depend on any trained tensor. Return a function of the network's output."
            )
        return value

    def validation_loss(self, rows: Pair, batch_size: int, model: nn.Module) -> float:
        """Return the network's loss over all examples, without penalties, in large batches."""
        x, y = rows
        size = max(batch_size, VALIDATION_ELEMENTS // max(1, x[0].numel()))
        with self._precision():
            parts = [  # clones, because a network may write into its input
                len(part) * self.loss(_outputs(model, part.clone(), "validation"), target).double()
                for part, target in zip(x.split(size), y.split(size), strict=True)
            ]
        return float(torch.stack(parts).sum() / len(x))

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return the precision context of the network and its loss."""
        return contextlib.nullcontext() if self.half is None else torch.autocast("cuda", self.half)


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


def _compiled(model: nn.Module, compiled: bool | str, device: torch.device) -> Callable[[Tensor], Any]:
    """Return the function that steps call: the network, or the compiled network for batches of one shape."""
    if not isinstance(compiled, bool | str):
        raise BayesNormError(f"compiled must be True, False or a mode such as 'reduce-overhead', got {compiled!r}.")
    if not compiled or compiled == GRAPH:
        return model
    mode = compiled if isinstance(compiled, str) else "reduce-overhead" if device.type == "cuda" else "default"
    try:
        made: Callable[[Tensor], Any] = torch.compile(model, mode=mode, dynamic=False)
    except RuntimeError as error:
        raise BayesNormError(f"compiled={compiled!r} failed: {error}. Use compiled=False.") from error
    return made


def _half_precision(mixed_precision: bool, device: torch.device) -> torch.dtype | None:
    """Return the dtype of autocast, or None for the network's own precision."""
    if not isinstance(mixed_precision, bool):
        raise BayesNormError(
            f"mixed_precision must be True (bfloat16 on GPUs that support it) or False, got {mixed_precision!r}."
        )
    if not mixed_precision or device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else None


def _outputs(model: Callable[[Tensor], Any], x: Tensor, argument: str) -> Any:
    """Return `model(x)`. Errors name the argument, except errors of the memory or the compiler."""
    try:
        return call_network(model, x, argument)
    except InputError as error:
        cause = error.__cause__
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause from None
        # By name, because importing torch's compiler takes more than a second, which plain training does not need.
        if "TorchDynamoException" in {kind.__name__ for kind in type(cause).__mro__}:
            why = str(cause).strip().splitlines()[0]
            raise BayesNormError(f"The network cannot be compiled here ({why}). Use compiled=False.") from cause
        raise


def _require_scalar(value: Any, name: str) -> None:
    """Raise an error if a term of the objective is not a tensor with one number."""
    if not isinstance(value, Tensor) or value.dim():
        kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise BayesNormError(f"{name} must return a tensor without dimensions, such as a mean over rows, got {kind}.")
