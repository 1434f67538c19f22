"""Units that are multiplied by others, and batch norm that does more than normalise: what goes, and what is kept."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesnorm.network import Removal, masked, removed, trace_units

IMAGES = (5, 1, 8, 8)


class Gate(nn.Module):
    """Squeeze and excitation, as it is written most often; `how` says how gates get their shape."""

    def __init__(self, how):
        super().__init__()
        self.how, kind = how, nn.Conv2d if how == "convolutions" else nn.Linear
        kernel = (1,) if how == "convolutions" else ()
        self.down, self.up = kind(4, 2, *kernel), kind(2, 4, *kernel)

    def forward(self, x):
        if self.how == "convolutions":
            return x * torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))
        if self.how == "sizes":
            batch, channels, _, _ = x.size()
            y = F.adaptive_avg_pool2d(x, 1).view(batch, channels)
            y = torch.sigmoid(self.up(torch.relu(self.down(y)))).view(batch, channels, 1, 1)
            return x * y.expand_as(x)
        y = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
        return y.reshape(x.shape[0], x.shape[1], 1, 1) * x


class NormAct(nn.BatchNorm2d):
    """Batch norm with more in it, as libraries of image networks have it."""

    def __init__(self, channels, act):
        super().__init__(channels)
        self.act = act

    def forward(self, x):
        return self.act(super().forward(x))


class Gated(nn.Module):
    """Units that are multiplied: by gates, by one gate for all, by numbers, by what they are themselves."""

    def __init__(self, how="convolutions", act=None):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), NormAct(4, act or nn.ReLU())
        self.gate, self.where = Gate(how), nn.Conv2d(4, 1, 1)
        self.inner, self.outer = nn.Conv2d(4, 6, 1), nn.Conv2d(6, 4, 1)
        self.scale, self.head = nn.Parameter(torch.ones(1)), nn.Linear(4, 3)

    def forward(self, x):
        x = self.gate(self.norm(self.stem(x)))
        x = x * torch.sigmoid(self.where(x))
        y = self.inner(x)
        y = y * torch.sigmoid(y)
        x = x + 2 * self.outer(y) * self.scale
        return self.head(-x.mean((2, 3)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", ["convolutions", "sizes", "shapes"])
def test_gates_go_with_what_they_gate(how, seed):
    torch.manual_seed(seed)
    network = Gated(how).double().eval()
    units = trace_units(network)
    assert units.gates == {"gate.up"}
    assert units.written["gate.up"] == units.written["stem"] == units.carried["norm"] == units.written["outer"]
    x, flags = torch.randn(*IMAGES, dtype=torch.float64), torch.tensor([True, False, False, True])
    inner = torch.tensor([False, True, True, False, False, True])
    removal = Removal({"stem": flags, "outer": flags, "inner": inner})  # the gates themselves are not silent
    small, zeros = removed(network, units, removal), masked(network, units, removal)
    torch.testing.assert_close(small(x), zeros(x), rtol=1e-12, atol=1e-12)
    assert (small.stem.out_channels, small.gate.up.weight.shape[0], small.inner.weight.shape[:2]) == (2, 2, (3, 2))
    assert small.norm.num_features == 2
    assert isinstance(small.norm, NormAct)
    assert not torch.allclose(small(x), network(x))


class Elsewhere(nn.Module):
    """Gates that something else uses, too."""

    def __init__(self, use):
        super().__init__()
        self.first, self.gate, self.other = nn.Conv2d(1, 4, 1), nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 1)
        self.third, self.use = nn.Conv2d(4, 2 if use == "read" else 4, 1), use

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        y = self.first(x)
        if self.use == "added before":
            gate = gate + self.third(y)
        y = y * gate
        if self.use == "added":
            return self.other(y + gate)
        if self.use == "read":
            return self.other(y) + self.third(gate)
        if self.use == "returned":
            return self.other(y), gate
        if self.use == "multiplied":
            return self.other(y * gate)
        return self.other(y)


def test_gates_that_are_used_besides_are_kept():
    for use in ("added", "added before", "read", "returned"):
        units = trace_units(Elsewhere(use))
        assert set(units.written["gate"]) <= set(units.required)


def test_a_gate_that_is_used_twice_by_the_same_units():
    torch.manual_seed(0)
    network = Elsewhere("multiplied").double()
    units = trace_units(network)
    removal = Removal({"first": torch.tensor([True, False, True, False])})
    x = torch.randn(3, 1, 4, 4, dtype=torch.float64)
    small = removed(network, units, removal)
    torch.testing.assert_close(small(x), masked(network, units, removal)(x), rtol=1e-12, atol=1e-12)
    assert small.gate.out_channels == small.first.out_channels == 2


@pytest.mark.parametrize(
    ("act", "remaining", "moved"),
    [
        (nn.SiLU(), False, False),
        (nn.Sigmoid(), False, True),
        (nn.Softmax(1), True, False),
        (nn.PReLU(4), True, False),  # whose own slopes would have to be cut
    ],
)
def test_batch_norm_with_more_in_it(act, remaining, moved):
    network = nn.Sequential(nn.Conv2d(1, 4, 1), NormAct(4, act), nn.Conv2d(4, 2, 1))
    before = copy.deepcopy(network.state_dict())
    units = trace_units(network)
    assert (set(units.written["0"]) <= set(units.required)) == remaining
    assert (set(units.written["0"]) <= units.nonzero_at_zero) == moved
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
