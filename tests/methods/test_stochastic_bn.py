"""StochasticBN: normal means, log-normal standard deviations, each on its own.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn

SIGMAS = 4.5
N, STATES, SIZE = 20_000, 60, 16


def rows(n, width, seed=0):
    return torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def model():
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)
    ).double()


@pytest.fixture
def pair(model):
    """The method and, from the same batches, those batches' own statistics."""
    x = rows(300, 3)
    return (
        bn.StochasticBN(batch_size=SIZE, states=STATES, center="batch").fit(model, x, seed=1),
        bn.MCBN(batch_size=SIZE, states=STATES, center="batch").fit(model, x, seed=1),
    )


def statistics(posterior, n):
    """Means and log standard deviations of n samples, both layers side by side."""
    drawn = posterior.sample(n)
    means = torch.cat([drawn["1.running_mean"], drawn["4.running_mean"]], 1)
    sigmas = torch.cat([(drawn[f"{name}.running_var"] + 1e-5).log() / 2 for name in ("1", "4")], 1)
    return torch.cat([means, sigmas], 1)


def test_marginals_are_those_of_the_batches(pair):
    stochastic, batches = pair
    result, real = statistics(stochastic, N), statistics(batches, STATES)
    exact = real.var(0, correction=0)
    # From n normal samples: a mean has standard error s / sqrt(n), a variance relative sqrt(2 / n).
    assert ((result.mean(0) - real.mean(0)).abs() < SIGMAS * (exact / N).sqrt()).all()
    assert ((result.var(0) / exact - 1).abs() < SIGMAS * math.sqrt(2 / N)).all()


def test_means_and_log_sigmas_are_normal(pair):
    result = statistics(pair[0], N)
    z = (result - result.mean(0)) / result.std(0)
    # Skewness and excess kurtosis of n normal samples have standard errors sqrt(6 / n) and sqrt(24 / n).
    assert (z.pow(3).mean(0).abs() < SIGMAS * math.sqrt(6 / N)).all()
    assert ((z.pow(4).mean(0) - 3).abs() < SIGMAS * math.sqrt(24 / N)).all()


def test_no_two_coordinates_go_together_though_the_batches_do(pair):
    stochastic, batches = pair
    off = ~torch.eye(18, dtype=torch.bool)
    result = torch.corrcoef(statistics(stochastic, N).T)[off]
    real = torch.corrcoef(statistics(batches, STATES).T)[off]
    assert (result.abs() < SIGMAS / math.sqrt(N)).all(), (
        "a correlation of n independent samples has deviation 1 / sqrt(n)"
    )
    assert real.abs().max() > 0.5
    assert stochastic.fluctuations.factor.shape == (0, 18)


def test_every_batch_counts_the_same(pair):
    """Moments accumulated over all batches, not an exponential average of the last nineteen."""
    stochastic, batches = pair
    deviations = batches.fluctuations.deviations
    torch.testing.assert_close(stochastic.fluctuations.independent_std, deviations.square().mean(0).sqrt())
    torch.testing.assert_close(stochastic.location, batches.batch_mean)


def test_a_larger_effective_batch_size_samples_closer(pair):
    stochastic, _ = pair
    near, far = (statistics(stochastic.at_batch_size(size), 500) for size in (64, 16))
    centre = stochastic.location.clone()
    centre[9:] /= 2  # log sigma is half of log variance
    torch.testing.assert_close(near - centre, (far - centre) / 2, rtol=1e-8, atol=1e-10)


def test_needs_no_data_after_the_fit(model, tmp_path):
    x = rows(300, 3)
    posterior = bn.StochasticBN(batch_size=SIZE, states=STATES).fit(model, x)
    posterior.directions(4)
    posterior.save(tmp_path / "posterior")
    loaded = bn.load(tmp_path / "posterior", model)
    assert loaded.method == "StochasticBN"
    for engine in (bn.MonteCarlo(16), bn.SigmaPoints(4), bn.Delta()):
        assert torch.equal(loaded.predict(x[:4], engine).variance, posterior.predict(x[:4], engine).variance)
    assert (tmp_path / "posterior").stat().st_size < 9000  # four vectors, and what tells new rows from training rows
