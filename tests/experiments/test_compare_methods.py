"""Every method on one small set: scores are there, and uncertainty grows away from the data."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from torch import nn

from bayesnorm.methods import BayesByBackprop
from experiments import compare_methods
from experiments.compare_methods import SETS, TrainedNetworks, compare, makers, splits
from experiments.measuring import timed


@pytest.fixture(scope="module")
def toy():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_methods, "DRAWS", 64)
        patch.setattr(compare_methods, "median_seconds", lambda call, _repeats: timed(call))
        return compare("toy", 1, steps=100)


def test_every_method_is_scored(toy):
    assert toy.keys() == makers().keys()
    for name, (score,) in toy.items():
        assert all(math.isfinite(value) for value in asdict(score).values()), name
        assert score.crps > 0
        assert score.samples_per_second > 0


def test_constant_uncertainty_is_where_gains_start(toy):
    (constant,) = toy["constant"]
    assert constant.growth == 0
    # Its own noise was found by the same score on the same rows.
    assert constant.gain_crps == pytest.approx(0, abs=0.2)


def test_uncertainty_grows_away_from_the_data(toy):
    for name, (score,) in toy.items():
        if name != "constant":
            assert score.growth > 1.2, name


def test_splits_are_disjoint_and_the_papers():
    (split,) = splits("toy", 1)
    rows = [tuple(row) for part in (split.train, split.validation, split.test) for row in part[0].tolist()]
    assert len(set(rows)) == len(rows)
    assert SETS == ("toy", "yacht", "concrete", "energy")


def test_networks_without_batch_norm_have_biases_for_its_shifts():
    """Without either they would be straight lines through the training mean, which no method could mend."""
    (split,) = splits("toy", 1)
    networks = TrainedNetworks(split, steps=1)
    for network in (networks.dropped, networks.weights(BayesByBackprop).model):
        linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
        assert [tuple(layer.weight.shape) for layer in linear] == [(50, 1), (50, 50), (1, 50)]
        assert all(layer.bias is not None for layer in linear)
        assert not any(isinstance(layer, nn.BatchNorm1d) for layer in network.modules())
