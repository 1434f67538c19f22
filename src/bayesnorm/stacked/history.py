"""What happened while a stack was trained, and which networks each score chose."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .stack import Stack


@dataclass
class Kept:
    """The networks that one score chose.

    Args:
        stack: Each network as it was at its group's best score, or at its last epoch where that came before.
        epochs: For how many epochs each was trained, (E,).
        scores: (epoch, the score of every network, (E,)) at every evaluation; NaN for those that got none.
    """

    stack: Stack
    epochs: Tensor
    scores: list[tuple[int, Tensor]] = field(default_factory=list)


@dataclass
class StackedHistory:
    """Record of what happened in training; all tensors are on the CPU.

    Args:
        stopped: The last epoch that each network was trained, (E,).
        losses: Mean over an epoch's steps of the loss, without weight decay, (E, epochs); NaN after a network stopped.
        kept: By score, the networks that it chose; empty where there was none.
        seconds: Time spent.
        network_steps: Steps of single networks.
    """

    stopped: Tensor
    losses: Tensor
    kept: dict[str, Kept] = field(default_factory=dict)
    seconds: float = 0.0
    network_steps: int = 0

    @property
    def epochs(self) -> Tensor:
        """For how many epochs the networks that are kept were trained: up to the first score's best, or all."""
        return next(iter(self.kept.values())).epochs if self.kept else self.stopped


class Judge:
    """Early stopping by one score: the mean over each group, lower is better, an equal one is an improvement.

    Args:
        stack: The networks at their start, which give what is kept its shape.
        groups: The group of each network, (E,), counted from 0.
        patience: Scores without improvement before a group is over; None: never.
    """

    def __init__(self, stack: Stack, groups: Tensor, patience: int | None) -> None:
        self.groups, self.patience = groups, patience
        self.kept = Kept(stack.take(torch.arange(len(stack))), torch.zeros(len(stack), dtype=torch.long))
        count = int(groups.max()) + 1
        # A network that leaves before its group counts with its latest score.
        self.latest = torch.full((len(stack),), math.nan, dtype=torch.float64)
        self.members = torch.bincount(groups)
        # Of every group: its best score, and scores since then.
        self.best = torch.full((count,), math.inf, dtype=torch.float64)
        self.waited = torch.zeros(count, dtype=torch.long)

    def see(self, epoch: int, members: Tensor, scores: Tensor, stack: Stack, trained: Tensor) -> None:
        """Note new scores, and keep all networks of the groups that are better than ever.

        Args:
            epoch: When the scores are from.
            members: Numbers of the networks that they are of: all of some groups that are still trained.
            scores: Theirs.
            stack: All networks as they are now.
            trained: How many epochs each of these has been trained, (E,).
        """
        scores = scores.detach().double().cpu()
        everyone = torch.full((len(self.groups),), math.nan, dtype=torch.float64)
        everyone[members] = scores
        self.kept.scores.append((epoch, everyone))
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
            self.kept.stack.put(inside, stack.take(inside))
            self.kept.epochs[inside] = trained[inside]

    def over(self) -> Tensor:
        """Say of every group whether it has stopped."""
        if self.patience is None:
            return torch.zeros(len(self.best), dtype=torch.bool)
        return self.waited >= self.patience
