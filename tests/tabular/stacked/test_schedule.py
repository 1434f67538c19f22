"""Step sizes that change, and weights that shrink beside the loss, held against a plain loop with torch's AdamW."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from bayesnorm.tabular.networks import network_for
from bayesnorm.tabular.stacked import HalfSquaredError, Scales, Stack, StackedRows, train_stacked
from bayesnorm.training import shuffled_batches

from .stacked_networks import furthest

EPOCHS, BATCH, RATE = 4, 16, 1e-2
STEPS = EPOCHS * (64 // BATCH)


def falling(share: float) -> float:
    return 1 - 0.8 * share


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 5, generator=generator, dtype=torch.float64)
    return x, torch.randn(64, 2, generator=generator, dtype=torch.float64)


def networks() -> list[nn.Module]:
    return [network_for("mcbn", 5, 2, (8, 8, 8), 0.0, seed).double() for seed in range(3)]


def plain_loop(network: nn.Module, decay: float, schedule, seed: int, decoupled: bool = True) -> nn.Module:
    """The same training, one network at a time, with torch's own optimiser."""
    network, (x, y) = copy.deepcopy(network).train(), rows()
    matrices = [p for p in network.parameters() if p.dim() == 2]
    others = [p for p in network.parameters() if p.dim() < 2]
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimiser = kind(
        [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}], lr=RATE, eps=1e-8
    )
    generator, step = torch.Generator().manual_seed(seed), 0
    for _ in range(EPOCHS):
        for batch in shuffled_batches(len(x), BATCH, generator):
            for group in optimiser.param_groups:
                group["lr"] = RATE * schedule(step / STEPS)
            optimiser.zero_grad()
            (0.5 * (network(x[batch]) - y[batch]).square()).mean().backward()
            optimiser.step()
            step += 1
    return network.eval()


def stacked_rows() -> StackedRows:
    x, y = rows()
    units = (make(3, width, dtype=x.dtype) for width in (5, 2) for make in (torch.zeros, torch.ones))
    return StackedRows.from_lists(x, y, [torch.arange(len(x))] * 3, Scales(*units))


def trained(**options) -> Stack:
    stack = Stack.from_networks(networks())
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, "seeds": [0, 1, 2], **options}
    train_stacked(stack, stacked_rows(), loss=HalfSquaredError(), **settings)
    return stack


def test_training_is_torchs_adamw_with_a_falling_step_size():
    decays = [0.0, 0.1, 3.0]
    stack = trained(weight_decay=decays, decoupled=True, schedule=falling)
    for i, network in enumerate(networks()):
        assert furthest(stack.network(i), plain_loop(network, decays[i], falling, i)) < 1e-9


def test_a_schedule_without_decoupled_decay():
    stack = trained(schedule=falling)
    for i, network in enumerate(networks()):
        assert furthest(stack.network(i), plain_loop(network, 0.0, falling, i)) < 1e-9
    steady = trained(schedule=lambda share: 1.0)
    assert furthest(steady.network(0), trained().network(0)) == 0
    assert furthest(steady.network(0), stack.network(0)) > 1e-3


def test_the_two_kinds_of_weight_decay_differ():
    together, apart = (trained(weight_decay=[0.1] * 3, decoupled=decoupled) for decoupled in (False, True))
    for i, network in enumerate(networks()):
        assert furthest(together.network(i), plain_loop(network, 0.1, lambda share: 1.0, i, decoupled=False)) < 1e-9
        assert furthest(together.network(i), apart.network(i)) > 1e-3


def test_the_longest_network_sets_the_schedule():
    shares: list[float] = []
    trained(epochs=[1, 2, 4], schedule=lambda share: shares.append(share) or 1.0)
    assert max(shares) == pytest.approx(1 - 1 / STEPS)
    assert min(shares) == 0
