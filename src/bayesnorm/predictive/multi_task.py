"""The predictive of several tasks: one predictive for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .base import Predictive, sampling


class MultiTaskPredictive(Predictive, Mapping[str, Predictive]):
    """A mapping from task to predictive; `mean`, `variance` and the others are dicts by task.

    `predictive["depth"]` is the predictive of one task, for scores too. The tasks share their samples, but each of them
    tells of its own task alone (the marginals).

    Args:
        tasks: The tasks' predictives by name.
        targets: A function that brings targets to a dict by task; None takes dicts only.
    """

    def __init__(
        self, tasks: Mapping[str, Predictive], targets: Callable[[Any], Mapping[str, Any]] | None = None
    ) -> None:
        self._tasks = dict(tasks)
        self._targets = targets or dict
        self.weights = next(iter(self._tasks.values())).weights

    def with_tasks(self, tasks: Mapping[str, Predictive]) -> MultiTaskPredictive:
        """Return other predictives of the same tasks."""
        return MultiTaskPredictive(tasks, self._targets)

    def __getitem__(self, name: str) -> Predictive:
        return self._tasks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"MultiTaskPredictive({', '.join(f'{name}={own!r}' for name, own in self.items())})"

    @property
    def mean(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: own.mean for name, own in self.items()}

    @property
    def epistemic(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: own.epistemic for name, own in self.items()}

    @property
    def aleatoric(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: own.aleatoric for name, own in self.items()}

    @property
    def variance(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: own.variance for name, own in self.items()}

    @property
    def std(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: own.std for name, own in self.items()}

    def log_prob(self, y: Any) -> Tensor:
        """Return log densities or probabilities of targets, (batch, tasks), summed over a task's outputs and pixels."""
        targets = self._targets(y)
        found = [own.log_prob(targets[name]) for name, own in self.items()]
        return torch.stack([part.reshape(len(part), part.shape[1:].numel()).sum(1) for part in found], dim=1)

    def sample(self, n: int, seed: int = 0) -> dict[str, Tensor]:  # type: ignore[override]
        """Draw targets of every task from its predictive, (n, batch, ...) each."""
        seeds = torch.randint(2**62, (len(self),), generator=sampling(n, seed)).tolist()
        return {name: own.sample(n, own_seed) for (name, own), own_seed in zip(self.items(), seeds, strict=True)}
