"""Scores over batch sizes or samples: means and standard errors of runs."""

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")

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
