"""Networks in single precision against their posterior, which runs torch's layers in double precision."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import HeteroscedasticGaussian
from bayesnorm.methods import MCBN
from bayesnorm.posterior import EnsemblePosterior
from bayesnorm.shift import adapt
from bayesnorm.tabular import estimator, fast_networks
from bayesnorm.tabular.fast_networks import FastNetworks
from bayesnorm.tabular.networks import Encoded, encoder_for, network_for, posterior_for
from bayesnorm.training import Rescaled

from .conftest import line_model

# Mean and standard deviation of the targets, and what log-variances have instead. Single precision could not hold such
# a mean.
UNITS = (1e6, 0.0), (0.5, 1.0)


def member(seed, *, method="mcbn", encoding="bins 4", hidden=(12, 12, 12), outputs=2):
    """Return a posterior over a network that was not trained, whose batch norms have weights of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(60, 3, generator=generator)
    encoder = encoder_for(encoding, x)
    layers = network_for(method, encoder(x).shape[1], outputs, hidden, 0.1, seed)
    units = (torch.tensor([value] * (outputs // 2) + [plain] * (outputs // 2)).double() for value, plain in UNITS)
    network = Rescaled(Encoded(encoder, *layers).double(), torch.zeros(1), torch.ones(1), *units)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d):
                for tensor in (module.weight, module.bias, module.running_mean):
                    tensor.normal_(generator=generator)
                module.running_var.uniform_(0.5, 2.0, generator=generator)
                module.weight[0] = 0.0  # a unit that is constant
    likelihood = HeteroscedasticGaussian()
    return posterior_for(method, network.eval(), x.double(), likelihood, 8, 16, seed)


def require_same(posterior, samples=9):
    x = torch.randn(1_030, 3, generator=torch.Generator().manual_seed(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_networks, "BLOCK", 600)
        patch.setattr(fast_networks, "SAMPLE_BLOCK", 256)
        outputs = FastNetworks.from_posterior(posterior, samples, 3).outputs(x)
    fast, exact = posterior.likelihood.predictive(outputs), posterior.predict(x.double(), MonteCarlo(samples), seed=3)
    assert len(fast.loc) == len(exact.loc)
    for name in ("mean", "std", "epistemic"):
        difference = (getattr(fast, name) - getattr(exact, name)).abs() / exact.std
        assert float(difference.max()) < 1e-5
    assert float(exact.epistemic.max()) > 0


@pytest.mark.parametrize("method", ["mcbn", "gaussian", "stochastic"])
def test_methods(method):
    require_same(member(0, method=method))


@pytest.mark.parametrize("encoding", ["plain", "bins 4", "bins 24", "waves 3"])
@pytest.mark.parametrize("hidden", [(12,), (12, 12), (12, 8, 8)])
def test_encodings_and_layers(encoding, hidden, monkeypatch):
    monkeypatch.setattr(fast_networks, "MOST_MULTIPLIED", 40)  # the 72 bins of "bins 24" are looked up
    require_same(member(0, encoding=encoding, hidden=hidden))


def test_several_targets():
    require_same(member(0, outputs=4))


def test_an_ensemble_has_the_samples_of_all_members():
    first, second = member(0), member(1)
    require_same(EnsemblePosterior(first.executable, first.likelihood, (first, second)))
    first, second = member(0, method="ensemble"), member(1, method="ensemble")
    require_same(EnsemblePosterior(first.executable, first.likelihood, (first, second)), 2)


def test_earlier_layers_that_were_adapted(line):
    model = line_model()
    x = model._inputs(model.preprocessing_.transform(line[0] + 1))
    adapted = adapt(model.posterior_, x, strength=1.0)
    fast = FastNetworks.from_posterior(adapted, 8, 0)
    torch.testing.assert_close(
        fast.outputs(x.float()).mean(0)[:, :1], adapted.predict(x, MonteCarlo(8), seed=0).mean, rtol=1e-5, atol=1e-5
    )


def test_other_posteriors_are_refused():
    assert FastNetworks.from_posterior(member(0, method="dropout"), 4, 0) is None
    plain = member(0)
    every_layer = MCBN(8, 16).fit(plain.model, torch.randn(60, 3).double(), plain.likelihood)
    assert FastNetworks.from_posterior(every_layer, 4, 0) is None


def test_estimators_use_them_for_many_rows(line, monkeypatch):
    model = line_model()
    X = np.random.default_rng(2).normal(size=(600, 2))
    fast = model.predict_dist(X)
    assert model._fast_networks() is model._fast_networks()
    single = model.predict_dist(X[:100])
    monkeypatch.setattr(estimator, "FAST_ROWS", 10_000)
    exact = model.predict_dist(X)
    assert not torch.equal(fast.loc, exact.loc)
    torch.testing.assert_close(fast.mean, exact.mean, rtol=1e-6, atol=1e-5)
    assert torch.equal(single.mean, exact[:100].mean)
    assert "_fast" not in model.__getstate__()
    assert pickle.loads(pickle.dumps(model)).predict(X[:5]) == pytest.approx(model.predict(X[:5]))


def test_an_adapted_estimator_does_not_use_the_networks_before(line, monkeypatch):
    model = line_model()
    X = np.random.default_rng(2).normal(size=(600, 2)) + 1
    before = model.predict(X)
    after = model.adapt(X, strength=1.0).predict(X)
    assert np.abs(before - after).max() > 0.01
    monkeypatch.setattr(estimator, "FAST_ROWS", 10_000)
    np.testing.assert_allclose(model.adapt(X, strength=1.0).predict(X), after, rtol=1e-5, atol=1e-5)
