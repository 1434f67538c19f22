"""Passes that are recorded and replayed on a GPU find what the passes themselves find."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bayesnorm.network import RowStatistics, gpu_graphs
from experiments.networks import VGG, CifarResNet

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
    return torch.stack(RowStatistics(network, ["first", "second"]).moments(x, groups))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("odd", [None, looking, dropping, counting])
@pytest.mark.parametrize("groups", [1, 4])
def test_later_passes_find_what_a_first_one_finds(device, odd, groups):
    network, generator = Small(odd).to(device).eval(), torch.Generator().manual_seed(1)
    recorder = RowStatistics(network, ["first", "second"])
    for scale in (1.0, 0.2, 3.0, 0.5, 2.0):
        x = scale * torch.randn(16, 3, 8, 8, generator=generator).to(device)
        values = torch.stack(recorder.moments(x, groups))
        assert torch.allclose(values, statistics(network, x, groups), rtol=1e-4, atol=1e-5)
    assert network.calls == 0


@pytest.mark.parametrize("device", DEVICES)
def test_weights_that_change_in_place_count_at_once(device):
    network = Small().to(device).eval()
    recorder, x = RowStatistics(network, ["first", "second"]), torch.randn(16, 3, 8, 8, device=device)
    for _ in range(4):
        before = torch.stack(recorder.moments(x, 2))
    with torch.no_grad():
        network.convolution.weight.mul_(2)
    values = torch.stack(recorder.moments(x, 2))
    assert not torch.allclose(values, before)
    assert torch.allclose(values, statistics(network, x, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_pass_that_cannot_be_recorded_leaves_the_generator_usable(device):
    network = Small(looking).to(device).eval()
    statistics, x = RowStatistics(network, ["first", "second"]), torch.randn(16, 3, 8, 8, device=device)
    for _ in range(3):
        statistics.moments(x, 1)
    assert nn.functional.dropout(torch.ones(100, device=device), 0.5).sum() > 0
    torch.manual_seed(0)
    first = torch.rand(3, device=device)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3, device=device), first)


class Names(TorchDispatchMode):
    """Notes the names of all operations."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("make", "size"), [(lambda: CifarResNet(20), (3, 32)), (lambda: VGG(11), (3, 32)), (Small, (3, 8))]
)
def test_operations_of_passes_can_be_recorded(make, size, monkeypatch):
    names = Names()

    def watched(self, x, groups, recordable=True):
        with names:
            return self._run(x, groups)

    monkeypatch.setattr(gpu_graphs.RecordedPasses, "__call__", watched)
    network = make().eval()
    layers = [name for name, module in network.named_modules() if "BatchNorm" in type(module).__name__]
    RowStatistics(network, layers).moments(torch.randn(4, size[0], size[1], size[1]), 2)
    assert "convolution" in names.seen
    assert names.seen <= gpu_graphs._RECORDABLE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_passes_are_replayed(monkeypatch):
    replayed, replay = [], gpu_graphs._Recorded.replay
    monkeypatch.setattr(gpu_graphs._Recorded, "replay", lambda self, x: replayed.append(1) or replay(self, x))
    statistics, x = RowStatistics(Small().cuda().eval(), ["first", "second"]), torch.randn(16, 3, 8, 8, device="cuda")
    for _ in range(4):
        statistics.moments(x, 1)
    assert len(replayed) >= 2
