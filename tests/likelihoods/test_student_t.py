"""Student's t noise: SciPy's and scoringrules' numbers, and outliers that cost little."""

import numpy as np
import pytest
import scoringrules
import torch
from scipy import integrate, stats

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.predictive import RegressionPredictive, StudentTNoise

Z = torch.cat([-torch.logspace(-9, 4, 40), torch.zeros(1), torch.logspace(-9, 4, 40)]).double()
LEVELS = torch.tensor([1e-12, 1e-6, 0.01, 0.3, 0.5, 0.8, 0.999, 1 - 1e-9], dtype=torch.float64)
DF = [1.1, 1.5, 2.0, 3.0, 4.5, 10.0, 50.0, 299.0, 301.0, 5000.0, 1e8]


def test_the_standard_form_is_scipys():
    for df in DF:
        noise = StudentTNoise(df)
        np.testing.assert_allclose(noise.log_prob(Z), stats.t.logpdf(Z, df), rtol=1e-11, atol=1e-12)
        # Near 0, SciPy itself is only right to about 1e-8; the tails must keep their digits.
        expected = stats.t.cdf(Z, df)
        np.testing.assert_allclose(noise.cdf(Z), expected, rtol=2e-8, atol=1e-280)
        far = Z < -0.1
        np.testing.assert_allclose(noise.cdf(Z)[far], expected[far], rtol=1e-10, atol=1e-280)
        np.testing.assert_allclose(noise.icdf(LEVELS), stats.t.ppf(LEVELS, df), rtol=1e-8, atol=1e-12)
        assert noise.variance == (pytest.approx(stats.t.var(df)) if df > 2 else np.inf)


def test_two_degrees_of_freedom_have_closed_forms():
    noise, z = StudentTNoise(2.0), Z[Z <= 0]
    root = (2 + z.square()).sqrt()
    torch.testing.assert_close(noise.cdf(z), 1 / (root * (root - z)), rtol=1e-10, atol=0)
    tails = torch.tensor([1e-100, 1e-30, 1e-12, 0.01, 0.3], dtype=torch.float64)
    expected = (2 * tails - 1) / (2 * tails * (1 - tails)).sqrt()
    torch.testing.assert_close(noise.icdf(tails), expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("df", [1.5, 400.0])
def test_derivatives_pass_through_tables(df):
    noise, z = StudentTNoise(df), torch.tensor([-30.0, -1.0, -1e-3, 0.4, 7.0], dtype=torch.float64)
    z = z.requires_grad_()
    (density,) = torch.autograd.grad(noise.cdf(z).sum(), z)
    torch.testing.assert_close(density, noise.log_prob(z).exp(), rtol=1e-6, atol=0)
    assert torch.isfinite(torch.autograd.grad(noise.cdf(0 * z).sum(), z)[0]).all()
    one = torch.ones((), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda d: noise.distance(d, one) + noise.distance_of_two(d, one, one), (z,))


def test_single_precision_and_what_is_no_number():
    noise = StudentTNoise(4.0)
    for df in (1.5, 4.0, 400.0):
        far = torch.tensor([-torch.inf, -1e200, 1e200, torch.inf], dtype=torch.float64)
        assert StudentTNoise(df).cdf(far).tolist() == pytest.approx([0, 0, 1, 1])
    z = torch.tensor([-torch.inf, 0.5, torch.inf, torch.nan])
    result = noise.cdf(z)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result[:3], stats.t.cdf(z[:3], 4.0), rtol=1e-6)
    assert result[3].isnan()


def test_crps_of_one_draw_is_scoringrules():
    for df in (1.1, 3.0, 50.0, 299.0, 301.0):
        f, y = torch.randn(1, 50, 1, dtype=torch.float64), 4 * torch.randn(50, 1, dtype=torch.float64)
        result = metrics.crps_points(bn.StudentT(df, 0.7).predictive(f), y, form="mixture")
        np.testing.assert_allclose(result, scoringrules.crps_t(y.numpy(), df, f[0].numpy(), 0.7), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("df", "first", "second"), [(1.5, 0.5, 0.6), (4.0, 1.0, 1.0)])
def test_distances_of_two_are_those_of_quadrature(df, first, second):
    noise = StudentTNoise(df)
    a, b = (torch.tensor(scale, dtype=torch.float64) for scale in (first, second))
    for difference in (0.0, 1.3, -20.0):

        def inner(v, difference=difference):
            z = np.sinh(v)
            d = torch.tensor(difference - second * z, dtype=torch.float64)
            return float(noise.distance(d, a)) * stats.t.pdf(z, df) * np.cosh(v)

        exact = sum(integrate.quad(inner, *ends)[0] for ends in [(-40, -3), (-3, 0), (0, 3), (3, 40)])
        result = noise.distance_of_two(torch.tensor(difference, dtype=torch.float64), a, b)
        assert result.item() == pytest.approx(exact, rel=1e-6)


def test_tables_and_integrals_agree():
    noise, d = StudentTNoise(3.0), torch.tensor([0.0, 0.2, 3.0, 50.0, 1e5], dtype=torch.float64)
    one = torch.ones(5, dtype=torch.float64)
    nearly = noise.distance_of_two(d, one, one * (1 + 1e-13))
    torch.testing.assert_close(noise.distance_of_two(d, one, one), nearly, rtol=1e-8, atol=0)


def test_many_degrees_of_freedom_are_a_gaussian():
    f, y = torch.randn(5, 20, 1, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)
    close, gaussian = bn.StudentT(1e7).predictive(f), bn.Gaussian().predictive(f)
    torch.testing.assert_close(close.log_prob(y), gaussian.log_prob(y), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(close.variance, gaussian.variance, rtol=1e-6, atol=0)
    result, expected = (metrics.crps(p, y, form="mixture") for p in (close, gaussian))
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=0)


def test_an_outlier_pulls_less_the_farther_it_is():
    f = torch.zeros(3, 1, requires_grad=True)
    bn.StudentT(3.0, 1.0).loss(f, torch.tensor([[2.0], [20.0], [200.0]])).backward()
    assert f.grad.abs()[0] > f.grad.abs()[1] > f.grad.abs()[2] > 0


def test_calibrating_finds_the_scale():
    rows, scale, df = 4000, 0.4, 3.0
    generator = np.random.default_rng(0)
    model = torch.nn.Linear(1, 1).double()
    x = torch.from_numpy(generator.normal(size=(rows, 1)))
    y = model(x).detach() + scale * torch.from_numpy(generator.standard_t(df, size=(rows, 1)))
    posterior = bn.deterministic(model, bn.StudentT(df))
    for score in ("pll", None):
        result = bn.calibrate(posterior, x, y, score=score).likelihood
        assert result.df == df
        # Fisher's information of log scale is 2 df / (df + 3) = 1 per row.
        assert abs(np.log(result.scale / scale)) < 4.5 * 1.5 / rows**0.5


def test_where_there_is_no_variance():
    f, y = torch.randn(5, 4, 1), torch.zeros(4, 1)
    predictive = bn.StudentT(1.5).predictive(f)
    assert predictive.variance.isinf().all()
    assert torch.isfinite(predictive.epistemic).all()
    assert torch.isfinite(predictive.log_prob(y)).all()
    assert torch.isfinite(metrics.crps(predictive, y, form="mixture"))
    with pytest.raises(bn.BayesNormError, match="crps needs a finite variance"):
        predictive.crps(y)
    assert (predictive.interval(0.9)[0] < predictive.interval(0.9)[1]).all()


def test_crps_without_noise_is_that_of_the_samples():
    """As with any other noise; the distance of a target in units of no scale at all is infinite."""
    for dtype in (torch.float32, torch.float64):
        for df in (1.5, 4.0, 400.0):
            loc = torch.tensor([[0.0], [1.0], [10.0]], dtype=dtype)
            predictive = RegressionPredictive(loc, torch.zeros(1, dtype=dtype), noise=StudentTNoise(df))
            value = metrics.crps(predictive, [7.0], form="mixture").item()
            assert value == pytest.approx(float(scoringrules.crps_ensemble(7.0, [0.0, 1.0, 10.0])), rel=1e-6)
