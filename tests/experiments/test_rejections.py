"""Shares of units that are rejected as normal, over batch sizes and epochs."""

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from experiments.rejections import RejectionPlot


def test_shares_are_the_diagnosis(diagnosis, epochs):
    plot = RejectionPlot.over_batch_sizes(diagnosis, "std")
    assert plot.at == (8, 40)
    for layer in ("1", "4"):
        sizes = [diagnosis.at(size).layer(layer).std for size in (8, 40)]
        assert plot.theory[layer].tolist() == [found.rejected for found in sizes]
        assert plot.fitted[layer].tolist() == [found.fitted_rejected for found in sizes]
    plot = RejectionPlot.over_epochs(epochs, batch_size=40)
    assert plot.at == (1, 10)
    assert plot.theory["1"].tolist() == [diagnosis.at(40).layer("1").mean.rejected] * 2
    assert plot.title == "batch means, all units, M = 40"
