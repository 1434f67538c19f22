"""Batch statistics beside the theory: what chance gives where the theory is right, and honesty where it is not."""

import math

import pytest
import torch
from torch import nn

from bayesnorm.network import collect_statistics, mini_batches
from bayesnorm.theory import Dependence, Normality, diagnose
from bayesnorm.theory.diagnose import SHUFFLES

from .diagnosed_networks import on_inputs, rows

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
    result = diagnose(on_inputs(50), (1.5 * rows(4000, 50)).exp(), 4, batches=100).at()
    for normality in (result.layers[0].mean, result.layers[0].std):
        assert normality.rejected > 0.9
        assert normality.fitted_rejected > 0.9


def test_drawing_without_replacement_shows():
    result = diagnose(on_inputs(100), rows(200, 100), (100,), batches=200).at(100)
    ratio = result.layers[0].mean.variance_ratio
    assert float(ratio.mean()) == pytest.approx(result.without_replacement, abs=4 * result.without_replacement * 0.01)
    assert result.layers[0].mean.rejected > 0.3


def test_independent_units_correlate_by_chance_only(gaussian):
    """Mean |r| of 800 statistics: its error is far below a hundredth of it."""
    assert gaussian.dependence.within == pytest.approx(gaussian.dependence.chance, rel=0.02)
    assert gaussian.dependence.off_diagonal == pytest.approx(gaussian.dependence.off_diagonal_chance, rel=0.02)
    assert math.isnan(gaussian.dependence.between), "there is one layer"
    assert abs(gaussian.variance_lost) < 0.2


def test_duplicated_units_are_found():
    x = rows(500, 1).expand(-1, 4).contiguous()
    result = diagnose(on_inputs(4), x, 16, batches=200).at()
    # Of 28 pairs, 12 (mean with mean, std with std) have |r| = 1; a mean and a std of a normal are independent.
    assert result.dependence.within == pytest.approx(12 / 28 + 16 / 28 * result.dependence.chance, abs=0.1)
    # Among 64 squares, 32 are 1.
    assert result.dependence.off_diagonal == pytest.approx(1 - 8 / 32, abs=0.05)
    assert result.dependence.off_diagonal_chance < 0.05


def test_what_chance_gives_on_average():
    """With six batches, formulas for large numbers would be off by a tenth; over 400 times the error is a percent."""
    every = [Dependence.from_parts([rows(6, 4, seed)]) for seed in range(400)]
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
    result = diagnose(model, x, 16, batches=batches, seed=2).at()
    means = collect_statistics(model, mini_batches(x, 16, batches, seed=2)).mean
    covariance = torch.cov(means.T)
    moved = a * covariance.diagonal().sqrt()
    expected = 1 - float(moved.square().sum() / (a @ covariance @ a))
    # Shuffled columns still correlate, with variance 1 / batches each time.
    pairs = torch.outer(moved, moved).tril(-1)
    error = 2 * float(pairs.square().sum().sqrt() / (a @ covariance @ a)) / (batches * SHUFFLES) ** 0.5
    assert expected > 0.3
    assert result.variance_lost == pytest.approx(expected, abs=3 * error)


def test_units_that_pull_against_each_other_gain_variance():
    x = rows(500, 1).expand(-1, 2) + 0.1 * rows(500, 2, 1)
    result = diagnose(on_inputs(2, torch.tensor([[1.0, -1.0]]), eps=1e12), x, 16, batches=100).at()
    assert result.variance_lost < -5
    assert "Sampling every statistic independently would add" in result.table()


def test_normality_of_any_values():
    values = rows(50, 3)
    values[:, 1] = 0.0
    result = Normality.test(values)
    assert result.fitted_p_value.isnan().tolist() == [False, True, False]
    assert float(result.p_value[1]) < 1e-6, "a constant is no standard normal"
