"""Networks under drawn dropout masks: every way of running gives the reference; and which layers have which rate."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.errors import NetworkError
from bayesnorm.network import DropoutExecutable, dropout_rates
from bayesnorm.network.running.seeded_dropout import SeededDropout

TIGHT = {"rtol": 1e-9, "atol": 1e-10}


class TimeFirst(nn.Module):
    """Rows on the second axis."""

    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.head = nn.Linear(3, 6), nn.Dropout(0.4), nn.Linear(6, 2)

    def forward(self, x):
        h = self.drop(self.inner(x).transpose(0, 1))
        return self.head(h.cumsum(0)[-1])


class Flattened(TimeFirst):
    """Rows and steps on one axis, whichever first."""

    def __init__(self, time_first):
        super().__init__()
        self.time_first = time_first

    def forward(self, x):
        h = self.inner(x)
        h = h.transpose(0, 1) if self.time_first else h
        h = self.drop(h.flatten(0, 1)).view(h.shape)
        return self.head(h.sum(0 if self.time_first else 1))


class OnWeights(TimeFirst):
    """Dropout on something that holds no rows."""

    def forward(self, x):
        return self.head(F.linear(x, self.drop(self.inner.weight)).sum(1))


class Recurrent(TimeFirst):
    """One layer, called once per step."""

    def forward(self, x):
        h = torch.zeros(len(x), 6, dtype=x.dtype, device=x.device)
        for step in x.unbind(1):
            h = torch.tanh(self.inner(step) + self.drop(h + 1))
        return self.head(h)


class PlainList(TimeFirst):
    """Holds a layer in a list as well, and calls it there."""

    def __init__(self):
        super().__init__()
        self.layers = [self.inner, self.drop, self.head]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum(1)


class InPlace(TimeFirst):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.4, inplace=True)

    def forward(self, x):
        return self.head(torch.relu_(self.drop(self.inner(x))).sum(1))


NETWORKS = {
    "time first": TimeFirst,
    "rows then steps": lambda: Flattened(False),
    "steps then rows": lambda: Flattened(True),
    "on weights": OnWeights,
    "recurrent": Recurrent,
    "plain list": PlainList,
    "in place": InPlace,
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("consistent", "steps"), [(True, 9), (False, 4), (False, 9)])
def test_every_way_of_running_gives_the_reference(name, consistent, steps, reference):
    model = NETWORKS[name]().double()
    x = torch.randn(9, steps, 3, dtype=torch.float64)
    posterior = bn.MCDropout(consistent=consistent).fit(model, x, bn.Gaussian())
    states = posterior.sample(6, seed=1)
    expected = reference(posterior.network, states, x)
    assert (expected.var(0) > 0).all()
    for options in ({}, {"vectorize": False}, {"chunk": 4}, {"block_bytes": 1}, {"block_bytes": 900}):
        outputs = posterior.executable.run(states, x, **options)
        torch.testing.assert_close(outputs, expected, **TIGHT, msg=str(options))
    if consistent:
        alone = posterior.executable.run(states, x[4:5])
        torch.testing.assert_close(alone, expected[:, 4:5], **TIGHT)
        moved = posterior.executable.run(states, x.flip(0))
        torch.testing.assert_close(moved, expected.flip(1), **TIGHT)


def test_one_layer_under_two_names_is_one_layer_with_two_calls(reference):
    drop = nn.Dropout(0.5)
    model = nn.Sequential(nn.Linear(3, 64), drop, nn.Tanh(), nn.Linear(64, 64), drop, nn.Linear(64, 1)).double()
    posterior = bn.MCDropout().fit(model, torch.randn(9, 3).double())
    states = posterior.sample(5)
    assert list(states) == ["1.seed"]
    network = posterior.network
    seen = []
    network[1].register_forward_hook(lambda _module, _args, output: seen.append(output == 0))
    functional_call(network, {"1.seed": states["1.seed"][0]}, (torch.randn(1, 3).double(),))
    assert len(seen) == 2
    assert not torch.equal(*seen), "another mask at the second call"
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(posterior.executable.run(states, x), reference(network, states, x), **TIGHT)


def test_the_users_hooks_on_a_dropout_layer_go_on_working():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    seen = []
    model[1].register_forward_hook(lambda module, _args, _output: seen.append(type(module)))
    posterior = bn.MCDropout().fit(model, torch.randn(9, 3))
    seen.clear()
    posterior.predict(torch.randn(4, 3), bn.MonteCarlo(samples=3, vectorize=False))
    assert set(seen) == {SeededDropout}
    assert type(model[1]) is nn.Dropout


def test_the_reference_network_is_the_users_but_for_the_seeds(snapshot):
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    before = snapshot(model)
    posterior = bn.MCDropout().fit(model, torch.randn(9, 3))
    network, x = posterior.network, torch.randn(4, 3)
    assert network.state_dict().keys() == model.state_dict().keys()
    assert {*dict(network.named_buffers())} - {*dict(model.named_buffers())} == {"2.seed"}
    assert torch.equal(network(x), copy.deepcopy(model).eval()(x)), "off until a seed is given"
    assert torch.equal(posterior.executable.point(x), copy.deepcopy(model).eval()(x).detach())
    assert snapshot(model) == before
    assert posterior.model is model


def test_rows_beyond_the_first_block_have_masks_of_their_own():
    model = nn.Sequential(nn.Identity(), nn.Dropout(0.5), nn.Linear(40, 1))
    posterior = bn.MCDropout(consistent=False).fit(model, torch.ones(4, 40))
    f = bn.MonteCarlo(1, block_bytes=40 * 4 * 10).outputs(posterior, torch.ones(64, 40))[0, :, 0]
    assert len(f.unique()) == 64
    fewer = posterior.outputs(1, torch.ones(31, 40))[0, :, 0]
    torch.testing.assert_close(fewer, f[:31])


def test_a_network_that_is_moved_or_changed_is_followed():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    posterior = bn.MCDropout().fit(model, torch.randn(9, 3))
    single = posterior.predict(x := torch.randn(4, 3)).mean
    model.double()
    double = posterior.predict(x).mean
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single)
    model[1] = nn.Identity()
    with pytest.raises(NetworkError, match=r"model: '1' is not a dropout layer, but the posterior samples one there"):
        posterior.predict(x)


def test_seeds_differ_between_layers_and_samples():
    model = nn.Sequential(*itertools.chain(*((nn.Linear(3, 3), nn.Dropout(0.5)) for _ in range(3))), nn.Linear(3, 1))
    states = bn.MCDropout().fit(model, torch.randn(5, 3)).sample(50)
    assert len(torch.cat([*states.values()]).unique()) == 150


# Rates.


def test_rates_by_default_are_the_layers_own():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Dropout(0.0), nn.AlphaDropout(0.3), nn.Linear(4, 1))
    assert dropout_rates(model) == {"1": 0.1, "3": 0.3}
    assert dropout_rates(nn.DataParallel(model), 0.2) == {"1": 0.2, "2": 0.2, "3": 0.2}
    assert dropout_rates(model, {"2": 0.5, "3": 0, "0": 0.0}) == {"1": 0.1, "2": 0.5, "3": 0.0, "0": 0.0}
    executable = DropoutExecutable(model, rates={"1": 0.1, "3": 0.0}, consistent=True)
    assert executable.sampled_layers == ("1",)


def test_rates_that_are_none():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    with pytest.raises(NetworkError, match=r"^p\['1'\] must be a rate from 0 to below 1, got 2\.$"):
        dropout_rates(model, {"1": 2})


def test_names_that_are_none():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 1))
    with pytest.raises(NetworkError, match=r"p: the network has no module 'drop'. Its dropout layers are '1'"):
        dropout_rates(model, {"drop": 0.1})
    with pytest.raises(NetworkError, match=r"p: '0' is Linear and not a dropout layer.*'1'"):
        dropout_rates(model, {"0": 0.1})


def test_a_network_without_dropout_is_told_of_add_dropout():
    for p in (None, 0.5):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        with pytest.raises(
            NetworkError, match=r"no dropout layer .*its modules are Linear, ReLU.*bayesnorm.add_dropout\(model, p\)"
        ):
            bn.MCDropout(p).fit(model, torch.randn(5, 3))


def test_dropout_of_rate_zero_is_none():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 1))
    for p in (None, 0, {"1": 0.0}):
        with pytest.raises(NetworkError, match=r"model: all of its dropout layers \('1'\) have rate 0.*add_dropout"):
            bn.MCDropout(p).fit(model, torch.randn(5, 3))
    assert bn.MCDropout(0.3).fit(model, torch.randn(5, 3)).rates == {"1": 0.3}
