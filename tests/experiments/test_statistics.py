"""Statistics that experiments share, and pictures of them: numbers first, then what is drawn."""

from __future__ import annotations

import math
import re
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import BayesNormError
from bayesnorm.plots import RetentionPlot
from bayesnorm.predictive import ClassificationPredictive
from bayesnorm.theory import Normality
from experiments import active_digits
from experiments.normality import normal_quantiles, rejected_by_chance, unit_quantiles
from experiments.plots import FunctionBands, SegmentationMaps, draw_grid, draw_maps
from experiments.quantile_plot import QQPlot
from experiments.rejections import RejectionPlot
from experiments.sensitivity import SensitivityCurve
from experiments.significance import significance, stars, t_test_p_value
from experiments.splits import paper_split

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")


def normal_rows(count, width, seed=0):
    return torch.randn(count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_quantiles():
    values = normal_rows(40, 3)
    expected = stats.norm.ppf([(i + 0.5) / 40 for i in range(40)])
    assert normal_quantiles(40).tolist() == pytest.approx(expected.tolist())
    torch.testing.assert_close(unit_quantiles(Normality.test(values), 2), values[:, 2].sort().values)
    fitted = unit_quantiles(Normality.test(values), 2, fitted=True)
    assert float(fitted.mean()) == pytest.approx(0, abs=1e-12)
    assert float(fitted.std()) == pytest.approx(1)


def test_units_that_move_together_are_rejected_together():
    """Of independent units 9 % may be rejected by chance (two standard errors of 2.2 %); of copies, all or none."""
    independent, copies = Normality.test(normal_rows(60, 100)), Normality.test(normal_rows(60, 1).expand(-1, 100))
    for fitted in (False, True):
        assert rejected_by_chance(independent, fitted) == pytest.approx(0.09, abs=0.021)
        assert rejected_by_chance(copies, fitted, repeats=50) in (0, 1)
    pairs = Normality.test(normal_rows(60, 50).repeat(1, 2))
    assert 0.09 < rejected_by_chance(pairs) < 0.16, "50 units, each twice: 5 % and 1.6 standard errors of 3.1 %"


# Teye et al. 2018: mean and standard error of normalised scores over 25 runs, p-value (tables 4, 5), stars (table 1).
PAPER = [
    (8.50, 0.86, 6.39e-10, "****"),
    (0.24, 0.05, 2.32e-04, "***"),
    (0.26, 0.07, 1.26e-03, "**"),
    (-56.39, 14.27, 5.94e-04, "***"),
    (0.93, 0.41, 3.13e-02, "*"),
    (1.37, 0.89, 1.38e-01, "ns"),
    (21.42, 2.99, 2.16e-07, "****"),
    (-36.36, 12.12, 6.19e-03, "**"),
    (1.68, 0.37, 1.29e-04, "***"),
    (-14.28, 5.15, 1.06e-02, "*"),
    (6.23, 0.19, 2.57e-21, "****"),
]


def runs(mean: float, standard_error: float, number: int = 25) -> list[float]:
    """Numbers with exactly that mean and standard error."""
    values = torch.linspace(-1, 1, number, dtype=torch.float64)
    return (mean + standard_error * math.sqrt(number) * values / values.std()).tolist()


def test_the_papers_table():
    for mean, standard_error, p_value, mark in PAPER:
        result = significance(runs(mean, standard_error))
        assert result.mean == pytest.approx(mean)
        assert result.standard_error == pytest.approx(standard_error)
        assert result.p_value == pytest.approx(stats.ttest_1samp(runs(mean, standard_error), 0).pvalue, rel=1e-9)
        assert stars(p_value) == mark
        # The table's mean and standard error are rounded to 0.005; the p-value must lie between what that allows.
        low, high = (
            t_test_p_value((abs(mean) + sign * 0.0051) / (standard_error - sign * 0.0051), 24) for sign in (1, -1)
        )
        assert low <= p_value <= high


def test_split_is_numpys_own_shuffle():
    for split in (1, 2, 3, 4, 5):
        for n_rows in (308, 506, 1599):
            state = np.random.get_state()  # noqa: NPY002
            try:
                np.random.seed(split)  # noqa: NPY002
                order = np.arange(n_rows)
                np.random.shuffle(order)  # noqa: NPY002
            finally:
                np.random.set_state(state)  # noqa: NPY002
            n_test = int(np.round(0.2 * n_rows))
            train, test = paper_split(n_rows, split)
            np.testing.assert_array_equal(test, order[:n_test])
            np.testing.assert_array_equal(train, order[n_test:])


def test_yacht_has_62_test_rows_and_the_split_is_a_partition():
    train, test = paper_split(308, 1)
    assert (len(train), len(test)) == (246, 62)
    assert sorted([*train, *test]) == list(range(308))
    # From np.random.seed(1); np.random.shuffle(np.arange(308)).
    assert test[:5].tolist() == [73, 304, 228, 238, 259]


RUNS = {"trained": {32: [1.0, 2.0, 6.0], 8: [4.0, 8.0]}, "effective": {8: [3.0], 16: [5.0, 5.0]}}
PLOT = SensitivityCurve.from_runs(
    RUNS, "batch size", "CRPS", reference={"trained": {8: 5.0}, "paper": {8: 1.0, 64: 2.0}}, baseline=0.5
)


def test_means_and_standard_errors():
    for name, by_place in RUNS.items():
        result = PLOT.series[name]
        places = sorted(by_place)
        np.testing.assert_array_equal(result.at, places)
        np.testing.assert_allclose(result.mean, [np.mean(by_place[place]) for place in places])
        for place, error, runs in zip(places, result.standard_error, result.runs, strict=True):
            assert runs == len(by_place[place])
            if runs > 1:
                assert error == pytest.approx(stats.sem(by_place[place]))
            else:
                assert np.isnan(error), "of one run nothing is known"


def test_shares_are_the_diagnosis(diagnosis, epochs):
    plot = RejectionPlot.over_batch_sizes(diagnosis, "std")
    assert plot.at == (8, 40)
    for layer in ("1", "4"):
        sizes = [diagnosis.at(size).layer(layer).std for size in (8, 40)]
        assert plot.theory[layer].tolist() == [result.rejected for result in sizes]
        assert plot.fitted[layer].tolist() == [result.fitted_rejected for result in sizes]
    plot = RejectionPlot.over_epochs(epochs, batch_size=40)
    assert plot.at == (1, 10)
    assert plot.theory["1"].tolist() == [diagnosis.at(40).layer("1").mean.rejected] * 2
    assert plot.title == "batch means, all units, M = 40"


def test_curves_are_the_units_quantiles(diagnosis):
    plot = QQPlot.of_units(diagnosis, "1", "std", batch_size=40, units=[3, 0])
    result = diagnosis.at(40).layer("1").std
    labels = [f"unit {unit}, p = {float(result.p_value[unit]):.2g}" for unit in (3, 0)]
    assert list(plot.curves) == labels
    theoretical, empirical = normal_quantiles(100), unit_quantiles(result, 3)
    np.testing.assert_array_equal(plot.theoretical, theoretical)
    np.testing.assert_array_equal(plot.curves[labels[0]], empirical)
    assert plot.others.shape == (100, 10)
    assert plot.title == "1: batch standard deviations, M = 40"


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("statistic", ["mean", "std"])
def test_a_curve_leaves_the_band_where_its_unit_is_rejected(diagnosis, statistic, fitted):
    outcomes = set()
    for size in (8, 40):
        for layer, units in (("1", 12), ("4", 6)):
            result = getattr(diagnosis.at(size).layer(layer), statistic)
            p_value = result.fitted_p_value if fitted else result.p_value
            for unit in range(units):
                plot = QQPlot.of_units(diagnosis, layer, statistic, batch_size=size, units=[unit], fitted=fitted)
                (curve,) = plot.curves.values()
                lower, upper = plot.band()
                outside = bool(((curve < lower - 1e-9) | (curve > upper + 1e-9)).any())
                assert outside == (float(p_value[unit]) < 0.05)
                outcomes.add(outside)
    assert outcomes == {True, False}, "else nothing was compared"


EXAMPLE = Path(__file__).parents[2] / "examples" / "thompson_sampling.py"


def test_areas_by_hand():
    ramp, flat = np.array([[0.0, 1.0, 1.0], [0.0, 0.5, 1.0]]), np.full((2, 3), 0.5)
    made = active_digits.LearningCurves(np.array([0, 10, 20]), {"random": flat, "x": ramp}, {"random": flat, "x": ramp})
    assert made.area("accuracy")["x"].tolist() == pytest.approx([0.75, 0.5])
    gain = made.against_random("accuracy")["x"]
    assert gain.mean == pytest.approx(0.125)
    assert gain.standard_error == pytest.approx(0.125)


def test_thompson_sampling(monkeypatch, capsys):
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 90
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--rounds", "240", "--seeds", "1"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    regret = dict(re.findall(r"^(\w+) .* (\d+) ± 0$", capsys.readouterr().out, re.MULTILINE))
    assert list(regret) == ["thompson", "epsilon_greedy", "greedy"]
    for name, wrong in regret.items():
        assert 0 < int(wrong) < 0.9 * 240 - 2 * (240 * 0.09) ** 0.5, f"{name} learns: fewer than by chance"


LOGITS = torch.randn(4, 1, 3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PREDICTIVE = ClassificationPredictive(LOGITS.log_softmax(2))
Y = PREDICTIVE.sample(1, seed=1)[0, 0]
Y[0, :3] = 7
IMAGE = torch.rand(3, 6, 8, generator=torch.Generator().manual_seed(0))


def test_methods_are_drawn_under_the_same_colours():
    sharp = ClassificationPredictive((3 * LOGITS).log_softmax(2))

    def both(predictive):
        return [
            SegmentationMaps.from_predictive(
                IMAGE, predictive, Y, uncertainty=uncertainty, classes=("sky", "road", "car"), ignore_index=7
            )
            for uncertainty in ("mutual_information", "expected_entropy")
        ]

    figure = draw_maps({"one": both(PREDICTIVE), "other": both(sharp)}, title="Both")
    shown = {}
    for ax in figure.axes:
        if "mean" in ax.get_title():
            shown.setdefault(ax.get_title().split(",")[0], []).append(ax.images[0].get_clim())
    assert {name: len(set(limits)) for name, limits in shown.items()} == {
        "mutual information": 1,
        "expected entropy": 1,
    }
    most = max(one.uncertainty.max() for one in (both(PREDICTIVE)[0], both(sharp)[0]))
    assert shown["mutual information"][0] == (0, pytest.approx(most))
    assert [ax.get_title() for ax in figure.axes[:2]] == ["image", "label"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["sky", "road", "car", "not labelled", "wrong"]
    errors = both(PREDICTIVE)[0]._panel("errors")
    wrong = (PREDICTIVE.label[0] != Y).numpy()
    assert (errors[0, :3] == errors[0, 0]).all(), "pixels without a class have one colour"
    assert len(np.unique(errors[1:][wrong[1:]], axis=0)) == 1
    assert len(np.unique(errors.reshape(-1, 3), axis=0)) == 3
    with pytest.raises(BayesNormError, match="maps must have at least one method"):
        draw_maps({})
    with pytest.raises(BayesNormError, match="the same quantities"):
        draw_maps({"one": both(PREDICTIVE), "other": both(sharp)[:1]})


@pytest.fixture
def line_posterior():
    model = nn.Sequential(nn.Linear(1, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).eval()
    x = torch.linspace(-1, 1, 40)[:, None]
    return bn.MCBN(batch_size=8, states=20).fit(model, x, bn.Gaussian(25.0))


GRID = np.linspace(-2, 2, 31)


def test_numbers_are_the_predictives(line_posterior):
    engine = bn.MonteCarlo(30)
    bands = FunctionBands.from_posterior(
        line_posterior, GRID, levels=(0.9, 0.3), engine=engine, seed=4, constant_std=0.5
    )
    predictive = line_posterior.predict(GRID[:, None], engine, seed=4)
    np.testing.assert_allclose(bands.x, GRID)
    np.testing.assert_allclose(bands.mean, predictive.mean.numpy()[:, 0])
    for level in (0.9, 0.3):
        for result, expected in zip(bands.bands[level], predictive.interval(level), strict=True):
            np.testing.assert_allclose(result, expected.numpy()[:, 0])
    assert bands.constant_std == 0.5
    assert (bands.bands[0.9][0] < bands.bands[0.3][0]).all()
    assert (bands.bands[0.9][1] > bands.bands[0.3][1]).all()


CURVES = {name: RetentionPlot.from_arrays([0.1, 0.2, 0.3], [0.5, 0.2, 0.9]) for name in "abcde"}


def test_panels_names_and_shared_words():
    figure = draw_grid(CURVES, columns=2, title="All of them")
    panels = figure.axes
    assert [ax.get_title() for ax in panels] == list("abcde")
    assert figure.get_suptitle() == "All of them"
    assert [bool(ax.get_ylabel()) for ax in panels] == [True, False, True, False, True]
    assert [bool(ax.get_xlabel()) for ax in panels] == [False, False, False, True, True], "the lowest of each column"
    assert all(ax.get_legend() is None for ax in panels)
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["dropped at random", "largest errors dropped first", "dropped by uncertainty"], "each once"
