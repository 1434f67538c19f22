"""Batch statistics beside the theory's moments, by hand; networks of every kind, tables, and what is refused."""

import math
import sys

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import InputError, NetworkError
from bayesnorm.network import collect_statistics, mini_batches
from bayesnorm.theory import diagnose
from bayesnorm.theory.diagnose import _WholePasses

from .diagnosed_networks import net, rows

M, S = 8, 24
"""64 rows in three passes of eight batches: theory's moments are exactly those of the rows."""


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return net()


@pytest.fixture(scope="module")
def diagnosis(small):
    return diagnose(small, rows(64, 3), M, batches=S, seed=3).at()


@pytest.fixture(scope="module")
def standardised(small):
    """Means and standard deviations of the first layer, by the formulas of the paper's appendix."""
    with torch.no_grad():
        h = small[0](rows(64, 3))
    mu, deviation = h.mean(0), h - h.mean(0)
    sigma, fourth = deviation.square().mean(0).sqrt(), deviation.pow(4).mean(0)
    batches = collect_statistics(small, mini_batches(rows(64, 3), M, S, seed=3))
    mean = (batches.mean[:, :5] - mu) / (sigma / M**0.5)
    std = (batches.var[:, :5].sqrt() - sigma) / ((fourth - sigma**4) / (4 * sigma**2 * M)).sqrt()
    return mean, std


def test_values_are_standardised_by_the_central_limit_theorem(diagnosis, standardised):
    layer = diagnosis.layer("1")
    for values, normality in zip(standardised, (layer.mean, layer.std), strict=True):
        torch.testing.assert_close(normality.standardised, values)
        torch.testing.assert_close(normality.shift, values.mean(0))
        torch.testing.assert_close(normality.variance_ratio, values.var(0))


def test_correlations(diagnosis, small):
    batches = collect_statistics(small, mini_batches(rows(64, 3), M, S, seed=3))
    both = torch.cat([batches.mean, batches.var.sqrt()], dim=1)
    every = torch.corrcoef(both.T).abs()
    first, second = [*range(5), *range(9, 14)], [*range(5, 9), *range(14, 18)]
    columns = every[first][:, first]
    assert float(diagnosis.dependence.layers[0, 0]) == pytest.approx(float((columns.sum() - 10) / 90))
    assert float(diagnosis.dependence.layers[1, 0]) == pytest.approx(float(every[first][:, second].mean()))
    assert torch.equal(diagnosis.dependence.layers, diagnosis.dependence.layers.T)
    squares = every.square()
    assert diagnosis.dependence.off_diagonal == pytest.approx(float(1 - 18 / squares.sum()))
    assert diagnosis.dependence.between == float(diagnosis.dependence.layers[1, 0])
    assert diagnosis.dependence.within == pytest.approx(float(diagnosis.dependence.layers.diagonal().mean()))


def test_the_frame(diagnosis):
    assert (diagnosis.batch_size, diagnosis.rows, diagnosis.batches) == (8, 64, 24)
    assert [layer.name for layer in diagnosis.layers] == ["1", "4"]
    assert [layer.mean.units for layer in diagnosis.layers] == [5, 4]
    assert diagnosis.without_replacement == pytest.approx(56 / 63)


def test_passes_give_every_row_its_share_and_no_row_twice_in_a_batch():
    numbers = torch.arange(50.0)[:, None]
    for size, count in ((32, 40), (7, 3), (49, 25), (25, 4)):
        drawn = mini_batches(numbers, size, count, seed=1)
        batches = list(_WholePasses(drawn.source, size, count, 1).epoch())
        assert len(batches) >= max(count, 50 // size)
        assert all(len(batch.unique()) == size for batch in batches)
        often = torch.cat(batches).flatten().long().bincount(minlength=50)
        assert int(often.max() - often.min()) <= 1, "but for the end that fills no batch"


def test_outputs_in_parts_have_the_same_variance(monkeypatch):
    model = net()
    whole = diagnose(model, rows(64, 3), 8, batches=20).at().variance_lost
    monkeypatch.setattr(sys.modules[diagnose.__module__], "OUTPUT_ELEMENTS", 3 * 16)
    assert diagnose(model, rows(64, 3), 8, batches=20).at().variance_lost == pytest.approx(whole, rel=1e-9)


def test_units_that_never_vary_count_nowhere():
    model = net()
    model[0].weight.data[1] = 0  # h is the bias, in every row
    model[0].weight.data[3] = 0
    model[0].bias.data[3] = 0
    result = diagnose(model, rows(64, 3), 8, batches=20).at()
    first = result.layer("1")
    for normality in (first.mean, first.std):
        assert normality.units == 3
        for value in (normality.p_value, normality.fitted_p_value, normality.distance, normality.shift):
            assert value.isnan().tolist() == [False, True, False, True, False]
        assert 0 <= normality.rejected <= 1
    assert not result.dependence.layers.isnan().any()


def test_a_layer_that_never_varies_is_shown_as_such():
    model = net()
    model[0].weight.data.zero_()
    result = diagnose(model, rows(64, 3), 8, batches=20).at()
    assert result.layer("1").mean.units == 0
    assert math.isnan(result.layer("1").mean.rejected)
    assert math.isnan(result.variance_lost), "outputs do not vary either"
    assert "nan%" not in result.table().splitlines()[3]


def test_every_kind_of_network(task, snapshot):
    before = snapshot(task.model)
    diagnosis = diagnose(task.model, (task.x, task.y), [8, 16], batches=20)
    assert snapshot(task.model) == before
    assert [size.batch_size for size in diagnosis.sizes] == [8, 16]
    for size in diagnosis.sizes:
        assert len(size.layers) == 2
        assert size.dependence.layers.shape == (2, 2)
        assert -1 < size.variance_lost < 1
        for layer in size.layers:
            assert layer.mean.standardised.shape == layer.std.standardised.shape
            assert not layer.mean.p_value.isnan().any()


def test_a_network_in_training_stays_as_it_is_and_global_randomness_too(snapshot):
    model = net().train()
    before, state = snapshot(model), torch.get_rng_state()
    diagnose(model, rows(64, 3), 8, batches=20)
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_forward_that_fails_leaves_no_trace(snapshot, calls):
    model = net()
    calls.watch(model[4])
    for limit in (1, 5, 30, 50):  # the last while outputs are looked at
        calls.reset(limit)
        before = snapshot(model)
        with pytest.raises((InputError, calls.Boom)):
            diagnose(model, rows(64, 3), 8, batches=20)
        assert snapshot(model) == before


def test_same_seed_same_numbers():
    model = net()
    first, again, other = (diagnose(model, rows(64, 3), 8, batches=20, seed=seed).at() for seed in (4, 4, 5))
    assert first.table() == again.table()
    assert torch.equal(first.layers[1].std.standardised, again.layers[1].std.standardised)
    assert first.table() != other.table()


def test_layers_and_outputs_are_chosen():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            return {"f": self.inner(x), "x": x}

    result = diagnose(Two(), rows(64, 3), 8, batches=20, layers=1, output="f").at()
    assert [layer.name for layer in result.layers] == ["inner.4"]
    assert result.variance_lost < 1
    with pytest.raises(NetworkError, match=r"output=None, but the network returns dict"):
        diagnose(Two(), rows(64, 3), 8, batches=20)


def test_the_table():
    diagnosis = diagnose(net(), rows(64, 3), (8, 16), batches=20)
    text = str(diagnosis)
    assert text == diagnosis.table()
    lines = diagnosis.at(8).table().splitlines()
    assert lines[0] == "Batch size 8: 20 batches from 64 training examples"
    assert len(lines) == 3 + 4 + 5
    result = diagnosis.at(8).layer("4").std
    cells = lines[6].split()
    assert cells[:3] == ["4", "std", f"{result.rejected:.0%}"]
    assert float(cells[4]) == pytest.approx(float(result.distance.median()), abs=5e-4)
    assert max(map(len, text.splitlines())) <= 100
    assert "Batch size 16" in text


BAD = [
    ({"batch_sizes": 64}, InputError, r"batch_size=64, but train_data has only 64"),
    ({"batch_sizes": ()}, bn.BayesNormError, r"batch_sizes must be .* got \(\)"),
    ({"layers": "9"}, NetworkError, r"layers.*'9'"),
    ({"model": nn.Linear(3, 1)}, NetworkError, r"model.* has no batch-norm layer"),
    ({"train_data": rows(64, 2)}, InputError, r"train_data.*the network's forward .*failed"),
    ({"train_data": rows(64, 3) * math.nan}, InputError, r"train_data has .* NaN"),
]


def test_bad_arguments():
    for change, kind, match in BAD:
        options = {"model": net(), "train_data": rows(64, 3), "batch_sizes": 8, "batches": 20, **change}
        with pytest.raises(kind, match=match):
            diagnose(options.pop("model"), options.pop("train_data"), options.pop("batch_sizes"), **options)


def test_what_was_not_diagnosed_is_named():
    diagnosis = diagnose(net(), rows(64, 3), (8, 16), batches=20)
    with pytest.raises(bn.BayesNormError, match=r"batch_size must be a diagnosed batch size \(8, 16\), got None"):
        diagnosis.at()
    with pytest.raises(bn.BayesNormError, match=r"batch_size must be a diagnosed batch size .* got 32"):
        diagnosis.at(32)
    with pytest.raises(bn.BayesNormError, match=r"name must be a diagnosed layer \('1', '4'\), got '2'"):
        diagnosis.at(8).layer("2")
