"""Multiplicative normalising flows: densities against autograd and quadrature, and the bound against closed forms.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence

import bayesnorm as bn
from bayesnorm.methods.mnf import FlowWeights
from bayesnorm.posterior.flow_weights import Flow, MaskedStep
from bayesnorm.posterior.weight_distributions import WeightPrior

from ..marks import takes_long

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""


R_NAMES = ("r_mean", "r_log_std", "c", "b_1", "b_2")


def stirred(module, std=0.5):
    """The module with parameters far from where they start, so that nothing is the identity."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(std * torch.randn_like(parameter))
    return module


def flow_weights(shape, axis, *, squash=True, std=0.2, center=None, **options):
    mean = nn.Parameter(torch.randn(*shape, dtype=torch.float64))
    sizes = {"flows": 2, "auxiliary_flows": 2, "hidden": 4, **options}
    return FlowWeights(mean, torch.full_like(mean, std).detach(), axis, center, squash=squash, **sizes)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_log_determinants_are_those_of_the_jacobian(size, steps):
    flow = stirred(Flow(torch.ones(size, dtype=torch.float64), steps, hidden=6))
    z = torch.randn(4, size, dtype=torch.float64)
    moved, log_det = flow(z)
    assert moved.shape == z.shape
    for row, result in zip(z, log_det, strict=True):
        jacobian = torch.func.jacrev(lambda one: flow(one[None])[0][0])(row)
        torch.testing.assert_close(result, torch.linalg.slogdet(jacobian).logabsdet)
        assert torch.linalg.slogdet(jacobian).sign > 0


def test_a_step_is_the_papers_formula():
    mask = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    step = stirred(MaskedStep(mask, 3))
    z = torch.randn(2, 4, dtype=torch.float64)
    mu, gate = step.outer(torch.tanh(step.inner(mask * z))).chunk(2, 1)
    g = torch.sigmoid(gate)
    torch.testing.assert_close(step(z)[0], mask * z + (1 - mask) * (g * z + (1 - g) * mu))
    torch.testing.assert_close(step(z)[1], ((1 - mask) * g.log()).sum(1))


def test_two_steps_transform_every_entry():
    flow = Flow(torch.ones(9), 4, hidden=3)
    first, second, third, fourth = (step.mask for step in flow.steps)
    assert torch.equal(first + second, torch.ones(9))
    assert torch.equal(third + fourth, torch.ones(9))
    assert not torch.equal(first, third)


@pytest.mark.parametrize("center", [None, 0.3])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 1), ((3, 2, 2, 2), 0)])
def test_divergence_given_z_is_torchs_own(shape, axis, center):
    prior = None if center is None else torch.full(shape, center, dtype=torch.float64)
    weights = stirred(flow_weights(shape, axis, center=prior))
    z = torch.randn(5, shape[axis], dtype=torch.float64)
    result = weights.kl_given(z, WeightPrior.parse(0.7))
    for one, value in zip(z, result, strict=True):
        along = one.view(*(-1 if i == axis else 1 for i in range(len(shape))))
        q = Normal(along * weights.mean, weights.std)
        torch.testing.assert_close(value, kl_divergence(q, Normal(center or 0.0, 0.7)).sum())


def test_the_density_of_z_is_that_of_an_affine_gaussian():
    """With one entry the flow is an affine map, so that z is Gaussian."""
    weights = stirred(flow_weights((2, 1), 1), std=0.3)
    with torch.no_grad():
        z, log_q = weights.sample_z(100)
        at_zero, at_one = weights.flow(torch.tensor([[0.0], [1.0]], dtype=torch.float64))[0][:, 0]
        slope = at_one - at_zero
        expected = Normal(at_zero + slope * weights.z_mean, slope * weights.z_log_std.exp())
    torch.testing.assert_close(log_q, expected.log_prob(z)[:, 0])


def test_r_is_a_density():
    weights = stirred(flow_weights((2, 1), 1), std=0.3)
    grid = torch.linspace(-60, 60, 100_001, dtype=torch.float64)
    with torch.no_grad():
        for a in (-0.8, 0.0, 0.5):
            density = weights.log_r(grid[:, None], torch.tensor([[a]], dtype=torch.float64)).exp()
            assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-6)
    pair = stirred(flow_weights((2, 2), 1), std=0.3)
    axis = torch.linspace(-15, 15, 601, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        density = pair.log_r(points, torch.tensor([[0.4]], dtype=torch.float64)).exp().view(601, 601)
    assert torch.trapezoid(torch.trapezoid(density, axis), axis).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("shape", "axis", "squash"), [((3, 4), 1, True), ((3, 2, 2, 2), 0, False)])
def test_what_r_sees_is_drawn_as_from_whole_weights(shape, axis, squash):
    """c^T W by its Gaussian has the distribution of c^T W from drawn W: means and variances of a agree."""
    weights, n = flow_weights(shape, axis, squash=squash, std=0.4), 4000
    with torch.no_grad():
        weights.c.normal_()
        z = torch.randn(1, shape[axis], dtype=torch.float64).expand(n, -1)
        result = weights.sample_a(z)[:, 0]
        along = z[0].view(*(-1 if i == axis else 1 for i in range(len(shape))))
        drawn = along * weights.mean + weights.std * torch.randn(n, *shape, dtype=torch.float64)
        projected = torch.einsum("c,nco->no", weights.c, drawn.movedim(axis + 1, 1).flatten(2))
        expected = (torch.tanh(projected) if squash else projected).mean(1)
    assert abs(result.mean() - expected.mean()) < SIGMAS * math.sqrt((result.var() + expected.var()) / n)
    # Nearly Gaussian: relative standard error of a variance sqrt(2 / n), of a ratio of two sqrt(2) of it.
    assert abs(result.var() / expected.var() - 1) < SIGMAS * math.sqrt(4 / n)


def test_the_bound_lies_above_the_true_divergence():
    """One weight, W = z M + sigma eps with an affine Gaussian z: q(W) is Gaussian, and its divergence closed."""
    weights, prior = stirred(flow_weights((1, 1), 1), std=0.3), WeightPrior.parse(1.3)
    with torch.no_grad():
        drawn = weights.samples(200_000).flatten()
        exact = kl_divergence(Normal(drawn.mean(), drawn.std()), Normal(0.0, 1.3))
        bounds = torch.stack([weights.kl(prior, 500) for _ in range(40)])
    error = bounds.std() / 40**0.5
    assert bounds.mean() > exact - SIGMAS * error
    # The auxiliary r, trained, comes near: the gap is E KL(q(z | W) || r(z | W)).
    r = [p for name, p in weights.named_parameters() if name in R_NAMES or name.startswith("auxiliary")]
    descend(lambda: weights.kl(prior, 200), r, 400, 0.05)
    with torch.no_grad():
        closer = torch.stack([weights.kl(prior, 500) for _ in range(40)])
    assert exact - SIGMAS * closer.std() / 40**0.5 < closer.mean() < bounds.mean()
    assert closer.mean() < exact + 0.05


def test_the_divergence_of_a_pass_is_that_of_its_own_z():
    weights, prior = stirred(flow_weights((2, 3), 1), std=0.2), WeightPrior.parse(1.0)
    z = weights.multipliers(6)
    assert z.shape == (6, 3)
    weights.kl(prior).backward()
    assert weights._latest is None
    assert all(parameter.grad is not None for parameter in weights.parameters())
    assert weights.kl(prior).shape == ()


def test_drawn_weights_have_z_along_their_axis():
    for shape, axis in (((3, 4), 1), ((3, 2, 2), 0)):
        weights = stirred(flow_weights(shape, axis, std=1e-12), std=0.2)
        with torch.no_grad():
            ratio = (weights.samples(3) / weights.mean).movedim(axis + 1, 1).flatten(2)
        torch.testing.assert_close(ratio, ratio[:, :, :1].expand_as(ratio), rtol=1e-6, atol=1e-8)
        assert (ratio[0, :, 0] - ratio[1, :, 0]).abs().min() > 1e-6


@dataclasses.dataclass
class CorrelatedRegression:
    """y = x w + N(0, 1/4) with w ~ N(0, 1.5^2) and inputs that move together: a posterior with strong correlations."""

    x: torch.Tensor
    y: torch.Tensor

    @classmethod
    def make(cls, width, correlation, rows=40):
        generator = torch.Generator().manual_seed(0)
        x = torch.linalg.qr(torch.randn(rows, width, dtype=torch.float64, generator=generator))[0] * rows**0.5
        x = x + correlation * x.sum(1, keepdim=True)
        return cls(x, x.sum(1, keepdim=True) + torch.randn(rows, 1, dtype=torch.float64, generator=generator) / 2)

    @property
    def precision_matrix(self):
        return 4 * self.x.T @ self.x + torch.eye(self.x.shape[1]) / 1.5**2

    @property
    def log_evidence(self):
        rows = len(self.x)
        covariance = 1.5**2 * self.x @ self.x.T + torch.eye(rows) / 4
        return MultivariateNormal(torch.zeros(rows, dtype=torch.float64), covariance).log_prob(self.y[:, 0]).item()

    @property
    def mean_field_bound(self):
        """The best bound of independent Gaussians."""
        matrix = self.precision_matrix
        return self.log_evidence - 0.5 * (matrix.diag().log().sum() - torch.logdet(matrix)).item()

    def negative_bound(self, weights, n):
        """Minus the bound, from n samples, with derivatives."""
        error = self.y[:, 0] - weights.samples(n)[:, 0] @ self.x.T
        log_likelihood = -2 * error.square().sum(1) + 0.5 * len(self.x) * math.log(4 / (2 * math.pi))
        return weights.kl(WeightPrior.parse(1.5), n) - log_likelihood.mean()


def descend(objective, parameters, steps, learning_rate):
    optimiser = torch.optim.Adam(parameters, learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        objective().backward()
        optimiser.step()
        schedule.step()


def test_the_bound_goes_beyond_independent_gaussians_and_not_beyond_the_evidence():
    """From a z that is correlated as the posterior is, training keeps it so: nearly all of mean field's gap is closed.

    Any error in a determinant or density would leave the gap, or break through the evidence.
    """
    task = CorrelatedRegression.make(width=2, correlation=3.0)
    weights = flow_weights((1, 2), 1, std=0.016)
    with torch.no_grad():
        weights.mean.copy_(torch.linalg.solve(task.precision_matrix, 4 * task.x.T @ task.y).T)
        weights.z_log_std.copy_(torch.tensor([0.06, 0.01]).log())
        first, second = weights.flow.steps
        first.mask.copy_(torch.tensor([1.0, 0.0]))
        second.mask.copy_(torch.tensor([0.0, 1.0]))
        first.inner.weight[:, 0], first.inner.bias[:] = 0.5, -0.5  # z_2 is about 1 - (z_1 - 1)
        first.outer.weight[1], first.outer.bias[3] = -0.5, -3.0
    r = [p for name, p in weights.named_parameters() if name in R_NAMES or name.startswith("auxiliary")]
    descend(lambda: weights.kl(WeightPrior.parse(1.5), 64), r, 400, 0.03)
    descend(lambda: task.negative_bound(weights, 64), list(weights.parameters()), 500, 0.01)
    with torch.no_grad():
        bounds = torch.stack([-task.negative_bound(weights, 1000) for _ in range(20)])
    error = bounds.std() / 20**0.5
    assert task.mean_field_bound < task.log_evidence - 1
    assert bounds.mean() > task.mean_field_bound + 0.6
    assert bounds.mean() < task.log_evidence + SIGMAS * error


def bound(posterior, x, y):
    """The bound and its standard error, from ten independent estimates."""
    bounds = torch.tensor([posterior.elbo(x, y, samples=200, seed=seed) for seed in range(10)])
    return bounds.mean().item(), bounds.std().item() / 10**0.5


@takes_long
def test_linear_regression_from_scratch_comes_down_to_independent_gaussians():
    """With one output z has nothing to share and shrinks, at last slowly: some tenths of a nat are left to go."""
    task = CorrelatedRegression.make(width=3, correlation=0.8)
    method = bn.MNF(epochs=1000, batch_size=40, learning_rate=0.05, prior=1.5, initial_std=0.1, hidden=8)
    posterior = method.fit(nn.Linear(3, 1, bias=False).double(), (task.x, task.y), bn.Gaussian(4.0))
    result, error = bound(posterior, task.x, task.y)
    assert result > task.mean_field_bound - 0.5 - SIGMAS * error
    assert result < task.log_evidence + SIGMAS * error


@takes_long
def test_the_bound_of_a_network_is_tighter_than_that_of_independent_gaussians():
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(120, 1, generator=generator) - 2
    y = torch.sin(3 * x) + 0.1 * torch.randn(120, 1, generator=generator)
    model = nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1))
    options = {"epochs": 250, "batch_size": 60, "learning_rate": 0.02}
    independent = bn.BayesByBackprop(**options).fit(model, (x, y), bn.Gaussian(50.0))
    flows = bn.MNF(**options, hidden=16).fit(model, (x, y), bn.Gaussian(50.0))
    (loose, loose_error), (tight, tight_error) = bound(independent, x, y), bound(flows, x, y)
    assert tight > loose + SIGMAS * math.hypot(loose_error, tight_error)


def test_starting_from_trained_weights_stays_near_them(regression):
    method = bn.MNF(start="trained", prior_center="trained", epochs=2, batch_size=16, learning_rate=1e-4)
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    with torch.no_grad():
        exact = regression.model(regression.new_x)
    mean = posterior.predict(regression.new_x, bn.MonteCarlo(samples=400)).mean
    assert (mean - exact).abs().max() < 0.3 * exact.std()


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_it_learns(regression, estimator):
    method = bn.MNF(epochs=20, batch_size=16, learning_rate=0.02, prior=0.5, hidden=8, estimator=estimator)
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    error = (posterior.predict(regression.x).mean - regression.y).square().mean()
    assert error < 0.6 * regression.y.var()
    kinds = {name: weights.kind for name, weights in posterior.weights.items()}
    assert kinds == {
        "0.weight": "flow",
        "3.weight": "flow",
        "3.bias": "gaussian",
        "7.weight": "flow",
        "7.bias": "gaussian",
    }


def test_convolutions_have_one_z_per_filter(make_task):
    task = make_task("per_pixel")
    posterior = bn.MNF(epochs=2, batch_size=16, hidden=4).fit(task.model, (task.x, task.y), task.likelihood)
    assert {name: len(w.z_mean) for name, w in posterior.weights.items() if w.kind == "flow"} == {
        "0.weight": 4,
        "3.weight": 5,
        "7.weight": 3,
    }


def test_loading_brings_the_bound_along(regression, tmp_path):
    method = bn.MNF(epochs=2, batch_size=16, hidden=4, start="trained", prior_center="trained")
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    posterior.save(tmp_path / "posterior")
    loaded = bn.load(tmp_path / "posterior", regression.model)
    assert loaded.kl(16) == posterior.kl(16)
    assert loaded.config() == posterior.config()


def test_no_flows_at_all(regression):
    posterior = bn.MNF(epochs=1, batch_size=16, flows=0, auxiliary_flows=0).fit(
        regression.model, (regression.x, regression.y), regression.likelihood
    )
    assert torch.isfinite(posterior.predict(regression.new_x).mean).all()


def test_a_prior_of_two_parts_is_refused():
    with pytest.raises(bn.BayesNormError, match=r"prior must be .*Gaussian prior, got \(0.5, 1.0, 0.1\)"):
        bn.MNF(prior=(0.5, 1.0, 0.1))
