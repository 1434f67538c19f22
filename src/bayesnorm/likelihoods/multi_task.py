"""The likelihood of several tasks on one network, each with its own (Kendall, Gal and Cipolla 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import BayesNormError, InputError
from ..predictive import MultiTaskPredictive
from ..predictive.base import as_targets
from ..schema import anything, listed
from .base import Likelihood, likelihood_from
from .classes import ClassTargets
from .scales import output_axis, require_axis

TaskPart = tuple[str, Likelihood, int]
"""A name, a likelihood and how many outputs it takes."""


@dataclass(frozen=True, init=False)
class MultiTask(Likelihood):
    """A likelihood per task; their losses are added up, weighted by the tasks' noise.

        MultiTask({"depth": HeteroscedasticGaussian(), "label": (Categorical(), 12)})

    takes 2 + 12 outputs of the network, in this order. (A network that returns them apart becomes such a one by
    `joined_outputs`.) Targets are a dict by task, or one tensor with the tasks' targets beside each other, of classes
    one column with their numbers: what `train` takes.

    What a task's noise is decides its weight in the sum: a variance that is four times as large divides a squared error
    by four. `LearnedNoise(MultiTask(...))` learns it with the network, one number per task, and so the weights.

    Args:
        tasks: Likelihoods by name; (likelihood, outputs) where there is more than one target, or more than two classes.
        axis: The axis of outputs (batch, *out) that the tasks' outputs lie along; 1 is that of columns, classes and
            channels.
    """

    tasks: tuple[TaskPart, ...]
    axis: int = field(default=1, kw_only=True)

    def __init__(self, tasks: Mapping[str, Likelihood | tuple[Likelihood, int]], *, axis: int = 1) -> None:
        require_axis(axis)
        if isinstance(tasks, list):  # as `config` wrote them, and JSON keeps their order
            listed(listed(anything, 3))(tasks, "likelihood.tasks")
            tasks = {name: (likelihood_from(config), outputs) for name, config, outputs in tasks}
        if not isinstance(tasks, Mapping) or not tasks:
            raise BayesNormError(f"tasks must be a dict of likelihoods by name, got {tasks!r}.")
        object.__setattr__(self, "tasks", tuple(_task(str(name), given) for name, given in tasks.items()))
        object.__setattr__(self, "axis", int(axis))

    def __getitem__(self, name: str) -> Likelihood:
        return self._by_name[name]

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> MultiTaskPredictive:
        parts = self._outputs(f)
        found = {name: task.predictive(parts[name], weights) for name, task, _ in self.tasks}
        return MultiTaskPredictive(found, self._targets)

    @property
    def listens(self) -> bool:
        return any(task.listens for _, task, _ in self.tasks)

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> MultiTaskPredictive:
        parts = self._outputs(f)
        variances = {} if variance is None else self._outputs(variance[None])
        found = {}
        for name, task, _ in self.tasks:
            own = variances[name][0] if task.listens and variances else None
            found[name] = task.part_predictive(parts[name], weights, own)
        return MultiTaskPredictive(found, self._targets)

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> MultiTaskPredictive | None:
        means, variances = self._outputs(mean[None]), self._outputs(variance[None])
        found = {}
        for name, task, _ in self.tasks:
            exact = task.gaussian_predictive(means[name][0], variances[name][0])
            if exact is None:
                return None
            found[name] = exact
        return MultiTaskPredictive(found, self._targets)

    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        parts, targets = self._outputs(f[None]), self._targets(y)
        losses = []
        for k, (name, task, _) in enumerate(self.tasks):
            own = None if noise is None else task.noise.to(noise) * noise[k]
            losses.append(task.loss(parts[name][0], targets[name], own))
        return torch.stack(losses).sum()

    @property
    def noise(self) -> Tensor:
        """Factors of the tasks' own noise, one number each."""
        return torch.ones(len(self.tasks), dtype=torch.float64)

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return the range of factors of every task's own noise."""
        parts, targets, ends = self._outputs(f), self._targets(y), []
        for name, task, _ in self.tasks:
            low, high = task.noise_range(parts[name], targets[name])
            own = task.noise.to(low.device)
            ends.append(((low / own).amin(), (high / own).amax()))
        return torch.stack([low for low, _ in ends]), torch.stack([high for _, high in ends])

    def with_noise(self, noise: Tensor) -> Self:
        factors = noise.double().cpu()
        changed = {name: (task.with_noise(task.noise * factors[k]), n) for k, (name, task, n) in enumerate(self.tasks)}
        return type(self)(changed, axis=self.axis)

    def target_columns(self, outputs: int) -> int:
        return sum(task.target_columns(own) for _, task, own in self.tasks)

    def config(self) -> dict[str, Any]:
        tasks = [[name, task.config(), outputs] for name, task, outputs in self.tasks]
        return {"kind": type(self).__name__, "tasks": tasks, **({"axis": self.axis} if self.axis != 1 else {})}

    @property
    def _by_name(self) -> dict[str, Likelihood]:
        return {name: task for name, task, _ in self.tasks}

    def _outputs(self, f: Tensor) -> dict[str, Tensor]:
        """Return every task's part of outputs (n, batch, *out)."""
        position = output_axis(f, self.axis)
        widths = [outputs for _, _, outputs in self.tasks]
        if f.shape[position] != sum(widths):
            wanted = " + ".join(f"{outputs} ({name})" for name, _, outputs in self.tasks)
            raise InputError(
                f"f: {f.shape[position]} outputs along axis {self.axis} of {tuple(f.shape[1:])}, but the tasks take "
                f"{wanted}; (likelihood, outputs) says how many a task takes, and axis= where they lie."
            )
        return dict(zip(self._by_name, f.split(widths, dim=position), strict=True))

    def _targets(self, y: Any) -> dict[str, Any]:
        """Return every task's targets, which may come as a dict or as columns of one tensor."""
        if isinstance(y, Mapping):
            if set(y) != set(self._by_name):
                raise InputError(f"y: has targets for {list(y)}; for each of {list(self._by_name)} would work.")
            return dict(y)
        columns = [task.target_columns(outputs) for _, task, outputs in self.tasks]
        shape = tuple(np.shape(y))
        if len(shape) < 2 or not -len(shape) <= self.axis < len(shape) or shape[self.axis] != sum(columns):
            raise InputError(
                f"y: {type(y).__name__} of shape {shape}; a dict by task, or a tensor with {sum(columns)} columns "
                f"along axis {self.axis}, would work."
            )
        y = y if isinstance(y, Tensor) else as_targets(y, torch.device("cpu"))
        parts = y.split(columns, dim=self.axis)
        found = zip(self.tasks, parts, strict=True)
        return {n: part.squeeze(self.axis) if isinstance(task, ClassTargets) else part for (n, task, _), part in found}


def _task(name: str, given: Any) -> TaskPart:
    """Check what was given for a task: a likelihood, or a pair (likelihood, outputs)."""
    likelihood, outputs = given if isinstance(given, tuple | list) and len(given) == 2 else (given, None)
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, MultiTask):
        raise BayesNormError(
            f"tasks: {name!r} is {type(likelihood).__name__}; a likelihood or a pair (likelihood, outputs) would work."
        )
    if outputs is None:
        outputs = likelihood.least_outputs
    return name, likelihood, require_whole(f"tasks: outputs of {name!r}", outputs, likelihood.least_outputs)
