"""Statistics of classes, and adaptation to inputs whose class mix has changed."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.errors import BayesNormError, BayesNormWarning, InputError
from bayesnorm.posterior import ClassStatistics, class_statistics
from bayesnorm.shift.class_mix import NetworkLayers, estimate_shift
from bayesnorm_runtime import Validation, estimate_mix
from bayesnorm_runtime.expected_error import softened

from .conftest import CLASSES, FEATURES, clusters, network_and_posterior, shifted


def error(posterior: bn.posterior.Posterior, x: Tensor, y: Tensor) -> float:
    return float((posterior.predict(x).label != y).double().mean())


STREAMS = {"mixed": torch.arange(64) % CLASSES, "one class": torch.full((64,), 2), "two classes": torch.arange(64) % 2}


def test_class_statistics_are_the_moments_of_the_examples_that_the_network_puts_into_each_class():
    network, posterior = network_and_posterior()
    x = torch.cat(list(bn.network.mini_batches(clusters(torch.arange(2000) % CLASSES, 0), 32, 64, 0)))[:1024]
    with torch.no_grad():
        h, label = network[0](x), network(x).argmax(1)
    z = (h - network[1].running_mean) / (network[1].running_var + network[1].eps).sqrt()
    statistics = posterior.class_statistics
    a, b = statistics.rows.chunk(2, dim=1)
    for k in range(CLASSES):
        torch.testing.assert_close(a[k, :30], z[label == k].mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(b[k, :30], z[label == k].square().mean(0), rtol=1e-4, atol=1e-5)
    within = torch.stack([z[label == k].var(0, correction=0) * (label == k).float().mean() for k in range(CLASSES)])
    torch.testing.assert_close(statistics.within[0, :30], within.sum(0), rtol=1e-3, atol=1e-4)


def test_class_statistics_of_few_examples_count_each_once():
    network, _ = network_and_posterior()
    posterior = bn.MCBN(8, states=32).fit(network, clusters(torch.arange(101) % CLASSES, 0), bn.Categorical())
    assert posterior.class_statistics.counts.sum() == 101


def test_many_classes_are_kept_as_combinations_of_a_few_rows():
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(5, 20, (200,), generator=generator).double()
    moments = torch.randn(200, 10, generator=generator) @ torch.randn(10, 80, generator=generator)
    statistics = ClassStatistics.from_sums(counts, moments * counts[:, None], torch.ones(3, 40))
    assert statistics.rows.shape == (33, 80)
    torch.testing.assert_close(statistics.loadings @ statistics.rows, moments, rtol=1e-3, atol=1e-3)


def test_a_thousand_classes_take_bounded_memory(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1000, bias=False))
    nn.init.normal_(network[3].weight)
    x = torch.randn(3000, 8)
    posterior = bn.MCBN(32, states=64).fit(network.eval(), x, bn.Categorical())
    statistics = posterior.class_statistics
    assert statistics.classes == 1000
    assert int((statistics.counts > 0).sum()) > 100
    assert statistics.rows.shape == (33, 48)
    assert statistics.loadings.shape == (1000, 33)
    assert sum(tensor.numel() for tensor in statistics.tensors().values()) == 1000 + 33 * (1000 + 48) + 3 * 24
    adapted = bn.adapt(posterior, 0.5 * x[:64] + 2)
    assert adapted.decision
    adapted.save(tmp_path / "net.bayesnorm")
    assert bn.load(tmp_path / "net.bayesnorm", network).class_statistics.rows.shape == (33, 48)


def test_many_classes_leave_the_random_state_alone_and_give_the_same_numbers_again():
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 60)).eval()
    x = torch.randn(256, 3)
    before = torch.get_rng_state()
    first = bn.MCBN(32).fit(network, x, bn.Categorical()).class_statistics
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert torch.equal(bn.MCBN(32).fit(network, x, bn.Categorical()).class_statistics.rows, first.rows)


def test_statistics_that_no_file_could_hold_are_left_out(tmp_path):
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).eval()
    with torch.no_grad():
        network[0].weight.mul_(1e8)  # as in an untrained network: the running variances are still 1
    x = torch.randn(256, 3, generator=torch.Generator().manual_seed(0))
    posterior = bn.MCBN(32).fit(network, x, bn.Categorical())
    assert posterior.class_statistics is None
    posterior.save(tmp_path / "net.bayesnorm")
    loaded = bn.load(tmp_path / "net.bayesnorm", network)
    assert torch.equal(loaded.predict(x[:4]).probs, posterior.predict(x[:4]).probs)


def test_networks_with_too_many_numbers_for_all_classes_have_no_class_statistics(monkeypatch):
    network, _ = network_and_posterior()
    monkeypatch.setattr(class_statistics, "MOST_NUMBERS", 2 * CLASSES * 60 - 1)
    x = clusters(torch.arange(512) % CLASSES, 0)
    assert bn.MCBN(32, states=16).fit(network, x, bn.Categorical()).class_statistics is None
    monkeypatch.setattr(class_statistics, "MOST_NUMBERS", 2 * CLASSES * 60)
    assert bn.MCBN(32, states=16).fit(network, x, bn.Categorical()).class_statistics is not None


def test_what_a_mix_explains_is_the_mixtures_mean_and_variance():
    statistics = network_and_posterior()[1].class_statistics
    mix = np.array([0.5, 0.5, 0, 0, 0])
    explained = statistics.moments.explained(np.zeros(60), mix, (0.0, 0.0), 64)
    a, b = (
        0.5 * (half[0] + half[1]) for half in statistics.rows.double().numpy().reshape(CLASSES, 2, -1).swapaxes(0, 1)
    )
    np.testing.assert_allclose(explained.mean, a)
    np.testing.assert_allclose(explained.var, b - a * a)
    unsure = statistics.moments.explained(np.zeros(60), mix, (1.0, 0.1), 64)
    assert (unsure.mean_noise > explained.mean_noise).all()


@pytest.mark.parametrize("stream", STREAMS)
def test_unshifted_streams_are_left_alone_whatever_their_classes(stream):
    posterior, y = network_and_posterior()[1], STREAMS[stream]
    adapted = bn.adapt(posterior, clusters(y, 5))
    assert adapted.decision.startswith("Left as it was")
    assert torch.equal(adapted.location, posterior.location)


@pytest.mark.parametrize("stream", ["mixed", "two classes"])
def test_a_shift_is_removed_although_the_class_mix_differs(stream):
    posterior, y = network_and_posterior()[1], STREAMS[stream]
    x, x_new = shifted(clusters(y, 5)), shifted(clusters(y, 6))
    adapted = bn.adapt(posterior, x)
    assert adapted.decision.startswith("Adapted")
    assert error(adapted, x_new, y) < error(posterior, x_new, y)
    every = torch.arange(500) % CLASSES  # also of classes that the stream did not contain
    x_every = shifted(clusters(every, 8))
    assert error(adapted, x_every, every) < 0.1 < 0.3 < error(posterior, x_every, every)


def test_a_network_is_left_alone_if_adapted_predictions_would_be_less_confident():
    posterior, y = network_and_posterior()[1], torch.full((128,), 2)
    x = 0.7 * clusters(y, 5) + 0.5
    adapted, expected = bn.adapt(posterior, x), bn.drift(posterior, x).expected_error
    assert "less confident" in adapted.decision
    assert torch.equal(adapted.location, posterior.location)
    assert expected.before == expected.after
    assert expected.before.low < 0.3
    assert expected.before.high > 0.5


def test_the_adapted_network_is_the_one_whose_probabilities_were_judged():
    posterior, y = network_and_posterior()[1], STREAMS["two classes"]
    x = shifted(clusters(y, 5))
    shift = estimate_shift(posterior, x)
    network = bn.shift.adapted_network(bn.adapt(posterior, x)).eval()
    with torch.no_grad():
        np.testing.assert_allclose(network(x).softmax(1), shift.after, rtol=1e-4, atol=1e-5)


def test_parts_of_a_stream_are_used_together_and_saved(tmp_path):
    network, posterior = network_and_posterior()
    first, second = (shifted(clusters(torch.full((32,), k), 10 + k)) for k in (0, 3))
    once = bn.adapt(posterior, first)
    twice = bn.adapt(once, second)
    assert twice.adaptation.rows == 64
    every = torch.arange(500) % CLASSES
    assert error(twice, shifted(clusters(every, 8)), every) <= error(once, shifted(clusters(every, 8)), every)
    twice.save(tmp_path / "net.bayesnorm")
    loaded = bn.load(tmp_path / "net.bayesnorm", network)
    assert loaded.decision == twice.decision
    assert torch.equal(loaded.location, twice.location)
    assert torch.equal(bn.adapt(loaded, first).location, bn.adapt(twice, first).location)


def test_strength_overrides_the_decision():
    posterior, x = network_and_posterior()[1], clusters(STREAMS["mixed"], 5)
    assert not torch.equal(bn.adapt(posterior, x, strength=1.0).location, posterior.location)
    assert torch.equal(bn.adapt(posterior, shifted(x), strength=0.0).location, posterior.location)


@pytest.mark.parametrize("stream", ["mixed", "two classes"])
@pytest.mark.parametrize("change", [lambda x: x, shifted], ids=["same inputs", "shifted inputs"])
def test_drift_says_what_changed_and_how_wrong_the_network_is(stream, change):
    posterior, y = network_and_posterior()[1], STREAMS[stream].repeat(2)
    x = change(clusters(y, 5))
    result = bn.drift(posterior, x)
    causes = ["inputs"] * (change is shifted) + ["class mix"] * (stream != "mixed")
    assert result.cause == (" and ".join(causes) or None)
    assert str(result.expected_error) in result.summary()
    assert result.expected_error.before.value == pytest.approx(error(posterior, x, y), abs=0.17)
    assert result.expected_error.before.high - result.expected_error.before.low > 0.05
    after = result.expected_error.after
    assert after.low <= after.value <= after.high
    assert sum(result.class_mix) == pytest.approx(1)


def test_validation_data_give_the_usual_error_and_the_threshold_of_confidence():
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    validation = Validation.from_probabilities(probs, np.array([0, 0, 0, 1]), 2.0)
    assert validation.error == 0.25
    assert validation.estimated_error(probs) == 0.25
    assert validation.estimated_error(np.full((3, 2), 0.5)) == 1


def test_probabilities_are_softened_to_a_mean_confidence():
    probs = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).mul(3).softmax(1).double().numpy()
    assert float(softened(probs, 0.7).max(1).mean()) == pytest.approx(0.7, abs=1e-6)
    assert (softened(probs, 0.7).argmax(1) == probs.argmax(1)).all()


@pytest.mark.filterwarnings("ignore::bayesnorm.errors.BayesNormWarning")  # of the temperature
def test_calibrate_records_the_error_on_validation_data_which_drift_and_adapt_use(tmp_path):
    network, posterior = network_and_posterior()
    y = torch.arange(400) % CLASSES
    x = clusters(y, 20) + 1.2 * torch.randn(400, FEATURES, generator=torch.Generator().manual_seed(1))
    calibrated = bn.calibrate(posterior, x, y)
    with torch.no_grad():
        wrong = float((network(x).argmax(1) != y).double().mean())
    assert calibrated.validation.error == wrong
    assert calibrated.validation.rows == 400
    for batch_size in (False, True, [32.0]):
        record = bn.calibrate(posterior, x, y, batch_size=batch_size, samples=4).validation
        assert asdict(record) == pytest.approx(asdict(calibrated.validation), rel=1e-5)
    calibrated.save(tmp_path / "net.bayesnorm")
    assert bn.load(tmp_path / "net.bayesnorm", network).validation == calibrated.validation
    assert f"was {round(100 * wrong)} % on validation data" in bn.drift(calibrated, x).summary()
    members = bn.calibrate(bn.ensemble([posterior, posterior]), x, y)
    expected = bn.drift(members, x).expected_error
    assert expected.before.value == pytest.approx(wrong, abs=0.05)
    assert expected.usual == calibrated.validation.error
    assert bn.calibrate(bn.deterministic(network, bn.Categorical()), x, y).likelihood.temperature > 0


def test_an_observed_mix_counts_as_far_as_chance_cannot_explain_it():
    shares = np.full(4, 0.25)
    same, share = estimate_mix(np.tile(np.eye(4), (10, 1)), shares)
    assert share == 0
    assert (same == shares).all()
    one, share = estimate_mix(np.tile(np.eye(4)[:1], (40, 1)), shares)
    assert share == 1
    np.testing.assert_allclose(one, [1, 0, 0, 0], atol=1e-12)


def test_odd_inputs_are_refused_or_explained():
    posterior = network_and_posterior()[1]
    x = clusters(STREAMS["mixed"], 5)
    with pytest.raises(InputError, match="NaN"):
        bn.adapt(posterior, torch.where(torch.arange(FEATURES) == 0, torch.nan, x))
    for odd in (x[:1], x[:1].repeat(50, 1)):
        with pytest.warns(BayesNormWarning, match="one example|all the same"):
            adapted = bn.adapt(posterior, odd)
        assert adapted.decision
        assert bool(torch.isfinite(adapted.predict(x).probs).all())
    assert bool(torch.isfinite(bn.adapt(posterior, 1e6 * x).predict(x).probs).all())


def test_a_drift_adapts_without_running_the_network_again(monkeypatch):
    network, posterior = network_and_posterior()
    x = shifted(clusters(STREAMS["two classes"], 5))
    other = bn.GaussianBN(32, states=64).fit(network, clusters(torch.arange(2000) % CLASSES, 0), bn.Categorical())
    runs, run = [], NetworkLayers._probabilities
    monkeypatch.setattr(NetworkLayers, "_probabilities", lambda self, *args: runs.append(1) or run(self, *args))
    for chosen in (posterior, bn.ensemble([posterior, other])):
        expected = bn.adapt(chosen, x)
        result = bn.drift(chosen, x)
        assert result.expected_error.after.value < result.expected_error.before.value
        runs.clear()
        adapted = result.adapted()
        assert not runs
        for part, expected_part in zip(
            getattr(adapted, "members", [adapted]), getattr(expected, "members", [expected]), strict=True
        ):
            assert part.decision == expected_part.decision
            assert torch.equal(part.location, expected_part.location)
    # Earlier examples count too, so their shift is estimated together.
    once = bn.adapt(posterior, x)
    assert torch.equal(bn.drift(once, x[:32]).adapted().location, bn.adapt(once, x[:32]).location)
    with pytest.raises(BayesNormError, match="has no examples"):
        result.without_inputs().adapted()


def test_regression_has_no_classes():
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).eval()
    posterior = bn.MCBN(16, states=16).fit(network, x)
    assert posterior.class_statistics is None
    result = bn.drift(posterior, x[:40] + 3)
    assert result.expected_error is None
    assert result.class_mix is None
    assert result.cause is None
    assert "The error on these examples is not estimated" in result.summary()
    assert "not estimated" not in bn.drift(posterior, x[:40]).summary()
    assert torch.equal(result.adapted().location, bn.adapt(posterior, x[:40] + 3).location)


def test_layers_that_get_several_entries_of_an_example_leave_class_statistics_out():
    torch.manual_seed(0)
    tokens = nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(6), nn.Linear(6, 4), nn.Unflatten(0, (-1, 3)), nn.Flatten())
    posterior = bn.MCBN(8, states=16).fit(tokens.eval(), torch.randn(100, 3, 6), bn.Categorical())
    assert posterior.class_statistics is None
    assert bn.drift(posterior, torch.randn(20, 3, 6)).expected_error is None
    assert not bn.adapt(posterior, torch.randn(20, 3, 6)).decision


def test_the_monitor_estimates_the_error_when_it_raises_the_alarm_and_keeps_no_examples():
    monitor = bn.shift.DriftMonitor(network_and_posterior()[1])
    states = [monitor.update(shifted(clusters(torch.arange(64) % CLASSES, seed))) for seed in range(6)]
    first = next(number for number, state in enumerate(states) if state.alarm)
    assert states[first].drift.expected_error.before.value > 0.2
    assert "After adapting" in states[first].drift.summary()
    assert "Drift was detected (evidence" in states[first].summary()
    assert str(states[first].drift.expected_error) in states[first].summary()
    assert all(state.drift.estimate is None for state in states)
    assert all(state.drift.expected_error is None for number, state in enumerate(states) if number != first)
