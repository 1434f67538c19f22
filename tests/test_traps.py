"""Traps that implementations of MCBN fell into, one test each, which fails if its trap comes back."""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.network import mini_batches
from bayesnorm.training import Rescaled

X = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def net(dropout=0.0, layer=nn.BatchNorm1d):
    return nn.Sequential(
        nn.Linear(3, 4), layer(4), nn.Dropout(dropout), nn.Tanh(), nn.Linear(4, 4), layer(4), nn.Linear(4, 1)
    ).double()


def only_batch(model, seed=0, size=8):
    """One batch and the statistics that MCBN samples from it."""
    posterior = bn.MCBN(batch_size=size, states=1, center="batch").fit(model, X, seed=seed)
    (batch,) = mini_batches(X, size, 1, seed)
    return batch, {name: value[0] for name, value in posterior.sample(1).items()}


def test_trap_1_the_variance_is_the_biased_one():
    model = net()
    batch, drawn = only_batch(model)
    h = model[0](batch).detach()
    torch.testing.assert_close(drawn["1.running_var"], h.var(0, correction=0))
    assert not torch.allclose(drawn["1.running_var"], h.var(0, correction=1), rtol=0.05)


@pytest.mark.parametrize("momentum", [0.1, None, 0.0, 1.0])
def test_trap_2_the_whole_batch_statistic_arrives_whatever_the_momentum(momentum):
    model = net()
    for module in (model[1], model[5]):
        module.momentum = momentum
        module.running_mean.fill_(100.0)
    batch, drawn = only_batch(model)
    torch.testing.assert_close(drawn["1.running_mean"], model[0](batch).detach().mean(0))


def test_trap_4_dropout_is_off_while_collecting():
    model = net(dropout=0.9)
    batch, drawn = only_batch(model)
    h = nn.functional.batch_norm(model[0](batch), None, None, training=True, eps=1e-5)
    h = model[4](torch.tanh(h)).detach()
    torch.testing.assert_close(drawn["5.running_mean"], h.mean(0))


def test_trap_7_one_over_tau_is_a_variance():
    predictive = bn.MCBN(batch_size=8, states=10).fit(net(), X, bn.Gaussian(precision=16.0)).predict(X)
    torch.testing.assert_close(predictive.aleatoric, torch.full((60, 1), 1 / 16, dtype=torch.float64))
    torch.testing.assert_close(predictive.std.square(), predictive.epistemic + 1 / 16)
    torch.testing.assert_close(predictive.scale, torch.full_like(predictive.loc, 1 / 4))


def test_trap_8_the_spread_of_means_is_part_of_the_variance():
    predictive = bn.MCBN(batch_size=8, states=10).fit(net(), X, bn.Gaussian(precision=16.0)).predict(X)
    spread = predictive.loc.var(0, correction=0)
    assert (spread > 0).all()
    torch.testing.assert_close(predictive.variance, spread + 1 / 16)
    drawn = predictive.sample(4000, seed=0)
    # Standard error of a variance from 4000 near-normal samples: sqrt(2 / 4000) = 2.2 %; 60 comparisons.
    assert (drawn.var(0) / predictive.variance - 1).abs().max() < 4.5 * 0.0224


class Activated(nn.BatchNorm1d):
    def forward(self, x):
        return torch.relu(super().forward(x))


@pytest.mark.parametrize(
    "layer",
    [Activated, lambda n: nn.BatchNorm1d(n, affine=False), nn.SyncBatchNorm],
    ids=["activation", "affine", "sync"],
)
def test_trap_9_every_kind_of_layer_is_handled(layer, reference):
    model = net(layer=layer)
    posterior = bn.MCBN(batch_size=8, states=5).fit(model, X)
    assert len(posterior.layers) == 2
    expected = reference(model, posterior.sample(5), X)
    torch.testing.assert_close(bn.MonteCarlo(samples=5).outputs(posterior, X), expected)


def test_trap_10_the_centre_of_the_samples_is_the_deployed_network():
    """The running statistics are far from the batches'; the centre decides where predictions lie."""
    model = net().eval()
    model[1].running_mean.add_(2.0)
    model[5].running_var.mul_(3.0)
    deployed = model(X).detach()
    running = bn.MCBN(batch_size=30, states=100).fit(model, X).at_batch_size(10_000)
    published = bn.MCBN(batch_size=30, states=100, center="batch").fit(model, X).at_batch_size(10_000)
    shift = (published.predict(X).mean - deployed).abs().mean()
    assert (running.predict(X).mean - deployed).abs().max() < 0.01 * shift
    assert shift > 0.1


def test_trap_11_cached_statistics_are_no_live_buffers():
    model = net()
    posterior = bn.MCBN(batch_size=8, states=6, center="batch").fit(model, X)
    copies = {name: value.clone() for name, value in posterior.sample(6).items()}
    distinct = {tuple(row) for row in copies["1.running_mean"].tolist()}
    assert len(distinct) == 6, "six batches, six different statistics"
    model.train()
    model(X)  # updates the running statistics in place
    bn.MCBN(batch_size=8, states=6).fit(model, X + 5)
    posterior.predict(X + 3)
    for name, value in posterior.sample(6).items():
        assert torch.equal(value, copies[name]), name


def test_trap_11_the_centre_is_no_live_buffer():
    model = net().eval()
    posterior = bn.MCBN(batch_size=8, states=6).fit(model, X)
    copies = posterior.running.clone()
    model.train()
    model(X)
    assert torch.equal(posterior.running, copies)


def test_trap_6_precision_and_scores_are_in_raw_units():
    y = 50 + 20 * X.sum(1, keepdim=True)
    inner = net()
    raw = Rescaled.from_data(inner, X, y)
    x_norm, y_norm = raw.standardise(X, y)
    y_std = float(y.std(correction=0))
    posterior = bn.MCBN(batch_size=8).fit(raw, X, bn.Gaussian(4.0 / y_std**2))
    standardised = bn.MCBN(batch_size=8).fit(inner, x_norm, bn.Gaussian(4.0))
    ours, theirs = posterior.predict(X), standardised.predict(x_norm)
    torch.testing.assert_close(ours.mean, theirs.mean * y_std + y.mean())
    torch.testing.assert_close(ours.epistemic, theirs.epistemic * y_std**2)
    torch.testing.assert_close(ours.aleatoric, theirs.aleatoric * y_std**2)
    torch.testing.assert_close(ours.log_prob(y), theirs.log_prob(y_norm) - math.log(y_std))
    torch.testing.assert_close(ours.crps(y), theirs.crps(y_norm) * y_std)
