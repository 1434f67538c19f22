"""The benchmark of architectures: it finds what works, and says why something does not."""

import torch
from torch import nn

from benchmarks.architectures import STEPS, try_network


class Roots(nn.Module):
    """Has an operation between batch norm and outputs that channels cannot be pruned through."""

    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=(2, 3)).cumsum(1)


def test_every_step_is_tried_and_a_refusal_is_quoted(tmp_path):
    torch.manual_seed(0)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    plain = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), *head
    )
    odd = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), Roots(), nn.Linear(8, 3))
    x = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert try_network(plain.eval(), x, tmp_path) == dict.fromkeys(STEPS, "yes")
    outcomes = try_network(odd.eval(), x, tmp_path)
    assert "no channel that can be pruned" in outcomes.pop("prune")
    assert set(outcomes.values()) == {"yes"}


def test_without_a_posterior_the_other_steps_are_not_tried(tmp_path):
    outcomes = try_network(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval(), torch.randn(32, 3, 2, 2), tmp_path)
    assert "no batch-norm layer" in outcomes["fit"]
    assert outcomes["predict"] == outcomes["save/load"] == "no posterior"
