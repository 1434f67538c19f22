"""Maps of one image by several methods."""

import numpy as np
import pytest
import torch

from bayesnorm.errors import BayesNormError
from bayesnorm.predictive import ClassificationPredictive

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import SegmentationMaps
from experiments.plots import draw_maps

LOGITS = torch.randn(4, 2, 3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PREDICTIVE = ClassificationPredictive(LOGITS.log_softmax(2))
Y = PREDICTIVE.sample(1, seed=1)[0]
Y[1, 0, :3] = 7
IMAGE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)


def test_methods_are_drawn_under_the_same_colours():
    sharp = ClassificationPredictive((3 * LOGITS).log_softmax(2))

    def both(predictive):
        return [
            SegmentationMaps.from_predictive(IMAGE, predictive, Y, row=1, ignore_index=7, uncertainty=uncertainty)
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
    with pytest.raises(BayesNormError, match="maps must have at least one method"):
        draw_maps({})
    with pytest.raises(BayesNormError, match="the same quantities"):
        draw_maps({"one": both(PREDICTIVE), "other": both(sharp)[:1]})
