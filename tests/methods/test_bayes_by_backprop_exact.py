"""Bayes by Backprop against Bayesian linear regression, whose posterior and evidence are closed, and quadrature.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal, kl_divergence

import bayesnorm as bn
from bayesnorm.posterior.weight_distributions import GaussianWeights, WeightPrior

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

ESTIMATORS = ("local", "flipout", "weights")


@dataclasses.dataclass
class LinearRegression:
    """y = x w + N(0, 1 / precision) with w ~ N(0, prior_std^2), everything in closed form."""

    x: torch.Tensor
    y: torch.Tensor
    precision: float = 4.0
    prior_std: float = 1.5

    @classmethod
    def make(cls, rows=40, width=3, correlation=0.0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        x = torch.linalg.qr(torch.randn(rows, width, dtype=torch.float64, generator=generator))[0] * rows**0.5
        x = x + correlation * x.sum(1, keepdim=True)
        w = torch.randn(width, 1, dtype=torch.float64, generator=generator)
        return cls(x, x @ w + torch.randn(rows, 1, dtype=torch.float64, generator=generator) / 2)

    @property
    def precision_matrix(self):
        return self.precision * self.x.T @ self.x + torch.eye(self.x.shape[1]) / self.prior_std**2

    @property
    def mean(self):
        return torch.linalg.solve(self.precision_matrix, self.precision * self.x.T @ self.y)[:, 0]

    @property
    def log_evidence(self):
        n = len(self.x)
        covariance = self.prior_std**2 * self.x @ self.x.T + torch.eye(n) / self.precision
        zero = torch.zeros(n, dtype=torch.float64)
        return MultivariateNormal(zero, covariance).log_prob(self.y[:, 0]).item()

    def gap(self, mean, var):
        """How far the bound of independent Gaussians lies below that of the best ones, in nats."""
        off, ratio = mean - self.mean, var * self.precision_matrix.diag()
        return (0.5 * off @ self.precision_matrix @ off + 0.5 * (ratio - 1 - ratio.log()).sum()).item()

    @property
    def mean_field_bound(self):
        """The best bound: the evidence less KL(q || exact posterior), both with the same mean."""
        matrix = self.precision_matrix
        return self.log_evidence - 0.5 * (matrix.diag().log().sum() - torch.logdet(matrix)).item()

    def fit(self, method, seed=0):
        model = nn.Linear(self.x.shape[1], 1, bias=False).double()
        return method.fit(model, (self.x, self.y), bn.Gaussian(self.precision), seed=seed)


def linear_method(cls=None, **options):
    return (cls or bn.BayesByBackprop)(
        **{"epochs": 600, "batch_size": 40, "learning_rate": 0.05, "prior": 1.5, "initial_std": 0.1, **options}
    )


@functools.cache
def fitted(correlation, estimator="local"):
    """A regression and its posterior, which several tests look at."""
    task = LinearRegression.make(correlation=correlation)
    longer = {"epochs": 1500, "learning_rate": 0.02} if estimator == "weights" else {}
    return task, task.fit(linear_method(estimator=estimator, **longer))


def gaussian(posterior, name="weight"):
    weights = posterior.weights[name]
    return weights.mean.flatten(), weights.std.square().flatten()


@pytest.mark.parametrize(("correlation", "estimator"), [(0.0, "local"), *((0.8, name) for name in ESTIMATORS)])
def test_linear_regression_has_the_closed_form_optimum(correlation, estimator):
    """Means are the exact posterior's; variances are 1 / diag(precision matrix)."""
    task, posterior = fitted(correlation, estimator)
    mean, var = gaussian(posterior)
    # What is left of the gradient's noise when the learning rate has fallen to zero; "weights" has the most of it. A
    # mean off by its standard deviation costs .5 nats, a variance off by a factor of 2 costs .15 (or .1).
    assert task.gap(mean, var) < {"local": 0.02, "flipout": 0.04, "weights": 0.1}[estimator]
    if correlation == 0 and estimator == "local":
        torch.testing.assert_close(var, torch.linalg.inv(task.precision_matrix).diag(), rtol=0.15, atol=0)


def test_the_bound_lies_below_the_evidence_and_is_that_of_the_best_independent_gaussians():
    for correlation in (0.0, 0.8):
        task, posterior = fitted(correlation)
        mean, var = gaussian(posterior)
        exact = task.mean_field_bound - task.gap(mean, var)
        bounds = torch.tensor([posterior.elbo(task.x, task.y, samples=500, seed=seed) for seed in range(10)])
        error = bounds.std() / 10**0.5
        assert abs(bounds.mean() - exact) < SIGMAS * error
        assert exact <= task.log_evidence + 1e-9
        if correlation == 0:  # the posterior is itself independent
            assert exact > task.log_evidence - 0.02
        else:
            assert task.mean_field_bound < task.log_evidence - 1


def test_predictive_variance_is_the_closed_form():
    _, posterior = fitted(0.0)
    mean, var = gaussian(posterior)
    new_x = torch.randn(5, 3, dtype=torch.float64)
    predictive = posterior.predict(new_x, bn.MonteCarlo(samples=4000))
    spread = new_x.square() @ var
    assert ((predictive.mean[:, 0] - new_x @ mean).abs() < SIGMAS * (spread / 4000).sqrt()).all()
    assert ((predictive.epistemic[:, 0] / spread - 1).abs() < SIGMAS * (2 / 4000) ** 0.5).all()
    torch.testing.assert_close(predictive.aleatoric, torch.full_like(predictive.mean, 0.25))


def test_gaussian_divergence_is_torchs_own():
    mean, std = torch.randn(3, 4, dtype=torch.float64), 0.1 + torch.rand(3, 4, dtype=torch.float64)
    center = torch.randn(3, 4, dtype=torch.float64)
    for own_center in (None, center):
        weights = GaussianWeights(nn.Parameter(mean), std, center=own_center)
        prior = Normal(center if own_center is not None else torch.zeros(1), torch.tensor(0.7))
        expected = kl_divergence(Normal(mean, std), prior).sum()
        torch.testing.assert_close(weights.kl(WeightPrior.parse(0.7)), expected)


@pytest.mark.parametrize("center", [None, 0.4])
def test_mixture_divergence_is_that_of_quadrature(center):
    mean, std = torch.tensor([0.3], dtype=torch.float64), torch.tensor([0.2], dtype=torch.float64)
    mixture = MixtureSameFamily(
        Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64)),
        Normal(center or 0.0, torch.tensor([1.0, 0.05], dtype=torch.float64)),
    )
    grid = torch.linspace(-3, 4, 200_001, dtype=torch.float64)
    q = Normal(mean, std)
    expected = torch.trapezoid(q.log_prob(grid).exp() * (q.log_prob(grid) - mixture.log_prob(grid)), grid)
    own_center = None if center is None else torch.full_like(mean, center)
    weights, prior = GaussianWeights(nn.Parameter(mean), std, center=own_center), WeightPrior.parse((0.25, 1.0, 0.05))
    estimates = torch.stack([weights.kl(prior, 200) for _ in range(200)]).detach()
    assert abs(estimates.mean() - expected) < SIGMAS * estimates.std() / 200**0.5
    deviation = grid - (center or 0.0)
    torch.testing.assert_close(prior.log_prob(deviation), mixture.log_prob(grid))


def test_a_mixture_of_one_part_is_a_gaussian():
    assert WeightPrior.parse((1.0, 0.5, 3.0)).gaussian
    deviation, std = torch.randn(5), torch.rand(5) + 0.1
    same = WeightPrior.parse((0.3, 0.5, 0.5))
    estimates = torch.stack([same.kl(deviation, std, 500) for _ in range(100)])
    expected = WeightPrior.parse(0.5).kl(deviation, std)
    assert abs(estimates.mean() - expected) < SIGMAS * estimates.std() / 10


def test_training_under_the_scale_mixture_finds_the_best_bound():
    """One weight: the bound of every (mu, sigma) by quadrature, whose best is compared with what training found."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 1, dtype=torch.float64, generator=generator)
    task = LinearRegression(x, 0.15 * x + 0.5 * torch.randn(40, 1, dtype=torch.float64, generator=generator))
    mean, var = gaussian(task.fit(linear_method(prior=(0.5, 1.5, 0.05))))
    prior, grid = WeightPrior.parse((0.5, 1.5, 0.05)), torch.linspace(-2, 2, 2001, dtype=torch.float64)
    # Up to a constant, the bound is E_q[ln p(y | w) + ln p(w)] plus the entropy of q.
    joint = -0.5 * task.precision * (task.y - task.x * grid).square().sum(0) + prior.log_prob(grid)

    def bounds(mu, sigma):
        q = Normal(mu[..., None], sigma[..., None])
        return torch.trapezoid(q.log_prob(grid).exp() * joint, grid) + sigma.log()

    every = torch.cartesian_prod(torch.linspace(-0.2, 0.6, 81), torch.linspace(0.02, 0.2, 60)).double()
    best = bounds(*every.T).max()
    assert bounds(mean, var.sqrt()).item() > best - 0.02
    plain = LinearRegression(task.x, task.y).fit(linear_method())
    assert bounds(*(part for part in (gaussian(plain)[0], gaussian(plain)[1].sqrt()))).item() < best - 0.05


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_learns(regression, estimator):
    method = bn.BayesByBackprop(epochs=30, batch_size=16, learning_rate=0.01, prior=0.5, estimator=estimator)
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    error = (posterior.predict(regression.x).mean - regression.y).square().mean()
    assert error < 0.6 * regression.y.var()
    short = dataclasses.replace(method, epochs=2)
    first, again = (
        short.fit(regression.model, (regression.x, regression.y), regression.likelihood).sample(2) for _ in range(2)
    )
    assert torch.equal(first["3.weight"], again["3.weight"])
