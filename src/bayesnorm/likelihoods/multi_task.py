"""The likelihood of a network with several tasks, each with its own likelihood (Kendall, Gal and Cipolla, 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import BayesNormError, InputError
from ..predictive import MultiTaskPredictive, Predictive, as_targets
from ..schema import anything, listed
from .base import Likelihood, likelihood_from
from .classes import ClassTargets
from .scales import output_axis, require_axis

TaskPart = tuple[str, Likelihood, int]
"""A task's name, its likelihood and its number of outputs."""


@dataclass(frozen=True, init=False)
class MultiTask(Likelihood[MultiTaskPredictive]):
    """Combine one likelihood per task for a network with several tasks. The loss is the sum of the tasks' losses.

        MultiTask({"depth": HeteroscedasticGaussian(), "label": (Categorical(), 12)})

    is for a network with 2 + 12 outputs, in this order. `joined_outputs` converts a network that returns them
    separately. Targets are a dict by task, or one tensor with the tasks' targets side by side, with one column of class
    numbers for a classification task; `train` needs the tensor.

    The noise of a task determines its weight in the sum: four times the variance divides a squared error by four.
    `LearnedNoise(MultiTask(...))` learns one factor per task, and so the weights, together with the network.

    Reference: Kendall, Gal and Cipolla, "Multi-task learning using uncertainty to weigh losses", 2018.

    Args:
        tasks: Likelihoods by name. Use a pair (likelihood, outputs) for more than one target or more than two classes.
        axis: The axis of outputs (batch, *out) that is split into tasks: 1 for columns, classes and channels.
            Default: 1.
    """

    tasks: tuple[TaskPart, ...]
    axis: int = field(default=1, kw_only=True)

    def __init__(self, tasks: Mapping[str, Likelihood | tuple[Likelihood, int]], *, axis: int = 1) -> None:
        require_axis(axis)
        if isinstance(tasks, list):  # the form that `config` returns; JSON keeps the order of a list
            listed(listed(anything, 3))(tasks, "likelihood.tasks")
            tasks = {name: (likelihood_from(config), outputs) for name, config, outputs in tasks}
        if not isinstance(tasks, Mapping) or not tasks:
            raise BayesNormError(f"tasks must be a dict of likelihoods by name, got {tasks!r}.")
        object.__setattr__(self, "tasks", tuple(_task(str(name), task) for name, task in tasks.items()))
        object.__setattr__(self, "axis", int(axis))

    def __getitem__(self, name: str) -> Likelihood:
        return self._by_name[name]

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> MultiTaskPredictive:
        parts = self._outputs(f)
        return self._joined({name: task.predictive(parts[name], weights) for name, task, _ in self.tasks})

    @property
    def uses_sample_variance(self) -> bool:
        return any(task.uses_sample_variance for _, task, _ in self.tasks)

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> MultiTaskPredictive:
        parts, variances = self._outputs(f), None if variance is None else self._outputs(variance[None])
        predictives = {}
        for name, task, _ in self.tasks:
            task_variance = variances[name][0] if variances and task.uses_sample_variance else None
            predictives[name] = task.part_predictive(parts[name], weights, task_variance)
        return self._joined(predictives)

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> MultiTaskPredictive | None:
        means, variances = self._outputs(mean[None]), self._outputs(variance[None])
        exact = {name: task.gaussian_predictive(means[name][0], variances[name][0]) for name, task, _ in self.tasks}
        predictives = {name: predictive for name, predictive in exact.items() if predictive is not None}
        return self._joined(predictives) if len(predictives) == len(exact) else None

    def _joined(self, predictives: Mapping[str, Predictive]) -> MultiTaskPredictive:
        return MultiTaskPredictive(predictives, self._targets)

    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        parts, targets = self._outputs(f[None]), self._targets(y)
        losses = []
        for k, (name, task, _) in enumerate(self.tasks):
            task_noise = None if noise is None else task.noise.to(noise) * noise[k]
            losses.append(task.loss(parts[name][0], targets[name], task_noise))
        return torch.stack(losses).sum()

    @property
    def noise(self) -> Tensor:
        """Factors of the tasks' noise, one number each."""
        return torch.ones(len(self.tasks), dtype=torch.float64)

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return the search range of the factors of the tasks' noise."""
        parts, targets, ends = self._outputs(f), self._targets(y), []
        for name, task, _ in self.tasks:
            low, high = task.noise_range(parts[name], targets[name])
            task_noise = task.noise.to(low.device)
            ends.append(((low / task_noise).amin(), (high / task_noise).amax()))
        return torch.stack([low for low, _ in ends]), torch.stack([high for _, high in ends])

    def with_noise(self, noise: Tensor) -> Self:
        factors = noise.double().cpu()
        changed = {name: (task.with_noise(task.noise * factors[k]), n) for k, (name, task, n) in enumerate(self.tasks)}
        return type(self)(changed, axis=self.axis)

    def target_columns(self, outputs: int) -> int:
        return sum(task.target_columns(columns) for _, task, columns in self.tasks)

    def config(self) -> dict[str, Any]:
        tasks = [[name, task.config(), outputs] for name, task, outputs in self.tasks]
        return {"kind": type(self).__name__, "tasks": tasks, **({"axis": self.axis} if self.axis != 1 else {})}

    @property
    def _by_name(self) -> dict[str, Likelihood]:
        return {name: task for name, task, _ in self.tasks}

    def _outputs(self, f: Tensor) -> dict[str, Tensor]:
        """Return the outputs (n, batch, *out) of every task."""
        position = output_axis(f, self.axis)
        widths = [outputs for _, _, outputs in self.tasks]
        if f.shape[position] != sum(widths):
            wanted = " + ".join(f"{outputs} ({name})" for name, _, outputs in self.tasks)
            raise InputError(
                f"Outputs of shape {tuple(f.shape[1:])} have {f.shape[position]} entries along axis {self.axis}, but "
                f"the tasks need {wanted}. Set a task's size with (likelihood, outputs), or the axis with axis=."
            )
        return dict(zip(self._by_name, f.split(widths, dim=position), strict=True))

    def _targets(self, y: Any) -> dict[str, Any]:
        """Return the targets of every task, given a dict or columns of one tensor."""
        if isinstance(y, Mapping):
            if set(y) != set(self._by_name):
                raise InputError(f"y has targets for {list(y)}. Pass targets for exactly {list(self._by_name)}.")
            return dict(y)
        columns = [task.target_columns(outputs) for _, task, outputs in self.tasks]
        shape = tuple(np.shape(y))
        if len(shape) < 2 or not -len(shape) <= self.axis < len(shape) or shape[self.axis] != sum(columns):
            raise InputError(
                f"y must be a dict by task, or a tensor with {sum(columns)} columns along axis {self.axis}, got "
                f"{type(y).__name__} of shape {shape}."
            )
        y = y if isinstance(y, Tensor) else as_targets(y, torch.device("cpu"))
        parts = y.split(columns, dim=self.axis)
        pairs = zip(self.tasks, parts, strict=True)
        return {n: part.squeeze(self.axis) if isinstance(task, ClassTargets) else part for (n, task, _), part in pairs}


def _task(name: str, value: Any) -> TaskPart:
    """Check the value of a task: a likelihood, or a pair (likelihood, outputs)."""
    likelihood, outputs = value if isinstance(value, tuple | list) and len(value) == 2 else (value, None)
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, MultiTask):
        raise BayesNormError(
            f"tasks[{name!r}] must be a likelihood or a pair (likelihood, outputs), got {type(likelihood).__name__}."
        )
    if outputs is None:
        outputs = likelihood.least_outputs
    return name, likelihood, require_whole(f"tasks: outputs of {name!r}", outputs, likelihood.least_outputs)
