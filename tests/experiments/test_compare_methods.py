"""Every method on one small set: scores are there, and uncertainty grows away from the data."""

import math
from dataclasses import asdict

import pytest

from experiments import compare_methods
from experiments.compare_methods import compare, makers
from experiments.measuring import timed


@pytest.fixture(scope="module")
def toy():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_methods, "DRAWS", 32)
        patch.setattr(compare_methods, "MEMBERS", 2)
        patch.setattr(compare_methods, "median_seconds", lambda call, _repeats: timed(call))
        return compare("toy", 1, steps=60)


def test_every_method_is_scored(toy):
    assert toy.keys() == makers().keys()
    for name, (score,) in toy.items():
        assert all(math.isfinite(value) for value in asdict(score).values()), name
        assert score.crps > 0
        assert score.samples_per_second > 0


def test_uncertainty_grows_away_from_the_data(toy):
    for name, (score,) in toy.items():
        if name != "constant":
            assert score.growth > 1.2, name
