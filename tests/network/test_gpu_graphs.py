"""Which operations can be recorded is known before anything is."""

import pytest
import torch
from torch import nn

from bayesnorm.network.gpu_graphs import Recordable
from experiments.networks import VGG, CifarResNet, LeNet5


@pytest.fixture
def on_any_device(monkeypatch):
    """Let tensors of a CPU count as those of a GPU."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))


def reference(network, x):
    with torch.no_grad(), Recordable() as seen:
        network(x)
    return seen.recordable


@pytest.mark.parametrize("network", [CifarResNet(20), LeNet5(), VGG(11)], ids=lambda n: type(n).__name__)
def test_ordinary_networks_are_recordable(on_any_device, network):
    assert reference(
        network.eval(), torch.randn(2, 1, 28, 28) if isinstance(network, LeNet5) else torch.randn(2, 3, 32, 32)
    )


@pytest.mark.parametrize(
    "odd",
    [
        lambda h: h if h.mean().item() > 0 else -h,
        lambda h: h[h > 0],
        lambda h: h.nonzero(),
        lambda h: h if torch.equal(h, h) else -h,
        lambda h: h.unique(),
        lambda h: h.masked_select(h > 0),
    ],
)
def test_what_makes_the_host_wait_is_not(on_any_device, odd):
    assert not reference(lambda x: odd(nn.functional.relu(x)), torch.randn(3, 4))


def test_tensors_of_the_host_are_not():
    assert not reference(nn.Linear(3, 4), torch.randn(2, 3))
