"""Of large images one row is looked at, and what holds for every size is found out from a corner."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.network import calling
from bayesnorm.network.running import plan

FEW = bn.MonteCarlo(samples=3, block_bytes=1)
SIZE = (2, 12, 12)


class Network(nn.Module):
    """Notes the shapes of its inputs in SHAPES; may mix rows, and may want images of one size."""

    def __init__(self, share=0.0, fixed=False):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Dropout2d(0.3), nn.ReLU())
        self.share, self.head = share, nn.Linear(3 * 12 * 12, 2) if fixed else nn.Conv2d(3, 2, 1)

    def forward(self, x):
        SHAPES.append(tuple(x.shape))
        h = self.body(x - self.share * x.mean(0))
        return self.head(h.flatten(1) if isinstance(self.head, nn.Linear) else h)


SHAPES = []


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    for module in (calling, plan):
        monkeypatch.setattr(module, "LARGE_ROW", 200)
    monkeypatch.setattr(calling, "CORNER", 6)


@pytest.mark.parametrize("method", [bn.MCBN(8, states=16), bn.MCDropout()], ids=["MCBN", "MCDropout"])
@pytest.mark.parametrize(("share", "fixed"), [(0.0, False), (0.0, True), (0.5, False)])
def test_numbers_are_those_of_plain_overrides(share, fixed, method, reference):
    network = Network(share, fixed).double().eval()
    x = torch.randn(24, *SIZE, dtype=torch.float64)
    posterior, new = method.fit(network, x, bn.Categorical()), x[:5]
    SHAPES.clear()
    outputs = FEW.outputs(posterior, new)
    whole = {shape[0] for shape in SHAPES if shape[1:] == SIZE}
    assert whole == {1, 5} if share else (whole >= {1, 2, 3} if fixed else whole == {1})
    torch.testing.assert_close(outputs, reference(posterior.network, posterior.sample(3), new))
