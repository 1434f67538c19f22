"""The directions of the statistics that matter most for the outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.engines import directions as module
from bayesnorm.engines.delta import output_jacobian
from bayesnorm.engines.directions import MOST_DIRECTIONS, output_directions

METHODS = [
    bn.MCBN(8, states=30),
    bn.GaussianBN(8),
    bn.GaussianBN(8, states=30, rank=6),
    bn.StochasticBN(8, states=30),
    bn.MCBN(8, states=30, center="batch"),
]


def rows(n, width=3, seed=0):
    return torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network(outputs=1):
    model = nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, outputs)
    )
    return model.double().eval()


def joint_covariance(posterior):
    factor, independent = posterior.fluctuations.root()
    return factor.T @ factor + (0 if independent is None else independent.square().diag())


def standardised(posterior, x):
    """Derivatives of all outputs, each in units of its own standard deviation, and the outputs' correlations."""
    jacobian = output_jacobian(posterior, x)[1].flatten(0, 1)
    covariance = jacobian @ joint_covariance(posterior) @ jacobian.T
    scale = covariance.diag().rsqrt()
    return jacobian * scale[:, None], covariance * scale[:, None] * scale


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_they_are_the_outputs_principal_components(method):
    posterior, x = method.fit(network(2), rows(60), bn.Gaussian()), rows(12, seed=1)
    found, explained = output_directions(posterior, x)
    jacobian, correlation = standardised(posterior, x)
    values, vectors = torch.linalg.eigh(correlation)
    values, vectors = values.flip(0)[: len(found)], vectors.flip(1)[:, : len(found)]
    moved = jacobian @ found.T  # (outputs, R): J v_r = sqrt(l_r) w_r
    torch.testing.assert_close(moved.T @ moved, values.diag(), rtol=1e-6, atol=1e-8 * values[0].item())
    for k in range(3):
        outer = values[k] * torch.outer(vectors[:, k], vectors[:, k])
        torch.testing.assert_close(torch.outer(moved[:, k], moved[:, k]), outer, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(explained, values.cumsum(0) / len(correlation), rtol=1e-8, atol=1e-10)


def test_a_direction_is_one_standard_deviation_long():
    """v_r = S J^T w / sqrt(l) has v^T S^-1 v = 1 where S is regular."""
    posterior = bn.GaussianBN(8).fit(network(), rows(60))
    found, _ = output_directions(posterior, rows(12, seed=1))
    inverse = torch.linalg.inv(joint_covariance(posterior))
    lengths = found @ inverse @ found.T
    torch.testing.assert_close(lengths, torch.eye(len(found), dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_as_many_as_the_outputs_need_and_no_more():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double().eval()
    posterior = bn.MCBN(8, states=30).fit(model, rows(60))
    found, explained = output_directions(posterior, rows(30, seed=1))
    # f = a (h - m) / s: a row's gradient is (-a / s, -a (h - m) / 2s), one fixed part and h - m, which has rank 3.
    assert len(found) == 4
    assert explained[-1].item() == pytest.approx(1, abs=1e-9)
    assert (explained.diff() >= 0).all()
    wide = bn.MCBN(8, states=60).fit(network(3), rows(60), bn.Gaussian())
    assert wide.directions.shape == (MOST_DIRECTIONS, 18)


def test_a_fit_keeps_what_a_file_would_keep():
    posterior = bn.MCBN(8, states=30).fit(network(), rows(60))
    assert torch.equal(posterior.directions, posterior.directions.bfloat16().double())
    assert posterior.explained.shape == (len(posterior.directions),)


def test_random_combinations_stand_for_many_outputs(monkeypatch):
    """With more outputs than are looked at, random combinations span the same directions."""
    posterior, x = bn.MCBN(8, states=10).fit(network(6), rows(60), bn.Gaussian()), rows(20, seed=1)
    _, jacobian = output_jacobian(posterior, x)
    _, few = output_jacobian(posterior, x, most_outputs=4)
    assert few.shape == (20, 4, 18)
    mixing = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(few, mixing @ jacobian, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(module, "MOST_OUTPUTS", 4)
    assert output_directions(posterior, x) is not None


class ToNumPy(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.detach().numpy().copy()).tanh()


def test_none_where_there_are_no_derivatives():
    broken = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), ToNumPy(), nn.Linear(5, 1)).double().eval()
    with pytest.warns(bn.BayesNormWarning, match="cannot be vectorised"):
        posterior = bn.MCBN(8, states=30).fit(broken, rows(60))
        assert torch.isfinite(posterior.predict(rows(4)).epistemic).all()
    assert posterior.directions is None
    assert posterior.explained is None


def test_none_where_the_outputs_do_not_depend_on_the_statistics():
    constant = network()
    nn.init.zeros_(constant[-1].weight)
    posterior = bn.MCBN(8, states=30).fit(constant, rows(60))
    assert posterior.directions is None
    assert posterior.predict(rows(4), bn.Delta()).epistemic.max() == 0
