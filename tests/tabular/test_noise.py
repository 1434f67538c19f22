"""The noise that held-out rows tell, on rows whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bayesnorm.likelihoods import Gaussian, HeteroscedasticGaussian, HeteroscedasticStudentT
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.tabular.noise import SeenRows, SeenRowScores, noise_for

ROWS = 2000


def rows(
    noise, *, factor: float = 1.0, uncertainty: float = 0.2, floor: float = 0.0, targets: int = 1, spread: float = 0.5
):
    """Rows whose predicted deviations are `factor` times too small, with a given draw of standardised noise."""
    generator = np.random.default_rng(0)
    shape = ROWS, targets
    std = np.exp(generator.normal(scale=spread, size=shape))
    mean, variance = generator.normal(size=shape), np.full(shape, uncertainty**2)
    target = mean + uncertainty * generator.normal(size=shape) + np.hypot(factor * std, floor) * noise(generator, shape)
    return SeenRows(*(torch.from_numpy(part) for part in (mean, variance, std, target)), None)


def normal(generator, shape):
    return generator.normal(size=shape)


def heavy(generator, shape):
    return generator.standard_t(3, size=shape)


# The relative standard error of a deviation from n normal rows is 1 / sqrt(2 n); CRPS is a little less efficient.
ERROR = 1.1 / np.sqrt(2 * ROWS)


def test_the_factor_of_normal_noise_is_found_and_no_other_form():
    for factor in (0.3, 1.0, 4.0):
        result = noise_for(rows(normal, factor=factor), HeteroscedasticGaussian())
        assert isinstance(result, HeteroscedasticGaussian)
        assert result.floor == 0.0
        uncertain = np.sqrt(
            1 + (0.2 / factor) ** 2
        )  # part of the spread is uncertainty, which tells nothing of the noise
        assert float(result.noise) == pytest.approx(factor, rel=4 * ERROR * uncertain**2)


def test_heavy_tails_are_found():
    result = noise_for(rows(heavy, factor=2.0), HeteroscedasticGaussian())
    assert isinstance(result, HeteroscedasticStudentT)
    assert result.df in (3.0, 5.0)
    scale = float(result.noise) * (1 if result.df == 3.0 else 0.9)  # more degrees of freedom go with a larger scale
    assert scale == pytest.approx(2.0, rel=0.1)


def test_a_floor_is_found():
    seen = rows(normal, floor=0.3, uncertainty=0.02, spread=1.0)
    result = noise_for(seen, HeteroscedasticGaussian())
    assert isinstance(result, HeteroscedasticGaussian)
    assert result.floor == pytest.approx(0.3, rel=0.25)
    small = seen.std[:, 0] < 0.2  # where the floor is most of the noise
    ratio = seen.predictive(result).scale / torch.hypot(seen.std, torch.tensor(0.3))
    assert float(ratio[..., small, :].mean()) == pytest.approx(1, abs=0.2)


def test_several_targets_have_a_factor_each():
    seen = rows(normal, targets=2)
    target = seen.mean + torch.tensor([0.5, 3.0]) * (seen.target - seen.mean)
    result = noise_for(SeenRows(seen.mean, seen.uncertainty * 0, seen.std, target, None), HeteroscedasticGaussian())
    assert result.noise.tolist() == pytest.approx([0.5, 3.0], rel=0.1)


def test_one_noise_for_all_rows_is_their_variance():
    seen = rows(normal)
    flat = SeenRows(seen.mean, 0 * seen.uncertainty, seen.std, seen.mean + 0.7 * torch.randn_like(seen.mean), None)
    result = noise_for(flat, Gaussian())
    assert isinstance(result, Gaussian)
    assert float(result.noise) == pytest.approx(0.49, rel=8 * ERROR)  # a variance has twice a deviation's


def test_uncertainty_is_not_called_noise():
    seen = rows(normal, factor=1.0, uncertainty=1.0)
    honest = noise_for(seen, HeteroscedasticGaussian()).noise
    ignored = noise_for(
        SeenRows(seen.mean, 0 * seen.uncertainty, seen.std, seen.target, None), HeteroscedasticGaussian()
    ).noise
    assert float(honest) == pytest.approx(1.0, rel=0.15)
    assert float(ignored) > 1.2


def test_weights_decide_which_rows_count():
    one, other = rows(normal, factor=0.5), rows(normal, factor=2.0)
    parts = [torch.cat([getattr(one, name), getattr(other, name)]) for name in ("mean", "uncertainty", "std", "target")]
    weights = torch.cat([torch.full((ROWS,), 2.0), torch.zeros(ROWS)]).double()
    result = noise_for(SeenRows(*parts, weights), HeteroscedasticGaussian())
    assert float(result.noise) == pytest.approx(0.5, rel=0.1)
    few = SeenRows(*parts, weights).some(100)
    assert len(few.mean) == len(few.weights) == 100
    scores = SeenRowScores(few, HeteroscedasticGaussian(), "crps")
    points, _ = scores.points(HeteroscedasticGaussian(0.5))
    expected = (points[:, 0] * few.weights).sum() / few.weights.sum()
    assert float(scores.score(HeteroscedasticGaussian(0.5))) == pytest.approx(float(expected))


def test_a_row_as_the_model_would_see_it_has_its_uncertainty_and_its_noise():
    seen = rows(normal, factor=2.0)
    predictive = seen.predictive(HeteroscedasticGaussian(2.0, floor=0.3))
    assert isinstance(predictive, RegressionPredictive)
    torch.testing.assert_close(predictive.mean, seen.mean)
    torch.testing.assert_close(predictive.epistemic, seen.uncertainty)
    torch.testing.assert_close(predictive.aleatoric, 4 * seen.std.square() + 0.09)
    flat = seen.predictive(Gaussian(4.0))
    torch.testing.assert_close(flat.aleatoric, torch.full_like(seen.std, 0.25))
