"""All that training changes, and so all that a checkpoint holds."""

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
from torch.amp import GradScaler
from torch.optim import LBFGS, Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..errors import BayesNormError, FileFormatError
from ..network import tensors_of, unwrap


@dataclass
class History:
    """What happened in training.

    Args:
        epochs: Epochs that the network which is kept was trained for: all, or those up to the best score.
        losses: Mean over an epoch's steps of what was minimised: loss, penalties and weight decay.
        scores: (epoch, score) at every evaluation: the validation loss, or what `evaluate` gave.
        seconds: Time spent, that of interrupted runs counted in.
    """

    epochs: int = 0
    losses: list[float] = field(default_factory=list)
    scores: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def stopped(self) -> int:
        """The last epoch that was trained."""
        return len(self.losses)


@dataclass
class Run:
    """A training under way.

    Args:
        model: The network.
        trained: The tensors that the optimiser changes, mostly the network's own.
        optimiser, schedule, scaler: Made for those tensors.
        order: Draws the order of rows.
        device: The one that the network is on, whose generator it may draw from.
    """

    model: nn.Module
    trained: list[Tensor]
    optimiser: Optimizer
    schedule: LRScheduler | None
    scaler: GradScaler
    order: torch.Generator
    device: torch.device
    history: History = field(default_factory=History)
    best_score: float = math.inf
    best: dict[str, Tensor] | None = None
    waited: int = 0

    @property
    def generators(self) -> list[torch.Generator]:
        """Whatever training draws from."""
        on_device = [torch.cuda.default_generators[self.device.index or 0]] if self.device.type == "cuda" else []
        return [self.order, torch.default_generator, *on_device]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes in the network, and trained tensors that are not part of it."""
        inside = tensors_of(unwrap(self.model))
        known = {id(tensor) for tensor in inside.values()}
        outside = {f"parameters.{i}": tensor for i, tensor in enumerate(self.trained) if id(tensor) not in known}
        return {**{f"model.{name}": tensor for name, tensor in inside.items()}, **outside}

    def step(self, objective: Callable[[], Tensor]) -> Tensor:
        """One step downhill: the objective before it, still on the device."""

        def backward() -> Tensor:
            for tensor in self.trained:
                tensor.grad = None
            value = objective()
            self.scaler.scale(value).backward()
            return value.detach()

        if isinstance(self.optimiser, LBFGS):
            return self.optimiser.step(backward)
        value = backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return value

    def step_schedule(self, scored: bool = False) -> None:
        """Move on; one that waits for a plateau does so at a new score, or at every loss where nothing is scored."""
        history = self.history
        if not isinstance(self.schedule, ReduceLROnPlateau):
            if self.schedule is not None:
                self.schedule.step()
        elif not scored:
            self.schedule.step(history.losses[-1])
        elif history.scores and history.scores[-1][0] == history.stopped:
            self.schedule.step(history.scores[-1][1])

    def see(self, epoch: int, score: float) -> None:
        """Note a score; the network is kept if it is the best, or as good as the best."""
        self.history.scores.append((epoch, score))
        if score <= self.best_score:
            self.best = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
            self.best_score, self.waited = score, 0
        else:
            self.waited += 1

    def finish(self) -> None:
        """Go back to the best network, where there were scores."""
        self.history.epochs = self.best_epoch
        if self.best is not None:
            self._put(self.best)

    @property
    def best_epoch(self) -> int:
        """That of the best score, or the last one."""
        if self.best is None:
            return self.history.stopped
        return max(epoch for epoch, score in self.history.scores if score == self.best_score)

    def what_is_left(self) -> str:
        """Of a training that broke, in words."""
        if self.best is None:
            return "and the network is of no use any more"
        return f"and what is left is the best network so far, that of epoch {self.best_epoch}"

    def require_finite(self) -> None:
        """Refuse weights that the last step broke."""
        if not all(torch.stack([tensor.isfinite().all() for tensor in self.trained]).tolist()):
            raise BayesNormError(
                f"loss: was finite to the end of epoch {self.history.stopped}, but the weights are not any more, "
                f"{self.what_is_left()}; a smaller learning rate would help."
            )

    def state(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {
            "tensors": self.tensors(),
            "best": self.best,
            "best_score": self.best_score,
            "waited": self.waited,
            "optimiser": self.optimiser.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generators": [generator.get_state() for generator in self.generators],
            "python": random.getstate(),
            "numpy": _numpy_state(),
            "history": dataclasses.asdict(self.history),
        }

    def restore(self, state: dict[str, Any], epochs: int) -> None:
        """Go back to what `state()` told, if that is no more than `epochs`."""
        try:
            history = History(**state["history"])
            if history.stopped > epochs:
                raise BayesNormError(
                    f"epochs: {epochs} were asked for, but the checkpoint holds {history.stopped} already; as many or "
                    "more would work, and so would another path."
                )
            tensors = self._fitting(state["tensors"])
            self.best = None if state["best"] is None else self._fitting(state["best"])
            self.best_score, self.waited = state["best_score"], state["waited"]
            self.optimiser.load_state_dict(state["optimiser"])
            if self.schedule is not None:
                self.schedule.load_state_dict(state["schedule"])
            self.scaler.load_state_dict(state["scaler"])
            for generator, drawn in zip(self.generators, state["generators"], strict=True):
                generator.set_state(drawn)
            if "python" in state:  # older files lack these two
                random.setstate(state["python"])
                _set_numpy_state(state["numpy"])
        except BayesNormError:
            raise
        except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise FileFormatError(f"checkpoint: does not hold a whole run ({error!r}); delete the file.") from error
        self._put(tensors)
        self.history = history

    def _fitting(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Values for all tensors, on their devices; or an error."""
        found = {name: values[name].to(tensor.device) for name, tensor in self.tensors().items()}
        for name, tensor in self.tensors().items():
            if found[name].shape != tensor.shape:
                raise ValueError(f"{name} has shape {tuple(found[name].shape)}, not {tuple(tensor.shape)}")
        return found

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(values[name])


def new_run(
    model: nn.Module,
    trained: list[Tensor],
    optimiser: Callable[[list[Tensor]], Optimizer] | None,
    learning_rate: float | None,
    schedule: Callable[[Any], LRScheduler] | None,
    half: torch.dtype | None,
    device: torch.device,
    seed: int,
) -> Run:
    """A run at its start; see `train` for the arguments."""
    if optimiser is None:
        try:
            made: Optimizer = Adam(trained, lr=1e-3 if learning_rate is None else learning_rate)
        except (TypeError, ValueError) as error:
            raise BayesNormError(f"learning_rate: {learning_rate!r} was given; a number from 0 would work.") from error
    elif learning_rate is not None:
        raise BayesNormError("learning_rate: is Adam's, but an optimiser was given too; give that one its own.")
    else:
        made = optimiser(trained) if callable(optimiser) else None
        if not isinstance(made, Optimizer):
            raise BayesNormError(
                f"optimiser: {_found(optimiser, made)}; a function that makes one would work, such as "
                "lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)."
            )
    scaler = GradScaler(device.type, enabled=half is torch.float16)
    if isinstance(made, LBFGS) and scaler.is_enabled():
        raise BayesNormError("mixed_precision: float16 does not go with LBFGS; bfloat16 would work.")
    planned = None
    if schedule is not None:
        planned = schedule(made) if callable(schedule) else None
        if not isinstance(planned, LRScheduler) or planned.optimizer is not made:
            raise BayesNormError(
                f"schedule: {_found(schedule, planned)}; a function that makes one for the optimiser it is given would "
                "work, such as lambda optimiser: torch.optim.lr_scheduler.StepLR(optimiser, 30)."
            )
    return Run(model, trained, made, planned, scaler, torch.Generator().manual_seed(seed), device)


def _numpy_state() -> tuple[Any, ...]:
    """Of NumPy's global generator, its array as a tensor."""
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest


def _set_numpy_state(state: tuple[Any, ...]) -> None:
    keys, *rest = state
    np.random.set_state(("MT19937", keys.numpy(), *rest))  # noqa: NPY002


def _found(given: object, made: object) -> str:
    return f"made {type(made).__name__}" if callable(given) else f"{type(given).__name__} was given"
