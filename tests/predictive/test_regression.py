"""The mixture over samples against SciPy and scoringrules."""

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.predictive import RegressionPredictive, gaussian_crps


def predictive(n=7, batch=5, out=(1,), precision=4.0, spread=1.0, weights=None, seed=0):
    f = spread * torch.randn(n, batch, *out, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return bn.Gaussian(precision).predictive(f, weights)


def test_log_prob_is_the_mixtures_and_not_a_matched_gaussians():
    p, y = predictive(), torch.randn(5, 1, dtype=torch.float64)
    parts = norm(p.loc.numpy(), 0.5).logpdf(y.numpy())
    np.testing.assert_allclose(p.log_prob(y), logsumexp(parts, axis=0) - np.log(7), rtol=1e-12)
    matched = norm(p.mean.numpy(), p.std.numpy()).logpdf(y.numpy())
    assert np.abs(matched - p.log_prob(y).numpy()).max() > 0.01


def test_cdf_and_quantiles_against_scipy():
    p = predictive(spread=2.0)
    y = torch.randn(5, 1, dtype=torch.float64)
    np.testing.assert_allclose(p.cdf(y), norm(p.loc.numpy(), 0.5).cdf(y.numpy()).mean(0), rtol=1e-10)
    for level in (0.001, 0.025, 0.3, 0.5, 0.9, 0.999):
        quantiles = p.quantile(level)
        for row in range(5):
            loc = p.loc[:, row, 0].numpy()
            exact = brentq(lambda q, loc=loc, level=level: norm(loc, 0.5).cdf(q).mean() - level, -50, 50, xtol=1e-13)
            assert quantiles[row, 0].item() == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("likelihood", [bn.Gaussian(4.0), bn.Laplace(0.5), bn.StudentT(4.0, 0.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_tails_have_all_their_digits(likelihood, dtype):
    """In the samples' mirror image one tail is the other, so that an upper quantile is as good as a lower one."""
    f = torch.randn(64, 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)
    p, mirrored, exact = (likelihood.predictive(outputs) for outputs in (f, -f, f.double()))
    for level in (1e-9, 1e-6, 1e-3, 0.3):
        torch.testing.assert_close(p.quantile(level), exact.quantile(level).to(dtype), rtol=1e-5, atol=1e-5)
        assert exact.cdf(exact.quantile(level))[0].item() == pytest.approx(level, rel=1e-6)
        lower, upper = p.interval(1 - 2 * level)
        torch.testing.assert_close(upper, -mirrored.quantile(level), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(lower, p.quantile(level), rtol=1e-5, atol=1e-5)
    lower, upper = p.interval(1 - 1e-16)
    assert torch.isfinite(upper - lower).all()


def test_quantiles_between_samples_that_lie_far_apart():
    """Where the distribution function is nearly flat but for steps; the first row has one place for all samples."""
    for likelihood in (bn.Gaussian(1e8), bn.Laplace(1e-4), bn.StudentT(1.5, 1e-4)):
        loc = torch.stack([torch.full((4,), 7.0), torch.tensor([-1e3, 0.0, 5.0, 1e3])], 1).double()
        scale, weights = torch.tensor(1e-4).double(), torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
        p = RegressionPredictive(loc, scale, weights, likelihood.predictive(loc).noise)
        for level in (0.01, 0.2, 0.45, 0.6, 0.99):
            quantile = p.quantile(level)
            near = 1e-12 + 1e-9 * quantile.abs()
            assert (p.cdf(quantile - near) <= level + 1e-8).all()  # the weights' own sum has rounding errors
            assert (p.cdf(quantile + near) >= level - 1e-8).all()


def test_quantiles_where_samples_are_not_numbers():
    quantiles = RegressionPredictive(torch.tensor([[1.0, 2.0], [torch.nan, 2.0]]), torch.tensor(0.5)).quantile(0.5)
    assert quantiles[0].isnan()
    assert quantiles[1].item() == pytest.approx(2.0)
    assert predictive(batch=0).quantile(0.5).shape == (0, 1)
    assert predictive(batch=0).sample(3).shape == (3, 0, 1)
    assert torch.isfinite(predictive(precision=1e6).log_prob(torch.full((5, 1), 100.0))).all()


def test_an_interval_holds_its_share():
    p = predictive(spread=2.0)
    for level in (0.5, 0.95):
        lower, upper = p.interval(level)
        torch.testing.assert_close(p.cdf(upper) - p.cdf(lower), torch.full((5, 1), level, dtype=torch.float64))
        torch.testing.assert_close(p.cdf(lower), torch.full((5, 1), (1 - level) / 2, dtype=torch.float64))


@settings(max_examples=40)
@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_gaussian_crps_everywhere(y, mean, std):
    value = gaussian_crps(*(torch.tensor(v, dtype=torch.float64) for v in (y, mean, std))).item()
    # Terms of size |y - mean| + std cancel.
    size = abs(y - mean) + std
    assert value == pytest.approx(float(scoringrules.crps_normal(y, mean, std)), abs=1e-12 * size)
    assert value >= 0


def test_gaussian_crps_without_spread_is_the_absolute_error():
    y, mean = torch.tensor([1.0, -2.0]), torch.tensor([3.0, -2.0])
    torch.testing.assert_close(gaussian_crps(y, mean, torch.zeros(2)), torch.tensor([2.0, 0.0]))


def test_crps_at_its_optimum():
    """For an error e the best sigma is |e| / sqrt(ln 2), where CRPS = 0.594904 |e|."""
    e = torch.tensor(2.5, dtype=torch.float64)
    sigma = torch.linspace(0.5, 8, 20001, dtype=torch.float64)
    scores = gaussian_crps(e, torch.zeros_like(sigma), sigma)
    best = int(scores.argmin())
    assert sigma[best].item() == pytest.approx(2.5 / np.sqrt(np.log(2)), abs=8 / 20000)
    assert scores[best].item() == pytest.approx(0.594904 * 2.5, abs=1e-6)


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(0, 10_000), st.floats(0.01, 100), st.floats(0.0, 10))
def test_law_of_total_variance(n, seed, precision, spread):
    p = predictive(n=n, seed=seed, precision=precision, spread=spread)
    torch.testing.assert_close(p.variance, p.epistemic + p.aleatoric)
    second_moment = (p.loc.square() + 1 / precision).mean(0)
    torch.testing.assert_close(p.variance, second_moment - p.mean.square(), rtol=1e-9, atol=1e-9)
    assert (p.epistemic >= 0).all()


def test_bad_weights():
    for weights in (
        torch.ones(4),
        torch.tensor([1.0, -1.0, 1.0]),
        torch.zeros(3),
        torch.ones(3, 1),
        torch.tensor([1.0, torch.inf, 1.0]),
    ):
        with pytest.raises(InputError, match=r"^weights "):
            bn.Gaussian().predictive(torch.zeros(3, 5, 1), weights)


def test_samples_come_from_the_mixture():
    p = predictive(n=3, batch=2, spread=3.0)
    drawn = p.sample(20_000, seed=1)
    assert drawn.shape == (20_000, 2, 1)
    # Standard errors over 20,000 samples; the fourth moment is bounded by 3 times the mixture's squared variance.
    n = 20_000
    assert ((drawn.mean(0) - p.mean).abs() < 4.5 * (p.variance / n).sqrt()).all()
    assert ((drawn.var(0) / p.variance - 1).abs() < 4.5 * (2 / n) ** 0.5).all()
    below = (drawn <= p.quantile(0.2)).double().mean(0)
    assert ((below - 0.2).abs() < 4.5 * (0.16 / n) ** 0.5).all()
    assert torch.equal(drawn, p.sample(20_000, seed=1))
    assert not torch.equal(drawn, p.sample(20_000, seed=2))


def test_shapes_of_targets():
    for out in ((), (1,), (2,), (2, 3)):
        p = predictive(out=out)
        y = torch.randn(5, *out, dtype=torch.float64)
        assert p.log_prob(y).shape == (5, *out)
        assert p.log_prob(y.numpy()).shape == (5, *out)
        assert p.crps(y.tolist()).shape == (5, *out)


def test_a_missing_last_axis_of_one_is_put_in_and_never_broadcast():
    column, flat = predictive(out=(1,)), predictive(out=())
    y = torch.randn(5, dtype=torch.float64)
    assert column.log_prob(y).shape == (5, 1), "not (5, 5)"
    assert flat.log_prob(y[:, None]).shape == (5,), "not (5, 5)"
    torch.testing.assert_close(column.log_prob(y), column.log_prob(y[:, None]))


def test_targets_of_another_shape():
    for method in ("log_prob", "cdf", "crps"):
        for shape in ((4,), (6, 1), (5, 2), (1, 5), (1, 1), (), (5, 1, 1, 1)):
            with pytest.raises(InputError, match=r"y has shape .* the predictions have shape \(5, 1\)"):
                getattr(predictive(), method)(torch.zeros(shape))


def test_targets_that_are_no_numbers():
    for bad in (float("nan"), float("inf")):
        y = torch.zeros(5, 1)
        y[2] = bad
        with pytest.raises(InputError, match="y must be finite, but 1 of 5 values are NaN or infinite"):
            predictive().log_prob(y)


def test_targets_of_another_kind():
    for y in ("text", None, {"y": 1}, ["a", "b"]):
        with pytest.raises(InputError, match=r"^y "):
            predictive().log_prob(y)


def test_targets_in_a_series_with_an_index_of_its_own():
    pandas = pytest.importorskip("pandas")
    p = predictive()
    y = torch.randn(5, dtype=torch.float64)
    series = pandas.Series(y.numpy(), index=[f"row {i}" for i in range(5)])
    torch.testing.assert_close(p.log_prob(series), p.log_prob(y))
