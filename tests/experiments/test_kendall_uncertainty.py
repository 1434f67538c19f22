"""The claims of the four pictures, on small sizes."""

import pytest

from experiments.data import DataNotFoundError, find
from experiments.kendall_uncertainty import posteriors
from experiments.kendall_uncertainty.medians import measure_shift
from experiments.kendall_uncertainty.posteriors import SETS
from experiments.kendall_uncertainty.retention import measure_retention

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")


@pytest.fixture
def _real_data():
    try:
        for name in SETS:
            find(f"uci/{name}.npz")
    except DataNotFoundError as error:
        pytest.skip(f"needs real data: {error}")


@pytest.mark.usefixtures("_real_data")
def test_another_distribution_raises_epistemic_uncertainty_more_than_noise():
    result = measure_shift(["power"], seeds=1, steps=60, most=800)
    for name, ratio in (("MCBN", 1.0), ("5 networks", 1.2)):
        epistemic, aleatoric = (result.ratio("power", name, part) for part in (0, 1))
        assert epistemic > ratio, name
        assert epistemic > aleatoric, name
    assert len(result.draw().get_figure().axes) == 1


@pytest.mark.usefixtures("_real_data")
def test_both_parts_together_are_calibrated_best(monkeypatch):
    monkeypatch.setattr(posteriors, "MEMBERS", 2)  # of which the first alone is asked
    result = measure_retention(["power"], steps=100, most=1000)
    scores = result.crps["power"]
    assert scores["both"] < scores["epistemic"]
    assert scores["both"] <= scores["aleatoric"] * 1.02
    assert len(result.draw().get_figure().axes) == 2
    curve = result.error["power"]["both"]
    assert curve[0] < curve[-1], "the rows in least uncertainty have smaller errors"
