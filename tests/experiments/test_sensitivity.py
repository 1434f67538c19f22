"""Scores over batch sizes or samples: means and standard errors of runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from matplotlib.colors import to_hex

from bayesnorm.plots import style
from experiments.sensitivity import SensitivityCurve

RUNS = {"trained": {32: [1.0, 2.0, 6.0], 8: [4.0, 8.0]}, "effective": {8: [3.0], 16: [5.0, 5.0]}}
PLOT = SensitivityCurve.from_runs(
    RUNS, "batch size", "CRPS", reference={"trained": {8: 5.0}, "paper": {8: 1.0, 64: 2.0}}, baseline=0.5
)


def test_means_and_standard_errors():
    for name, by_place in RUNS.items():
        found = PLOT.series[name]
        places = sorted(by_place)
        np.testing.assert_array_equal(found.at, places)
        np.testing.assert_allclose(found.mean, [np.mean(by_place[place]) for place in places])
        for place, error, runs in zip(places, found.standard_error, found.runs, strict=True):
            assert runs == len(by_place[place])
            if runs > 1:
                assert error == pytest.approx(stats.sem(by_place[place]))
            else:
                assert np.isnan(error), "of one run nothing is known"


def test_everything_is_drawn_and_labelled():
    ax = PLOT.draw()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["8", "16", "32", "64"]
    assert ax.get_xscale() == "log"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(labels) == ["constant uncertainty", "effective", "paper", "trained", "trained, published"]
    lines = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(lines["paper"].get_xydata(), [[8, 1], [64, 2]])
    assert lines["paper"].get_markerfacecolor() == "none"
    assert to_hex(lines["trained, published"].get_markeredgecolor()) == style.BLUE.lower()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("batch size", "CRPS")
    bars = ax.containers[0].lines[2][0].get_segments()
    mean, error = PLOT.series["trained"].mean, PLOT.series["trained"].standard_error
    np.testing.assert_allclose([bar[:, 1] for bar in bars], np.stack([mean - error, mean + error], axis=1))
