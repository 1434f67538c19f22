"""A network may have an attribute called `modules`, which hides the method of that name."""

import pytest
import torch
from torch import nn

import bayesnorm as bn


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Listed(Plain):
    def __init__(self):
        super().__init__()
        self.modules = list(self.layers)

    def forward(self, x):
        for layer in self.modules:
            x = layer(x)
        return x


class Property(Plain):
    @property
    def modules(self):
        return list(self.layers)


@pytest.mark.parametrize("kind", [Listed, Property])
@pytest.mark.parametrize(
    "method",
    [
        bn.MCBN(batch_size=8, states=8),
        bn.GaussianBN(batch_size=8),
        bn.StochasticBN(batch_size=8),
        bn.MCDropout(),
        bn.DeepEnsemble(members=2, epochs=1),
        bn.BayesByBackprop(epochs=1),
        bn.MNF(epochs=1),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_method_predicts_what_it_predicts_without_such_an_attribute(kind, method):
    torch.manual_seed(0)
    plain, hiding = Plain().eval(), kind().eval()
    hiding.load_state_dict(plain.state_dict())
    x = torch.randn(40, 3)
    data = x, x[:, :1]
    result, expected = (method.fit(network, data).predict(x[:5]) for network in (hiding, plain))
    assert torch.equal(result.mean, expected.mean)
    assert torch.equal(result.epistemic, expected.epistemic)
    assert bool((result.epistemic > 0).all())


def test_edits_work_too():
    x = torch.randn(5, 3)
    network = Listed().eval()
    assert bn.with_noise_head(network)(x).shape == (5, 2)
    assert torch.equal(bn.add_dropout(network, 0.1)(x), network(x))
