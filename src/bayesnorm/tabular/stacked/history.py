"""Record the training of a stack, and the networks that each score selected."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .stack import Stack


@dataclass
class SelectedNetworks:
    """The networks that one score selected.

    Args:
        stack: Each network at its group's best score, or at its last epoch if that came before.
        epochs: Number of epochs that each was trained, (E,).
        scores: (epoch, score of every network, (E,)) at every evaluation; NaN for networks that were not scored.
    """

    stack: Stack
    epochs: Tensor
    scores: list[tuple[int, Tensor]] = field(default_factory=list)


@dataclass
class StackedHistory:
    """Record of a training; all tensors are on the CPU.

    Args:
        stopped: The last epoch that each network was trained, (E,).
        losses: Mean loss over an epoch's steps, without weight decay, (E, epochs); NaN after a network stopped.
        selected: The networks that each score selected, by name of the score; empty without scores.
        seconds: Training time.
        network_steps: Number of steps, summed over networks.
    """

    stopped: Tensor
    losses: Tensor
    selected: dict[str, SelectedNetworks] = field(default_factory=dict)
    seconds: float = 0.0
    network_steps: int = 0

    @property
    def epochs(self) -> Tensor:
        """Return the number of epochs of the selected networks: up to the first score's best epoch, or all."""
        return next(iter(self.selected.values())).epochs if self.selected else self.stopped


class Judge:
    """Early stopping by one score: the mean over each group, lower is better, an equal score is an improvement.

    Args:
        stack: The untrained networks, which give the shape of the selected ones.
        groups: The group of each network, (E,), counted from 0.
        patience: Scores without improvement before a group stops; None: never.
    """

    def __init__(self, stack: Stack, groups: Tensor, patience: int | None) -> None:
        self.groups, self.patience = groups, patience
        copies = stack.take(torch.arange(len(stack)))
        self.selected = SelectedNetworks(copies, torch.zeros(len(stack), dtype=torch.long))
        count = int(groups.max()) + 1
        # A network that stops before its group counts with its latest score.
        self.latest = torch.full((len(stack),), math.nan, dtype=torch.float64)
        self.members = torch.bincount(groups)
        # For every group: its best score, and the number of scores since then.
        self.best = torch.full((count,), math.inf, dtype=torch.float64)
        self.waited = torch.zeros(count, dtype=torch.long)

    def record_scores(self, epoch: int, members: Tensor, scores: Tensor, stack: Stack, trained: Tensor) -> None:
        """Record new scores, and keep all networks of the groups with a new best score.

        Args:
            epoch: The epoch of the scores.
            members: Indices of the scored networks: all of some groups that are still trained.
            scores: Their scores.
            stack: All networks in their current state.
            trained: Number of epochs that each of these has been trained, (E,).
        """
        scores = scores.detach().double().cpu()
        everyone = torch.full((len(self.groups),), math.nan, dtype=torch.float64)
        everyone[members] = scores
        self.selected.scores.append((epoch, everyone))
        self.latest[members] = scores
        seen = torch.zeros(len(self.best), dtype=torch.bool)
        seen[self.groups[members]] = True
        score = torch.zeros_like(self.best).index_add_(0, self.groups, self.latest) / self.members
        running = seen & ~self.over()
        better = running & (score <= self.best)
        self.best = torch.where(better, score, self.best)
        self.waited = torch.where(better, 0, self.waited + (running & ~better).long())
        if bool(better.any()):
            inside = better[self.groups].nonzero().flatten()
            self.selected.stack.put(inside, stack.take(inside))
            self.selected.epochs[inside] = trained[inside]

    def over(self) -> Tensor:
        """Return for every group whether it has stopped."""
        if self.patience is None:
            return torch.zeros(len(self.best), dtype=torch.bool)
        return self.waited >= self.patience
