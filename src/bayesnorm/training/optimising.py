"""Optimisers and schedules: made by the caller's functions, and put back into a state that a checkpoint holds."""

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

# Optimisers whose step needs nothing but gradients.
_TRIED = (Adam, AdamW, SGD, RMSprop)

# What biases, scales and shifts count as under `relative_adam`, whatever they are, and tensors of zeros.
VECTOR_SIZE = 0.1


def new_optimiser(
    optimiser: Callable[[list[Tensor]], Optimizer] | None, learning_rate: float | None, trained: list[Tensor]
) -> Optimizer:
    """Make the optimiser of some tensors; see `train` for the arguments."""
    if optimiser is None:
        return Adam(
            trained, lr=1e-3 if learning_rate is None else require_number("learning_rate", learning_rate, least=0)
        )
    if learning_rate is not None:
        raise BayesNormError("learning_rate: is Adam's, but an optimiser was given too; give that one its own.")
    made = optimiser(trained) if callable(optimiser) else None
    if not isinstance(made, Optimizer):
        raise BayesNormError(
            f"optimiser: {_found(optimiser, made)}; a function that makes one would work, such as "
            "lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)."
        )
    return made


def relative_adam(parameters: Iterable[Tensor], share: float = 0.01, **options: Any) -> Adam:
    """Return an Adam whose steps are a share of each tensor's size, for a network that is trained already.

    Weights in front of batch norm can be of any size, and a prior that wants them small makes them tiny: steps of the
    usual .001 would undo all that they have learned. Biases, scales and shifts, whose size does matter, get that rate.

    Args:
        parameters: The tensors.
        share: A learning rate in terms of the root mean square of a tensor's values, as they are now; that of vectors
            counts as .1.
        options: Further ones of `torch.optim.Adam`.
    """
    share = require_number("share", share, least=0)
    groups = []
    for own in parameters:
        size = float(own.detach().float().square().mean().sqrt())
        groups.append({"params": [own], "lr": share * (size if own.dim() > 1 and size else VECTOR_SIZE)})
    return Adam(groups, **options)


def new_schedule(schedule: Callable[[Any], LRScheduler] | None, optimiser: Optimizer) -> LRScheduler | None:
    """Make the schedule of an optimiser's learning rate, where one is wanted; see `train` for the argument."""
    if schedule is None:
        return None
    made = schedule(optimiser) if callable(schedule) else None
    if not isinstance(made, LRScheduler) or made.optimizer is not optimiser:
        raise BayesNormError(
            f"schedule: {_found(schedule, made)}; a function that makes one for the optimiser it is given would "
            "work, such as lambda optimiser: torch.optim.lr_scheduler.StepLR(optimiser, 30)."
        )
    return made


def restore_optimiser(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Put an optimiser into a state, after a step with it on copies of the weights: torch looks at little of it."""
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
    """Load a state, laid out in memory as the weights are: files know no layout, and fused steps need the same one."""
    optimiser.load_state_dict(state)
    for weight, remembered in optimiser.state.items():
        for name, value in remembered.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                remembered[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value).detach()


def _found(given: object, made: object) -> str:
    """Say what was given instead of a function, or what that function made."""
    return f"made {type(made).__name__}" if callable(given) else f"{type(given).__name__} was given"
