"""Choosing layers within a budget; costs are given, not measured, so that the choice is the same on every machine."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.calibration import late_layers as module
from bayesnorm.calibration.late_layers import prediction_cost
from bayesnorm.calibration.sampled_outputs import mean_score

COST = {1: 1.2, 2: 1.8, 4: 3.0, 5: 9.0}


def rows(n, seed=0):
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def posterior():
    parts = [part for _ in range(5) for part in (nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh())]
    model = nn.Sequential(*parts, nn.Linear(3, 1)).double().eval()
    return bn.MCBN(batch_size=8, states=20).fit(model, rows(80), bn.Gaussian(20.0))


@pytest.fixture
def data(posterior):
    x = rows(40, seed=1)
    return x, posterior.executable.point(x) + 0.3 * torch.randn(40, 1, dtype=torch.float64)


@pytest.fixture
def timed(monkeypatch):
    """Costs by number of layers; gives the list of those that were timed."""
    seen = []

    def cost(posterior, x, samples):
        seen.append((len(posterior.layers), len(x), samples))
        return COST[len(posterior.layers)]

    monkeypatch.setattr(module, "prediction_cost", cost)
    return seen


@pytest.mark.parametrize(("budget", "affordable"), [(1.5, [1]), (3.0, [1, 2, 4])])
def test_the_best_score_within_the_budget(posterior, data, timed, budget, affordable):
    suggestion = bn.suggest_layers(posterior, *data, budget=budget, samples=8)
    within = [option for option in suggestion.options if option.cost <= budget]
    assert [option.layers for option in within] == affordable
    assert suggestion.best.score == min(option.score for option in within)
    assert suggestion.best in within
    assert suggestion.posterior is suggestion.best.posterior
    assert len(suggestion.posterior.layers) == suggestion.best.layers


def test_every_option_is_listed_with_its_score_and_cost(posterior, data, timed):
    suggestion = bn.suggest_layers(posterior, *data, budget=100, samples=8, seed=3)
    assert [(option.layers, option.cost) for option in suggestion.options] == list(COST.items())
    assert timed == [(count, 40, 8) for count in COST]
    for option in suggestion.options:
        names = [layer.name for layer in option.posterior.layers]
        assert names == [layer.name for layer in posterior.layers][-option.layers :]
        assert option.score == mean_score(option.posterior, *data, samples=8, seed=3)
        start = mean_score(posterior.at_layers(option.layers), *data, samples=8, seed=3)
        assert option.score <= start
        assert option.posterior.likelihood == posterior.likelihood, "noise=False leaves the noise alone"


def test_the_noise_is_chosen_on_request(posterior, data, timed):
    suggestion = bn.suggest_layers(posterior, *data, budget=1.5, samples=8, noise=True, score="pll")
    assert suggestion.posterior.likelihood != posterior.likelihood


def test_a_classifier_gets_temperatures_and_temperature_scaling_is_an_option(timed):
    parts = [part for _ in range(2) for part in (nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh())]
    model = nn.Sequential(*parts, nn.Linear(3, 3)).double().eval()
    posterior = bn.MCBN(batch_size=4, states=20).fit(model, rows(80), bn.Categorical())
    x = rows(400, seed=1)
    odds = torch.softmax(8 * posterior.executable.point(x), -1)
    y = torch.multinomial(odds, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    suggestion = bn.suggest_layers(posterior, x, y, budget=2, samples=8)
    assert [option.layers for option in suggestion.options] == [0, 1, 2]
    alone = bn.calibrate(bn.deterministic(model, bn.Categorical()), x, y)
    assert suggestion.options[0].posterior.likelihood == alone.likelihood
    assert suggestion.options[0].score == mean_score(alone, x, y, samples=1)
    assert all(option.posterior.likelihood.temperature != 1 for option in suggestion.options)
    assert suggestion.best.layers == 0, (
        "the network is right but for a temperature, and chance is no evidence against that"
    )
    named = (
        "temperature scaling alone"
        if suggestion.best.layers == 0
        else f"last {suggestion.best.layers} batch-norm layers"
    )
    assert named in str(suggestion)
    cheap = bn.suggest_layers(posterior, x, y, budget=1.1, samples=8)
    assert cheap.best.layers == 0, "no sampled layer is within the budget"


def test_layers_that_cost_far_too_much_end_the_search(posterior, data, timed):
    suggestion = bn.suggest_layers(posterior, *data, budget=1.25, samples=4)
    assert [option.layers for option in suggestion.options] == [1, 2], (
        "4 layers cost over twice the budget: neither they nor 5 are calibrated"
    )


def test_too_small_a_budget_names_the_cheapest(posterior, data, timed):
    with pytest.raises(bn.BayesNormError, match=r"at most 1.1 times .* samples=8; the cheapest costs 1.20 times"):
        bn.suggest_layers(posterior, *data, budget=1.1, samples=8)


def test_a_posterior_without_layers_is_refused(data):
    with pytest.raises(bn.BayesNormError, match=r"posterior must be over batch-norm statistics, .* got dict"):
        bn.suggest_layers({}, *data)


def test_costs_are_measured_in_deterministic_passes(posterior, monkeypatch):
    """A clock that each pass moves on: 2 units for the deterministic one, 7 for the samples."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    executable = posterior.executable
    point, run = executable.point, executable.run

    def tick(by, call, *args, **options):
        clock[0] += by
        return call(*args, **options)

    monkeypatch.setattr(executable, "point", lambda x: tick(2, point, x))
    monkeypatch.setattr(executable, "run", lambda *a, **k: tick(7, run, *a, **k))
    assert prediction_cost(posterior, rows(4), samples=3) == 3.5


def test_layers_that_are_significantly_better_than_a_temperature_are_chosen(timed):
    """Every label comes from its own sample of the last layer, with much variation."""
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double().eval()
    for seed, parameter in enumerate(model.parameters()):
        parameter.data = 1.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)).double()
    posterior = bn.MCBN(batch_size=4, states=64).fit(model, rows(400), bn.Categorical()).at_batch_size(1)
    x = rows(640, seed=1)
    f = torch.cat([bn.MonteCarlo(64).outputs(posterior, x[k : k + 64], seed=k) for k in range(0, 640, 64)], 1)
    odds = torch.softmax(3 * f[torch.arange(640) % 64, torch.arange(640)], -1)
    y = torch.multinomial(odds, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    suggestion = bn.suggest_layers(posterior, x, y, budget=2)
    assert suggestion.best.layers == 1
    assert suggestion.best.score < suggestion.options[0].score
