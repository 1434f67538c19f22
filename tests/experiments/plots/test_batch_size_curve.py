"""The ELBO against the batch size."""

from __future__ import annotations

import pytest

import bayesnorm as bn

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from experiments.plots import BatchSizeCurve


def test_one_curve_for_the_elbo_and_one_for_validation(regression):
    posterior = bn.MCBN(batch_size=8, states=32).fit(regression.model, (regression.x, regression.y))
    data, options = (regression.x, regression.y), {"batch_sizes": (2, 8, 32, 128, 512), "samples": 16}
    validation = regression.new_x, regression.new_y
    curve = BatchSizeCurve.from_choice(bn.select_batch_size(posterior, data, validation=validation, **options))
    assert curve.elbo.max() == 0
    assert len(curve.draw().get_figure().axes) == 2
    alone = BatchSizeCurve.from_choice(bn.select_batch_size(posterior, data, **options))
    assert alone.validation is None
    assert len(alone.draw().get_figure().axes) == 1
