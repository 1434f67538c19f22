"""Ensembles: balanced samples, members of any kind, one file that holds them all."""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.posterior import shuffled_rounds

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")


def mlp(seed, width=5):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))
    return model.double().eval()


X = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def convolutional(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 1)).double().eval()


def test_a_prediction_takes_every_member_once():
    members = [mlp(seed) for seed in range(4)]
    predictive = bn.ensemble(members, bn.Gaussian(4.0)).predict(X)
    outputs = torch.stack([member(X) for member in members]).detach()
    assert predictive.weights.shape == (4,)
    torch.testing.assert_close(predictive.mean, outputs.mean(0))
    torch.testing.assert_close(predictive.epistemic, outputs.var(0, correction=0))


def test_samples_are_as_balanced_as_their_number_allows():
    for n in (1, 3, 4, 7, 64):
        shares = shuffled_rounds(4, n, seed=1).bincount(minlength=4)
        assert int(shares.max() - shares.min()) <= 1
        assert not torch.equal(shuffled_rounds(4, 64, 1), shuffled_rounds(4, 64, 2))


@pytest.mark.parametrize("make", [mlp, convolutional])
def test_stacked_one_by_one_and_by_override_agree(make, reference):
    x = X if make is mlp else torch.randn(9, 1, 4, 4, dtype=torch.float64)
    posterior = bn.ensemble([make(seed) for seed in range(3)], bn.Gaussian())
    expected = reference(posterior.network, posterior.sample(7, seed=2), x)
    for vectorize in (True, False):
        outputs = bn.MonteCarlo(7, vectorize=vectorize).outputs(posterior, x, seed=2)
        torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-12)


class Shared(nn.Module):
    """A head on a part that other networks share."""

    def __init__(self, body, seed):
        super().__init__()
        self.body, self.head = body, mlp(seed)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("kind", ["one posterior twice", "one network twice", "a shared part"])
def test_members_that_share_memory_are_saved(kind, tmp_path):
    network, body = mlp(0), nn.Linear(3, 3).double()
    member = bn.MCBN(batch_size=8, states=4).fit(network, X, bn.Gaussian())
    members = {
        "one posterior twice": [member, member],
        "one network twice": [network, network],
        "a shared part": [Shared(body, 0), Shared(body, 1)],
    }[kind]
    posterior = bn.ensemble(members, bn.Gaussian())
    posterior.save(tmp_path / "net")
    loaded = bn.load(tmp_path / "net", members[0] if kind == "a shared part" else network)
    assert torch.equal(loaded.predict(X, samples=4).mean, posterior.predict(X, samples=4).mean)


def test_members_of_several_architectures(tmp_path):
    members = [mlp(0), mlp(1, width=9), nn.Sequential(nn.Linear(3, 1)).double()]
    posterior = bn.ensemble(members, bn.Gaussian())
    outputs = torch.stack([member(X) for member in members]).detach()
    torch.testing.assert_close(posterior.predict(X).mean, outputs.mean(0))
    with pytest.raises(bn.BayesNormError, match="sample needs members of one architecture"):
        posterior.sample(2)
    posterior.save(tmp_path / "mixed")
    blank = nn.ModuleList([mlp(7), mlp(8, width=9), nn.Sequential(nn.Linear(3, 1)).double()])
    loaded = bn.load(tmp_path / "mixed", blank)
    torch.testing.assert_close(loaded.predict(X).mean, posterior.predict(X).mean)
    with pytest.raises(bn.BayesNormError, match=r"model.*(networks, but the file has|other parameters|does not match)"):
        bn.load(tmp_path / "mixed", nn.ModuleList([mlp(7), mlp(8)]))


def test_an_ensemble_of_bayesian_networks(reference, tmp_path):
    """Its samples carry both kinds of randomness: variance = spread between members + their own, by total variance."""
    members = [bn.MCBN(8, states=16).fit(mlp(seed), X) for seed in range(3)]
    posterior = bn.ensemble(members)
    assert posterior.default_samples == 64
    predictive = posterior.predict(X, bn.MonteCarlo(3 * 400))
    parts = [member.predict(X, bn.MonteCarlo(1600), seed=5) for member in members]
    within = torch.stack([part.epistemic for part in parts]).mean(0)
    between = torch.stack([part.mean for part in parts]).var(0, correction=0)
    # 400 samples a member: a variance has relative standard error sqrt(2 / 400), with some room for heavy tails.
    error = 4.5 * math.sqrt(2 / 400) * 1.5
    assert ((predictive.epistemic / (within + between) - 1).abs() < error).all()
    expected = reference(posterior.network, posterior.sample(7, seed=1), X)
    torch.testing.assert_close(bn.MonteCarlo(7).outputs(posterior, X, seed=1), expected, rtol=1e-9, atol=1e-10)
    posterior.save(tmp_path / "e")
    loaded = bn.load(tmp_path / "e", mlp(99))
    torch.testing.assert_close(loaded.predict(X).variance, posterior.predict(X).variance)


def test_the_effective_batch_size_is_the_members():
    members = [bn.MCBN(8, states=16).fit(mlp(seed), X) for seed in range(2)]
    posterior = bn.ensemble(members)
    assert posterior.batch_size == 8
    larger = posterior.at_batch_size(1e9)
    assert larger.batch_size == 1e9
    between = torch.stack([member.model(X) for member in members]).var(0, correction=0).detach()
    torch.testing.assert_close(larger.predict(X).epistemic, between, rtol=1e-2, atol=1e-9)
    with pytest.raises(bn.BayesNormError, match="no effective batch size"):
        bn.ensemble([mlp(0), mlp(1)], bn.Gaussian()).at_batch_size(4)


def test_calibrating_an_ensemble_reaches_its_members():
    y = X[:, :1].sin()
    posterior = bn.ensemble([bn.MCBN(8, states=16).fit(mlp(seed), X) for seed in range(2)])
    calibrated = bn.calibrate(posterior, X, y, samples=16)
    assert calibrated.likelihood == calibrated.members[0].likelihood != posterior.likelihood
    assert calibrated.predict(X).crps(y).mean() < posterior.predict(X).crps(y).mean()


def test_one_network_is_no_ensemble():
    for members in ([], [mlp(0)]):
        with pytest.raises(bn.BayesNormError, match=r"members must be a list of two or more .* got \d"):
            bn.ensemble(members, bn.Gaussian())


def test_an_ensemble_of_dropout_networks(reference):
    networks = [bn.add_dropout(mlp(seed), 0.3) for seed in range(2)]
    posterior = bn.ensemble([bn.MCDropout().fit(network, likelihood=bn.Gaussian()) for network in networks])
    outputs = bn.MonteCarlo(9).outputs(posterior, X, seed=4)
    expected = reference(posterior.network, posterior.sample(9, seed=4), X)
    torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-10)
    assert len(outputs[:, 0, 0].unique()) > 2, "samples differ within members too"


def test_a_list_of_networks_is_for_ensembles_only(tmp_path):
    bn.MCBN(batch_size=8, states=4).fit(mlp(0), X).save(tmp_path / "one")
    with pytest.raises(bn.BayesNormError, match="model does not match the network that the posterior was fitted on"):
        bn.load(tmp_path / "one", nn.ModuleList([mlp(0), mlp(1)]))


def test_a_likelihood_is_needed_for_plain_networks():
    with pytest.raises(bn.BayesNormError, match=r"likelihood is needed for plain networks"):
        bn.ensemble([mlp(0), mlp(1)])
