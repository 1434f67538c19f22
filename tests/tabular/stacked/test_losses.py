"""Gradients that are written out are those that autograd finds, and losses those of the likelihoods."""

import pytest
import torch
from scipy.stats import norm

from bayesnorm.metrics import crps
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.tabular.stacked.trained_layers import ClassNLL, HalfSquaredError, NormalCrps

NETWORKS, ROWS = 3, 7


def case(kind, columns, weighted):
    generator = torch.Generator().manual_seed(0)
    outputs = {NormalCrps: 2 * columns, HalfSquaredError: columns, ClassNLL: 4}[kind]
    f = 3 * torch.randn(NETWORKS, ROWS, outputs, generator=generator, dtype=torch.float64)
    if kind is ClassNLL:
        y = torch.randint(0, 4, (NETWORKS, ROWS, 1), generator=generator).double()
    else:
        y = torch.randn(NETWORKS, ROWS, columns, generator=generator, dtype=torch.float64)
    weights = torch.rand(NETWORKS, ROWS, 1, generator=generator, dtype=torch.float64)
    return kind(weighted), f.requires_grad_(), torch.cat([y, weights], -1) if weighted else y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "columns"), [(NormalCrps, 1), (NormalCrps, 3), (HalfSquaredError, 1), (HalfSquaredError, 2), (ClassNLL, 1)]
)
def test_values_and_gradients(kind, columns, weighted):
    loss, f, y = case(kind, columns, weighted)
    expected = loss(f, y)
    (slope,) = torch.autograd.grad(expected.sum(), f)
    result, by_hand = loss.with_slope(f.detach(), y)
    torch.testing.assert_close(result, expected.detach())
    torch.testing.assert_close(by_hand, slope)


def test_weights_are_the_last_column():
    loss, f, y = case(NormalCrps, 1, weighted=True)
    torch.testing.assert_close(loss(f, y), y[..., -1] * NormalCrps()(f, y[..., :-1]))


def test_the_loss_is_the_crps_of_the_predictive():
    loss, f, y = case(NormalCrps, 1, weighted=False)
    mean, std = f[0].detach().chunk(2, -1)[0], (f[0].detach().chunk(2, -1)[1] / 2).exp()
    told = crps(RegressionPredictive(mean[None], std[None]), y[0])
    torch.testing.assert_close(loss(f, y)[0].mean().detach(), torch.as_tensor(told, dtype=torch.float64))


def test_a_slope_is_what_scipy_says():
    """The CRPS of N(mu, s^2) falls with mu by 2 Phi(z) - 1."""
    _, slope = NormalCrps().with_slope(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[1.5]]]))
    assert slope[0, 0, 0] == pytest.approx(1 - 2 * norm.cdf(1.5), abs=1e-6)


@pytest.mark.parametrize("log_variance", [-200.0, 200.0])
@pytest.mark.parametrize("error", [0.0, 1e-3, 1e3])
def test_noise_that_strayed_can_be_trained_back(log_variance, error):
    values, slope = NormalCrps().with_slope(torch.tensor([[[0.0, log_variance]]]), torch.tensor([[[error]]]))
    assert values.isfinite().all()
    assert slope.isfinite().all()
    if log_variance > 0:
        assert slope[0, 0, 1] > 0  # downhill is less noise
    elif error == 0:
        assert slope[0, 0, 1] >= 0
