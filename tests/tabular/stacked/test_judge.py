"""Groups of networks that stop by their mean score: which are over, and what is kept of them."""

import math

import pytest
import torch

from bayesnorm.tabular.stacked import Stack
from bayesnorm.tabular.stacked.history import Judge
from experiments.networks import paper_mlp


class Loop:
    """What `Judge` should do, one group after another."""

    def __init__(self, groups, patience):
        self.groups, self.patience = groups.tolist(), patience
        self.best, self.waited, self.epochs = {}, dict.fromkeys(self.groups, 0), [0] * len(self.groups)
        self.latest = {}

    def over(self, group):
        return self.patience is not None and self.waited[group] >= self.patience

    def see(self, members, scores, trained):
        self.latest |= dict(zip(members, scores, strict=True))
        for group in sorted({self.groups[member] for member in members}):
            if self.over(group):
                continue
            inside = [k for k, other in enumerate(self.groups) if other == group]
            score = math.fsum(self.latest[k] for k in inside) / len(inside)
            if score <= self.best.get(group, math.inf):
                self.best[group], self.waited[group] = score, 0
                for k in inside:
                    self.epochs[k] = trained[k]
            else:
                self.waited[group] += 1


@pytest.mark.parametrize("limit", [5, 20])
@pytest.mark.parametrize("patience", [1, 3, None])
def test_groups_are_judged_as_one_by_one(patience, limit):
    """Scores are whole numbers, so that some are equal; every network's bias tells the epoch it was kept at."""
    groups = torch.tensor([2, 0, 1, 2, 1, 0, 2, 3])
    limits = torch.tensor([limit, 20, 20, 20, 20, 20, 20, 20])
    stack = Stack.from_networks([paper_mlp(2, hidden=(3,), seed=i) for i in range(len(groups))])
    judge, loop = Judge(stack, groups, patience), Loop(groups, patience)
    generator = torch.Generator().manual_seed(7)
    active, trained = torch.arange(len(groups)), torch.zeros(len(groups), dtype=torch.long)
    for epoch in range(1, 13):
        scores = torch.randint(6, (len(active),), generator=generator).double()
        stack.weights["3.bias"][active] = epoch
        trained[active] = epoch
        judge.record_scores(epoch, active, scores, stack, trained)
        loop.see(active.tolist(), scores.tolist(), trained.tolist())
        over = judge.over()
        assert over.tolist() == [loop.over(group) for group in range(4)]
        assert judge.selected.epochs.tolist() == loop.epochs
        at, seen = judge.selected.scores[-1]
        assert at == epoch
        torch.testing.assert_close(seen[active], scores)
        assert seen.isnan().sum() == len(groups) - len(active)
        active = active[limits[active] > epoch]
        if patience == 3:  # elsewhere those that are over go on being seen, and stay as they were kept
            active = active[~over[groups[active]]]
        if not len(active):
            break
    assert judge.selected.stack.weights["3.bias"].flatten().tolist() == loop.epochs
    assert patience is None or bool(over.any())
