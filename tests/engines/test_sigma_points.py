"""SigmaPoints: the points' own moments, exactness in linear cases, and what is refused."""

import dataclasses

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.engines.sigma_points import OutputDirections, output_components
from bayesnorm.posterior import Empirical

from ..two_norms import TIGHT, network, rows


def fitted(model, likelihood=None, states=20):
    return bn.MCBN(batch_size=8, states=states).fit(model.eval(), rows(60, 3), likelihood)


def linear_case(outputs):
    """A network that is linear in its statistics' deviation, with its directions anew: rank = number of outputs."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, outputs)).double()
    posterior = fitted(model, bn.Gaussian())
    deviations = posterior.fluctuations.deviations.clone()
    deviations[:, 5:] = 0
    posterior = dataclasses.replace(posterior, fluctuations=Empirical(deviations))
    exact = OutputDirections(None, *output_components(posterior, rows(30, 3, seed=2)))  # not rounded, as files are
    return dataclasses.replace(posterior, output_directions=exact)


@pytest.mark.parametrize("rank", [1, 5])
def test_the_points_have_the_centre_as_mean_and_the_sum_of_outer_products_as_covariance(rank, monkeypatch):
    posterior = fitted(network()).at_batch_size(3)
    engine, x, seen = bn.SigmaPoints(rank=rank), rows(4, 3, seed=1), {}
    run = posterior.executable.run
    monkeypatch.setattr(
        posterior.executable, "run", lambda states, *a, **k: seen.update(states) or run(states, *a, **k)
    )
    assert engine.outputs(posterior, x).shape == (2 * rank, 4, 1)
    means = torch.cat([seen[f"{layer.name}.running_mean"] for layer in posterior.layers], 1)
    log_vars = torch.cat([(seen[f"{layer.name}.running_var"] + layer.eps).log() for layer in posterior.layers], 1)
    points = torch.cat([means, log_vars], 1)
    directions = posterior.directions(rank) * (8 / 3) ** 0.5
    torch.testing.assert_close(points.mean(0), posterior.location, **TIGHT)
    torch.testing.assert_close(points.T.cov(correction=0), directions.T @ directions, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("outputs", [1, 3])
def test_exact_at_full_rank_in_a_linear_case(outputs):
    posterior, x = linear_case(outputs), rows(6, 3, seed=1)
    assert len(posterior.output_directions.components) == outputs
    predictive = posterior.predict(x, bn.SigmaPoints(rank=outputs))
    expected = posterior.predict(x, bn.MonteCarlo(samples=20))
    torch.testing.assert_close(predictive.epistemic, expected.epistemic, **TIGHT)
    torch.testing.assert_close(predictive.mean, expected.mean, **TIGHT)


def test_few_directions_make_up_for_those_that_they_leave_out():
    """In the geometric mean over outputs, no variance is lost; plain principal components would lose a part."""
    posterior, x = linear_case(3), rows(6, 3, seed=1)
    expected = posterior.predict(x, bn.MonteCarlo(samples=20)).epistemic
    for rank in (1, 2):
        leading = posterior.output_directions.sensitivities[:, :rank].square().sum(1)
        assert leading.mean() < 0.99, "there is something to leave out"
        ratio = posterior.predict(x, bn.SigmaPoints(rank=rank)).epistemic / expected
        # The fit is a least-squares one in logarithms with a small weight on its start: near 1, and better than before.
        assert ratio.log().mean().abs() < 0.2
        assert ratio.log().square().mean() < leading.log().square().mean()


def test_more_than_there_are_is_all_there_are():
    posterior, x = linear_case(2), rows(6, 3, seed=1)
    assert bn.SigmaPoints(rank=8).outputs(posterior, x).shape == (4, 6, 2)
    result, expected = (posterior.predict(x, engine) for engine in (bn.SigmaPoints(8), bn.MonteCarlo(samples=20)))
    torch.testing.assert_close(result.epistemic, expected.epistemic, **TIGHT)
    late = fitted(network(), states=6).at_layers(1)
    assert len(bn.SigmaPoints(rank=8).outputs(late, x)) == 10, "six deviations that sum to 0 have five directions"


def test_close_to_all_samples_for_a_real_network(regression):
    posterior = bn.MCBN(batch_size=16, states=200).fit(regression.model, regression.x).at_batch_size(64)
    expected = posterior.predict(regression.x[:40], bn.MonteCarlo(samples=200)).epistemic
    variance = posterior.predict(regression.x[:40], bn.SigmaPoints(rank=8)).epistemic
    # The issue asks for a median ratio within 0.85 to 1.15 and a correlation of log variances of 0.98.
    assert 0.85 < (variance / expected).median() < 1.15
    assert torch.corrcoef(torch.stack([variance.log().flatten(), expected.log().flatten()]))[0, 1] > 0.98


@pytest.mark.parametrize("method", [bn.MCBN(8, states=20), bn.GaussianBN(8, states=20, rank=6)])
def test_layers_chosen_afterwards_have_directions_of_their_own(method):
    posterior = method.fit(network(), rows(60, 3))
    posterior.directions(4)
    late = posterior.at_layers(1)
    result = late.directions(4)
    assert result.shape == (4, 8)
    again = late.with_directions(posterior.output_directions.rows)
    torch.testing.assert_close(result, again.directions(4), **TIGHT)
    assert (late.predict(rows(4, 3, seed=1), bn.SigmaPoints(rank=4)).epistemic > 0).all()


def test_contexts_and_global_generators_change_nothing():
    expected = fitted(network()).predict(rows(4, 3, seed=1), bn.SigmaPoints(rank=3)).loc
    torch.manual_seed(3)
    model = network()
    torch.manual_seed(4)
    before = torch.get_rng_state()
    with torch.inference_mode():
        inside = fitted(model).predict(rows(4, 3, seed=1), bn.SigmaPoints(rank=3)).loc
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(inside, fitted(model).predict(rows(4, 3, seed=1), bn.SigmaPoints(rank=3)).loc)
    assert not torch.equal(inside, expected)


def test_independent_coordinates_have_their_axes():
    for method in (bn.StochasticBN, bn.GaussianBN):
        posterior = method(8, states=20).fit(network(), rows(60, 3)).at_layers(1)
        x = rows(4, 3, seed=1)
        variance = posterior.predict(x, bn.SigmaPoints(rank=8)).epistemic
        # All eight coordinates, one at a time: what second order leaves out at M = 8 is a share of about 1/M each.
        torch.testing.assert_close(variance, posterior.predict(x, bn.Delta()).epistemic, rtol=0.5, atol=0)


def test_deterministic_whatever_the_seed_and_the_way():
    posterior, x = fitted(network()), rows(4, 3, seed=1)
    expected = posterior.predict(x, bn.SigmaPoints(4), seed=0)
    assert torch.equal(posterior.predict(x, bn.SigmaPoints(4), seed=7).loc, expected.loc)
    for engine in (bn.SigmaPoints(4, vectorize=False), bn.SigmaPoints(4, chunk=3)):
        torch.testing.assert_close(posterior.predict(x, engine).loc, expected.loc, **TIGHT)


def test_directions_are_found_once_for_all_batch_sizes_and_likelihoods(regression):
    posterior = bn.MCBN(batch_size=8, states=24).fit(regression.model, regression.x)
    result = posterior.directions(3)
    assert posterior.at_batch_size(64).directions(3) is result
    assert posterior.with_likelihood(bn.Gaussian(2.0)).directions(3) is result
    assert posterior.at_layers(1).directions(3).shape != result.shape
