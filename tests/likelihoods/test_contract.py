"""The contract of every likelihood. Likelihoods are found by inspection; none is treated specially."""

import inspect
import itertools
import json

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn

import bayesnorm as bn
from bayesnorm import likelihoods, metrics
from bayesnorm.calibration.sampled_outputs import mean_score
from bayesnorm.errors import InputError
from bayesnorm.likelihoods import likelihood_from
from bayesnorm.likelihoods.base import _KINDS
from bayesnorm.predictive import summarised

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison."""


def test_every_likelihood_has_a_case(all_cases):
    classes = [cls for _, cls in inspect.getmembers(likelihoods, inspect.isclass) if issubclass(cls, bn.Likelihood)]
    concrete = {cls for cls in classes if not inspect.isabstract(cls)}
    assert concrete == set(_KINDS.values())
    assert {type(case.likelihood) for case in all_cases} == concrete
    assert all(getattr(bn, cls.__name__) is cls for cls in concrete)


def test_it_is_frozen_and_kept_in_its_config_and_in_files(vector_case, tmp_path):
    likelihood = vector_case.likelihood
    model = nn.Linear(2, 2)
    bn.deterministic(model, likelihood).save(tmp_path / "posterior")
    for again in (
        likelihood_from(json.loads(json.dumps(likelihood.config()))),
        bn.load(tmp_path / "posterior", model).likelihood,
    ):
        assert again == likelihood
        assert hash(again) == hash(likelihood)
    with pytest.raises(AttributeError):
        likelihood.axis = 3


def test_its_own_noise_changes_nothing(case):
    likelihood, f, y = case.likelihood, case.f(1)[0], case.y()
    with pytest.raises(InputError, match=r"^y "):
        likelihood.loss(f, torch.zeros(4, 1))
    assert (likelihood.noise > 0).all()
    again = likelihood.with_noise(likelihood.noise)
    assert type(again) is type(likelihood)
    torch.testing.assert_close(again.loss(f, y), likelihood.loss(f, y))
    torch.testing.assert_close(likelihood.loss(f, y, likelihood.noise), likelihood.loss(f, y))
    other = likelihood.with_noise(2 * likelihood.noise)
    torch.testing.assert_close(likelihood.loss(f, y, 2 * likelihood.noise), other.loss(f, y))
    assert not torch.equal(other.loss(f, y), likelihood.loss(f, y))


def test_the_loss_is_minus_the_log_density_of_one_sample(vector_case):
    """Of maps too, because `test_pixels_are_rows` compares both sides."""
    case = vector_case
    for dtype in (torch.float32, torch.float64):
        f, y = case.f(1, dtype=dtype), case.y(dtype=dtype)
        expected = -case.likelihood.predictive(f).log_prob(y).sum() / 5
        loss = case.likelihood.loss(f[0], y)
        assert loss.dtype == expected.dtype == dtype
        torch.testing.assert_close(loss, expected)


def parts(predictive):
    """The predictives of the tasks, or the one there is."""
    return list(predictive.values()) if isinstance(predictive, bn.MultiTaskPredictive) else [predictive]


def test_shapes_and_dtypes(case):
    for dtype in (torch.float32, torch.float64):
        predictive = case.likelihood.predictive(case.f(dtype=dtype))
        assert predictive.log_prob(case.y(dtype=dtype)).dtype == dtype
        for part in parts(predictive):
            for name in ("mean", "epistemic", "aleatoric", "variance", "std"):
                value = getattr(part, name)
                assert value.shape[0] == 5, name
                assert value.shape[2:] == case.pixels
                assert value.dtype == dtype
                assert torch.isfinite(value).all(), name
            if isinstance(part, bn.RegressionPredictive):
                assert part.sample(4).shape == (4, *part.mean.shape)
                assert part.sample(4).dtype == dtype
                assert part.quantile(0.3).shape == part.mean.shape
            else:
                assert part.sample(4).shape == (4, 5, *case.pixels)
        if not case.tasks:
            expected = case.targets if not case.classes else case.classes
            assert predictive.mean.shape == (5, expected, *case.pixels)
            assert predictive.log_prob(case.y()).shape == ((5, *case.pixels) if case.classes else predictive.mean.shape)


def test_uncertainty_splits_into_its_parts(case):
    """Against the samples taken one by one: Var y = Var_t E[y | t] + E_t Var[y | t], and H = I + E_t H_t."""
    f = case.f()
    for k, part in enumerate(parts(case.likelihood.predictive(f))):
        single = [parts(case.likelihood.predictive(one[None]))[k] for one in f]
        if isinstance(case.likelihood, bn.VarianceScaledCategorical):  # tempers a draw by its distance from the others
            single = [bn.ClassificationPredictive(one[None]) for one in part.log_probs]
        means, variances = (torch.stack([getattr(p, name) for p in single]) for name in ("mean", "variance"))
        torch.testing.assert_close(part.epistemic, means.var(0, correction=0))
        torch.testing.assert_close(part.aleatoric, variances.mean(0))
        torch.testing.assert_close(part.variance, (variances + means**2).mean(0) - means.mean(0) ** 2)
        if isinstance(part, bn.ClassificationPredictive):
            torch.testing.assert_close(part.expected_entropy, torch.stack([p.entropy for p in single]).mean(0))
            torch.testing.assert_close(part.entropy, part.mutual_information + part.expected_entropy)
            assert (part.mutual_information > 0).all()


def test_samples_may_have_weights_and_rows_are_independent(vector_case):
    case, rows = vector_case, [3, 1]
    f, y = case.f(3), case.y()
    weighted = case.likelihood.predictive(f, torch.tensor([1.0, 0.0, 3.0])).log_prob(y)
    repeated = f[[0, 2, 2, 2]]
    torch.testing.assert_close(weighted, case.likelihood.predictive(repeated).log_prob(y))
    torch.testing.assert_close(weighted[rows], case.likelihood.predictive(repeated[:, rows]).log_prob(y[rows]))


CHOICES = {
    "position": (3, [3]),
    "position from the end": (-1, [4]),
    "position of NumPy": (np.int64(2), [2]),
    "slice": (slice(1, None, 2), [1, 3]),
    "list": ([4, 0, 0], [4, 0, 0]),
    "array": (np.array([2, -5]), [2, 0]),
    "mask": (torch.tensor([True, False, False, True, True]), [0, 3, 4]),
    "list of flags": ([False, True, False, False, False], [1]),
    "nothing": ([], []),
}


@pytest.mark.parametrize("summary", [False, True], ids=["samples", "summary"])
def test_some_examples_of_a_predictive(case, summary):
    """Equal to the predictive of these examples alone, from the same samples."""
    f, y = case.f(), case.y()
    whole = case.likelihood.predictive(f)
    whole = summarised(whole) if summary else whole
    for name, (choice, rows) in CHOICES.items():
        some, alone = whole[choice], case.likelihood.predictive(f[:, rows])
        assert type(some) is type(whole)
        for one, expected in zip(parts(some), parts(summarised(alone) if summary else alone), strict=True):
            assert len(one) == len(rows), name
            torch.testing.assert_close(one.variance, one.epistemic + one.aleatoric)
            for key in (*one.names, "epistemic", "aleatoric"):
                torch.testing.assert_close(getattr(one, key), getattr(expected, key), msg=f"{name}: {key}")
        if rows and not (summary and not case.classes):
            torch.testing.assert_close(some.log_prob(y[rows]), alone.log_prob(y[rows]), msg=name)


def test_values_of_a_predictive_as_arrays_and_as_plain_numbers(case):
    predictive = case.likelihood.predictive(case.f())
    arrays, plain = predictive.numpy(), predictive.to_dict()
    if not case.tasks:
        arrays, plain, predictive = {"": arrays}, {"": plain}, {"": predictive}
    for task, one in predictive.items():
        assert list(arrays[task]) == list(plain[task]) == list(one.names)
        for name in one.names:
            np.testing.assert_array_equal(arrays[task][name], getattr(one, name).numpy())
            assert np.array_equal(json.loads(json.dumps(plain[task]))[name], arrays[task][name])


def test_pixels_are_rows(map_case):
    case = map_case
    f, y = case.f(), case.y()
    flat_f = f.movedim(2, -1).flatten(1, 3)
    flat_y = y.flatten() if case.classes else y.movedim(1, -1).flatten(0, 2)
    log_prob = case.likelihood.predictive(flat_f).log_prob(flat_y)
    torch.testing.assert_close(case.likelihood.loss(f[0], y), 6 * case.likelihood.loss(flat_f[0], flat_y))
    torch.testing.assert_close(case.likelihood.predictive(f).log_prob(y).sum(), log_prob.sum())


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def test_gradients_are_finite_at_extreme_outputs(vector_case):
    """Everything that is no mean of a real target may be of any size; a log-variance has a slope everywhere."""
    case = vector_case
    for dtype, size in itertools.product(DTYPES, (0.0, 50.0, 1e4, 1e18)):
        size = min(size, torch.finfo(dtype).max / 4)
        f, y = case.f(1, dtype=torch.float64)[0], case.y()
        large = torch.zeros(case.outputs, dtype=torch.bool)
        if case.tasks:
            large[:3] = True
        if case.classes:
            large[:] = True
        if isinstance(case.likelihood, bn.HeteroscedasticGaussian | bn.HeteroscedasticLaplace):
            large[case.targets :] = True
        f = torch.where(large.view(1, -1, *[1] * len(case.pixels)), f.sign() * size, f).to(dtype).requires_grad_()
        loss = case.likelihood.loss(f, y.to(dtype) if y.is_floating_point() else y)
        loss.backward()
        assert torch.isfinite(loss)
        if dtype != torch.float16:  # has no room for such gradients, which loss scaling is there for
            assert torch.isfinite(f.grad).all()
            if isinstance(case.likelihood, bn.HeteroscedasticGaussian | bn.HeteroscedasticLaplace) and size < 1e5:
                assert (f.grad[:, large] != 0).all()
        with torch.no_grad():
            for part in parts(case.likelihood.predictive(f.detach()[None])):
                assert torch.isfinite(part.mean).all()
                assert torch.isfinite(part.variance).all()
                if not isinstance(part, bn.ClassificationPredictive):
                    assert (part.aleatoric > 0).all()


def test_derivatives_are_right(vector_case):
    """By the outputs, and by noise that is learned."""
    f, y = vector_case.f(1)[0], vector_case.y()
    assert torch.autograd.gradcheck(lambda g: vector_case.likelihood.loss(g, y), (f.clone().requires_grad_(),))
    noise = bn.LearnedNoise(vector_case.likelihood).double()

    def loss(log_noise):
        return torch.func.functional_call(noise, {"log_noise": log_noise}, (f, y))

    assert torch.autograd.gradcheck(loss, ((0.1 * torch.ones_like(noise.log_noise)).requires_grad_(),))


def test_samples_have_the_density(real_case):
    """The distribution function of samples is uniform: the greatest gap, by Kolmogorov and Smirnov, P = 7e-6."""
    predictive = real_case.likelihood.predictive(real_case.f(3))
    n = 2000
    drawn = predictive.sample(n, seed=1)
    levels = torch.stack([predictive.cdf(one) for one in drawn]).flatten(1).sort(0).values
    steps = (torch.arange(n, dtype=torch.float64) + 0.5)[:, None] / n
    gap = (levels - steps).abs().amax(0) + 0.5 / n
    assert (gap < (np.log(2 / 7e-6) / (2 * n)) ** 0.5).all()
    assert torch.equal(drawn, predictive.sample(n, seed=1))


def test_samples_have_the_probabilities(class_case):
    predictive = class_case.likelihood.predictive(class_case.f(3))
    n = 4000
    drawn = predictive.sample(n, seed=1)
    for label in range(class_case.classes):
        share, prob = (drawn == label).double().mean(0), predictive.probs[:, label]
        assert ((share - prob).abs() < SIGMAS * (prob * (1 - prob) / n).sqrt()).all()


def one_point(case):
    """The first row's first target alone, and a function of its distribution at a number."""
    predictive = case.likelihood.predictive(case.f(3))
    loc, scale = (part.flatten(1)[:, :1] for part in (predictive.loc, predictive.scale))
    return bn.RegressionPredictive(loc, scale, predictive.weights, predictive.noise)


def at(u):
    return torch.tensor([u], dtype=torch.float64)


def test_the_density_integrates_to_the_distribution(real_vector_case):
    predictive = one_point(real_vector_case)
    low, high = float(predictive.quantile(0.2)), float(predictive.quantile(0.7))
    kinks = [float(k) for k in predictive.loc.flatten() if low < k < high]
    area = integrate.quad(lambda u: float(predictive.log_prob(at(u)).exp()), low, high, points=kinks or None)[0]
    assert area == pytest.approx(0.5, abs=1e-8)


def test_crps_of_the_mixture_is_the_integral(real_vector_case):
    predictive, y = one_point(real_vector_case), 0.4
    width = 400 * float(predictive.std)

    def gap(u):
        return (float(predictive.cdf(at(u))) - (u >= y)) ** 2

    edges = sorted({y, *predictive.loc.flatten().tolist(), -width, -width / 20, width / 20, width})
    exact = sum(integrate.quad(gap, *ends)[0] for ends in itertools.pairwise(edges))
    # Tails beyond the width: of Student's t with 3 degrees of freedom, F^2 ~ u^-6.
    assert metrics.crps(predictive, at(y), form="mixture").item() == pytest.approx(exact, rel=2e-6)


# The labels here are random on purpose.
@pytest.mark.filterwarnings("ignore:temperature. .* scored best:bayesnorm.BayesNormWarning")
def test_calibrating_is_never_worse(vector_case):
    case = vector_case
    head = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, case.outputs)).double().eval()
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = case.y(rows=60)
    start = bn.MCBN(batch_size=8, states=16).fit(head, x, case.likelihood)
    calibrated = bn.calibrate(start, x, y, samples=2, batch_size=False)
    before, after = (mean_score(p, x, y, samples=2) for p in (start, calibrated))
    assert after < before
    assert type(calibrated.likelihood) is type(case.likelihood)
    plain = {name: value for name, value in case.likelihood.config().items() if name in ("axis", "samples", "df")}
    assert plain.items() <= calibrated.likelihood.config().items()


def test_targets_in_any_container(vector_case):
    case = vector_case
    f, y = case.f(dtype=torch.float32)[0], case.y()
    expected = case.likelihood.loss(f, y)
    for targets in (y.numpy(), y.flip(0).numpy()[::-1], y.tolist()):
        torch.testing.assert_close(case.likelihood.loss(f, targets), expected, check_dtype=False, rtol=1e-4, atol=1e-4)
        result = case.likelihood.predictive(f[None]).log_prob(targets)
        assert result.sum().item() / len(f) == pytest.approx(-float(expected), rel=1e-4, abs=1e-4)
    for shape in ((), (5, 7), (4, 1), (5, 2, 2)):
        with pytest.raises(InputError, match=r"^y "):
            case.likelihood.loss(f, torch.zeros(shape))
