"""Dropout put into a network: where it was asked for, with the weights and keys of the original."""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import NetworkError

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison."""


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2)
    )


def added(network):
    return [name for name, module in network.named_modules() if isinstance(module, nn.modules.dropout._DropoutNd)]


@pytest.mark.parametrize(
    ("where", "options", "expected"),
    [
        ("linear", {}, ["4", "6"]),
        ("conv", {}, ["2"]),
        ("weights", {}, ["2", "4", "6"]),
        ("weights", {"input": True}, ["0", "2", "4", "6"]),
        ("conv", {"input": True}, ["0", "2"]),
        ("6", {}, ["6"]),
        (["0", "6"], {}, ["0", "6"]),
        (["0", "6"], {"input": True}, ["0", "6"]),
        (lambda name, module: isinstance(module, nn.Flatten), {}, ["3"]),
    ],
)
def test_where_dropout_is_put(where, options, expected, snapshot):
    model = cnn()
    before, x = snapshot(model), torch.randn(5, 1, 6, 6)
    network = bn.add_dropout(model, 0.2, where, **options)
    assert added(network) == [f"{name}.input_dropout" for name in expected]
    assert snapshot(model) == before
    assert network.state_dict().keys() == model.state_dict().keys()
    network.load_state_dict(model.state_dict())
    assert torch.equal(network.eval()(x), model.eval()(x))
    assert not torch.equal(network.train()(x), model.train()(x))
    assert not torch.equal(network(x), network(x))
    posterior = bn.MCDropout().fit(network, x, bn.Categorical())
    assert (posterior.predict(x).epistemic > 0).all()


def test_dropout_is_in_front_of_the_layer():
    model = nn.Sequential(nn.Linear(3, 400), nn.Tanh(), nn.Linear(400, 1)).double()
    network = bn.add_dropout(model, 0.3)
    x = torch.randn(1, 3, dtype=torch.float64)
    posterior = bn.MCDropout().fit(network, x)
    f = posterior.outputs(4000, x)[:, 0, 0]
    terms = model[2].weight[0] * torch.tanh(model[0](x))[0]
    variance = (terms.square().sum() * 0.3 / 0.7).item()
    assert abs(f.mean().item() - model(x).item()) < SIGMAS * math.sqrt(variance / 4000)
    assert abs(f.var().item() / variance - 1) < SIGMAS * math.sqrt(2 / 4000)


def test_channels_and_modes():
    network = bn.add_dropout(cnn().eval(), 0.2, "weights", channels=True)
    kinds = {name: type(network.get_submodule(name)) for name in added(network)}
    expected = {"2": nn.Dropout2d, "4": nn.Dropout, "6": nn.Dropout}
    assert kinds == {f"{name}.input_dropout": kind for name, kind in expected.items()}
    assert not any(module.training for module in network.modules())


def test_what_was_put_in_can_be_copied_saved_and_trained(tmp_path):
    network, x = bn.add_dropout(cnn(), 0.2, "weights"), torch.randn(5, 1, 6, 6)
    torch.save(network, tmp_path / "network.pt")
    again = torch.load(tmp_path / "network.pt", weights_only=False)
    assert torch.equal(again.eval()(x), network.eval()(x))
    assert not torch.equal(again.train()(x), again(x))
    network.train()(x).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.attention, self.head = nn.Linear(4, 4), nn.MultiheadAttention(4, 2), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(input=self.attention(*[self.inner(x)] * 3)[0])


def test_layers_called_by_keyword_and_layers_never_called():
    network = bn.add_dropout(Keywords(), 0.5)
    assert added(network) == ["head.input_dropout"], "attention takes its own layer's weights and never calls it"
    x = torch.randn(5, 4)
    assert (bn.MCDropout().fit(network, x).predict(x).epistemic > 0).all()


def test_places_that_are_none():
    for where, said in (
        ("bias", r"where: the network has no module 'bias'. Use \"linear\", \"conv\", \"weights\" or names .*'0'"),
        (["0", "9"], r"where: the network has no module '9'"),
        ([], r"where is an empty list"),
        (3, r"where must be .*, got 3"),
        (lambda name, module: False, r"where: the predicate chose none of the 8 modules"),
    ):
        with pytest.raises(NetworkError, match=said):
            bn.add_dropout(cnn(), 0.2, where)


def test_other_bad_input_to_add_dropout():
    with pytest.raises(NetworkError, match=r"where='linear', but .*except the first, whose input is the data. Use"):
        bn.add_dropout(nn.Linear(3, 1), 0.2)
    with pytest.raises(NetworkError, match=r"where='conv', but the network has no such layer\."):
        bn.add_dropout(nn.Linear(3, 1), 0.2, "conv")
    with pytest.raises(NetworkError, match="already has a module 'input_dropout'"):
        bn.add_dropout(bn.add_dropout(cnn(), 0.2), 0.2)
    with pytest.raises(NetworkError, match=r"model must be .*, got str"):
        bn.add_dropout("model", 0.1)
