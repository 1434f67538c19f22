"""Passes that are recorded and replayed on a GPU find what the passes themselves find."""

import pytest
import torch
from torch import nn

from bayesnorm.network import RowStatistics

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


class Small(nn.Module):
    """Two batch-norm layers, of images and of features; an odd step between them on request."""

    def __init__(self, odd=None):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.first = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.dense, self.second = nn.Linear(4, 5), nn.BatchNorm1d(5)
        self.register_buffer("calls", torch.zeros(()))
        self.odd = odd

    def forward(self, x):
        h = torch.relu(self.first(self.convolution(x))).mean((2, 3))
        if self.odd is not None:
            h = self.odd(self, h)
        return self.second(self.dense(h))


def looking(_, h):
    return h + 1 if h.mean().item() > 0.4 else h  # makes the host wait, which cannot be recorded


def dropping(_, h):
    return nn.functional.dropout(h, 0.3, training=True)


def counting(network, h):
    network.calls += 1
    return h + network.calls


def statistics(network, x, groups=1):
    return torch.stack(RowStatistics(network, ["first", "second"]).of(x, groups))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("odd", [None, looking, dropping, counting])
@pytest.mark.parametrize("groups", [1, 4])
def test_later_passes_find_what_a_first_one_finds(device, odd, groups):
    network, generator = Small(odd).to(device).eval(), torch.Generator().manual_seed(1)
    known = RowStatistics(network, ["first", "second"])
    for scale in (1.0, 0.2, 3.0, 0.5, 2.0):
        x = scale * torch.randn(16, 3, 8, 8, generator=generator).to(device)
        found = torch.stack(known.of(x, groups))
        assert torch.allclose(found, statistics(network, x, groups), rtol=1e-4, atol=1e-5)
    assert network.calls == 0


@pytest.mark.parametrize("device", DEVICES)
def test_weights_that_change_in_place_count_at_once(device):
    network = Small().to(device).eval()
    known, x = RowStatistics(network, ["first", "second"]), torch.randn(16, 3, 8, 8, device=device)
    for _ in range(4):
        before = torch.stack(known.of(x, 2))
    with torch.no_grad():
        network.convolution.weight.mul_(2)
    found = torch.stack(known.of(x, 2))
    assert not torch.allclose(found, before)
    assert torch.allclose(found, statistics(network, x, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_pass_that_cannot_be_recorded_leaves_the_generator_usable(device):
    network = Small(looking).to(device).eval()
    known, x = RowStatistics(network, ["first", "second"]), torch.randn(16, 3, 8, 8, device=device)
    for _ in range(3):
        known.of(x, 1)
    assert nn.functional.dropout(torch.ones(100, device=device), 0.5).sum() > 0
    torch.manual_seed(0)
    first = torch.rand(3, device=device)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3, device=device), first)
