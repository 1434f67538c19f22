"""A posterior as a plain module gives the posterior's predictions, for every kind of posterior and likelihood."""

from __future__ import annotations

import copy
from itertools import product

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.export import MixtureInterval
from bayesnorm.predictive import LaplaceNoise, NormalNoise, RegressionPredictive, StudentTNoise

MC = bn.MonteCarlo(5)


def reading(predictive, level=0.95):
    """Return the named outputs of a predictive, by its public properties."""
    if isinstance(predictive, bn.RegressionPredictive):
        lower, upper = predictive.interval(level)
        std = predictive.epistemic.sqrt(), predictive.aleatoric.sqrt()
        names = ("predictive_mean", "epistemic_std", "aleatoric_std", "lower", "upper")
        return dict(zip(names, (predictive.mean, *std, lower, upper), strict=True))
    return {name: getattr(predictive, name) for name in ("probs", "label", "entropy", "mutual_information")}


def require_same(module, posterior, engine, x, **options):
    """Compare a module with a posterior on several batch sizes."""
    for rows in (1, 2, 6):
        values, expected = module(x[:rows]), reading(posterior.predict(x[:rows], engine=engine), **options)
        assert values.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(values[name], value, rtol=1e-4, atol=1e-5)


def convolutional() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.norm, self.late = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            h = torch.relu_(self.norm(self.first(x)))
            late = self.late(self.second(h))
            late += h  # sampled plus unsampled, in place
            pooled = nn.functional.adaptive_avg_pool2d(late.relu(), 1)
            return self.head(pooled.view(x.shape[0], -1))

    network = Residual()
    network(torch.randn(64, 2, 5, 5))
    return network.eval()


@pytest.mark.parametrize("method", [bn.MCBN, bn.GaussianBN, bn.StochasticBN], ids=lambda method: method.__name__)
def test_batchnorm_posteriors(make_task, method):
    task = make_task("regression")
    posterior = method(batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    require_same(bn.as_module(posterior, task.x[:4], engine=MC), posterior, MC, task.new_x)


def test_by_default_sigma_points_are_exported(make_task):
    task = make_task("classification")
    posterior = bn.MCBN(batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    module = bn.as_module(posterior)  # with training examples that the posterior keeps
    assert module.samples == 16
    require_same(module, posterior, bn.SigmaPoints(8), task.new_x)


@pytest.mark.parametrize("layers", [1, None])
@pytest.mark.parametrize("group", [None, 2, 1])
def test_samples_may_run_together_in_groups_or_one_by_one(layers, group):
    network, x = convolutional(), torch.randn(40, 2, 5, 5)
    posterior = bn.MCBN(batch_size=8).fit(network, x, bn.Categorical())
    posterior = posterior if layers is None else posterior.at_layers(layers)
    require_same(bn.as_module(posterior, x[:3], engine=MC, group=group), posterior, MC, x)


def test_what_comes_before_the_first_sampled_layer_runs_once():
    network, x = convolutional(), torch.randn(40, 2, 5, 5)
    posterior = bn.MCBN(batch_size=8).fit(network, x, bn.Categorical()).at_layers(1)
    for group in (None, 1):
        (part,) = bn.as_module(posterior, x[:3], samples=4, group=group).parts
        assert sum("conv2d" in str(node.target) for node in part.graph.nodes) == 2


def test_an_adapted_posterior(make_task):
    task = make_task("regression")
    posterior = bn.MCBN(batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    adapted = bn.adapt(posterior, task.x * 1.5 + 1)
    require_same(bn.as_module(adapted, task.x[:4], engine=MC), adapted, MC, task.new_x)


@pytest.mark.parametrize("consistent", [True, False])
def test_dropout_with_fixed_masks(make_task, consistent):
    task = make_task("classification")
    posterior = bn.MCDropout(consistent=consistent).fit(task.model, (task.x, task.y), task.likelihood)
    require_same(bn.as_module(posterior, task.x[:4], engine=MC), posterior, MC, task.new_x)


def test_deterministic_networks_ensembles_and_combinations(make_task):
    task = make_task("regression")
    data = task.x, task.y
    deterministic = bn.deterministic(task.model, task.likelihood)
    one = bn.MCBN(batch_size=16).fit(task.model, data, task.likelihood)
    both = bn.combine(one, bn.MCDropout(consistent=True).fit(task.model, data, task.likelihood))
    for posterior in (deterministic, both, bn.ensemble([task.model, make_task("regression").model], task.likelihood)):
        engine = bn.MonteCarlo(max(posterior.default_samples % 64, 1) if posterior is not both else 5)
        require_same(bn.as_module(posterior, task.x[:4], engine=engine), posterior, engine, task.new_x)
    networks = [convolutional(), convolutional()]
    x = torch.randn(40, 2, 5, 5)
    members = [bn.MCBN(batch_size=8).fit(network, x, bn.Categorical()) for network in networks]
    ensemble = bn.ensemble(members)
    require_same(bn.as_module(ensemble, x[:4], engine=MC), ensemble, MC, x)  # 3 and 2 samples of the members


@pytest.mark.parametrize(
    "likelihood",
    [
        bn.Laplace(0.4),
        bn.StudentT(4.0, 0.3),
        bn.Gaussian((4.0, 9.0)),
        bn.HeteroscedasticGaussian(),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_likelihoods_of_regression(make_task, likelihood):
    task = make_task("multi_output")
    posterior = bn.MCBN(batch_size=16).fit(task.model, task.x, likelihood)
    require_same(bn.as_module(posterior, task.x[:4], engine=MC), posterior, MC, task.new_x)


def test_likelihoods_of_classes(make_task):
    task = make_task("per_pixel")
    posterior = bn.MCBN(batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    for likelihood in (bn.Categorical(1.7), bn.VarianceScaledCategorical(1.2, slope=0.4, mean=-4.0)):
        other = posterior.with_likelihood(likelihood)
        require_same(bn.as_module(other, task.x[:4], engine=MC), other, MC, task.new_x)


def test_outputs_and_levels_can_be_chosen(make_task):
    task = make_task("regression")
    posterior = bn.MCBN(batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    module = bn.as_module(posterior, task.x[:4], engine=MC, outputs=("upper", "predictive_std"), level=0.5)
    values, predictive = module(task.new_x), posterior.predict(task.new_x, engine=MC)
    assert list(values) == ["upper", "predictive_std"]
    torch.testing.assert_close(values["upper"], predictive.interval(0.5)[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(bn.BayesNormError, match=r"outputs=\['probs'\], but a RegressionPredictive has the outputs"):
        bn.as_module(posterior, task.x[:4], outputs=["probs"])


def test_the_module_does_not_depend_on_the_network_any_more(make_task):
    task = make_task("regression")
    posterior = bn.MCBN(batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    module = bn.as_module(posterior, task.x[:4], engine=MC)
    before = module(task.new_x)
    with torch.no_grad():
        for tensor in [*task.model.parameters(), *task.model.buffers()]:
            tensor.zero_()
    for name, value in copy.deepcopy(module)(task.new_x).items():
        assert torch.equal(value, before[name])


def test_networks_that_cannot_be_exported_are_refused_in_words():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(3), nn.Linear(3, 1)

        def forward(self, x):
            h = self.norm(x)
            return self.head(h) if float(h.detach().sum()) > 0 else self.head(-h)

    posterior = bn.MCBN(batch_size=8).fit(Branching().eval(), torch.randn(40, 3), bn.Gaussian())
    with pytest.raises(bn.BayesNormError, match=r"Branching cannot be exported, because torch\.export could not"):
        bn.as_module(posterior, torch.randn(4, 3))
    with pytest.raises(bn.BayesNormError, match="because a file cannot compute derivatives"):
        bn.as_module(posterior, torch.randn(4, 3), engine=bn.Delta())


@pytest.mark.parametrize(
    ("noise", "spread"),
    [*product((NormalNoise(), LaplaceNoise(), StudentTNoise(4.0)), (0.1, 3.0)), (StudentTNoise(4.0), 30.0)],
)
def test_intervals_in_a_fixed_number_of_steps(noise, spread):
    generator = torch.Generator().manual_seed(3)
    loc = spread * torch.randn(16, 500, generator=generator)
    predictive = RegressionPredictive(loc, torch.ones(()), noise=noise)
    for level in (0.6, 0.95):  # not between two samples far apart, where every number would do
        ends = MixtureInterval(level, noise)(predictive)
        for end, expected in zip(ends, predictive.interval(level), strict=True):
            error = (end - expected).abs() / (predictive.epistemic + 1).sqrt()
            assert float(error.max()) < (1e-5 if spread <= 3 else 0.02)
