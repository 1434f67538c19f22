"""The contract of every engine, on the posteriors of every method that it takes.

Samples (`MonteCarlo`) are what the contract of methods is about; here are the engines that need coordinates.
"""

import pytest
import torch
from every_method import VARIANTS, assert_same, each_method, each_network, fit, fits_coordinates, name_of, numbers

import bayesnorm as bn
from bayesnorm.engines.base import CoordinatePosterior

ENGINES = [bn.SigmaPoints(rank=4), bn.Delta()]

each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)

WITH_COORDINATES = [method for method in VARIANTS if fits_coordinates(method)]
MCBN = next(method for method in WITH_COORDINATES if isinstance(method, bn.MCBN))

each_distribution = pytest.mark.parametrize(
    "method", [method for method in WITH_COORDINATES if not isinstance(method, bn.StochasticBN)], ids=name_of
)
"""One method for each distribution of fluctuations: that of StochasticBN is also one of GaussianBN."""


@each_engine
@each_method
def test_engine_takes_posteriors_with_coordinates_and_refuses_all_others(method, engine, regression, fitted):
    posterior = fitted(method, regression)
    assert isinstance(posterior, CoordinatePosterior) == fits_coordinates(method), "`fit` says what it returns"
    if isinstance(posterior, CoordinatePosterior):
        assert (posterior.predict(regression.new_x, engine).epistemic > 0).all()
    else:
        with pytest.raises(bn.BayesNormError, match=r"MonteCarlo\(\), which supports every posterior"):
            posterior.predict(regression.new_x, engine)


@each_engine
def test_engine_shapes_and_laws(engine, task, fitted):
    exact = {"rtol": 1e-10, "atol": 1e-12}
    predictive = fitted(MCBN, task, torch.float64).predict(task.new_x, engine)
    assert len(predictive) == 6
    for name in ("mean", "epistemic", "aleatoric", "variance", "std"):
        value = getattr(predictive, name)
        assert value.shape == (6, *task.out), name
        assert torch.isfinite(value).all(), name
        assert value.dtype == torch.float64
    assert (predictive.epistemic > 0).all()
    assert (predictive.aleatoric > 0).all()
    torch.testing.assert_close(predictive.variance, predictive.epistemic + predictive.aleatoric, **exact)
    if task.regression:
        per_row = (6, *task.out)
        lower, upper = predictive.interval(0.9)
        assert (lower < predictive.mean).all()
        assert (predictive.mean < upper).all()
        noise = 1 / torch.tensor(task.likelihood.precision, dtype=torch.float64)
        torch.testing.assert_close(predictive.aleatoric, noise.expand(per_row), **exact)
    else:
        per_row = (6, *task.out[1:])
        torch.testing.assert_close(predictive.probs.sum(1), torch.ones(per_row, dtype=torch.float64))
        torch.testing.assert_close(predictive.variance, predictive.probs * (1 - predictive.probs), **exact)
        parts = predictive.mutual_information + predictive.expected_entropy
        torch.testing.assert_close(predictive.entropy, parts, rtol=1e-9, atol=1e-10)
        assert predictive.mutual_information.min() >= 0
        assert predictive.mutual_information.max() > 0
    assert predictive.log_prob(task.new_y.double() if task.regression else task.new_y).shape == per_row
    assert predictive.sample(7, seed=1).shape == (7, *per_row)


@each_engine
@each_network
@each_distribution
def test_engine_same_seed_same_result_and_the_model_bit_identical(method, engine, task, snapshot):
    task.model.train()
    next(task.model.parameters()).grad = torch.ones_like(next(task.model.parameters()))
    next(task.model.parameters()).requires_grad_(False)
    task.model[1].register_forward_hook(lambda _module, _args, _output: None)
    before, generator = snapshot(task.model), torch.get_rng_state()
    posterior = fit(method, task)
    assert snapshot(task.model) == before, "fit"
    first, again = (numbers(posterior.predict(task.new_x, engine, seed=3), task.new_y) for _ in range(2))
    assert_same(first, again)
    other = posterior.predict(task.new_x, engine, seed=4)
    never = isinstance(engine, bn.SigmaPoints) or task.regression  # Delta samples logits, and nothing else
    assert torch.equal(first["variance"], other.variance) == never
    assert snapshot(task.model) == before, "predict"
    assert torch.equal(torch.get_rng_state(), generator)


@each_engine
@each_network
def test_engine_rows_are_independent_and_contexts_change_nothing(engine, task, fitted):
    posterior = fitted(MCBN, task)
    whole = posterior.predict(task.new_x, engine)
    with torch.inference_mode():
        inside = posterior.predict(task.new_x * 1.0, engine)
    assert torch.equal(inside.mean, whole.mean)
    assert torch.equal(inside.epistemic, whole.epistemic)
    # Regression of the one row is that of all; Delta's cheap samples of logits take the same noise for every row.
    alone = posterior.predict(task.new_x[2:3], engine)
    torch.testing.assert_close(alone.mean, whole.mean[2:3], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", [bn.MonteCarlo(samples=16), *ENGINES], ids=lambda engine: type(engine).__name__)
@each_network
@each_distribution
def test_engine_uncertainty_falls_with_the_effective_batch_size(method, engine, task, fitted):
    posterior = fitted(method, task)
    near, far = (posterior.at_batch_size(size).predict(task.new_x, engine) for size in (800, 80))
    # Nearly linear at both: the ratio is that of the batch sizes, up to second order in sqrt(1 / 80).
    ratio = (far.epistemic.mean() / near.epistemic.mean()).item()
    assert 7 < ratio < 13


@each_network
@each_distribution
def test_engines_agree_where_the_network_is_nearly_linear(method, task, fitted):
    posterior = fitted(method, task, torch.float64).at_batch_size(1e8)  # so little that hardly a ReLU bends within it
    many = posterior.predict(task.new_x, bn.MonteCarlo(samples=24 * 25)).epistemic
    # 600 samples: relative standard error of a variance sqrt(2 / 600) = 6 % (none where samples are the 24 batches
    # themselves), and of Delta's 128 pairs for classes 12.5 %; 4.5 of both together.
    error = 4.5 * (2 / 600 + (0 if task.regression else 2 / 128)) ** 0.5
    delta = posterior.predict(task.new_x, bn.Delta()).epistemic
    assert ((delta / many - 1).abs() < error).all()
    # The first directions explain most, and are scaled up for the rest: right on average, not for each output.
    points = posterior.predict(task.new_x, bn.SigmaPoints(rank=8)).epistemic
    assert 0.5 < (points / many).median() < 2


def test_a_number_of_samples_stands_for_monte_carlo(regression):
    posterior = bn.MCBN(batch_size=8, states=4).fit(regression.model, regression.x, regression.likelihood)
    expected = posterior.predict(regression.new_x, bn.MonteCarlo(8))
    assert torch.equal(posterior.predict(regression.new_x, samples=8).mean, expected.mean)
    for wrong in ({"samples": 8, "engine": bn.Delta()}, {"samples": 0}):
        with pytest.raises(bn.BayesNormError, match="samples"):
            posterior.predict(regression.new_x, **wrong)
