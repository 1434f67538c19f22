"""The directions of the statistics that matter most for the outputs."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.engines import sigma_points as module
from bayesnorm.engines.sigma_points import MOST_COMPONENTS, mixed_directions, output_components

from ..apply import Apply
from ..two_norms import network, output_jacobian, rows

METHODS = [
    bn.MCBN(8, states=30),
    bn.GaussianBN(8),
    bn.GaussianBN(8, states=30, rank=6),
    bn.StochasticBN(8, states=30),
    bn.MCBN(8, states=30, center="batch"),
]


def asked(posterior):
    """What a posterior knows once `SigmaPoints` has asked for its directions."""
    posterior.directions(1)
    return posterior.output_directions


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
    posterior, x = method.fit(network(2), rows(60, 3), bn.Gaussian()), rows(12, 3, seed=1)
    result, sensitivities = output_components(posterior, x)
    jacobian, correlation = standardised(posterior, x)
    values, vectors = torch.linalg.eigh(correlation)
    values, vectors = values.flip(0)[: len(result)], vectors.flip(1)[:, : len(result)]
    moved = jacobian @ result.T  # (outputs, R): J v_r = sqrt(l_r) w_r
    torch.testing.assert_close(moved.T @ moved, values.diag(), rtol=1e-6, atol=1e-8 * values[0].item())
    for k in range(3):
        outer = values[k] * torch.outer(vectors[:, k], vectors[:, k])
        torch.testing.assert_close(torch.outer(moved[:, k], moved[:, k]), outer, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(moved, sensitivities, rtol=1e-6, atol=1e-8)


def test_a_direction_is_one_standard_deviation_long():
    """v_r = S J^T w / sqrt(l) has v^T S^-1 v = 1 where S is regular."""
    posterior = bn.GaussianBN(8).fit(network(), rows(60, 3))
    result, _ = output_components(posterior, rows(12, 3, seed=1))
    inverse = torch.linalg.inv(joint_covariance(posterior))
    lengths = result @ inverse @ result.T
    torch.testing.assert_close(lengths, torch.eye(len(result), dtype=torch.float64), rtol=1e-5, atol=1e-5)


def test_as_many_as_the_outputs_need_and_no_more():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double().eval()
    posterior = bn.MCBN(8, states=30).fit(model, rows(60, 3))
    result, sensitivities = output_components(posterior, rows(30, 3, seed=1))
    # f = a (h - m) / s: a row's gradient is (-a / s, -a (h - m) / 2s), one fixed part and h - m, which has rank 3.
    assert len(result) == 4
    torch.testing.assert_close(sensitivities.square().sum(1), torch.ones(30, dtype=torch.float64))
    assert (sensitivities.square().sum(0).diff() <= 0).all(), "the largest first"
    few = asked(bn.MCBN(8, states=60).fit(network(3), rows(60, 3), bn.Gaussian()))
    assert 10 < len(few.components) <= 18, "no more than there are coordinates"
    wide = nn.Sequential(nn.Linear(3, 40), nn.BatchNorm1d(40), nn.Tanh(), nn.Linear(40, 4)).double().eval()
    assert asked(bn.MCBN(8, states=60).fit(wide, rows(60, 3), bn.Gaussian())).components.shape == (MOST_COMPONENTS, 80)


def test_what_is_kept_is_what_a_file_would_keep():
    result = asked(bn.MCBN(8, states=30).fit(network(), rows(60, 3)))
    for part in (result.components, result.sensitivities):
        assert torch.equal(part, part.bfloat16().double())
    assert result.sensitivities.shape[1] == len(result.components)


def test_random_combinations_stand_for_many_outputs(monkeypatch):
    """With more outputs than are looked at, random combinations span the same directions."""
    posterior, x = bn.MCBN(8, states=10).fit(network(6), rows(60, 3), bn.Gaussian()), rows(20, 3, seed=1)
    _, jacobian = output_jacobian(posterior, x)
    _, few = output_jacobian(posterior, x, most_outputs=4)
    assert few.shape == (20, 4, 18)
    mixing = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(few, mixing @ jacobian, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(module, "MOST_OUTPUTS", 4)
    assert output_components(posterior, x) is not None


def test_none_where_there_are_no_derivatives():
    to_numpy = Apply(lambda h: torch.from_numpy(h.detach().numpy().copy()).tanh())
    broken = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), to_numpy, nn.Linear(5, 1)).double().eval()
    posterior = bn.MCBN(8, states=30).fit(broken, rows(60, 3))
    with pytest.warns(bn.BayesNormWarning, match="cannot be vectorised"):
        predictive = posterior.predict(rows(4, 3))
    assert torch.isfinite(predictive.epistemic).all()
    result = asked(posterior)
    assert result.components is None
    assert result.sensitivities is None
    components, shares = posterior.fluctuations.principal(4)
    torch.testing.assert_close(posterior.directions(4), components / shares[-1].sqrt())


def test_none_where_the_outputs_do_not_depend_on_the_statistics():
    constant = network()
    nn.init.zeros_(constant[-1].weight)
    posterior = bn.MCBN(8, states=30).fit(constant, rows(60, 3))
    assert asked(posterior).components is None
    assert posterior.predict(rows(4, 3), bn.Delta()).epistemic.max() == 0


@pytest.mark.parametrize("rank", [1, 6])
def test_mixtures_reproduce_the_outputs_variances_better_than_the_leading_components(rank):
    posterior = bn.MCBN(8, states=30).fit(network(2), rows(60, 3), bn.Gaussian())
    components, moves = asked(posterior).components, asked(posterior).sensitivities
    result = mixed_directions(components, moves, rank)
    assert result.shape == (rank, 18)
    mixture = torch.linalg.lstsq(components.T, result.T).solution  # (n, rank)
    variances = (moves @ mixture).square().sum(1)
    leading = moves[:, :rank].square().sum(1)
    scaled = leading / leading.mean()
    assert variances.log().square().mean() < scaled.log().square().mean()
    assert torch.equal(result, mixed_directions(components, moves, rank)), "deterministic"


def test_all_components_are_taken_as_they_are():
    directions = asked(bn.MCBN(8, states=5).fit(network(), rows(60, 3)))
    result = mixed_directions(directions.components, directions.sensitivities, 30)
    # Together they explain all of it, up to the rounding to 8 digits.
    torch.testing.assert_close(result, directions.components, rtol=2**-7, atol=0)


def test_a_fit_derives_nothing_until_it_is_asked(monkeypatch):
    calls, find = [], module.output_components
    monkeypatch.setattr(module, "output_components", lambda *args: calls.append(len(args[1])) or find(*args))
    posterior, x = bn.MCBN(8, states=30).fit(network(), rows(90, 3)), rows(4, 3, seed=1)
    posterior.predict(x)
    posterior.at_batch_size(32).predict(x, bn.Delta())
    assert calls == []
    posterior.predict(x, bn.SigmaPoints(3))
    posterior.at_batch_size(32).with_likelihood(bn.Gaussian(2.0)).predict(x, bn.SigmaPoints(4))
    assert calls == [64], "once, from the rows that the fit held"


def test_directions_do_not_depend_on_what_was_asked_before_or_beside():
    model, data, x = network().float(), rows(60, 3).float(), rows(4, 3, seed=1).float()
    fresh, others, resized, lowered = (bn.MCBN(8, states=30).fit(model, data) for _ in range(4))
    others.predict(x, bn.SigmaPoints(2))
    others.predict(x, bn.Delta())
    resized.at_batch_size(100).predict(x, bn.SigmaPoints(5))
    with torch.autocast("cpu", torch.bfloat16):
        lowered.predict(x, bn.SigmaPoints(5))
    for posterior in (others, resized, lowered):
        assert torch.equal(posterior.directions(5), fresh.directions(5))


def test_directions_are_saved_once_they_are_there(tmp_path):
    torch.manual_seed(6)
    model, x = network(), rows(5, 3, seed=1)
    posterior = bn.MCBN(8, states=30).fit(model, rows(60, 3))
    posterior.save(tmp_path / "before")
    expected = posterior.predict(x, bn.SigmaPoints(4)).loc
    posterior.save(tmp_path / "after")
    after = bn.load(tmp_path / "after", model)
    assert torch.equal(after.predict(x, bn.SigmaPoints(4)).loc, expected)
    before = bn.load(tmp_path / "before", model)
    with pytest.raises(bn.BayesNormError, match=r"no training data. Call posterior.with_directions\(x\)"):
        before.predict(x, bn.SigmaPoints(4))
    copied = before.with_directions(posterior.output_directions.rows)
    assert torch.equal(copied.predict(x, bn.SigmaPoints(4)).loc, expected)
    with pytest.raises(bn.BayesNormError, match="with_directions"):
        before.predict(x, bn.SigmaPoints(4))  # a new posterior was made; this one is as it was
