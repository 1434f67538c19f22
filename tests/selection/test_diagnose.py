"""Batch statistics beside the theory: exact where the theory is, and honest where it is not."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from scipy import stats
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import InputError, NetworkError
from bayesnorm.network import collect_statistics, mini_batches
from bayesnorm.selection import Dependence, Normality, diagnose, diagnose_each
from bayesnorm.selection.diagnose import SHUFFLES, _WholePasses
from bayesnorm.training import train


def rows(n, columns, seed=0):
    return torch.randn(n, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def net():
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)
    ).double()


def on_inputs(columns, weight=None, eps=1e-5):
    """Batch norm of the inputs themselves, then their sum (or a weighted one)."""
    head = nn.Linear(columns, 1)
    nn.init.ones_(head.weight) if weight is None else head.weight.data.copy_(weight)
    return nn.Sequential(nn.BatchNorm1d(columns, eps=eps), head).double().eval()


M, S = 8, 24
"""64 rows in three passes of eight batches: theory's moments are exactly those of the rows."""


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return net()


@pytest.fixture(scope="module")
def found(small):
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


def test_values_are_standardised_by_the_central_limit_theorem(found, standardised):
    layer = found.layer("1")
    for values, normality in zip(standardised, (layer.mean, layer.std), strict=True):
        torch.testing.assert_close(normality.standardised, values)
        torch.testing.assert_close(normality.shift, values.mean(0))
        torch.testing.assert_close(normality.variance_ratio, values.var(0))


def test_the_test_is_scipys(found, standardised):
    layer = found.layer("1")
    for values, normality in zip(standardised, (layer.mean, layer.std), strict=True):
        for unit in range(5):
            expected = stats.kstest(values[:, unit].numpy(), "norm")
            assert float(normality.distance[unit]) == pytest.approx(expected.statistic)
            assert float(normality.p_value[unit]) == pytest.approx(expected.pvalue, rel=2e-3)
            sample = values[:, unit].numpy()
            fitted = stats.kstest((sample - sample.mean()) / sample.std(ddof=1), "norm")
            assert float(normality.fitted_distance[unit]) == pytest.approx(fitted.statistic)
            assert float(normality.fitted_p_value[unit]) < fitted.pvalue, "the classical one is too lenient"


def test_quantiles(found, standardised):
    theoretical, empirical = found.layer("1").mean.quantiles(2)
    expected = stats.norm.ppf([(i + 0.5) / S for i in range(S)])
    assert theoretical.tolist() == pytest.approx(expected.tolist())
    torch.testing.assert_close(empirical, standardised[0][:, 2].sort().values)
    _, fitted = found.layer("1").mean.quantiles(2, fitted=True)
    assert float(fitted.mean()) == pytest.approx(0, abs=1e-12)
    assert float(fitted.std()) == pytest.approx(1)


def test_correlations(found, small):
    batches = collect_statistics(small, mini_batches(rows(64, 3), M, S, seed=3))
    both = torch.cat([batches.mean, batches.var.sqrt()], dim=1)
    every = torch.corrcoef(both.T).abs()
    first, second = [*range(5), *range(9, 14)], [*range(5, 9), *range(14, 18)]
    own = every[first][:, first]
    assert float(found.dependence.layers[0, 0]) == pytest.approx(float((own.sum() - 10) / 90))
    assert float(found.dependence.layers[1, 0]) == pytest.approx(float(every[first][:, second].mean()))
    assert torch.equal(found.dependence.layers, found.dependence.layers.T)
    squares = every.square()
    assert found.dependence.off_diagonal == pytest.approx(float(1 - 18 / squares.sum()))
    assert found.dependence.between == float(found.dependence.layers[1, 0])
    assert found.dependence.within == pytest.approx(float(found.dependence.layers.diagonal().mean()))


def test_the_frame(found):
    assert (found.batch_size, found.rows, found.batches) == (8, 64, 24)
    assert [layer.name for layer in found.layers] == ["1", "4"]
    assert [layer.mean.units for layer in found.layers] == [5, 4]
    assert found.without_replacement == pytest.approx(56 / 63)


def test_passes_give_every_row_its_share_and_no_row_twice_in_a_batch():
    numbers = torch.arange(50.0)[:, None]
    for size, count in ((32, 40), (7, 3), (49, 25), (25, 4)):
        drawn = mini_batches(numbers, size, count, seed=1)
        batches = list(_WholePasses(drawn.source, size, count, 1).epoch())
        assert len(batches) >= max(count, 50 // size)
        assert all(len(batch.unique()) == size for batch in batches)
        often = torch.cat(batches).flatten().long().bincount(minlength=50)
        assert int(often.max() - often.min()) <= 1, "but for the end that fills no batch"


UNITS = 400


@pytest.fixture(scope="module")
def gaussian():
    """Units that are independent and normal by themselves: batch means are exactly normal."""
    return diagnose(on_inputs(UNITS), rows(6000, UNITS), 32, batches=100).at()


def within_chance(share, units=UNITS, errors=3.0):
    return abs(share - 0.05) <= errors * (0.05 * 0.95 / units) ** 0.5


def test_normal_statistics_are_rejected_as_often_as_chance_says(gaussian):
    layer = gaussian.layers[0]
    assert within_chance(layer.mean.rejected)
    assert within_chance(layer.mean.fitted_rejected)
    assert within_chance(layer.std.fitted_rejected), "the root of a chi-square of 31 is normal for these eyes"


def test_units_that_move_together_are_rejected_together():
    """Of independent units 9 % may be rejected by chance (two standard errors of 2.2 %); of copies, all or none."""
    independent, copies = Normality.of(rows(60, 100)), Normality.of(rows(60, 1).expand(-1, 100))
    for fitted in (False, True):
        assert independent.by_chance(fitted) == pytest.approx(0.09, abs=0.021)
        assert independent.by_chance(fitted) == independent.by_chance(fitted)
        assert copies.by_chance(fitted, repeats=50) in (0, 1)
    pairs = Normality.of(rows(60, 50).repeat(1, 2))
    assert 0.09 < pairs.by_chance() < 0.16, "50 units, each twice: 5 % and 1.6 standard errors of 3.1 %"


def test_later_layers_vary_less_than_theory_says():
    """After a layer that normalises by the batch, a ReLU's batch mean is half of the mean |z| of a batch whose
    mean square is 1: most of its variance over batches is gone."""
    model = nn.Sequential(nn.BatchNorm1d(30), nn.ReLU(), nn.BatchNorm1d(30), nn.Linear(30, 1)).double()
    size = diagnose(model, rows(4000, 30), 40, batches=200).at()
    first, second = size.layers
    assert float(first.mean.variance_ratio.mean()) == pytest.approx(1, abs=0.1)
    # For normal z: what z and z^2 leave of |z|, whose variance is 1 - 2/pi and whose covariance with z^2 (of variance
    # 2) is its mean sqrt(2/pi); a quarter of that, over the variance of max(z, 0).
    expected = (1 - 2 / math.pi - 1 / math.pi) / 4 / (1 / 2 - 1 / (2 * math.pi))
    assert float(second.mean.variance_ratio.mean()) == pytest.approx(expected, rel=0.1)
    assert second.mean.rejected == 1
    assert second.mean.fitted_rejected < 0.25


def test_theory_is_a_limit_and_its_known_bias_is_seen(gaussian):
    """A biased std_B lies below s by 3/4 s/M for normal units: 3/4 sqrt(2/M) of its own standard deviations."""
    expected = -0.75 * (2 / 32) ** 0.5
    error = 1.25 / (100 * UNITS) ** 0.5  # of the median over units of a mean over batches, at least
    assert float(gaussian.layers[0].std.shift.median()) == pytest.approx(expected, abs=5 * error)
    assert gaussian.layers[0].std.rejected > 0.1, "so that theory's normal is off, with its shape right"


def test_skewed_units_are_rejected():
    """Log-normal inputs in batches of four: the central limit is far away."""
    found = diagnose(on_inputs(50), (1.5 * rows(4000, 50)).exp(), 4, batches=100).at()
    for normality in (found.layers[0].mean, found.layers[0].std):
        assert normality.rejected > 0.9
        assert normality.fitted_rejected > 0.9


def test_drawing_without_replacement_shows():
    found = diagnose(on_inputs(100), rows(200, 100), (100,), batches=200).at(100)
    ratio = found.layers[0].mean.variance_ratio
    assert float(ratio.mean()) == pytest.approx(found.without_replacement, abs=4 * found.without_replacement * 0.01)
    assert found.layers[0].mean.rejected > 0.3


def test_independent_units_correlate_by_chance_only(gaussian):
    """Mean |r| of 800 statistics: its error is far below a hundredth of it."""
    assert gaussian.dependence.within == pytest.approx(gaussian.dependence.chance, rel=0.02)
    assert gaussian.dependence.off_diagonal == pytest.approx(gaussian.dependence.off_diagonal_chance, rel=0.02)
    assert math.isnan(gaussian.dependence.between), "there is one layer"
    assert abs(gaussian.variance_lost) < 0.2


def test_duplicated_units_are_found():
    x = rows(500, 1).expand(-1, 4).contiguous()
    found = diagnose(on_inputs(4), x, 16, batches=200).at()
    # Of 28 pairs, 12 (mean with mean, std with std) have |r| = 1; a mean and a std of a normal are independent.
    assert found.dependence.within == pytest.approx(12 / 28 + 16 / 28 * found.dependence.chance, abs=0.1)
    # Among 64 squares, 32 are 1.
    assert found.dependence.off_diagonal == pytest.approx(1 - 8 / 32, abs=0.05)
    assert found.dependence.off_diagonal_chance < 0.05


@pytest.mark.parametrize("batches", [20, 100])
def test_what_chance_gives(batches):
    found = Dependence.of([rows(batches, 150, 1), rows(batches, 150, 2)])
    for value in found.layers.flatten().tolist():
        assert value == pytest.approx(found.chance, rel=0.03)
    assert found.off_diagonal == pytest.approx(found.off_diagonal_chance, rel=0.02)


def test_what_chance_gives_on_average():
    """With six batches, formulas for large numbers would be off by a tenth; over 400 times the error is a percent."""
    every = [Dependence.of([rows(6, 4, seed)]) for seed in range(400)]
    assert sum(one.within for one in every) / 400 == pytest.approx(every[0].chance, rel=0.04)
    odds = [one.off_diagonal / (1 - one.off_diagonal) for one in every]
    chance = every[0].off_diagonal_chance
    assert sum(odds) / 400 == pytest.approx(chance / (1 - chance), rel=0.06)
    assert chance / (1 - chance) == pytest.approx(3 / 5), "three others, each of E r^2 = 1 / (6 - 1)"


def test_the_lost_variance_of_a_linear_network_has_a_closed_form():
    """With a huge eps the outputs are linear in the batch means: a' S a is lost but for its diagonal."""
    mixing = torch.tensor([[1.0, 0.8, 0.3], [0.0, 1.0, 0.5], [0.3, 0.0, 1.0]], dtype=torch.float64)
    a = torch.tensor([1.0, 2.0, 1.5], dtype=torch.float64)
    x, batches = rows(800, 3) @ mixing, 250
    model = on_inputs(3, a[None], eps=1e12)
    found = diagnose(model, x, 16, batches=batches, seed=2).at()
    means = collect_statistics(model, mini_batches(x, 16, batches, seed=2)).mean
    covariance = torch.cov(means.T)
    moved = a * covariance.diagonal().sqrt()
    expected = 1 - float(moved.square().sum() / (a @ covariance @ a))
    # Shuffled columns still correlate, with variance 1 / batches each time.
    pairs = torch.outer(moved, moved).tril(-1)
    error = 2 * float(pairs.square().sum().sqrt() / (a @ covariance @ a)) / (batches * SHUFFLES) ** 0.5
    assert expected > 0.3
    assert found.variance_lost == pytest.approx(expected, abs=3 * error)


@pytest.mark.parametrize(("copies", "lost"), [(1, 0.0), (2, 1 / 2), (4, 3 / 4)])
def test_k_copies_of_a_unit_lose_all_but_one_kth(copies, lost):
    x = rows(500, 1).expand(-1, copies).contiguous()
    found = diagnose(on_inputs(copies, eps=1e12), x, 16, batches=200).at()
    assert found.variance_lost == pytest.approx(lost, abs=0.05)


def test_units_that_pull_against_each_other_gain_variance():
    x = rows(500, 1).expand(-1, 2) + 0.1 * rows(500, 2, 1)
    found = diagnose(on_inputs(2, torch.tensor([[1.0, -1.0]]), eps=1e12), x, 16, batches=100).at()
    assert found.variance_lost < -5
    assert "Independent draws would add" in found.table()


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
    found = diagnose(model, rows(64, 3), 8, batches=20).at()
    first = found.layer("1")
    for normality in (first.mean, first.std):
        assert normality.units == 3
        for value in (normality.p_value, normality.fitted_p_value, normality.distance, normality.shift):
            assert value.isnan().tolist() == [False, True, False, True, False]
        assert 0 <= normality.rejected <= 1
    assert not found.dependence.layers.isnan().any()


def test_a_layer_that_never_varies_is_shown_as_such():
    model = net()
    model[0].weight.data.zero_()
    found = diagnose(model, rows(64, 3), 8, batches=20).at()
    assert found.layer("1").mean.units == 0
    assert math.isnan(found.layer("1").mean.rejected)
    assert math.isnan(found.variance_lost), "outputs do not vary either"
    assert "nan%" not in found.table().splitlines()[3]


def test_every_kind_of_network(task, snapshot):
    before = snapshot(task.model)
    found = diagnose(task.model, (task.x, task.y), [8, 16], batches=20)
    assert snapshot(task.model) == before
    assert [size.batch_size for size in found.sizes] == [8, 16]
    for size in found.sizes:
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

    found = diagnose(Two(), rows(64, 3), 8, batches=20, layers=1, output="f").at()
    assert [layer.name for layer in found.layers] == ["inner.4"]
    assert found.variance_lost < 1
    with pytest.raises(NetworkError, match=r"output: None was given"):
        diagnose(Two(), rows(64, 3), 8, batches=20)


def test_the_table():
    diagnosis = diagnose(net(), rows(64, 3), (8, 16), batches=20)
    text = str(diagnosis)
    assert text == diagnosis.table()
    lines = diagnosis.at(8).table().splitlines()
    assert lines[0] == "batch size 8: 20 batches out of 64 training rows"
    assert len(lines) == 3 + 4 + 5
    found = diagnosis.at(8).layer("4").std
    cells = lines[6].split()
    assert cells[:3] == ["4", "std", f"{found.rejected:.0%}"]
    assert float(cells[4]) == pytest.approx(float(found.distance.median()), abs=5e-4)
    assert max(map(len, text.splitlines())) <= 100
    assert "batch size 16" in text


def test_every_so_many_epochs():
    x, y = rows(64, 3), rows(64, 1, 1)
    watch = diagnose_each(x, 8, every=2, batches=20)
    train(net(), x, y, loss=nn.functional.mse_loss, epochs=5, batch_size=8, on_epoch=watch)
    assert list(watch.found) == [2, 4]
    assert watch.found[2].table() != watch.found[4].table()
    lines = [line.split() for line in str(watch).splitlines()[3:]]
    assert [line[:3] for line in lines] == [[epoch, "8", layer] for epoch in "24" for layer in "14"]
    last = watch.found[4].at().layer("4")
    shares = (last.mean.rejected, last.std.rejected, last.mean.fitted_rejected, last.std.fitted_rejected)
    assert lines[-1][3:] == [f"{share:.0%}" for share in shares]


def test_looking_on_does_not_change_training():
    x, y = rows(64, 3), rows(64, 1, 1)
    weights = []
    for watch in (None, diagnose_each(x, 8, batches=20)):
        torch.manual_seed(0)
        model = net()
        train(model, x, y, loss=nn.functional.mse_loss, epochs=2, batch_size=8, on_epoch=watch)
        weights.append(model.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


BAD = [
    ({"batch_sizes": 64}, InputError, r"batch_size: 64 of only 64 training rows"),
    ({"batch_sizes": (8, 1000)}, InputError, r"batch_size: 1000 of only 64"),
    ({"batch_sizes": 1}, bn.BayesNormError, r"batch_sizes: 1 was given; whole numbers of at least 2"),
    ({"batch_sizes": ()}, bn.BayesNormError, r"batch_sizes: \(\) was given"),
    ({"batch_sizes": (8, 2.5)}, bn.BayesNormError, r"batch_sizes: \(8, 2.5\) was given"),
    ({"batch_sizes": True}, bn.BayesNormError, r"batch_sizes: True was given"),
    ({"batch_sizes": "32"}, bn.BayesNormError, r"batch_sizes: '32' was given"),
    ({"batch_sizes": None}, bn.BayesNormError, r"batch_sizes: None was given"),
    ({"batches": 19}, bn.BayesNormError, r"batches: 19 was given; a whole number of at least 20"),
    ({"batches": 100.0}, bn.BayesNormError, r"batches: 100.0 was given"),
    ({"seed": -1}, bn.BayesNormError, r"seed: -1 was given"),
    ({"layers": "9"}, NetworkError, r"layers: '9' is not a batch-norm layer that runs"),
    ({"model": nn.Linear(3, 1)}, NetworkError, r"model: has no batch-norm layer"),
    ({"model": None}, NetworkError, r"model: NoneType was given"),
    ({"train_data": rows(64, 2)}, InputError, r"train_data: the network's forward failed"),
    ({"train_data": rows(64, 3) * math.nan}, InputError, r"train_data: holds .* NaN"),
    ({"train_data": {"x": 1}}, InputError, r"train_data: dict was given"),
]


@pytest.mark.parametrize(("change", "kind", "match"), BAD)
def test_bad_arguments(change, kind, match):
    options = {"model": net(), "train_data": rows(64, 3), "batch_sizes": 8, "batches": 20, **change}
    with pytest.raises(kind, match=match):
        diagnose(options.pop("model"), options.pop("train_data"), options.pop("batch_sizes"), **options)


@pytest.mark.parametrize("every", [0, 1.5, True, None])
def test_bad_epochs(every):
    with pytest.raises(bn.BayesNormError, match=r"every: .* at least 1, would work"):
        diagnose_each(rows(64, 3), 8, every=every)


def test_bad_arguments_are_told_before_training():
    with pytest.raises(bn.BayesNormError, match=r"batch_sizes: 1 was given"):
        diagnose_each(rows(64, 3), 1)
    with pytest.raises(bn.BayesNormError, match=r"batches: 3 was given"):
        diagnose_each(rows(64, 3), 8, batches=3)


def test_what_was_not_diagnosed_is_named():
    found = diagnose(net(), rows(64, 3), (8, 16), batches=20)
    with pytest.raises(bn.BayesNormError, match=r"batch_size: None was not diagnosed; 8, 16 would work"):
        found.at()
    with pytest.raises(bn.BayesNormError, match=r"batch_size: 32 was not diagnosed"):
        found.at(32)
    with pytest.raises(bn.BayesNormError, match=r"name: '2' was not diagnosed; '1', '4' would work"):
        found.at(8).layer("2")
    for unit in (-1, 5, 1.0, True):
        with pytest.raises(bn.BayesNormError, match=r"unit: .* 0 to 4 would work"):
            found.at(8).layer("1").mean.quantiles(unit)


def test_normality_of_any_values():
    values = rows(50, 3)
    values[:, 1] = 0.0
    found = Normality.of(values)
    assert found.fitted_p_value.isnan().tolist() == [False, True, False]
    assert float(found.p_value[1]) < 1e-6, "a constant is no standard normal"
