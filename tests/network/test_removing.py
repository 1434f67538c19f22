"""Removing units: outputs are exactly those of the masked network, and what cannot go is kept with a reason.

Weights and inputs are small whole numbers, so that sums are exact in any order, and equality is that of bits.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.network import (
    Removal,
    masked,
    multiply_adds,
    removed,
    renewed_statistics,
    resized,
    tensors_of,
    trace_units,
)

from ..apply import Apply


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))


def lenet():
    features = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)]
    return nn.Sequential(
        *features, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)
    )


class Residual(nn.Module):
    """Added, concatenated and carried units, by functions and methods."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.inner, self.inner_norm = nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.outer, self.side = nn.Conv2d(6, 4, 1), nn.Conv2d(4, 5, 1)
        self.depthwise, self.last = nn.Conv2d(9, 9, 3, padding=1, groups=9), nn.Linear(9 * 4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = x + self.outer(self.inner_norm(self.inner(x)).relu())
        x = torch.cat([x, self.side(x)], dim=1)
        x = F.max_pool2d(self.depthwise(x), 4)
        return self.head(torch.relu(self.last(x.view(x.size(0), -1))))


class Positions(nn.Module):
    """Positions of channels that are padded, left out, summed and dropped."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Linear(6, 3)
        self.side, self.pad = nn.Conv2d(4, 6, 1), nn.ReflectionPad2d(1)

    def forward(self, x):
        x = F.pad(self.pad(self.first(x)), [0, 1, 1, 0])[:, :, ::2, 1:]
        y = self.side(x).abs().sum((2, 3))
        return self.head(y - -F.max_pool2d(self.second(x), (2, 5)).squeeze(-1).squeeze(2)) / 4


def pooled():
    first = nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4, affine=False)
    return nn.Sequential(*first, nn.Conv2d(4, 8, 4), Apply(lambda x: x.mean((2, 3))), nn.Linear(8, 2))


def odd(between):
    """A network with one thing in the middle."""
    return nn.Sequential(nn.Linear(3, 4), between, nn.Linear(4, 2))


def whole_numbers(network, seed=0):
    """Return the network in float64, every number a small whole one and batch norm without roots."""
    generator = torch.Generator().manual_seed(seed)
    network = network.double().eval()
    with torch.no_grad():
        for name, value in tensors_of(network).items():
            if value.is_floating_point():
                value.copy_(torch.randint(-3, 4, value.shape, generator=generator))
            if name.endswith("running_var"):
                value.fill_(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.eps = 0.0
    return network


def drawn_removal(units, network, seed, share=0.4):
    """Flag a share of all outputs of convolutions and inputs of linear layers."""
    generator = torch.Generator().manual_seed(seed)
    silent, deaf = {}, {}
    for layer in units.read:
        module = network.get_submodule(layer)
        kind, size = (deaf, module.in_features) if isinstance(module, nn.Linear) else (silent, module.out_channels)
        kind[layer] = torch.rand(size, generator=generator) < share
    return Removal(silent, deaf)


IMAGES = (5, 1, 8, 8)
NETWORKS = {"mlp": (mlp, (5, 6)), "lenet": (lenet, IMAGES), "residual": (Residual, IMAGES), "pooled": (pooled, IMAGES)}
NETWORKS["positions"] = (Positions, IMAGES)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", NETWORKS)
def test_the_removed_network_is_exactly_the_masked_one(name, seed):
    make, shape = NETWORKS[name]
    network = whole_numbers(make(), seed)
    before = copy.deepcopy(network.state_dict())
    units = trace_units(network)
    removal = drawn_removal(units, network, seed)
    x = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).double()
    small, zeros = removed(network, units, removal), masked(network, units, removal)
    assert torch.equal(small(x), zeros(x))
    assert not torch.equal(small(x), network(x))
    assert sum(p.numel() for p in small.parameters()) < 0.8 * sum(p.numel() for p in network.parameters())
    assert multiply_adds(small, x) < multiply_adds(network, x)
    again = resized(network, dict(tensors_of(small)))
    assert torch.equal(again(x), small(x))
    assert repr(again) == repr(small)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


def grouped():
    inner = [nn.Conv2d(1, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, groups=4), nn.BatchNorm2d(12)]
    return nn.Sequential(*inner, nn.ReLU(), nn.Conv2d(12, 24, 1, groups=12), nn.Conv2d(24, 3, 6), nn.Flatten())


@pytest.mark.parametrize("gone", [{1}, {0, 3}, {0, 1, 2}], ids=str)
def test_channels_of_a_group_go_together(gone):
    network = whole_numbers(grouped())
    units = trace_units(network)
    first = units.written["0"]
    assert [first.index(unit) // 2 for unit in first] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert units.carried["3"] == units.carried["4"] == [first[2 * group] for group in range(4) for _ in range(3)]
    flags = torch.tensor([number // 2 in gone for number in range(8)])
    removal = Removal({"0": flags})
    x = torch.randint(-3, 4, IMAGES).double()
    small = removed(network, units, removal)
    assert torch.equal(small(x), masked(network, units, removal)(x))
    assert not torch.equal(small(x), network(x))
    left = 4 - len(gone)
    assert (small[3].in_channels, small[3].out_channels, small[3].groups) == (2 * left, 3 * left, left)
    assert (small[6].in_channels, small[6].out_channels, small[6].groups) == (3 * left, 6 * left, 3 * left)
    again = resized(network, dict(tensors_of(small)))
    assert repr(again) == repr(small)
    assert torch.equal(again(x), small(x))
    flags[2 * min(gone)] = False  # half of a group
    assert len(Removal({"0": flags}).units(units)) == len(gone) - 1


def test_everything_called_noise_leaves_one_unit_of_every_layer():
    network = whole_numbers(Residual())
    units = trace_units(network)
    removal = drawn_removal(units, network, 0, share=1.1)
    x = torch.ones(*IMAGES, dtype=torch.float64)
    small = removed(network, units, removal)
    assert torch.equal(small(x), masked(network, units, removal)(x))
    assert small.last.weight.shape[0] == small.inner.weight.shape[0] == 1


def test_added_units_go_together():
    units = trace_units(Residual())
    assert units.written["stem"] == units.written["outer"] == units.carried["norm"]
    silent = torch.tensor([True, False, False, True])
    alone = Removal({"stem": silent}).units(units)
    both = Removal({"stem": silent, "outer": torch.tensor([True, True, False, False])}).units(units)
    assert (alone, both) == (set(), {units.written["stem"][0]})


def test_units_that_are_used_otherwise_are_kept():
    for between, reason in (
        (nn.Softmax(1), "softmax"),
        (nn.LayerNorm(4), "layernorm"),
        (Apply(lambda x: torch.stack([x, x]).sum(0)), "stack"),
        (nn.Unflatten(1, (4,)), "unflatten"),
    ):
        units = trace_units(odd(between))
        assert set(units.written["0"]) <= set(units.required)
        assert reason in units.required[units.written["0"][0]]
        assert "outputs" in units.required[units.written["2"][0]]


def test_zero_does_not_pass_a_sigmoid_but_deafness_does():
    network = odd(nn.Sigmoid())
    units = trace_units(network)
    flags = torch.tensor([True, False, False, False])
    assert Removal({"0": flags}).units(units) == set()
    assert Removal(deaf={"2": flags}).units(units) == {units.written["0"][0]}


class Deciding(nn.Module):
    def __init__(self, first=None):
        super().__init__()
        self.first = first or nn.Linear(3, 3)

    def forward(self, x):
        return self.first(x) if x.sum() > 0 else x


def test_what_cannot_be_traced_stays_whole():
    """A part that decides by data is left alone; the rest is pruned all the same."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3), Deciding(), nn.Linear(3, 4), nn.Linear(4, 2))
    units = trace_units(network.double())
    assert set(units.written) == {"0", "2", "4", "5"}
    assert "3 (deciding)" in units.required[units.written["2"][0]]
    removal = drawn_removal(units, network, 0)
    x = torch.randn(5, 3, dtype=torch.float64)
    small = removed(network, units, removal)
    torch.testing.assert_close(small(x), masked(network, units, removal)(x), rtol=1e-12, atol=1e-12)
    assert small[0].out_features < 6
    assert small[3].first.out_features == 3


def test_networks_that_cannot_be_pruned():
    with pytest.raises(bn.BayesNormError, match=r"Deciding cannot be traced.* Remove decisions"):
        trace_units(Deciding())
    with pytest.raises(bn.BayesNormError, match="no linear or convolutional layer"):
        trace_units(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3)))
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    with pytest.raises(bn.BayesNormError, match=r"'0' and '2' share their weight.*without tied weights"):
        trace_units(tied)
    twice = nn.Linear(3, 3)
    units = trace_units(nn.Sequential(nn.Linear(3, 3), twice, twice))
    assert "more than once" in units.required[units.written["0"][0]]


class Asked(nn.Module):
    """A layer runs, and another asks for its weight or for the layer itself."""

    def __init__(self, how):
        super().__init__()
        self.first, self.second, self.how = nn.Linear(3, 4), nn.Linear(4, 4), how
        self.part = Deciding(self.second) if how == "a part that stays whole" else None

    def forward(self, x):
        x = self.second(torch.relu(self.first(x)))
        return self.part(x) if self.part is not None else F.linear(x, self.second.weight)


def test_layers_that_something_else_needs_are_kept():
    for how in ("a part that stays whole", "its weight"):
        units = trace_units(Asked(how))
        assert "second" not in units.written
        assert "second (Linear) is used more than once" in units.required[units.written["first"][0]]


def test_renewed_statistics_are_those_of_batches():
    network, x = mlp(), torch.randn(64, 6)
    new = renewed_statistics(network, x, batch_size=32)
    hidden = network[0](x).view(2, 32, 8)
    torch.testing.assert_close(new[1].running_mean, hidden.mean((0, 1)))
    torch.testing.assert_close(new[1].running_var, hidden.var(1).mean(0))
    assert new[1].momentum == network[1].momentum
    assert not any(module.training for module in new.modules())
    assert torch.equal(network[1].running_mean, torch.zeros(8))
