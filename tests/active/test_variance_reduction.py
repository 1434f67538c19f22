"""Expected variance reduction against closed forms: a Bayesian linear model, and direct conditioning."""

from __future__ import annotations

import sys

import pytest
import torch

import bayesnorm as bn
from bayesnorm import RegressionPredictive, active
from bayesnorm.errors import InputError
from bayesnorm.predictive import GaussianPredictive


def random_samples(rows, outputs=1, samples=40, seed=0, noise=0.5):
    """Samples of functions that are linear in three features, which makes rows vary together."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    weights = torch.randn(samples, 3, outputs, generator=generator, dtype=torch.float64)
    scale = noise + torch.rand(rows, outputs, generator=generator, dtype=torch.float64)
    return RegressionPredictive(features @ weights, scale, torch.rand(samples, generator=generator).double() + 0.5)


def covariance(predictive):
    """Of all rows' outputs, by its definition."""
    flat = predictive.loc.flatten(1)
    deviation = flat - predictive.weights @ flat
    return (deviation * predictive.weights[:, None]).T @ deviation


def conditioned(predictive, rows, wanted):
    """Mean variance of the wanted rows' outputs once `rows` are labelled: the Gaussian's conditional covariance."""
    outputs = predictive.loc.shape[2]
    whole, noise = covariance(predictive), predictive.aleatoric.flatten()
    columns = [row * outputs + k for row in rows for k in range(outputs)]
    asked = [row * outputs + k for row in wanted for k in range(outputs)]
    between = whole[asked][:, columns]
    inner = whole[columns][:, columns] + torch.diag(noise[columns])
    return float((whole[asked][:, asked] - between @ torch.linalg.inv(inner) @ between.T).diagonal().mean())


def part(predictive, rows):
    return RegressionPredictive(predictive.loc[:, rows], predictive.scale[:, rows], predictive.weights)


def test_against_the_posterior_of_a_linear_model():
    """f = phi w with w ~ N(0, I), exactly: samples whose sample covariance is the identity."""
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    weights = torch.linalg.qr(raw - raw.mean(0)).Q * 50**0.5
    phi, ref = torch.randn(2, 8, 3, generator=generator, dtype=torch.float64)
    noise = 0.3
    pool = RegressionPredictive((weights @ phi.T)[..., None], torch.tensor(noise, dtype=torch.float64).sqrt())
    reference = RegressionPredictive((weights @ ref.T)[..., None], torch.tensor(1.0, dtype=torch.float64))
    before = (ref @ ref.T).diagonal().mean()
    expected = [
        float(before - (ref @ torch.linalg.inv(torch.eye(3) + torch.outer(row, row) / noise) @ ref.T).diagonal().mean())
        for row in phi
    ]
    assert active.variance_reduction(pool, reference).tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("outputs", "samples"), [(1, 40), (3, 40), (5, 4)])
def test_against_direct_conditioning(outputs, samples):
    """Also with more outputs than samples, which goes another way."""
    both = random_samples(9, outputs, samples)
    pool, reference = part(both, range(6)), part(both, range(6, 9))
    before = conditioned(both, [], [6, 7, 8])
    expected = [before - conditioned(both, [row], [6, 7, 8]) for row in range(6)]
    assert active.variance_reduction(pool, reference).tolist() == pytest.approx(expected, rel=1e-9)
    choice = active.greedy_variance_reduction(pool, 3, reference)
    rows: list[int] = []
    for row, gain in zip(choice.rows.tolist(), choice.gains.tolist(), strict=True):
        by_hand = {other: conditioned(both, [*rows, other], [6, 7, 8]) for other in range(6) if other not in rows}
        assert row == min(by_hand, key=by_hand.get)
        assert gain == pytest.approx(conditioned(both, rows, [6, 7, 8]) - by_hand[row], rel=1e-7)
        rows.append(row)


def test_the_candidates_are_the_reference_where_none_is_given():
    pool = random_samples(7)
    assert torch.equal(active.variance_reduction(pool), active.variance_reduction(pool, pool))
    one = active.VarianceReduction().choose(pool, 1)
    assert torch.equal(active.choose(active.variance_reduction, pool, 1), one)


def test_it_wants_rows_that_speak_for_many_and_not_the_loudest():
    """Twenty rows move together; one varies more, but alone."""
    generator = torch.Generator().manual_seed(2)
    together, alone = torch.randn(2, 60, 1, generator=generator, dtype=torch.float64)
    loc = torch.cat([together.expand(60, 20), 3 * alone], 1)
    pool = RegressionPredictive(loc[..., None], torch.tensor(1.0, dtype=torch.float64))
    assert active.choose(active.epistemic_variance, pool, 1).tolist() == [20]
    assert int(active.VarianceReduction().choose(pool, 1)) < 20
    assert 20 in active.VarianceReduction().choose(pool, 2).tolist(), "once they are known, the other is next"


def test_blocks_change_nothing(monkeypatch):
    pool = random_samples(50, 2)
    whole = active.variance_reduction(pool)
    monkeypatch.setattr(sys.modules["bayesnorm.active.batch_acquisitions"], "BLOCK_BYTES", 1)
    assert torch.allclose(active.variance_reduction(pool), whole, rtol=1e-12)


def test_without_noise_and_without_uncertainty():
    loc = torch.tensor([[[0.0], [1.0]], [[2.0], [1.0]]])
    pool = RegressionPredictive(loc, torch.tensor(0.0))
    choice = active.greedy_variance_reduction(pool, 2)
    assert choice.rows.tolist() == [0, 1]
    assert choice.gains.tolist() == pytest.approx([0.5, 0])


def test_what_it_refuses(make_classes):
    pool = random_samples(5)
    with pytest.raises(InputError, match="reference has 30 samples and predictive has 40"):
        active.variance_reduction(pool, random_samples(5, samples=30))
    with pytest.raises(InputError, match="ClassificationPredictive"):
        active.variance_reduction(make_classes(2, 3, 3))
    closed = GaussianPredictive(torch.zeros(3, 1), torch.ones(3, 1), torch.tensor(1.0))
    with pytest.raises(InputError, match=r"predictive has 1 sample.*MonteCarlo"):
        active.variance_reduction(closed)
    with pytest.raises(InputError, match=r"predictive: StudentTNoise has an infinite variance"):
        active.variance_reduction(bn.StudentT(df=2).predictive(pool.loc))
