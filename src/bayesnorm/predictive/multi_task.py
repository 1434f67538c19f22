"""The predictive of several tasks: a mapping with one predictive per task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Self, overload

import torch
from torch import Tensor

from ..errors import shortened
from .base import Predictive, sampling


class MultiTaskPredictive(Predictive, Mapping[str, Predictive]):
    """A mapping from task names to predictives; `mean`, `variance` and the other properties are dicts by task.

    `predictive["depth"]` is the predictive of one task, for example for scores. All tasks use the same samples, but
    each predictive is the marginal distribution of its own task.

    Args:
        tasks: Predictives by task name.
        targets: A function that turns targets into a dict by task. Default: None, targets must be a dict.
    """

    def __init__(
        self, tasks: Mapping[str, Predictive], targets: Callable[[Any], Mapping[str, Any]] | None = None
    ) -> None:
        self._tasks = dict(tasks)
        self._targets = targets or dict
        self.weights = next(iter(self._tasks.values())).weights

    def with_tasks(self, tasks: Mapping[str, Predictive]) -> Self:
        """Return a predictive of the same tasks with other distributions."""
        return type(self)(tasks, self._targets)

    @overload
    def __getitem__(self, rows: str) -> Any: ...

    @overload
    def __getitem__(self, rows: Any) -> Self: ...

    def __getitem__(self, rows: Any) -> Any:
        """Return the predictive of a task, or that of some examples for all tasks."""
        if isinstance(rows, str):
            return self._tasks[rows]
        return self.with_tasks({name: task[rows] for name, task in self.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def numpy(self) -> dict[str, Any]:
        """Return the main values of every task as NumPy arrays, by task and name."""
        return {name: task.numpy() for name, task in self.items()}

    def to_dict(self) -> dict[str, Any]:
        return {name: task.to_dict() for name, task in self.items()}

    def __repr__(self) -> str:
        return shortened(f"MultiTaskPredictive({', '.join(f'{name}={task!r}' for name, task in self.items())})")

    def _repr_html_(self) -> str:
        return "".join(f"<b>{escape(name)}</b>{task._repr_html_()}" for name, task in self.items())

    @property
    def mean(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: task.mean for name, task in self.items()}

    @property
    def epistemic(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: task.epistemic for name, task in self.items()}

    @property
    def aleatoric(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: task.aleatoric for name, task in self.items()}

    @property
    def variance(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: task.variance for name, task in self.items()}

    @property
    def std(self) -> dict[str, Tensor]:  # type: ignore[override]
        return {name: task.std for name, task in self.items()}

    def log_prob(self, y: Any) -> Tensor:
        """Return log densities or probabilities, (batch, tasks), summed over the outputs and pixels of each task."""
        targets = self._targets(y)
        log_probs = [task.log_prob(targets[name]) for name, task in self.items()]
        return torch.stack([part.reshape(len(part), part.shape[1:].numel()).sum(1) for part in log_probs], dim=1)

    def sample(self, n: int, seed: int = 0) -> dict[str, Tensor]:  # type: ignore[override]
        """Sample targets of every task from its predictive, (n, batch, ...) each."""
        seeds = torch.randint(2**62, (len(self),), generator=sampling(n, seed)).tolist()
        return {name: task.sample(n, task_seed) for (name, task), task_seed in zip(self.items(), seeds, strict=True)}
