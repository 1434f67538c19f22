"""The claims of the four pictures, on small sizes."""

from __future__ import annotations

import pytest

from experiments.data import DataNotFoundError, find
from experiments.kendall_uncertainty import posteriors
from experiments.kendall_uncertainty.gap import measure_gap
from experiments.kendall_uncertainty.medians import measure_shift, measure_sizes
from experiments.kendall_uncertainty.posteriors import SETS
from experiments.kendall_uncertainty.retention import measure_retention

from ..marks import takes_long

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")


@pytest.fixture(scope="module")
def gap():
    return measure_gap(steps=600, rows=400)


@pytest.fixture
def _real_data():
    try:
        for name in SETS:
            find(f"uci/{name}.npz")
    except DataNotFoundError as error:
        pytest.skip(f"needs real data: {error}")


@takes_long
def test_aleatoric_follows_the_noise(gap):
    for name in gap.aleatoric:
        assert gap.follows_noise(name) > 0.7, name


@takes_long
def test_epistemic_follows_the_gap(gap):
    for name in ("MCBN", "5 networks"):
        assert gap.gap_ratio(name) > 1.3, name


@takes_long
def test_the_picture_of_the_gap(gap):
    assert len(gap.draw().get_figure().axes) == 2
    assert len(gap.table().splitlines()) == 1 + len(gap.epistemic)


@pytest.mark.usefixtures("_real_data")
def test_another_distribution_raises_epistemic_uncertainty_more_than_noise():
    found = measure_shift(seeds=1, steps=60, most=800)
    least = {("power", "MCBN"): 1.0, ("power", "5 networks"): 1.2, ("protein", "5 networks"): 1.2}
    for (dataset, name), ratio in least.items():
        epistemic, aleatoric = (found.ratio(dataset, name, part) for part in (0, 1))
        assert epistemic > ratio, (dataset, name)
        assert epistemic > aleatoric, (dataset, name)
    assert len(found.draw().get_figure().axes) == 2


@takes_long
@pytest.mark.usefixtures("_real_data")
def test_more_rows_leave_the_noise_and_lower_the_networks_disagreement():
    found = measure_sizes(["power"], seeds=1, steps=200, most=2000)
    networks = "5 networks"
    assert found.ratio("power", networks, 0) < 0.9
    assert 0.75 < found.ratio("power", networks, 1) < 1.25
    assert "ratio" in found.table()


@pytest.mark.usefixtures("_real_data")
def test_both_parts_together_are_calibrated_best(monkeypatch):
    monkeypatch.setattr(posteriors, "MEMBERS", 2)  # of which the first alone is asked
    found = measure_retention(["power"], steps=200, most=1500)
    scores = found.crps["power"]
    assert scores["both"] < scores["epistemic"]
    assert scores["both"] <= scores["aleatoric"] * 1.02
    assert len(found.draw().get_figure().axes) == 2
    curve = found.error["power"]["both"]
    assert curve[0] < curve[-1], "the rows in least uncertainty have smaller errors"
