"""Numbers so extreme that a prediction would not be finite are refused by name; ordinary ones never are."""

import dataclasses
import re

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import InputError, NotFiniteError
from bayesnorm.predictive import LaplaceNoise, NormalNoise, StudentTNoise

from .apply import Apply

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:batch_size. .* scored best:bayesnorm.BayesNormWarning")

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, :1].sin() + 0.1 * X[:, 1:2]
ENGINES = [None, bn.MonteCarlo(8, vectorize=False), bn.SigmaPoints(2), bn.Delta()]


def network(outputs=1):
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs)).eval()


def fitted(outputs=1, likelihood=None):
    return bn.MCBN(batch_size=16, states=16).fit(network(outputs), X, likelihood)


@pytest.mark.parametrize(
    "likelihood", [bn.Gaussian(), bn.Categorical(), bn.MultiTask({"a": bn.Gaussian(), "b": bn.Gaussian()})], ids=str
)
def test_an_effective_batch_size_that_is_too_small(likelihood):
    posterior = fitted(2, likelihood)
    said = r"Outputs of all rows are not finite at effective batch size 0.001.*at_batch_size\(16\)"
    with pytest.raises(NotFiniteError, match=said):
        posterior.at_batch_size(1e-3).predict(X)
    with pytest.raises(NotFiniteError, match=r"not finite at effective batch size 0.001"):
        posterior.at_batch_size(1e-3).predict(X, bn.SigmaPoints(4))
    assert torch.isfinite(posterior.at_batch_size(1e30).predict(X).log_prob(_targets(likelihood))).all()


def _targets(likelihood):
    return torch.zeros(60, dtype=torch.long) if isinstance(likelihood, bn.Categorical) else torch.zeros(60, 2)


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_rows_that_are_too_large(engine):
    posterior = fitted()
    for rows, named in (([3], "row 3"), ([3, 7], "rows 3 and 7"), ([1, 2, 5, 8, 9], "rows 1, 2, 5 and 2 more")):
        x = X.clone()
        x[rows] = 1e30
        said = rf"^x gives outputs that are not finite, or too large for torch.float32, for {named}, .*1e\+30\. Pass"
        with pytest.raises(NotFiniteError, match=said):
            posterior.predict(x, engine)


def test_posteriors_without_a_batch_size_blame_the_rows():
    with pytest.raises(NotFiniteError, match=r"^x gives outputs that are not finite.*all rows"):
        bn.ensemble([network(), network()], bn.Gaussian()).predict(1e30 * X)


def test_noise_that_is_too_extreme():
    for likelihood, said in (
        (bn.Gaussian(1e-45), "precision is 1e-45, which is too extreme for predictions in torch.float32. Use"),
        (bn.Gaussian((1.0, 1e300)), "precision is 1e+300"),
        (bn.Laplace(1e30), "scale is 1e+30"),
        (bn.StudentT(scale=1e-45), "scale is 1e-45"),
        (bn.HeteroscedasticGaussian(1e15), "scale is 1e+15"),
        (bn.Categorical(1e-300), "temperature is 1e-300"),
    ):
        posterior = bn.deterministic(network(2), likelihood)
        with pytest.raises(NotFiniteError, match=re.escape(said)):
            posterior.predict(X)
        with pytest.raises(NotFiniteError, match=re.escape(said)):
            bn.MCBN(batch_size=16, states=4).fit(network(2), X, likelihood).predict(X)


def test_double_precision_takes_what_single_does_not():
    posterior = bn.deterministic(network().double(), bn.Gaussian(1e-45))
    assert torch.isfinite(posterior.predict(X).variance).all()
    assert torch.isfinite(posterior.predict(1e30 * X).variance).all()


@pytest.mark.parametrize("options", [{}, {"batch_size": False}, {"score": "pll"}, {"batch_size": [8.0, 32.0]}], ids=str)
def test_targets_that_are_too_large(options):
    posterior = fitted()
    for function in (posterior.predict(X).log_prob, posterior.predict(X).crps, lambda y: bn.calibrate(posterior, X, y)):
        with pytest.raises(InputError, match=r"^y must be at most .* but 1 of 60 values are larger, such as 1e\+30"):
            function(torch.cat([Y[:-1], torch.tensor([[1e30]])]))
    with pytest.raises(NotFiniteError, match=r"y is so far from the predictions that squared errors overflow in"):
        bn.calibrate(posterior, X, torch.full_like(Y, 8e18), **options)
    with pytest.raises(NotFiniteError, match=r"^x gives outputs that are not finite.*all rows"):
        bn.calibrate(posterior, 1e30 * X, Y, **options)


def test_targets_in_large_units_are_no_problem():
    scaled = nn.Sequential(network(), Apply(lambda f: 1e12 * f)).eval()
    posterior = bn.MCBN(batch_size=16, states=16).fit(scaled, X)
    for options in ({}, {"score": "pll"}):
        calibrated = bn.calibrate(posterior, X, 1e12 * Y, **options)
        assert torch.isfinite(calibrated.predict(X).log_prob(1e12 * Y)).all()
    assert torch.isfinite(posterior.predict(X, bn.Delta()).variance).all()


def test_searches_pass_over_batch_sizes_that_are_too_small_and_refuse_those_that_were_asked_for():
    wild = dataclasses.replace(fitted(), fitted_batch_size=10**6)
    with pytest.raises(NotFiniteError):
        wild.at_batch_size(1).predict(X)
    calibrated = bn.calibrate(wild.at_batch_size(4096), X, Y)
    assert torch.isfinite(calibrated.predict(X).mean).all()
    posterior = fitted()
    with pytest.raises(NotFiniteError, match=r"not finite at effective batch size 0.0001"):
        bn.calibrate(posterior, X, Y, batch_size=[1e-4, 32.0])
    with pytest.raises(NotFiniteError, match=r"not finite at effective batch size 0.0001"):
        bn.select_batch_size(posterior, (X, Y), batch_sizes=[1e-4, 32.0])


def test_ranges_of_noise_that_are_too_wide():
    posterior = fitted()
    with pytest.raises(bn.BayesNormError, match=r"noise is 1e-300, which is too extreme"):
        bn.calibrate(posterior, X, Y, noise=(1e-300, 1.0))
    assert bn.calibrate(posterior, X, Y, noise=(1e-30, 1.0)).likelihood.precision > 1


def test_extreme_rows_leave_no_mark():
    """What is found out about a network from a look at two rows is not learned from rows whose outputs are NaN."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)).eval()
    images = torch.randn(40, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    posterior, same = (bn.MCBN(batch_size=8, states=8).fit(model, images) for _ in range(2))
    with pytest.raises(NotFiniteError):
        posterior.at_batch_size(1e-6).predict(images)
    assert torch.equal(posterior.predict(images).mean, same.predict(images).mean)


def test_a_class_that_is_ruled_out_is_no_fault():
    masked = nn.Sequential(network(3), Apply(lambda f: f + torch.tensor([0.0, -torch.inf, 0.0]))).eval()
    predictive = bn.MCBN(batch_size=16, states=8).fit(masked, X, bn.Categorical()).predict(X)
    assert (predictive.probs[:, 1] == 0).all()
    assert torch.isfinite(predictive.entropy).all()


def test_rows_without_columns_are_left_to_the_network():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(torch.ones(len(x), 2))[:, : x.shape[1] + 1]

    predictive = bn.deterministic(Constant().eval(), bn.Gaussian()).predict(torch.zeros(5, 0))
    assert predictive.mean.shape == (5, 1)


numbers = st.floats(-12, 12)


@given(
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([NormalNoise(), LaplaceNoise(), StudentTNoise(3.0)]),
    st.sampled_from([1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.95, 1 - 1e-9]),
    st.tuples(numbers, numbers, numbers),
    st.integers(0, 2**31),
)
def test_no_interval_has_a_negative_width(dtype, noise, level, magnitudes, seed):
    generator = torch.Generator().manual_seed(seed)
    center, spread, scale = (10.0**magnitude for magnitude in magnitudes)
    centers = center * torch.randn(20, generator=generator)
    loc = (centers + spread * torch.randn(4, 20, generator=generator)).to(dtype)
    scales = (scale * torch.randn(4, 20, generator=generator).exp()).to(dtype)
    lower, upper = bn.RegressionPredictive(loc, scales, None, noise).interval(level)
    assert (lower <= upper).all()
