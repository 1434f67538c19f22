"""Predictions under `torch.autocast`: the network may run in half precision, what is made of its outputs may not."""

import warnings

import pytest
import torch
from torch import nn

import bayesnorm as bn

X = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))

HALF = torch.autocast("cpu", torch.bfloat16)


class InFullPrecision(nn.Module):
    """A network that autocast does not reach, so that whatever changes is ours."""

    def __init__(self, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs)
        )

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.body(x)


MCBN, RANKED = bn.MCBN(batch_size=8, states=12), bn.GaussianBN(batch_size=8, states=12, rank=4)
CASES = [
    *((MCBN, bn.MonteCarlo(8), 1), (MCBN, bn.SigmaPoints(4), 3), (MCBN, bn.SigmaPoints(40), 1)),
    *((MCBN, bn.Delta(), 3), (MCBN, bn.Delta(), 20)),  # forward mode where outputs are many
    *((bn.GaussianBN(batch_size=8), engine, 3) for engine in (bn.SigmaPoints(40), bn.Delta())),
    *((RANKED, engine, 3) for engine in (bn.SigmaPoints(4), bn.Delta())),
]


@pytest.mark.parametrize(("method", "engine", "outputs"), CASES, ids=lambda value: type(value).__name__)
def test_the_predictive_is_the_same_inside_and_outside(outputs, method, engine):
    model = InFullPrecision(outputs).eval()
    likelihood = bn.Gaussian() if outputs == 1 else bn.Categorical()
    expected = method.fit(model, X, likelihood).predict(X[:7], engine)
    posterior = method.fit(model, X, likelihood)
    with HALF:
        inside = posterior.predict(X[:7], engine)
        fitted_inside = method.fit(model, X, likelihood)
    for result in (inside, posterior.predict(X[:7], engine), fitted_inside.predict(X[:7], engine)):
        assert torch.equal(result.epistemic, expected.epistemic)


@pytest.mark.parametrize("method", [bn.BayesByBackprop(epochs=1), bn.MNF(epochs=1)], ids=lambda m: type(m).__name__)
def test_samples_and_divergences_of_weights_are_those_outside(method):
    posterior = method.fit(InFullPrecision(1), (X, X[:, :1]))
    expected, divergence = posterior.sample(3), posterior.kl(4)
    with HALF:
        samples = posterior.sample(3)
        assert posterior.kl(4) == divergence
    for name, value in expected.items():
        assert torch.equal(samples[name], value), name


def test_a_prediction_inside_does_not_make_those_outside_coarse():
    model = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 1)).eval()
    expected = bn.MCBN(batch_size=8, states=12).fit(model, X).outputs(6, X)
    posterior = bn.MCBN(batch_size=8, states=12).fit(model, X)
    with HALF:
        assert posterior.outputs(6, X).dtype == torch.bfloat16, "the network's own outputs"
    result = posterior.outputs(6, X)
    assert result.dtype == torch.float32
    assert torch.equal(result, expected)


def test_small_deviations_of_a_half_precision_network_do_not_vanish():
    """In forward mode derivatives come in the outputs' own precision, where squares of 1e-4 are zero."""
    model = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 20)).eval()
    model[3].weight.data *= 1e-4
    single, half = (
        bn.MCBN(batch_size=8, states=4).fit(m, X, bn.Gaussian()).predict(X[:7], bn.Delta()).epistemic
        for m in (model, model.half())
    )
    assert single.max() < torch.finfo(torch.float16).smallest_normal
    # Some tens of roundings to 11 digits.
    assert (half.sum() / single.sum() - 1).abs() < 0.05


class EntersAutocast(nn.Module):
    """A network that lowers the precision itself."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):  # one object must not be entered twice
            return self.body(x).float()


@pytest.mark.parametrize("inside", [False, True])
def test_convolutions_stay_vectorised(inside):
    """Torch does not lower the precision of convolutions inside `vmap` on a CPU."""
    body = nn.Sequential(
        *(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)),
        *(nn.ConvTranspose2d(6, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
    )
    images = torch.randn(40, 3, 6, 6)
    body(images)
    posterior = bn.MCBN(8, states=8).fit(EntersAutocast(body.eval()) if inside else body, images, bn.Categorical())
    with warnings.catch_warnings(), HALF:
        warnings.simplefilter("error")  # a warning says that samples run one by one
        predictive = posterior.predict(images[:5], samples=8)
        looped = posterior.predict(images[:5], bn.MonteCarlo(8, vectorize=False))
    assert torch.allclose(predictive.probs, looped.probs, atol=0.02)
