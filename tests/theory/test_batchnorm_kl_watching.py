"""Omega while a network runs: hooks that come and go, which forward and which layers count, what is refused."""

import copy

import pytest
import torch
from torch import nn

from bayesnorm.errors import InputError, NetworkError
from bayesnorm.theory import BatchNormKL, unit_gaussians

from ..two_norms import network, rows
from .units_by_hand import PRIOR


def test_hooks_look_on_and_go(snapshot):
    """Training under BatchNormKL, with Omega asked for but not used, is training without it, bit for bit."""
    plain, x = network(), rows(32, 3)
    watched = copy.deepcopy(plain)
    hooks = [part["hooks"] for part in snapshot(watched).values()]
    omega = BatchNormKL(watched, PRIOR, 8)
    for model in (plain, watched):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if model is watched:
            omega.attach().attach()
        for batch in x.split(8):
            optimiser.zero_grad()
            loss = model(batch).square().mean()
            if model is watched:
                omega()
            loss.backward()
            optimiser.step()
    assert [part["hooks"] for part in snapshot(watched).values()] != hooks
    omega.close()
    omega.close()
    assert [part["hooks"] for part in snapshot(watched).values()] == hooks
    ours, theirs = watched.state_dict(), plain.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("limit", [1, 2])
def test_nothing_is_left_when_the_forward_raises(snapshot, calls, limit):
    model = network().eval()
    calls.watch(model[0], model[3])
    calls.reset(limit)
    before = snapshot(model)
    with pytest.raises(calls.Boom), BatchNormKL(model, PRIOR, 8):
        model(rows(8, 3))
    assert snapshot(model) == before


def test_the_latest_forward_counts():
    model, first, second = network(), rows(8, 3), rows(12, 3, seed=1)
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(second)
        expected = omega()
        model(first)
        other = omega()
        model(first)
        model(second)
        assert torch.equal(omega(), expected)
        assert not torch.equal(other, expected)


def test_evaluation_in_between_does_no_harm():
    model, x = network(), rows(8, 3)
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(x)
        expected = omega()
        model.eval()(x)
        model.train()(x)
        assert torch.equal(omega(), expected)


def test_a_copy_of_a_watched_network_is_not_watched():
    model, x = network(), rows(8, 3)
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(x)
        expected = omega()
        copy.deepcopy(model)(2 * x)
        unit_gaussians(model, rows(48, 3), 8)
        assert torch.equal(omega(), expected)


def test_parts_of_a_network_may_be_called_by_themselves():
    model, x = network(), rows(8, 3)
    with BatchNormKL(model, PRIOR, 8) as omega:
        for batch in (2 * x, x):
            h = model[3:](model[:3](batch))
            value = omega()
        assert h.shape == (8, 1)
        model(x)
        assert torch.equal(omega(), value)


def test_layers_are_chosen_in_running_order():
    for layers, names in (
        (None, ["1", "4"]),
        (1, ["4"]),
        (2, ["1", "4"]),
        (["4", "1"], ["1", "4"]),
        (lambda name, _: name < "2", ["1"]),
    ):
        model = network()
        with BatchNormKL(model, PRIOR, 8, layers=layers) as omega:
            model(rows(8, 3))
            assert [layer.name for layer in omega.units().layers] == names


class LastFirst(nn.Module):
    """Runs its layers in the opposite order to that in which it names them."""

    def __init__(self):
        super().__init__()
        self.last, self.first = nn.BatchNorm1d(3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def test_the_order_is_that_in_which_layers_run():
    for layers, names in ((None, ["first", "last"]), (1, ["last"])):
        model = LastFirst()
        with BatchNormKL(model, PRIOR, 8, layers=layers) as omega:
            model(rows(8, 3).float())
            assert [layer.name for layer in omega.units().layers] == names


def test_layers_that_are_left_out_may_be_frozen():
    model = network()
    model[1].eval()
    with BatchNormKL(model, PRIOR, 8, layers=1) as omega:
        model(rows(8, 3))
        assert len(omega.units().mean_loc) == 4


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.spare = nn.BatchNorm2d(2), nn.BatchNorm2d(2)

    def forward(self, x, times=1):
        for _ in range(times):
            x = self.bn(x)
        return x


X4 = torch.randn(6, 2, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("match", "kind", "layers", "forward"),
    [
        (r"model: none of its .* has seen a batch yet. Call model\(x\) .*first", NetworkError, None, None),
        ("model: batch-norm layer 'spare' did not run .*out with layers=", NetworkError, None, lambda m: m(X4)),
        (r"layers=2, but the network has 1 batch-norm layer", NetworkError, 2, lambda m: m(X4)),
        (r"layer 'bn' was in evaluation mode .*model.train\(\)", NetworkError, "bn", lambda m: m.eval()(X4)),
        (r"model: batch-norm layer 'bn' was called 2 times in one forward", NetworkError, "bn", lambda m: m(X4, 2)),
        (r"x: the latest forward pass had 1 example .*at least 2 examples", InputError, "bn", lambda m: m(X4[:1])),
    ],
    ids=["no forward", "not reached", "too few", "evaluation", "twice", "one row"],
)
def test_omega_of_a_forward_that_has_none(match, kind, layers, forward):
    model = Branches()
    with BatchNormKL(model, PRIOR, 8, layers=layers) as omega:
        if forward:
            forward(model)
        with pytest.raises(kind, match=match):
            omega()


def test_a_failed_forward_leaves_no_omega_of_the_one_before(calls):
    model = network()
    calls.watch(model[3])
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(rows(8, 3))
        omega()
        calls.reset(limit=1)
        with pytest.raises(calls.Boom):
            model(rows(8, 3))
        with pytest.raises(NetworkError, match=r"model: batch-norm layer '4' did not run .*or that pass failed"):
            omega()


def test_omega_before_and_after():
    model = network()
    omega = BatchNormKL(model, PRIOR, 8)
    with pytest.raises(NetworkError, match=r"model: its batches are not recorded.*attach\(\)"):
        omega()
    with omega:
        model(rows(8, 3))
    with pytest.raises(NetworkError, match="not recorded"):
        omega()
    with omega, pytest.raises(NetworkError, match=r"none of its .* has seen a batch yet"):
        omega()


def test_networks_that_cannot_be_watched():
    for model, match in (
        (nn.Linear(3, 1), "model.* has no batch-norm layer"),
        (nn.DataParallel(network()), "model: DataParallel splits a batch"),
        ("network", "model must be .* got str"),
    ):
        with pytest.raises(NetworkError, match=match):
            BatchNormKL(model, PRIOR, 8)
