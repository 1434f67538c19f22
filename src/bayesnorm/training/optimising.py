"""Optimisers and schedules, made by the caller's functions and restored from checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LRScheduler

from ..arguments import require_number
from ..errors import BayesNormError

# Optimisers whose step only needs gradients.
_TRIED = (Adam, AdamW, SGD, RMSprop)

# The size of biases, scales, shifts and zero tensors in `relative_adam`.
VECTOR_SIZE = 0.1


def new_optimiser(
    optimiser: Callable[[list[Tensor]], Optimizer] | None, learning_rate: float | None, trained: list[Tensor]
) -> Optimizer:
    """Return the optimiser of some tensors; `train` describes the arguments."""
    if optimiser is None:
        return Adam(
            trained, lr=1e-3 if learning_rate is None else require_number("learning_rate", learning_rate, least=0)
        )
    if learning_rate is not None:
        raise BayesNormError("learning_rate is for Adam, but optimiser is given too. Set its learning rate there.")
    made = optimiser(trained) if callable(optimiser) else None
    if not isinstance(made, Optimizer):
        raise BayesNormError(
            f"optimiser must be a function that makes an optimiser, {_describe_failure(optimiser, made)}. Example: "
            "lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)."
        )
    return made


def relative_adam(parameters: Iterable[Tensor], share: float = 0.01, **options: Any) -> Adam:
    """Return an Adam optimiser whose steps are relative to the size of each tensor, to fine-tune a trained network.

    Weights before batch norm can have any size, and a sparsity prior makes them tiny. Steps of the usual 0.001 would
    destroy what they have learned. Biases, scales and shifts, whose size matters, get that usual rate.

    Args:
        parameters: The tensors to train.
        share: Learning rate relative to the current root mean square of a tensor, which counts as 0.1 for vectors.
            Default: 0.01.
        options: Further arguments of `torch.optim.Adam`.
    """
    share = require_number("share", share, least=0)
    groups = []
    for tensor in parameters:
        size = float(tensor.detach().float().square().mean().sqrt())
        groups.append({"params": [tensor], "lr": share * (size if tensor.dim() > 1 and size else VECTOR_SIZE)})
    return Adam(groups, **options)


def new_schedule(schedule: Callable[[Any], LRScheduler] | None, optimiser: Optimizer) -> LRScheduler | None:
    """Return the learning-rate schedule of an optimiser, or None; `train` describes the argument."""
    if schedule is None:
        return None
    made = schedule(optimiser) if callable(schedule) else None
    if not isinstance(made, LRScheduler) or made.optimizer is not optimiser:
        raise BayesNormError(
            f"schedule must be a function that makes a schedule for the given optimiser, "
            f"{_describe_failure(schedule, made)}. "
            "Example: lambda optimiser: torch.optim.lr_scheduler.StepLR(optimiser, 30)."
        )
    return made


def restore_optimiser(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Restore an optimiser's state, after a trial step on copies of the weights, because torch checks little of it."""
    if type(optimiser) in _TRIED:
        groups: list[dict[str, Any]] = []
        for group in optimiser.param_groups:
            copies = [tensor.detach().clone().requires_grad_() for tensor in group["params"]]
            for tensor in copies:
                tensor.grad = torch.zeros_like(tensor)
            groups.append({"params": copies})
        trial: Any = type(optimiser)(groups, lr=1e-3)  # type: ignore[call-arg]
        _load(trial, copy.deepcopy(state))
        trial.step()
    _load(optimiser, state)


def _load(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Load a state with the memory layout of the weights: files do not store it, and fused steps need it."""
    optimiser.load_state_dict(state)
    for weight, remembered in optimiser.state.items():
        for name, value in remembered.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                remembered[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value).detach()


def _describe_failure(argument: object, made: object) -> str:
    """Return what was given instead of a function, or what that function returned, for messages."""
    return f"but it returned {type(made).__name__}" if callable(argument) else f"got {type(argument).__name__}"
