"""The contract of every method. Methods are found by inspection; none is treated specially.

A new class with a `fit` in `bayesnorm.methods` is picked up by itself.
"""

import dataclasses
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from every_method import (
    METHODS,
    TOLERANCE,
    VARIANTS,
    assert_same,
    each_likelihood,
    each_method,
    each_network,
    fit,
    name_of,
    numbers,
)
from safetensors.torch import load_file

import bayesnorm as bn


def test_methods_are_found():
    assert bn.MCBN in METHODS
    for cls in METHODS:
        assert getattr(bn, cls.__name__) is cls, "a method is also a name of the package itself"
        assert cls.__doc__, "a method says what it is"


@each_method
def test_shapes(method, task, fitted):
    posterior = fitted(method, task)
    outputs = bn.MonteCarlo(samples=5).outputs(posterior, task.new_x)
    assert outputs.shape == (5, 6, *task.out)
    predictive = posterior.predict(task.new_x, engine=bn.MonteCarlo(samples=5))
    assert len(predictive) == 6
    assert predictive.weights.shape == (5,)
    assert len(repr(posterior).splitlines()) == len(repr(predictive).splitlines()) == 1
    for name in ("mean", "epistemic", "aleatoric", "variance", "std"):
        assert getattr(predictive, name).shape == (6, *task.out), name
    drawn = predictive.sample(7, seed=1)
    if task.regression:
        per_row = (6, *task.out)
        lower, upper = predictive.interval(0.9)
        assert lower.shape == upper.shape == predictive.crps(task.new_y).shape == per_row
        assert (lower < upper).all()
    else:
        per_row = (6, *task.out[1:])
        assert predictive.probs.shape == (6, *task.out)
        for name in ("entropy", "expected_entropy", "mutual_information", "label", "confidence"):
            assert getattr(predictive, name).shape == per_row, name
        torch.testing.assert_close(predictive.probs.sum(1), torch.ones(per_row))
    assert predictive.log_prob(task.new_y).shape == per_row
    assert drawn.shape == (7, *per_row)


@each_likelihood
@each_method
def test_dtype_follows_the_network(method, task, fitted):
    for dtype in (torch.float32, torch.float64):
        posterior, of_dtype = fitted(method, task, dtype), task.to(dtype)
        predictive = posterior.predict(of_dtype.new_x, engine=bn.MonteCarlo(samples=4))
        for name, value in numbers(predictive, of_dtype.new_y).items():
            assert value.dtype == (torch.int64 if name == "label" else dtype), name
            assert torch.isfinite(value).all(), name


@each_network
@each_method
def test_input_of_another_dtype_is_brought_to_the_networks(method, task, fitted):
    posterior = fitted(method, task)
    as_double = posterior.predict(task.new_x.double())
    as_array = posterior.predict(task.new_x.numpy())
    assert_same(numbers(as_double, task.new_y), numbers(as_array, task.new_y))
    assert as_double.mean.dtype == torch.float32


@each_likelihood
def test_one_draw_has_no_epistemic_uncertainty(task, fitted):
    predictive = fitted(VARIANTS[0], task).predict(task.new_x, engine=bn.MonteCarlo(samples=1))
    assert torch.equal(predictive.epistemic, torch.zeros_like(predictive.mean))
    assert torch.equal(predictive.variance, predictive.aleatoric)
    if not task.regression:
        # entropy(p) and the draw's own entropy are computed along two ways: equal up to rounding.
        assert predictive.mutual_information.abs().max() < 1e-6


@each_network
@each_method
def test_a_batch_of_one_is_the_row_of_the_whole_batch(method, task, fitted):
    posterior = fitted(method, task)
    whole = posterior.predict(task.new_x)
    for row in (0, 3):
        alone = posterior.predict(task.new_x[row : row + 1])
        y = task.new_y[row : row + 1]
        assert_same(numbers(alone, y), numbers(whole[row], y), exact=False)


@each_method
def test_a_copy_in_another_precision_predicts_the_same(method, regression, fitted):
    posterior = fitted(method, regression)
    copied = posterior.to(torch.float64)
    single, double = (numbers(one.predict(regression.new_x), regression.new_y) for one in (posterior, copied))
    assert posterior.executable.dtype == torch.float32
    for name, value in double.items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(value.float(), single[name], rtol=1e-3, atol=1e-4, msg=name)


@each_method
def test_same_seed_same_result_other_seed_other_result(method, task, fitted):
    posterior = fitted(method, task)
    first, again, other = (
        numbers(posterior.predict(task.new_x, engine=bn.MonteCarlo(samples=8), seed=seed), task.new_y)
        for seed in (3, 3, 4)
    )
    assert_same(first, again)
    assert not torch.equal(first["mean"], other["mean"])


@each_network
@each_method
def test_chunked_is_unchunked_is_the_plain_loop(method, task, fitted, reference):
    posterior = fitted(method, task, torch.float64)
    new_x = task.new_x.double()
    expected = reference(posterior.network, posterior.sample(11, seed=2), new_x)
    ways = [
        bn.MonteCarlo(samples=11),
        bn.MonteCarlo(samples=11, vectorize=False),
        bn.MonteCarlo(samples=11, chunk=4),
        bn.MonteCarlo(samples=11, block_bytes=700),
    ]
    for engine in ways:
        outputs = engine.outputs(posterior, new_x, seed=2)
        torch.testing.assert_close(outputs, expected, **TOLERANCE[torch.float64], msg=str(engine))


@each_method
def test_laws_of_total_variance_and_entropy(method, task, fitted):
    predictive = fitted(method, task, torch.float64).predict(task.new_x)
    exact = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(predictive.variance, predictive.epistemic + predictive.aleatoric, **exact)
    assert (predictive.epistemic > 0).all(), "samples disagree"
    assert (predictive.aleatoric > 0).all()
    if task.regression:
        torch.testing.assert_close(predictive.epistemic, predictive.loc.var(0, correction=0), **exact)
        noise = 1 / torch.tensor(task.likelihood.precision, dtype=torch.float64)
        torch.testing.assert_close(predictive.aleatoric, noise.expand(6, *task.out), **exact)
        lower, upper = predictive.interval(0.9)
        assert (lower < predictive.mean).all()
        assert (predictive.mean < upper).all()
    else:
        # The total variance of a one-hot target is p (1 - p), whatever the samples.
        torch.testing.assert_close(predictive.variance, predictive.probs * (1 - predictive.probs), **exact)
        parts = predictive.mutual_information + predictive.expected_entropy
        torch.testing.assert_close(predictive.entropy, parts, rtol=1e-9, atol=1e-10)
        assert (predictive.mutual_information >= 0).all()
        assert predictive.mutual_information.max() > 0


@each_network
@each_method
def test_the_model_is_bit_identical_after_every_call(method, task, snapshot, tmp_path):
    task.model.train()
    task.model[0].eval()  # flags that differ from module to module
    next(task.model.parameters()).grad = torch.ones_like(next(task.model.parameters()))
    next(task.model.parameters()).requires_grad_(False)
    task.model[1].register_forward_hook(lambda _module, _args, _output: None)
    before = snapshot(task.model)
    posterior = fit(method, task)
    assert snapshot(task.model) == before, "fit"
    posterior.predict(task.new_x)
    assert snapshot(task.model) == before, "predict"
    posterior.predict(task.new_x, engine=bn.MonteCarlo(samples=3, vectorize=False))
    assert snapshot(task.model) == before, "predict in a loop"
    posterior.sample(3)
    assert snapshot(task.model) == before, "sample"
    posterior.save(tmp_path / "posterior")
    assert snapshot(task.model) == before, "save"
    bn.load(tmp_path / "posterior", task.model).predict(task.new_x)
    assert snapshot(task.model) == before, "load"


@pytest.mark.filterwarnings("ignore:.*cannot be vectorised:bayesnorm.BayesNormWarning")
@each_method
def test_the_model_is_bit_identical_when_its_forward_raises(method, regression, calls, snapshot, tmp_path):
    task = regression
    calls.watch(*task.model.modules())
    before = snapshot(task.model)
    posterior = fit(method, task)
    fit_calls = calls.count
    posterior.save(tmp_path / "posterior")

    def unused():
        """The posterior before its first prediction, which looks at the network as later ones do not."""
        return bn.load(tmp_path / "posterior", task.model)

    calls.reset()
    expected = numbers(unused().predict(task.new_x), task.new_y)
    predict_calls = calls.count
    for share in (0.0, 0.5, 1.0):
        calls.reset(limit=1 + round(share * (fit_calls - 1)))
        with pytest.raises((calls.Boom, bn.BayesNormError), match="call"):
            fit(method, task)
        assert snapshot(task.model) == before

        calls.reset()
        raising = posterior if share == 0.5 else unused()
        calls.reset(limit=1 + round(share * (predict_calls - 1)))
        with pytest.raises((calls.Boom, bn.BayesNormError), match="call"):
            raising.predict(task.new_x)
        assert snapshot(task.model) == before

        calls.reset()  # the posterior works again, as if nothing had been
        assert_same(expected, numbers(raising.predict(task.new_x), task.new_y), exact=False)
        assert snapshot(task.model) == before


@each_network
@each_method
def test_two_posteriors_on_one_model_do_not_disturb_each_other(method, task, fitted):
    first = fitted(method, task)
    alone = numbers(first.predict(task.new_x), task.new_y)
    second = fit(method, dataclasses.replace(task, model=first.model, x=task.x[::2], y=task.y[::2]))
    # Seven samples: no method's samples are all of a finite set, so that another seed gives another mean.
    other = numbers(second.predict(task.new_x, bn.MonteCarlo(samples=7), seed=1), task.new_y)
    assert_same(alone, numbers(first.predict(task.new_x), task.new_y))
    assert_same(other, numbers(second.predict(task.new_x, bn.MonteCarlo(samples=7), seed=1), task.new_y))
    assert not torch.equal(alone["mean"], other["mean"])


@each_likelihood
@each_method
def test_a_new_likelihood_leaves_the_old_posterior_alone(method, task, fitted):
    posterior = fitted(method, task)
    expected = numbers(posterior.predict(task.new_x), task.new_y)
    other = bn.Gaussian(0.01) if task.regression else bn.Categorical(temperature=9.0)
    assert posterior.with_likelihood(other).predict(task.new_x).variance.sum() > expected["variance"].sum()
    assert_same(expected, numbers(posterior.predict(task.new_x), task.new_y))


@pytest.mark.parametrize(
    ("task", "context"), [("regression", torch.inference_mode), ("per_pixel", torch.no_grad)], indirect=["task"]
)
@each_method
def test_context_and_mode_change_nothing(method, task, context, fitted):
    expected = numbers(fitted(method, task).predict(task.new_x), task.new_y)
    assert not any(value.requires_grad for value in expected.values())
    task.model.train()
    with context():
        posterior = fit(method, task)
        result = numbers(posterior.predict(task.new_x), task.new_y)
        one_by_one = bn.MonteCarlo(posterior.default_samples, vectorize=False)
        looped = posterior.predict(task.new_x * 1.0, engine=one_by_one)
    assert_same(expected, result)
    assert_same(expected, numbers(looped, task.new_y), exact=False)
    task.model.eval()
    assert_same(expected, numbers(posterior.predict(task.new_x), task.new_y))


@each_method
def test_global_generators_are_neither_changed_nor_used(method, regression, fitted, tmp_path):
    task = regression

    def states():
        kind, keys, *rest = np.random.get_state()  # noqa: NPY002
        return random.getstate(), (kind, keys.tobytes(), *rest), torch.get_rng_state().numpy().tobytes()

    expected = numbers(fitted(method, task).predict(task.new_x), task.new_y)
    torch.manual_seed(99)  # others than when `expected` was fitted
    random.seed(99)
    before = states()
    posterior = fit(method, task)
    assert states() == before, "fit"
    predictive = posterior.predict(task.new_x)
    predictive.sample(3)
    assert states() == before, "predict"
    posterior.save(tmp_path / "posterior")
    bn.load(tmp_path / "posterior", task.model)
    assert states() == before, "save and load"
    assert_same(expected, numbers(predictive, task.new_y))


@each_network
@each_method
def test_a_draw_is_an_override_of_the_networks_state(method, task, fitted):
    posterior = fitted(method, task)
    state = posterior.sample(5, seed=1)
    tensors = {**dict(posterior.network.named_parameters()), **dict(posterior.network.named_buffers())}
    assert state
    for name, value in state.items():
        assert value.shape == (5, *tensors[name].shape), name
        assert torch.isfinite(value).all()
        if name.endswith("running_var"):
            assert (value > -1e-5).all(), "a variance plus eps stays positive"


@each_method
def test_samples_do_not_alias_what_the_posterior_keeps(method, regression):
    posterior = fit(method, regression)
    expected = numbers(posterior.predict(regression.new_x), regression.new_y)
    for value in posterior.sample(64).values():
        value.zero_()
    assert_same(expected, numbers(posterior.predict(regression.new_x), regression.new_y))


CHILD = """
import sys
import torch
from safetensors.torch import save_file
import bayesnorm as bn

torch.set_num_threads(1)
folder = sys.argv[1]
for name in sys.argv[2:]:
    model = torch.load(f"{folder}/{name}.pt", weights_only=False)  # the test's own file
    x, y = torch.load(f"{folder}/{name}-x.pt")
    predictive = bn.load(f"{folder}/{name}.bayesnorm", model).predict(x, seed=5)
    found = {"mean": predictive.mean, "variance": predictive.variance, "log_prob": predictive.log_prob(y)}
    save_file(found, f"{folder}/{name}.safetensors")
"""


def test_save_and_load_in_a_new_process(fitted, make_task, tmp_path):
    expected = {}
    for task in map(make_task, ("regression", "per_pixel")):
        for method in VARIANTS:
            name = f"{task.name}-{name_of(method)}"
            posterior = fitted(method, task)
            posterior.save(tmp_path / f"{name}.bayesnorm")
            torch.save(posterior.model, tmp_path / f"{name}.pt")
            torch.save((task.new_x, task.new_y), tmp_path / f"{name}-x.pt")
            predictive = posterior.predict(task.new_x, seed=5)
            expected[name] = {
                "mean": predictive.mean,
                "variance": predictive.variance,
                "log_prob": predictive.log_prob(task.new_y),
            }
    subprocess.run([sys.executable, "-W", "error", "-c", CHILD, str(tmp_path), *expected], check=True, timeout=120)
    for name, there in expected.items():
        # The same machine code on the same numbers, but memory may be aligned otherwise: up to rounding.
        assert_same(there, load_file(tmp_path / f"{name}.safetensors"), exact=False)


@each_network
@each_method
def test_what_was_loaded_is_what_was_saved(method, task, fitted, tmp_path):
    posterior = fitted(method, task)
    posterior.save(tmp_path / "posterior")
    loaded = bn.load(tmp_path / "posterior", task.model)
    assert type(loaded) is type(posterior)
    assert loaded.likelihood == posterior.likelihood
    assert loaded.config() == posterior.config()
    assert_same(posterior.tensors(), loaded.tensors())
    assert_same(posterior.sample(5), loaded.sample(5))
