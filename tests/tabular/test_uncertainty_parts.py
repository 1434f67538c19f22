"""The parts of uncertainty, against closed forms."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from bayesnorm.errors import FileFormatError
from bayesnorm.tabular.search_results import (
    EXPONENT,
    FAR,
    LARGEST,
    SMALLEST,
    NetworkSetting,
    Selection,
    UncertaintyParts,
)

NOISE, RISE = 0.3, 40.0


def curve(*rows: int, spread: float = 0.0) -> dict[int, torch.Tensor]:
    """Squared errors whose mean is a noise and an excess that falls with the rows."""
    generator = torch.Generator().manual_seed(0)
    results = {}
    for n in rows:
        noise = 1 + spread * torch.randn(1000, generator=generator, dtype=torch.float64)
        results[n] = (NOISE + RISE * n**-EXPONENT) * noise / noise.mean()
    return results


@pytest.mark.parametrize("rows", [(50, 100), (100, 400), (900, 1000)])
def test_an_excess_that_falls_with_rows_is_found(rows):
    parts = UncertaintyParts.estimate(curve(*rows), 0.0, members=5, asked=1)
    assert parts.rows == rows
    assert parts.excess == pytest.approx(RISE * rows[-1] ** -EXPONENT)
    assert parts.noise == pytest.approx(NOISE)
    assert parts.errors == pytest.approx([NOISE + RISE * n**-EXPONENT for n in rows])
    assert parts.share == pytest.approx(parts.excess / parts.errors[-1])
    assert parts.left_to_samples == pytest.approx(parts.excess)


def test_without_fewer_rows_or_where_they_do_no_worse_disagreement_is_all_there_is():
    flat = {50: torch.full((10,), 0.5), 100: torch.full((10,), 0.6)}
    for spread in (flat, {100: torch.full((10,), 0.6)}):
        parts = UncertaintyParts.estimate(spread, 0.1, members=4, asked=1)
        assert parts.excess == parts.disagreement == 0.1
        assert parts.noise == pytest.approx(0.5)
        assert parts.left_to_samples == 0


def test_what_is_left_after_averaging_over_members():
    parts = UncertaintyParts((50, 100), (1.4, 1.0), disagreement=0.2, excess=0.5, members=5, asked=2)
    assert parts.between == pytest.approx(0.16)  # 4 of 5 parts of the disagreement
    assert parts.error == pytest.approx(0.84)
    assert parts.model_excess == pytest.approx(0.34)
    assert parts.share == pytest.approx(0.34 / 0.84)
    assert parts.left_to_samples == pytest.approx(0.34 - 0.16)
    assert parts.error == pytest.approx(parts.noise + parts.model_excess)


def test_the_mean_of_more_members_errs_by_less():
    """Members are a truth, a part in common and one of their own: simulated, and as `shrinkage` says."""
    generator = torch.Generator().manual_seed(1)
    rows, members, asked = 200_000, 5, 1
    common = 0.9 * torch.randn(rows, generator=generator, dtype=torch.float64)
    noise = 0.6 * torch.randn(members, rows, generator=generator, dtype=torch.float64)
    errors = common + noise
    parts = UncertaintyParts.estimate({100: errors[0].square()}, float(errors.var(0).mean()), members, asked)
    all_of_them, some = (float(errors[:count].mean(0).square().mean()) for count in (members, asked))
    assert parts.shrinkage == pytest.approx(math.sqrt(all_of_them / some), rel=0.01)
    assert UncertaintyParts((1,), (1.0,), 0.2, 0.5, members=10, asked=2).shrinkage == 1.0
    assert UncertaintyParts((1,), (1.0,), 0.0, 0.5, members=5, asked=1).shrinkage == 1.0


def test_the_batch_size_gives_samples_the_variance_that_is_left_to_them():
    parts = UncertaintyParts((50, 100), (1.4, 1.0), disagreement=0.2, excess=0.5, members=5, asked=1)
    size = parts.batch_size(32, variance=0.09)
    assert 0.09 * 32 / size == pytest.approx(parts.left_to_samples)  # samples vary as one over the batch size
    assert parts.batch_size(32, variance=1e9) == 32 * LARGEST
    assert parts.batch_size(32, variance=1e-9) == 32 * SMALLEST
    nothing = UncertaintyParts((100,), (1.0,), disagreement=0.2, excess=0.2, members=5, asked=1)
    assert nothing.batch_size(32, variance=0.09) == 32 * LARGEST


def test_a_few_far_rows_do_not_decide():
    errors = {n: values.clone() for n, values in curve(50, 100).items()}
    errors[50][0] = 1e12
    parts = UncertaintyParts.estimate(errors, 0.0, members=5, asked=1)
    assert parts.errors[0] <= NOISE + RISE * 50**-EXPONENT + FAR * float(errors[100].median()) / 1000
    assert parts.excess <= parts.errors[-1]
    assert UncertaintyParts.estimate(errors, 1e12, members=5, asked=1).disagreement == parts.errors[-1]


def test_errors_of_nothing():
    parts = UncertaintyParts.estimate({50: torch.zeros(9), 100: torch.zeros(9)}, 0.0, members=2, asked=1)
    assert (parts.excess, parts.share, parts.noise, parts.shrinkage) == (0, 0, 0, 1)


def config_with(parts: UncertaintyParts) -> dict[str, Any]:
    """Return the JSON values of a selection with these parts."""
    setting = NetworkSetting("plain", (4,), 0.0, 0.1, 8, epochs=3, point_score=math.nan, score=1.0)
    selection = Selection("crps", (setting,), setting, folds=5, effective_batch_size=None, uncertainty=parts)
    return json.loads(json.dumps(selection.config()))


def test_as_json_and_back():
    parts = UncertaintyParts.estimate(curve(50, 100, spread=0.1), 0.01, members=10, asked=2)
    assert Selection.from_config(config_with(parts)).uncertainty == parts


def test_what_cannot_be_is_refused():
    for change in (
        {"rows": []},
        {"rows": [0, 5]},
        {"errors": [math.nan, 1.0]},
        {"errors": [-1.0, 1.0]},
        {"disagreement": "some"},
        {"excess": -0.1},
        {"members": 0},
        {"asked": 1.5},
        {"more": 1},
    ):
        config = config_with(UncertaintyParts.estimate(curve(50, 100), 0.01, members=10, asked=2))
        config["uncertainty"] |= change
        with pytest.raises(FileFormatError, match=r"selection\.uncertainty"):
            Selection.from_config(config)
