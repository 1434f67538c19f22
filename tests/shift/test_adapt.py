"""Adapting: golden cases, what it keeps, and every way to use an adapted posterior."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn

import bayesnorm as bn
from bayesnorm.posterior import BatchNormPosterior
from bayesnorm_runtime.comparing import drift_probability

from .conftest import BATCH_SIZE, ROWS, fitted, fresh, network


def moved_rows(count: int, seed: int = 3) -> torch.Tensor:
    x = fresh(count, seed) * 1.7
    x[:, 0] += 2
    return x


def test_at_full_strength_a_batch_gives_the_network_that_normalises_by_it():
    posterior = bn.MCBN(BATCH_SIZE, states=64, center="batch").fit(network(), fresh(ROWS, 0), bn.Gaussian())
    x = moved_rows(BATCH_SIZE)
    trained = copy.deepcopy(network()).train()
    trained[9].eval()  # dropout
    with torch.no_grad():
        expected = trained(x)
        result = bn.adapted_network(bn.adapt(posterior, x, strength=1.0))(x)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strength", [0.0, None])
def test_no_strength_or_rows_like_those_of_training_change_nothing(strength):
    adapted = bn.adapt(fitted(), fresh(64, 11), strength=strength)
    scale = adapted.training_batches.variance.sqrt()
    assert float((adapted.moved / scale).abs().max()) < (1e-12 if strength == 0 else 0.2)
    if strength == 0:
        x = fresh(5, 0)
        assert torch.equal(adapted.predict(x).variance, fitted().predict(x).variance)


def test_a_drifted_network_comes_back_to_what_it_was_on_clean_rows():
    # Columns that are measured in other units: statistics make up for it, all but wholly.
    clean, model = fresh(512, 12), network()
    with torch.no_grad():
        expected = model(clean)
        lost = (model(clean * 2 + 1) - expected).square().mean()
        adapted = bn.adapted_network(bn.adapt(fitted(), clean[:128] * 2 + 1))
        left = (adapted(clean * 2 + 1) - expected).square().mean()
    assert left < 0.05 * lost


def test_two_parts_are_as_their_union_and_the_order_does_not_matter():
    x, posterior = moved_rows(96), fitted()
    whole = bn.adapt(posterior, x)
    parts = bn.adapt(bn.adapt(posterior, x[:32]), x[32:])
    turned = bn.adapt(bn.adapt(posterior, x[32:]), x[:32])
    assert parts.adaptation.rows == whole.adaptation.rows == 96
    torch.testing.assert_close(parts.moved, whole.moved, rtol=1e-4, atol=1e-5)  # groups of 16 either way
    torch.testing.assert_close(turned.moved, whole.moved, rtol=1e-4, atol=1e-5)
    odd = bn.adapt(bn.adapt(posterior, x[:45]), x[45:])
    assert float((odd.moved - whole.moved).norm() / whole.moved.norm()) < 0.05
    assert parts.original is posterior


def test_it_shows_how_far_each_layer_moved():
    x = fresh(256, 3) * 2  # which a linear layer without bias doubles
    first, *others = bn.adapt(fitted(), x, strength=1.0).moves
    assert [first.name, *(layer.name for layer in others)] == ["1", "4", "7"]
    assert first.strength == (1, 1)
    assert first.spread_ratio == pytest.approx(2, rel=0.1)
    assert all(layer.spread_ratio == pytest.approx(1, abs=0.15) for layer in others)
    still = bn.adapt(fitted(), x, strength=0.0).moves
    assert all(layer.mean_shift == 0 and layer.spread_ratio == 1 for layer in still)


def test_few_rows_leave_more_uncertainty_than_many():
    x = moved_rows(256)
    few, many = bn.adapt(fitted(), x[:8]), bn.adapt(fitted(), x)
    spread = [posterior.fluctuations.deviations.square().mean() for posterior in (many, few)]
    assert fitted().fluctuations.deviations.square().mean() < spread[0] < spread[1]
    expected = fitted().training_batches.parts.spread(few.adaptation.strength) * few.adaptation.noise
    exact = few.training_batches.variance.double() + expected
    ratio = few.fluctuations.deviations.double().square().sum(0) / (len(few.fluctuations.deviations) - 1) / exact
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("method", "options"), [(bn.MCBN, {}), (bn.StochasticBN, {}), (bn.GaussianBN, {}), (bn.GaussianBN, {"rank": 8})]
)
def test_every_engine_file_and_change_takes_an_adapted_posterior(method, options, tmp_path, snapshot):
    x, new = moved_rows(48), moved_rows(6, seed=5)
    seen = snapshot(network())
    adapted = bn.adapt(fitted(method, **options), x)
    for engine in (bn.MonteCarlo(32), bn.Delta(), bn.SigmaPoints(4)):
        assert torch.isfinite(adapted.predict(new, engine).variance).all()
    changed = adapted.at_layers(1).at_batch_size(40).with_likelihood(bn.Gaussian(4.0))
    for posterior in (adapted, changed):
        posterior.save(tmp_path / "posterior")
        loaded = bn.load(tmp_path / "posterior", network())
        assert torch.equal(loaded.predict(new).variance, posterior.predict(new).variance)
        assert bn.drift(loaded, x).p_value == bn.drift(posterior, x).p_value
        assert type(loaded.original) is BatchNormPosterior
    assert changed.batch_size == changed.original.batch_size == 40
    assert snapshot(network()) == seen
    # The other layers stay where they were moved to: at the location, whatever is drawn.
    state = changed.sample(3)
    torch.testing.assert_close(state["1.running_mean"][0], state["1.running_mean"][2])
    assert not torch.equal(state["7.running_mean"][0], state["7.running_mean"][2])
    torch.testing.assert_close(state["1.running_mean"][0], adapted.state(adapted.location)["1.running_mean"])


def test_it_is_calibrated_and_compared_with_where_it_was_moved_to():
    x = moved_rows(512)
    adapted = bn.adapt(fitted(), x[:128])
    assert bn.drift(fitted(), x[128:]).p_value < 1e-6
    assert bn.drift(adapted, x[128:192]).p_value > 1e-3
    assert bn.drift(adapted, fresh(64, 2)).p_value < 1e-3
    with torch.no_grad():
        y = network()(x) + 0.1 * torch.randn(len(x), 1)
    assert bn.calibrate(adapted, x[128:], y[128:]).original is not None


def test_parts_and_members_move_each():
    x = moved_rows(32)
    dropout = bn.MCDropout().fit(network(), None, bn.Gaussian())
    combined = bn.adapt(bn.combine(fitted(), dropout), x)
    expected = bn.adapt(fitted(), x)
    torch.testing.assert_close(combined.parts[0].moved, expected.moved)
    assert combined.parts[1] is dropout
    ensemble = bn.adapt(bn.ensemble([fitted(), fitted(bn.StochasticBN)], bn.Gaussian()), x)
    torch.testing.assert_close(ensemble.members[0].moved, expected.moved)
    assert torch.isfinite(ensemble.predict(x).variance).all()
    with pytest.raises(bn.BayesNormError, match=r"has 2 networks"):
        bn.adapted_network(ensemble)


def test_odd_rows_are_warned_of_and_wrong_arguments_refused():
    with pytest.warns(bn.BayesNormWarning, match=r"x has only one example.*at least eight different examples"):
        bn.adapt(fitted(), fresh(1, 0))
    with pytest.warns(bn.BayesNormWarning, match=r"x has 9 examples that are all the same"):
        bn.adapt(fitted(), fresh(1, 0).expand(9, -1))
    with pytest.raises(bn.BayesNormError, match=r"not a posterior over batch statistics"):
        bn.adapt(bn.deterministic(network(), bn.Gaussian()), fresh(4, 0))


@pytest.mark.parametrize("channels", [3.0, 40.0])
@pytest.mark.parametrize("distance", [0.7, 1.0, 1.6, 4.0])
def test_the_probability_of_a_drift_is_the_integral_over_its_scale(channels, distance):
    def density(u: float) -> float:
        return u ** (channels / 2) * np.exp(-u * channels * distance / 2 + channels / 2)

    average = integrate.quad(density, 0, 1)[0]
    assert drift_probability(distance, channels) == pytest.approx(average / (average + density(1)), rel=1e-6)


def test_the_probability_of_a_drift_has_no_bounds_of_size():
    assert drift_probability(1e9, 1e6) == 1
    assert 0 <= drift_probability(1e-9, 1e6) < 1e-3
    results = [drift_probability(distance, 100.0) for distance in (0.5, 1, 1.5, 2, 5, 50)]
    assert results == sorted(results)


def test_images_adapt_by_their_channels(snapshot):
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(100, 1))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 2, 5, 5, generator=generator)
    posterior = bn.MCBN(16, states=64).fit(model.eval(), x)
    seen = snapshot(model)
    with pytest.warns(bn.BayesNormWarning, match="only one example"):
        adapted = bn.adapt(posterior, 3 * x[:1])
    assert snapshot(model) == seen
    assert float(adapted.adaptation.strength[1]) > 0.5  # one image has pixels enough for a variance
    assert torch.isfinite(adapted.predict(x[:4]).variance).all()
