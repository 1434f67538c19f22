"""A temperature that rises with the samples' disagreement."""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn

LIKELIHOOD = bn.VarianceScaledCategorical(2.0, slope=0.5, mean=-1.0, std=0.8)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_formula():
    f = noise(7, 40, 3) * torch.linspace(0.05, 5, 40, dtype=torch.float64)[:, None]
    uncertainty = f.var(0, correction=0).mean(1).log()
    z = ((uncertainty + 1.0) / 0.8).clamp(0, 2)
    assert (z == 0).any()
    assert (z == 2).any()
    expected = torch.softmax(f / (2.0 * torch.exp(0.5 * z))[:, None], -1).mean(0)
    torch.testing.assert_close(LIKELIHOOD.predictive(f).probs, expected)


def test_without_disagreement_it_is_the_temperature():
    f = noise(1, 5, 3)
    for same in (f, f.expand(4, 5, 3)):
        torch.testing.assert_close(LIKELIHOOD.predictive(same).probs, bn.Categorical(2.0).predictive(f).probs)
    several = noise(4, 5, 3)
    flat = bn.VarianceScaledCategorical(2.0)
    torch.testing.assert_close(flat.predictive(several).probs, bn.Categorical(2.0).predictive(several).probs)
    assert LIKELIHOOD.plain == bn.Categorical(2.0)


def test_it_never_sharpens():
    f = 3 * noise(6, 50, 4)
    plain, result = (likelihood.predictive(f) for likelihood in (LIKELIHOOD.plain, LIKELIHOOD))
    assert (result.log_probs.exp().amax(2) <= plain.log_probs.exp().amax(2) + 1e-12).all()
    assert (result.label == plain.label).double().mean() > 0.8


def test_classes_that_are_ruled_out():
    f = noise(4, 3, 3)
    f[:, :, 2] = -math.inf
    f[0, 1, 1] = -math.inf
    result = LIKELIHOOD.predictive(f).probs
    assert torch.isfinite(result).all()
    assert (result[:, 2] == 0).all()


@pytest.fixture(scope="module")
def posterior():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3)).double().eval()
    return bn.MCBN(batch_size=16, states=64).fit(model, noise(300, 3), LIKELIHOOD)


def test_engines_agree(posterior):
    """To first order all three know the same variance of the logits; 64 samples know it to a fifth."""
    x = noise(50, 3, seed=5)
    calm = posterior.at_batch_size(256).with_likelihood(
        bn.VarianceScaledCategorical(1.0, slope=0.5, mean=-9.0, std=2.0)
    )
    drawn, points, delta = (calm.predict(x, e).probs for e in (bn.MonteCarlo(64), bn.SigmaPoints(8), bn.Delta()))
    plain = calm.with_likelihood(calm.likelihood.plain).predict(x).probs
    moved = (drawn - plain).abs().max()
    assert (points - drawn).abs().max() < 0.3 * moved
    assert (delta - drawn).abs().max() < 0.3 * moved
