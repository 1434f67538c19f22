"""Bayes by Backprop against Bayesian linear regression, whose posterior and evidence are closed, and its own promises.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal, kl_divergence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import bayesnorm as bn
from bayesnorm.errors import InputError, NetworkError
from bayesnorm.methods import variational
from bayesnorm.methods.weight_distributions import GaussianWeights, WeightPrior
from bayesnorm.training.objective import Step

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
    def of(cls, rows=40, width=3, correlation=0.0, seed=0):
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


def gaussian(posterior, name="weight"):
    weights = posterior.weights[name]
    return weights.mean.flatten(), weights.std.square().flatten()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_linear_regression_has_the_closed_form_optimum(correlation, estimator):
    """Means are the exact posterior's; variances are 1 / diag(precision matrix)."""
    task = LinearRegression.of(correlation=correlation)
    longer = {"epochs": 1500, "learning_rate": 0.02} if estimator == "weights" else {}
    mean, var = gaussian(task.fit(linear_method(estimator=estimator, **longer)))
    # What is left of the gradient's noise when the learning rate has fallen to zero; "weights" has the most of it. A
    # mean off by its standard deviation costs .5 nats, a variance off by a factor of 2 costs .15 (or .1).
    assert task.gap(mean, var) < {"local": 0.02, "flipout": 0.04, "weights": 0.1}[estimator]
    if correlation == 0 and estimator == "local":
        torch.testing.assert_close(var, torch.linalg.inv(task.precision_matrix).diag(), rtol=0.15, atol=0)


def test_the_bound_lies_below_the_evidence_and_is_that_of_the_best_independent_gaussians():
    for correlation in (0.0, 0.8):
        task = LinearRegression.of(correlation=correlation)
        posterior = task.fit(linear_method())
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
    task = LinearRegression.of()
    posterior = task.fit(linear_method())
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
        torch.testing.assert_close(weights.kl(WeightPrior.of(0.7)), expected)


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
    weights, prior = GaussianWeights(nn.Parameter(mean), std, center=own_center), WeightPrior.of((0.25, 1.0, 0.05))
    estimates = torch.stack([weights.kl(prior, 200) for _ in range(200)]).detach()
    assert abs(estimates.mean() - expected) < SIGMAS * estimates.std() / 200**0.5
    deviation = grid - (center or 0.0)
    torch.testing.assert_close(prior.log_prob(deviation), mixture.log_prob(grid))


def test_a_mixture_of_one_part_is_a_gaussian():
    assert WeightPrior.of((1.0, 0.5, 3.0)).gaussian
    deviation, std = torch.randn(5), torch.rand(5) + 0.1
    same = WeightPrior.of((0.3, 0.5, 0.5))
    estimates = torch.stack([same.kl(deviation, std, 500) for _ in range(100)])
    expected = WeightPrior.of(0.5).kl(deviation, std)
    assert abs(estimates.mean() - expected) < SIGMAS * estimates.std() / 10


def test_training_under_the_scale_mixture_finds_the_best_bound():
    """One weight: the bound of every (mu, sigma) by quadrature, whose best is compared with what training found."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 1, dtype=torch.float64, generator=generator)
    task = LinearRegression(x, 0.15 * x + 0.5 * torch.randn(40, 1, dtype=torch.float64, generator=generator))
    mean, var = gaussian(task.fit(linear_method(prior=(0.5, 1.5, 0.05))))
    prior, grid = WeightPrior.of((0.5, 1.5, 0.05)), torch.linspace(-2, 2, 2001, dtype=torch.float64)
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


def captured(monkeypatch):
    """What `fit` gives to `train`."""
    seen = {}

    def spy(model, data, **options):
        seen.update(options, model=model)
        return real(model, data, **options)

    real = variational.train
    monkeypatch.setattr(variational, "train", spy)
    return seen


def test_the_divergence_is_divided_by_rows_and_its_weight_rises(monkeypatch, regression):
    seen = captured(monkeypatch)
    method = bn.BayesByBackprop(epochs=5, batch_size=16, kl_warmup=3)
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    (penalty,) = seen["penalties"]
    found = torch.stack([penalty(seen["model"], Step(epoch, 5, 1, 5)) for epoch in range(1, 6)])
    full = posterior.kl() / len(regression.x)
    torch.testing.assert_close(found, full * torch.tensor([0.25, 0.5, 0.75, 1, 1]), rtol=1e-4, atol=0)


def test_warmup_lets_the_data_speak_first(regression):
    """While the divergence counts for less, weights go farther from the prior."""
    data = regression.x, regression.y
    method = bn.BayesByBackprop(epochs=20, batch_size=16, prior=0.1, learning_rate=0.01)
    pressed = method.fit(regression.model, data, regression.likelihood)
    warm = dataclasses.replace(method, kl_warmup=19).fit(regression.model, data, regression.likelihood)
    assert warm.kl() > 1.1 * pressed.kl()


@pytest.mark.parametrize("prior_center", ["zero", "trained"])
def test_starting_from_trained_weights_stays_near_them(regression, prior_center):
    method = bn.BayesByBackprop(
        start="trained", prior_center=prior_center, delta=0.05, epochs=2, batch_size=16, learning_rate=1e-4
    )
    model = regression.model
    posterior = method.fit(model, (regression.x, regression.y), regression.likelihood)
    steps = 2 * (len(regression.x) // 16)
    trained = dict(model.named_parameters())
    for name, weights in posterior.weights.items():
        # A step of Adam moves a parameter by at most (1 - .9) / sqrt(1 - .999) = 3.2 times the learning rate.
        assert (weights.mean - trained[name]).abs().max() < 3.2 * steps * 1e-4
        expected = (0.05 * trained[name].abs()).clamp_min(1e-4)
        torch.testing.assert_close(weights.std, expected, rtol=0.02, atol=0)
        assert (weights.center is None) == (prior_center == "zero")
    with torch.no_grad():
        exact = model(regression.new_x)
    predictive = posterior.predict(regression.new_x, bn.MonteCarlo(samples=400))
    # Weights spread by 5 %: outputs move by a few of these in standard deviation, and the mean by second order.
    assert (predictive.mean - exact).abs().max() < 0.1 * exact.std()
    fresh = dataclasses.replace(method, start="fresh", prior_center="zero")
    other = fresh.fit(model, (regression.x, regression.y), regression.likelihood)
    assert (other.predict(regression.new_x).mean - exact).abs().max() > 0.3 * exact.std()


def test_prior_about_the_trained_weights_has_less_to_pay(regression):
    options = {"start": "trained", "epochs": 2, "batch_size": 16, "prior": 0.1}
    data = regression.x, regression.y
    near = bn.BayesByBackprop(**options, prior_center="trained").fit(regression.model, data, regression.likelihood)
    far = bn.BayesByBackprop(**options).fit(regression.model, data, regression.likelihood)
    assert near.kl() < far.kl()


def test_what_is_random_and_what_is_a_point(make_task):
    task = make_task("per_pixel")
    posterior = bn.BayesByBackprop(epochs=2, batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    assert set(posterior.weights) == {"0.weight", "3.weight", "3.bias", "7.weight", "7.bias"}
    state = posterior.sample(3)
    assert set(state) == {*dict(task.model.named_parameters()), *dict(task.model.named_buffers())}
    for name, value in state.items():
        same = bool((value[0] == value[1]).all())
        assert same == (name not in posterior.weights), name
    own = dict(task.model.named_buffers())
    assert not torch.equal(state["1.running_mean"][0], own["1.running_mean"]), "batch norm follows training"
    assert not torch.equal(state["1.weight"][0], dict(task.model.named_parameters())["1.weight"])


def test_frozen_parameters_stay_points_with_their_values(regression):
    model = regression.model
    model[0].requires_grad_(False)
    posterior = bn.BayesByBackprop(epochs=2, batch_size=16).fit(model, (regression.x, regression.y))
    assert "0.weight" not in posterior.weights
    assert torch.equal(posterior.points["0.weight"], model[0].weight)
    assert "3.weight" in posterior.weights


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_learns(regression, estimator):
    method = bn.BayesByBackprop(epochs=60, batch_size=16, learning_rate=0.01, prior=0.5, estimator=estimator)
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    again = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    error = (posterior.predict(regression.x).mean - regression.y).square().mean()
    assert error < 0.6 * regression.y.var()
    assert torch.equal(posterior.sample(2)["3.weight"], again.sample(2)["3.weight"])


def test_shared_weights_predict_as_they_were_trained():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(40, 3)
    posterior = bn.BayesByBackprop(epochs=2, batch_size=8).fit(model, (x, x[:, :1]))
    state = posterior.sample(2)
    assert "2.weight" not in state
    same = copy.deepcopy(model)
    same.load_state_dict({**{name: value[1] for name, value in state.items()}, "2.weight": state["0.weight"][1]})
    torch.testing.assert_close(posterior.outputs(2, x)[1], same(x))


def test_only_the_architecture_counts_when_loading(regression, tmp_path):
    method = bn.BayesByBackprop(epochs=2, batch_size=16, start="trained", prior_center="trained", prior=(0.5, 1.0, 0.1))
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    posterior.save(tmp_path / "posterior")
    other = copy.deepcopy(regression.model)
    for module in other.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    loaded = bn.load(tmp_path / "posterior", other)
    assert torch.equal(loaded.predict(regression.new_x).mean, posterior.predict(regression.new_x).mean)
    assert loaded.prior == posterior.prior
    assert loaded.kl(8, seed=1) == posterior.kl(8, seed=1)
    assert loaded.elbo(regression.x, regression.y) == pytest.approx(posterior.elbo(regression.x, regression.y))
    with pytest.raises(bn.BayesNormError, match="model: does not match"):
        bn.load(tmp_path / "posterior", nn.Linear(3, 1))


def test_the_network_may_change_after_the_fit(regression):
    posterior = bn.BayesByBackprop(epochs=2, batch_size=16).fit(regression.model, (regression.x, regression.y))
    expected = posterior.predict(regression.new_x).mean
    with torch.no_grad():
        for tensor in regression.model.state_dict().values():
            tensor.zero_()
    assert torch.equal(posterior.predict(regression.new_x).mean, expected)


def test_loaders_and_data_sets(regression):
    data = TensorDataset(regression.x, regression.y)
    method = bn.BayesByBackprop(epochs=2)
    state = torch.get_rng_state()
    for given in (DataLoader(data, batch_size=16, shuffle=True), data, [regression.x.numpy(), regression.y.numpy()]):
        posterior = method.fit(regression.model, given, regression.likelihood)
        assert posterior.rows == len(data)
        assert torch.isfinite(posterior.predict(regression.new_x).mean).all()
    assert torch.equal(torch.get_rng_state(), state)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return {"features": self.body(x), "mean": self.head(torch.relu(self.body(x)))}


def test_a_chosen_output_and_progress():
    x, told = torch.randn(30, 3), []
    posterior = bn.BayesByBackprop(epochs=3, batch_size=8).fit(
        Heads(), (x, x[:, :1]), output="mean", progress=lambda *at: told.append(at)
    )
    assert posterior.predict(x).mean.shape == (30, 1)
    assert told == [(1, 3), (2, 3), (3, 3)]


X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))

BAD_OPTIONS = [
    ({"epochs": 0}, r"epochs: 0 was given; a whole number of at least 1"),
    ({"epochs": 2.5}, r"epochs: 2.5"),
    ({"batch_size": 1}, r"batch_size: 1 was given; a whole number of at least 2"),
    ({"learning_rate": 0.0}, r"learning_rate: 0.0 was given; a positive number"),
    ({"learning_rate": math.nan}, r"learning_rate: nan"),
    ({"schedule": "linear"}, r"schedule: 'linear' was given; one of 'cosine', 'constant'"),
    ({"prior": -1.0}, r"prior: -1.0 was given; a positive number"),
    ({"prior": (0.5, 1.0)}, r"prior: \(0.5, 1.0\) was given; .*\(pi, std1, std2\)"),
    ({"prior": (1.5, 1.0, 0.1)}, r"prior: .*pi up to 1"),
    ({"prior": "wide"}, r"prior: 'wide'"),
    ({"prior_center": "mean"}, r"prior_center: 'mean' was given; one of 'zero', 'trained'"),
    ({"prior_center": "trained"}, r'prior_center: "trained" goes with start="trained"'),
    ({"estimator": "reinforce"}, r"estimator: 'reinforce' was given; one of 'local', 'flipout', 'weights'"),
    ({"start": "warm"}, r"start: 'warm' was given; one of 'fresh', 'trained'"),
    ({"initial_std": 0}, r"initial_std: 0 was given"),
    ({"delta": True}, r"delta: True was given"),
    ({"kl_warmup": -1}, r"kl_warmup: -1 was given; a whole number of at least 0"),
    ({"kl_warmup": 5, "epochs": 5}, r"kl_warmup: 5 of 5 epochs.*at most 4 would work"),
]


@pytest.mark.parametrize(("options", "match"), BAD_OPTIONS)
def test_bad_options(options, match):
    with pytest.raises(bn.BayesNormError, match=match):
        bn.BayesByBackprop(**options)


class Stream(IterableDataset):
    def __iter__(self):
        return iter((x, x[:1]) for x in X)


BAD_INPUT = [
    (nn.Linear(3, 1), X, InputError, r"train_data: Tensor was given without targets; a pair \(x, y\) would work"),
    (nn.Linear(3, 1), X.numpy(), InputError, r"train_data: ndarray was given without targets"),
    (nn.Linear(3, 1), Stream(), InputError, r"train_data: Stream does not tell how many rows there are"),
    (nn.Linear(3, 1), 7, InputError, r"train_data: int does not tell"),
    (nn.Linear(3, 1), (X, X[:5, :1]), InputError, r"x has 40 rows and y 5"),
    (nn.Linear(3, 1), (X, X), InputError, r"y: has shape \(.*3\) for outputs"),
    (nn.Linear(3, 2), (X, X), bn.BayesNormError, r"likelihood: none was given and the network has outputs"),
    (nn.BatchNorm1d(3), (X, X), NetworkError, r"model: has no linear or convolutional layer"),
    (nn.Linear(5, 1), (X, X[:, :1]), InputError, r"forward failed on input of shape \(2, 3\)"),
    (nn.LazyLinear(1), (X, X[:, :1]), NetworkError, r"weight is not initialised yet"),
    (None, (X, X[:, :1]), NetworkError, r"model: NoneType was given"),
]


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("model", "data", "kind", "match"), BAD_INPUT, ids=lambda value: None)
def test_bad_input(model, data, kind, match, snapshot):
    before = None if isinstance(model, nn.LazyLinear | None) else snapshot(model)
    likelihood = bn.Gaussian() if isinstance(model, nn.BatchNorm1d) else None
    with pytest.raises(kind, match=match):
        bn.BayesByBackprop(epochs=1, batch_size=8).fit(model, data, likelihood)
    assert before is None or snapshot(model) == before


def test_nan_in_the_weights_or_rows():
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    with pytest.raises(NetworkError, match=r"weight holds 1 NaN"):
        bn.BayesByBackprop(epochs=1, batch_size=8).fit(model, (X, X[:, :1]))
    broken = X.clone()
    broken[7, 1] = math.nan
    with pytest.raises(bn.BayesNormError, match=r"holds 1 NaN"):
        bn.BayesByBackprop(epochs=1, batch_size=8).fit(nn.Linear(3, 1), (broken, X[:, :1]))


def test_bound_of_other_rows_is_refused(regression):
    posterior = bn.BayesByBackprop(epochs=1, batch_size=16).fit(regression.model, (regression.x, regression.y))
    with pytest.raises(InputError, match=r"y: has 5 rows and x 80"):
        posterior.elbo(regression.x, regression.y[:5])
    with pytest.raises(bn.BayesNormError, match=r"n: 0 was given"):
        posterior.kl(0)
