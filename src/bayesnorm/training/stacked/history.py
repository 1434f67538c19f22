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
        self.best, self.waited = [math.inf] * count, [0] * count

    def see(self, epoch: int, members: Tensor, scores: Tensor, stack: Stack) -> None:
        """Note the scores of some networks, by their numbers; `stack` holds these as they are now."""
        everyone = torch.full((len(self.groups),), math.nan, dtype=torch.float64)
        everyone[members] = scores.detach().double().cpu()
        self.kept.scores.append((epoch, everyone))
        for group in self.groups[members].unique().tolist():
            if self.over(group):
                continue
            inside = (self.groups[members] == group).nonzero().flatten()
            score = float(everyone[members[inside]].mean())
            if score <= self.best[group]:
                self.best[group], self.waited[group] = score, 0
                self.kept.stack.put(members[inside], stack.take(inside))
                self.kept.epochs[members[inside]] = epoch
            else:
                self.waited[group] += 1

    def over(self, group: int) -> bool:
        return self.patience is not None and self.waited[group] >= self.patience
