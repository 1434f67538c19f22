"""The objective that training minimises: a loss in the precision that was asked for, penalties and weight decay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError, InputError
from ..network import call_network
from .batching import Pair

# What `train(compiled=)` calls steps that are recorded, not compiled; see `gradients.py`.
GRAPH = "graph"

# Most input numbers of a validation batch, where that is more than a training batch.
VALIDATION_ELEMENTS = 2**20


Loss = Callable[[Any, Tensor], Tensor]
"""`loss(model(x), y)`, a scalar: a mean over rows."""

Penalty = Callable[[nn.Module, int], Tensor]
"""`penalty(model, epoch)`, a scalar; epochs count from 1."""


class Objective:
    """The sum of all terms: `objective(batch, epoch)`.

    Args:
        model: The network.
        loss: The loss of its output.
        penalties: Further terms.
        weight_decay: lambda in lambda/2 |W|^2 over those of `trained` that have two dimensions or more.
        trained: The tensors that are trained.
        mixed_precision: Whether the network and the loss run in bfloat16 on a GPU that has it.
        device: Where the network is.
        compiled: Whether steps run the network compiled, or the mode to compile it in; see `train`.
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
            raise BayesNormError("loss: depends on nothing that is trained; a function of the output would work.")
        return value

    def validation_loss(self, rows: Pair, batch_size: int, model: nn.Module) -> float:
        """Return the network's loss over all rows, without penalties, in batches as large as is cheap."""
        x, y = rows
        size = max(batch_size, VALIDATION_ELEMENTS // max(1, x[0].numel()))
        with self._precision():
            parts = [  # of clones, because a network may write into its input
                len(part) * self.loss(_outputs(model, part.clone(), "validation"), target).double()
                for part, target in zip(x.split(size), y.split(size), strict=True)
            ]
        return float(torch.stack(parts).sum() / len(x))

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context that the network and its loss run in."""
        return contextlib.nullcontext() if self.half is None else torch.autocast("cuda", self.half)


def _compiled(model: nn.Module, compiled: bool | str, device: torch.device) -> Callable[[Tensor], Any]:
    """Return what steps call: the network, or what torch.compile makes of it, for batches of one shape."""
    if not isinstance(compiled, bool | str):
        raise BayesNormError(f"compiled must be True, False or a mode such as 'reduce-overhead', got {compiled!r}.")
    if not compiled or compiled == GRAPH:
        return model
    mode = compiled if isinstance(compiled, str) else "reduce-overhead" if device.type == "cuda" else "default"
    try:
        made: Callable[[Tensor], Any] = torch.compile(model, mode=mode, dynamic=False)
    except RuntimeError as error:
        raise BayesNormError(f"compiled: {compiled!r} was given, but {error}.") from error
    return made


def _half_precision(mixed_precision: bool, device: torch.device) -> torch.dtype | None:
    """Return the dtype that autocast runs the network in; None leaves it its own."""
    if not isinstance(mixed_precision, bool):
        raise BayesNormError(
            f"mixed_precision must be True (bfloat16 where a GPU has it) or False, got {mixed_precision!r}."
        )
    if not mixed_precision or device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else None


def _outputs(model: Callable[[Tensor], Any], x: Tensor, argument: str) -> Any:
    """Return `model(x)`; a failure is told in terms of the argument, unless it is the memory's or the compiler's."""
    try:
        return call_network(model, x, argument)
    except InputError as error:
        cause = error.__cause__
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause from None
        # By name: torch takes more than a second to import the compiler, which a plain training does not need.
        if "TorchDynamoException" in {kind.__name__ for kind in type(cause).__mro__}:
            why = str(cause).strip().splitlines()[0]
            raise BayesNormError(f"compiled: the network cannot be compiled here ({why}); False would work.") from cause
        raise


def _require_scalar(value: Any, name: str) -> None:
    """Refuse a term of the objective that is no tensor, or not one number."""
    if not isinstance(value, Tensor) or value.dim():
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise BayesNormError(f"{name}: gave {found}; a tensor without dimensions would work, such as a mean over rows.")
