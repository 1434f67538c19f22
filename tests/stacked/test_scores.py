"""Scores of stacked networks, each by its own rows: those of the network alone, whatever fills up shorter lists."""

from __future__ import annotations

import math

import pytest
import torch

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.stacked import fit_stacked

from .stacked_networks import network_in_target_units, own, task, together

PRECISIONS = [0.5, 0.1, 2.0, 0.3, 0.05]
VARIANCES = torch.tensor([2.0, 30.0, 5.0, 1.0, 9.0], dtype=torch.float64)
"""Constant uncertainty that scores are compared with, another for every network."""


def normalised(score, **options):
    def scored(predictive, y, variance, **own):
        return score(predictive, y, variance, **options, **own)

    return scored


def plain(score, **options):
    def scored(predictive, y, _variance, **own):
        return score(predictive, y, **options, **own)

    return scored


SCORES = {
    "crps": plain(metrics.crps),
    "crps, mixture": plain(metrics.crps, form="mixture"),
    "pll": plain(metrics.pll),
    "pll, gaussian": plain(metrics.pll, form="gaussian"),
    "rmse": plain(metrics.rmse),
    "mae": plain(metrics.mae),
    "coverage": plain(metrics.coverage),
    "coverage of a half": plain(metrics.coverage, level=0.5),
    "normalised crps": normalised(metrics.normalised_crps),
    "normalised crps, mixture": normalised(metrics.normalised_crps, form="mixture"),
    "normalised pll": normalised(metrics.normalised_pll),
    "normalised pll, gaussian": normalised(metrics.normalised_pll, form="gaussian"),
}


@pytest.fixture(scope="module")
def predictions():
    """Predictive distributions of all networks at once, and of each alone; with their targets."""
    networks, rows, held_out = task(dtype=torch.float64)
    stack, _ = together(networks, rows, epochs=5, learning_rate=1e-2)
    method, engine = bn.MCBN(16, states=12), bn.MonteCarlo(12)
    noise = bn.Gaussian(precision=PRECISIONS, axis=0, missing=True)
    stacked = fit_stacked(method, stack, rows, noise)
    each = []
    for i, precision in enumerate(PRECISIONS):
        network = network_in_target_units(stack, rows, i)
        posterior = method.fit(network, own(rows, i)[0], bn.Gaussian(precision))
        x = own(held_out, i)[0]
        moments = engine.moments(posterior, x)
        matched = posterior.likelihood.gaussian_predictive(*moments)
        each.append((posterior.predict(x, engine), matched, held_out.own_targets[i, : len(x)]))
    matched = noise.gaussian_predictive(*engine.moments(stacked, held_out))
    return stacked.predict(held_out, engine), matched, held_out.own_targets, each


@pytest.mark.parametrize("name", SCORES)
def test_each_network_is_scored_as_if_alone(predictions, name):
    """Both the mixture over samples and the Gaussian with its moments."""
    score, (mixture, matched, y, each) = SCORES[name], predictions
    assert y.isnan().any()
    for place, predictive in enumerate((mixture, matched)):
        found = score(predictive, y, VARIANCES.view(5, 1, 1), each=1)
        assert found.shape == (5,)
        alone = [score(one[place], one[2], variance) for one, variance in zip(each, VARIANCES, strict=True)]
        torch.testing.assert_close(found, torch.stack(alone), rtol=1e-9, atol=1e-9)
        assert len(set(found.tolist())) > 1


@pytest.mark.parametrize("name", ["crps", "pll", "rmse", "mae", "coverage"])
def test_all_networks_together_are_scored_row_by_row(predictions, name):
    score, (mixture, _, y, each) = SCORES[name], predictions
    found = score(mixture, y, None)
    counts = torch.tensor([len(own_y) for _, _, own_y in each], dtype=torch.float64)
    alone = torch.stack([score(predictive, own_y, None) for predictive, _, own_y in each])
    power = 2 if name == "rmse" else 1
    expected = ((alone**power * counts).sum() / counts.sum()) ** (1 / power)
    torch.testing.assert_close(found, expected)


def test_scores_of_rows_without_padding(predictions):
    """Where no target is missing, a score of each network is the mean over its rows."""
    mixture, _, y, _ = predictions
    shortest = int((~y.isnan()).sum(1).min())
    whole = bn.Gaussian(PRECISIONS, axis=0).predictive(mixture.loc[:, :, :shortest])
    points = metrics.crps_points(whole, y[:, :shortest])
    torch.testing.assert_close(metrics.crps(whole, y[:, :shortest], each=1), points.mean((1, 2)))


@pytest.mark.parametrize("each", [-1, 3, 7])
def test_axes_that_are_not_there(predictions, each):
    mixture, _, y, _ = predictions
    with pytest.raises(InputError, match=rf"each must be 0 or 1 for scores of shape \(5, 25, 1\), got {each}"):
        metrics.crps(mixture, y, each=each)


def test_a_network_without_targets_has_no_score(predictions):
    mixture, _, y, _ = predictions
    y = y.clone()
    y[3] = math.nan
    for score in (metrics.crps, metrics.pll, metrics.rmse, metrics.coverage):
        with pytest.raises(InputError, match="y has no target to score: all are missing"):
            score(mixture, y, each=1)
        assert torch.isfinite(score(mixture, y))


def test_a_constant_variance_for_each_network_has_axes_of_its_own(predictions):
    mixture, _, y, _ = predictions
    with pytest.raises(InputError, match=r"variance has shape \(5,\), but the predictions have shape \(5, 25, 1\)"):
        metrics.normalised_crps(mixture, y, VARIANCES, each=1)
