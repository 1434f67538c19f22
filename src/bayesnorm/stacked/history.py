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
        stack: Each network as it was at its group's best score.
        epochs: For how many epochs each was trained, (E,).
        scores: (epoch, the score of every network, (E,)); NaN for those that had stopped.
    """

    stack: Stack
    epochs: Tensor
    scores: list[tuple[int, Tensor]] = field(default_factory=list)


@dataclass
class StackedHistory:
    """What happened in training; all tensors are on the CPU.

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
        stack: Gives the shape of what is kept.
        groups: The group of each network, (E,), counted from 0.
        patience: Scores without improvement before a group is over; None: never.
    """

    def __init__(self, stack: Stack, groups: Tensor, patience: int | None) -> None:
        self.groups, self.patience = groups, patience
        self.kept = Kept(stack.take(torch.arange(len(stack))), torch.zeros(len(stack), dtype=torch.long))
        count = int(groups.max()) + 1
        self.best = torch.full((count,), math.inf, dtype=torch.float64)
        self.waited = torch.zeros(count, dtype=torch.long)

    def see(self, epoch: int, members: Tensor, scores: Tensor, stack: Stack) -> None:
        """Note the scores of some networks, by their numbers; `stack` holds these as they are now."""
        scores = scores.detach().double().cpu()
        everyone = torch.full((len(self.groups),), math.nan, dtype=torch.float64)
        everyone[members] = scores
        self.kept.scores.append((epoch, everyone))
        group, seen = self.groups[members], torch.zeros(len(self.best), dtype=torch.bool)
        seen[group] = True
        score = torch.zeros_like(self.best).index_add_(0, group, scores)
        score /= torch.zeros_like(self.best).index_add_(0, group, torch.ones_like(scores)).clamp_min(1)
        running = seen & ~self.over()
        better = running & (score <= self.best)
        self.best = torch.where(better, score, self.best)
        self.waited = torch.where(better, 0, self.waited + (running & ~better).long())
        if bool(better.any()):
            inside = better[group].nonzero().flatten()
            self.kept.stack.put(members[inside], stack.take(inside))
            self.kept.epochs[members[inside]] = epoch

    def over(self) -> Tensor:
        """Which groups have stopped."""
        if self.patience is None:
            return torch.zeros(len(self.best), dtype=torch.bool)
        return self.waited >= self.patience
