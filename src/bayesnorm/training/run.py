"""The state of a training: everything that it changes, which is what a checkpoint contains."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..errors import BayesNormError, FileFormatError
from ..network import tensors_of, unwrap
from ..schema import anything, either, listed, number, record, whole
from .optimising import restore_optimiser


@dataclass
class History:
    """The record of a training.

    Args:
        epochs: Number of epochs of the resulting network: all, or those up to the best score.
        losses: Mean of the objective (loss, penalties and weight decay) over the steps of each epoch.
        scores: (epoch, score) of every evaluation: the validation loss, or the result of `evaluate`.
        seconds: Training time, including that of interrupted runs.
    """

    epochs: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def stopped(self) -> int:
        """The last epoch that was trained."""
        return len(self.losses)


_HISTORY = record(
    epochs=whole(),
    losses=listed(number()),
    scores=listed(listed(either(float, anything, whole()), 2)),
    seconds=number(0),
)
"""The schema of the record of a training."""

_INCOMPLETE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors of restoring a state that is not complete."""


@dataclass
class Run:
    """A training in progress.

    Args:
        model: The network.
        trained: The tensors that the optimiser changes, usually parameters of the network.
        optimiser: The optimiser.
        schedule: The learning-rate schedule, or None.
        order: The generator of the order of examples.
        device: The network's device, whose generator it may use.
        epochs: Maximum number of epochs.
        patience: Number of scores without improvement before training stops, or None.
        history: The record so far.
        every_step: Whether the schedule advances after every step, not after every epoch.
        best_score: The lowest score so far.
        best: All tensors at that score.
        waited: Number of scores since then.
    """

    model: nn.Module
    trained: list[Tensor]
    optimiser: Optimizer
    schedule: LRScheduler | None
    order: torch.Generator
    device: torch.device
    epochs: int
    patience: int | None = None
    history: History = field(default_factory=History)
    every_step: bool = False
    best_score: float = math.inf
    best: dict[str, Tensor] | None = None
    waited: int = 0

    def __post_init__(self) -> None:
        if self.every_step and isinstance(self.schedule, ReduceLROnPlateau):
            raise BayesNormError(
                "schedule_every='step' does not work with ReduceLROnPlateau. Use schedule_every='epoch'."
            )

    @property
    def generators(self) -> list[torch.Generator]:
        """All torch generators that training uses."""
        on_device = [torch.cuda.default_generators[self.device.index or 0]] if self.device.type == "cuda" else []
        return [self.order, torch.default_generator, *on_device]

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that training changes in the network, and trained tensors outside it."""
        inside = tensors_of(unwrap(self.model))
        network_ids = {id(tensor) for tensor in inside.values()}
        outside = {f"parameters.{i}": tensor for i, tensor in enumerate(self.trained) if id(tensor) not in network_ids}
        return {**{f"model.{name}": tensor for name, tensor in inside.items()}, **outside}

    @property
    def over(self) -> bool:
        """Whether all epochs are done, or `patience` scores in a row were no better than the best."""
        return self.history.stopped == self.epochs or (self.patience is not None and self.waited >= self.patience)

    def step(self, gradients: Callable[[], Tensor]) -> Tensor:
        """Take one optimiser step, and return the objective before it, still on the device.

        Args:
            gradients: Stores gradients in the trained tensors, and returns the objective.
        """
        value: Tensor
        if isinstance(self.optimiser, LBFGS):  # evaluates the objective several times
            value = self.optimiser.step(gradients)
        else:
            value = gradients()
            self.optimiser.step()
        if self.every_step and self.schedule is not None:
            self.schedule.step()
        return value

    def step_schedule(self, scored: bool) -> None:
        """Advance the schedule after an epoch.

        Args:
            scored: Whether there are scores. `ReduceLROnPlateau` gets new scores, or every epoch's loss if there are
                no scores.
        """
        history = self.history
        if not isinstance(self.schedule, ReduceLROnPlateau):
            if self.schedule is not None and not self.every_step:
                self.schedule.step()
        elif not scored:
            self.schedule.step(history.losses[-1])
        elif history.scores and history.scores[-1][0] == history.stopped:
            self.schedule.step(history.scores[-1][1])

    def record_score(self, score: float) -> None:
        """Record the score of the last epoch, and keep the network if it is at least as good as the best."""
        self.history.scores.append((self.history.stopped, score))
        if score <= self.best_score:
            self.best = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
            self.best_score, self.waited = score, 0
        else:
            self.waited += 1

    def finish(self) -> None:
        """Restore the best network, if there were scores."""
        self.history.epochs = self.best_epoch
        if self.best is not None:
            self._put(self.best)

    @property
    def best_epoch(self) -> int:
        """The epoch of the best score, or the last epoch if there are no scores."""
        if self.best is None:
            return self.history.stopped
        return max(epoch for epoch, score in self.history.scores if score == self.best_score)

    def describe_left(self) -> str:
        """Return a clause that says which network a failed training leaves."""
        if self.best is None:
            return "so the network is no longer usable"
        return f"so the network is reset to its best state so far, that of epoch {self.best_epoch}"

    def require_finite(self) -> None:
        """Raise an error if the last step made weights infinite or NaN."""
        if not all(torch.stack([tensor.isfinite().all() for tensor in self.trained]).tolist()):
            raise BayesNormError(
                f"The loss was finite until the end of epoch {self.history.stopped}, but the weights are not any more, "
                f"{self.describe_left()}. Use a smaller learning rate."
            )

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint must contain."""
        return {
            "tensors": self.tensors(),
            "best": self.best,
            "best_score": self.best_score,
            "waited": self.waited,
            "optimiser": self.optimiser.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "generators": [generator.get_state() for generator in self.generators],
            "python": random.getstate(),
            "numpy": _numpy_state(),
            "history": dataclasses.asdict(self.history),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state()`. Raise an error if it is incomplete or has more epochs than requested."""
        try:
            _HISTORY(_as_lists(state["history"]), "history")
            history = History(**state["history"])
            if history.stopped > self.epochs:
                raise BayesNormError(
                    f"epochs is {self.epochs}, but the checkpoint already has {history.stopped}. Ask for at least as "
                    "many epochs, or use another path."
                )
            tensors = self._fitting(state["tensors"])
            self.best = None if state["best"] is None else self._fitting(state["best"])
            whole()(state["waited"], "waited")
            self.best_score, self.waited = float(state["best_score"]), state["waited"]
            restore_optimiser(self.optimiser, state["optimiser"])
            if self.schedule is not None:
                self.schedule.load_state_dict(state["schedule"])
            for generator, generator_state in zip(self.generators, state["generators"], strict=True):
                generator.set_state(generator_state)
            random.setstate(state["python"])
            _set_numpy_state(state["numpy"])
        except _INCOMPLETE as error:
            if isinstance(error, BayesNormError) and not isinstance(error, FileFormatError):
                raise
            reason = error if isinstance(error, FileFormatError) else repr(error)
            raise FileFormatError(f"checkpoint does not contain a complete run ({reason}). Delete the file.") from error
        self._put(tensors)
        self.history = history

    def _fitting(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return values for all tensors, on their devices, or raise an error if they do not fit."""
        restored = {name: values[name].to(tensor.device) for name, tensor in self.tensors().items()}
        for name, tensor in self.tensors().items():
            alike = restored[name].shape == tensor.shape and restored[name].dtype == tensor.dtype
            if not alike or (
                tensor.is_floating_point() and bool((~restored[name].isfinite() & tensor.isfinite()).any())
            ):
                raise ValueError(f"{name} is not finite, or not of shape {tuple(tensor.shape)} and {tensor.dtype}")
        return restored

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        """Overwrite all tensors."""
        for name, tensor in self.tensors().items():
            tensor.copy_(values[name])


def _as_lists(value: Any) -> Any:
    """Return values with lists instead of tuples, as the JSON checks need them."""
    if isinstance(value, dict):
        return {name: _as_lists(entry) for name, entry in value.items()}
    return [_as_lists(entry) for entry in value] if isinstance(value, tuple | list) else value


def _numpy_state() -> tuple[Any, ...]:
    """Return the state of NumPy's global generator, with its array as a tensor."""
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest


def _set_numpy_state(state: tuple[Any, ...]) -> None:
    """Restore the result of `_numpy_state()`."""
    keys, *rest = state
    np.random.set_state(("MT19937", keys.numpy(), *rest))  # noqa: NPY002
