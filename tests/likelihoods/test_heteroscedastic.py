"""Noise that the network predicts: torch's and scoringrules' numbers; uncertainty split by every method and engine."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from torch import nn

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.likelihoods.scales import bounded
from bayesnorm.training import train

SIGMAS = 4.5
ROWS = 400


def noise_std(x):
    """What the networks here are to learn: from 0.1 to 0.9."""
    return 0.1 + 0.8 * torch.sigmoid(3 * x)


@pytest.fixture(scope="module")
def trained():
    """A network with a noise head, trained on y = sin 2x + noise that grows with x.

    In large batches: the head learns what batch statistics add to the outputs as if it were noise in the data.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = 4 * torch.rand(ROWS, 1) - 2
        y = torch.sin(2 * x) + noise_std(x) * torch.randn(ROWS, 1)
        plain = nn.Sequential(
            *(nn.Linear(1, 32), nn.BatchNorm1d(32), nn.ReLU()),
            *(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)),
        )
    model = bn.with_noise_head(plain, log_variance=-1.0)
    train(model, x, y, loss=bn.HeteroscedasticGaussian().loss, epochs=200, batch_size=200, learning_rate=2e-2)
    return model, x, y


def test_mcbn_with_a_noise_head(trained):
    """The first thing to ask for: noise that follows the data's, and uncertainty that splits into its two parts."""
    model, x, y = trained
    posterior = bn.MCBN(batch_size=100).fit(model, (x, y), bn.HeteroscedasticGaussian())
    at = torch.linspace(-1.5, 1.5, 7)[:, None]
    predictive = posterior.predict(at)
    outputs = posterior.outputs(64, at)
    assert outputs.shape == (64, 7, 2)
    torch.testing.assert_close(predictive.mean, outputs[..., :1].mean(0))
    torch.testing.assert_close(predictive.epistemic, outputs[..., :1].var(0, correction=0))
    torch.testing.assert_close(predictive.aleatoric, outputs[..., 1:].exp().mean(0))
    torch.testing.assert_close(predictive.variance, predictive.epistemic + predictive.aleatoric)
    ratio = predictive.aleatoric.sqrt() / noise_std(at)
    assert (ratio.log().abs() < math.log(1.6)).all(), ratio  # about 50 rows of noise near each point: 10 % at best
    assert predictive.aleatoric[-1] > 10 * predictive.aleatoric[0]
    assert metrics.pll(predictive, torch.sin(2 * at)) > metrics.pll(
        bn.MCBN(batch_size=100).fit(model, (x, y), bn.HeteroscedasticGaussian(5.0)).predict(at), torch.sin(2 * at)
    )


LIKELIHOODS = [
    bn.HeteroscedasticGaussian(),
    bn.HeteroscedasticLaplace(),
    bn.LogitNoise(samples=8),
    bn.StudentT(),
    bn.MultiTask({"a": bn.Gaussian(), "b": bn.Laplace()}),
]


def network():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Linear(1, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 2)]
        return nn.Sequential(*layers).eval()


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda likelihood: type(likelihood).__name__)
def test_every_engine_splits_uncertainty(likelihood, trained):
    _, x, y = trained
    targets = {"LogitNoise": (y > 0).long()[:, 0], "StudentT": y.expand(-1, 2), "MultiTask": y.expand(-1, 2)}
    y = targets.get(type(likelihood).__name__, y)
    posterior = bn.MCBN(batch_size=32, states=24).fit(network(), (x, y), likelihood)
    for engine in (bn.MonteCarlo(samples=8), bn.SigmaPoints(rank=4), bn.Delta()):
        predictive = posterior.predict(x[:9], engine)
        predictives = predictive.values() if isinstance(predictive, bn.MultiTaskPredictive) else [predictive]
        for part in predictives:
            assert part.mean.shape == (9, 2 if type(likelihood).__name__ in ("LogitNoise", "StudentT") else 1)
            assert (part.epistemic > 0).all()
            assert (part.aleatoric > 0).all()
            torch.testing.assert_close(part.variance, part.epistemic + part.aleatoric)
            if isinstance(part, bn.ClassificationPredictive):
                torch.testing.assert_close(part.entropy, part.mutual_information + part.expected_entropy)
        again = posterior.predict(x[:9], engine)
        assert torch.equal(again.log_prob(y[:9]), predictive.log_prob(y[:9]))


def test_delta_has_the_log_normal_mean():
    """The output is Gaussian by construction, so that many samples of it must agree with the closed form."""
    mean = torch.tensor([[0.5, -1.0, -0.4, 0.3]], dtype=torch.float64)
    root = 0.3 * torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    variance = root.square().sum(1)[None]
    likelihood = bn.HeteroscedasticGaussian((2.0, 0.5))
    exact = likelihood.gaussian_predictive(mean, variance)
    n = 200_000
    f = mean + torch.randn(n, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) @ root.T
    drawn = likelihood.predictive(f)
    torch.testing.assert_close(exact.epistemic, variance[:, :2])
    noise = drawn.scale.square()
    assert ((drawn.mean - exact.mean).abs() < SIGMAS * (exact.epistemic / n).sqrt()).all()
    assert ((drawn.aleatoric - exact.aleatoric).abs() < SIGMAS * noise.std(0) / n**0.5).all()
    torch.testing.assert_close(exact.variance, exact.epistemic + exact.aleatoric)


def test_delta_agrees_with_monte_carlo_where_the_network_is_nearly_linear(trained):
    model, x, y = trained
    network, at = copy.deepcopy(model).double(), x[:20].double()
    posterior = bn.MCBN(batch_size=100).fit(network, (x, y), bn.HeteroscedasticGaussian()).at_batch_size(1e9)
    delta = posterior.predict(at, bn.Delta())
    many = posterior.predict(at, bn.MonteCarlo(samples=256 * 2))  # every batch's statistics twice: no sampling error
    assert isinstance(delta, bn.predictive.GaussianPredictive)
    torch.testing.assert_close(delta.aleatoric, many.aleatoric, rtol=1e-3, atol=0)
    assert ((delta.epistemic / many.epistemic - 1).abs() < SIGMAS * (2 / 256) ** 0.5).all()


def test_densities_are_torchs():
    for sizes in ((7, 4), (7, 4, 3, 2)):
        f = torch.randn(1, *sizes, dtype=torch.float64)
        mean, noise = f[0].chunk(2, dim=1)
        y = torch.randn_like(mean)
        gaussian = torch.distributions.Normal(mean, (noise / 2).exp())
        laplace = torch.distributions.Laplace(mean, noise.exp())
        for likelihood, expected in [(bn.HeteroscedasticGaussian(), gaussian), (bn.HeteroscedasticLaplace(), laplace)]:
            predictive = likelihood.predictive(f)
            torch.testing.assert_close(predictive.log_prob(y), expected.log_prob(y))
            torch.testing.assert_close(predictive.cdf(y), expected.cdf(y))
            torch.testing.assert_close(predictive.variance, expected.variance)
            torch.testing.assert_close(likelihood.loss(f[0], y), -expected.log_prob(y).sum() / 7)


def test_the_loss_is_the_papers():
    f, y = torch.randn(9, 2, dtype=torch.float64), torch.randn(9, 1, dtype=torch.float64)
    mean, s = f.chunk(2, dim=1)
    paper = (0.5 * torch.exp(-s) * (y - mean).square() + 0.5 * s).mean() + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(bn.HeteroscedasticGaussian().loss(f, y), paper)


def test_crps_of_one_draw_is_scoringrules():
    f, y = torch.randn(1, 30, 2, dtype=torch.float64), torch.randn(30, 1, dtype=torch.float64)
    mean, noise = (part.numpy() for part in f[0].chunk(2, dim=1))
    for likelihood, expected in [
        (bn.HeteroscedasticGaussian(), scoringrules.crps_normal(y.numpy(), mean, np.exp(noise / 2))),
        (bn.HeteroscedasticLaplace(), scoringrules.crps_laplace(y.numpy(), mean, np.exp(noise))),
    ]:
        result = metrics.crps_points(likelihood.predictive(f), y, form="mixture")
        np.testing.assert_allclose(result, expected, rtol=1e-9)


@settings(max_examples=60)
@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_bounds_keep_order_and_small_numbers(first, second):
    low, high = sorted((first, second))
    a, b = (bounded(torch.tensor(v, dtype=torch.float64), 30.0, 40.0).item() for v in (low, high))
    assert -40 <= a <= b <= 40
    if abs(low) <= 30:
        assert a == low


def test_scales_and_their_squares_are_finite_in_every_precision():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        f = torch.tensor([[[0.0, 6e4], [0.0, -6e4]]], dtype=dtype)
        for likelihood in (bn.HeteroscedasticGaussian(), bn.HeteroscedasticLaplace()):
            predictive = likelihood.predictive(f)
            assert torch.isfinite(predictive.variance).all()
            assert (predictive.variance > 0).all()


@pytest.mark.parametrize(("kind", "true"), [(bn.HeteroscedasticGaussian, 0.5), (bn.HeteroscedasticLaplace, 3.0)])
def test_calibrating_finds_the_factor(kind, true):
    rows = 4000
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(1, 2).double()
    x = torch.randn(rows, 1, dtype=torch.float64, generator=generator)
    predictive = kind(true).predictive(model(x).detach()[None])
    y = predictive.sample(1, seed=1)[0]
    for score in ("pll", "crps"):
        result = bn.calibrate(bn.deterministic(model, kind()), x, y, score=score).likelihood.scale
        # The likeliest scale of a Gaussian has relative standard error 1 / sqrt(2 rows), of a Laplace 1 / sqrt(rows);
        # CRPS is less efficient.
        assert abs(math.log(result / true)) < SIGMAS * 1.5 / rows**0.5


def test_heads_of_the_wrong_width():
    for kind in (bn.HeteroscedasticGaussian, bn.HeteroscedasticLaplace):
        for shape in [(4, 3), (4, 1), (4, 5, 2, 2)]:
            with pytest.raises(InputError, match=rf"{shape[1]} entries along axis 1, .*with_noise_head"):
                kind().loss(torch.zeros(shape), torch.zeros(4, 1))
        for f in (torch.zeros(3, 4), torch.zeros(3)):
            with pytest.raises(InputError, match=r"Outputs of shape .* have no axis"):
                kind().predictive(f)


def test_sequences_have_their_outputs_last():
    f, y = torch.randn(4, 7, 6), torch.randn(4, 7, 3)
    likelihood = bn.HeteroscedasticGaussian(axis=-1)
    flat = bn.HeteroscedasticGaussian().loss(f.flatten(0, 1), y.flatten(0, 1))
    torch.testing.assert_close(likelihood.loss(f, y), 7 * flat)
    assert likelihood.predictive(f[None]).mean.shape == (4, 7, 3)
    with pytest.raises(InputError, match=r"axis=-1 for sequences"):
        bn.HeteroscedasticGaussian().loss(torch.randn(4, 8, 6), torch.randn(4, 8, 3))


def test_maps_of_one_channel_take_targets_without_it():
    f, y = torch.randn(1, 4, 2, 5, 6), torch.randn(4, 5, 6)
    likelihood = bn.HeteroscedasticGaussian()
    torch.testing.assert_close(likelihood.loss(f[0], y), likelihood.loss(f[0], y[:, None]))
    torch.testing.assert_close(likelihood.predictive(f).log_prob(y), likelihood.predictive(f).log_prob(y[:, None]))


def test_bad_options():
    with pytest.raises(bn.BayesNormError, match="missing must be True or False, got 'yes'"):
        bn.HeteroscedasticGaussian(missing="yes")


def test_a_factor_for_other_outputs():
    likelihood = dataclasses.replace(bn.HeteroscedasticGaussian(), scale=(1.0, 2.0, 3.0))
    with pytest.raises(InputError, match=r"scale has 3 numbers, but the outputs have shape \(4, 1\)"):
        likelihood.predictive(torch.zeros(2, 4, 2))


def test_a_floor_adds_its_square_to_the_predicted_variance():
    f = torch.tensor([[[0.3, -0.5, -4.0, 1.0], [0.0, 2.0, 3.0, -9.0]]], dtype=torch.float64)
    result = bn.HeteroscedasticGaussian((0.5, 2.0), floor=(0.1, 3.0)).predictive(f)
    expected = torch.tensor([0.5, 2.0]).square() * f[0, :, 2:].exp() + torch.tensor([0.1, 3.0]).square()
    torch.testing.assert_close(result.aleatoric, expected)
    assert bn.HeteroscedasticGaussian(floor=0.2) != bn.HeteroscedasticGaussian()


def test_predicted_noise_with_heavy_tails_is_scipys():
    for df in (1.5, 3.0, 20.0):
        generator = torch.Generator().manual_seed(0)
        f = torch.randn(1, 7, 2, generator=generator, dtype=torch.float64)
        y = 5 * torch.randn(7, 1, generator=generator, dtype=torch.float64)
        result = bn.HeteroscedasticStudentT(0.7, df=df).predictive(f).log_prob(y)
        expected = stats.t.logpdf(y[:, 0], df, loc=f[0, :, 0], scale=0.7 * (f[0, :, 1] / 2).exp())
        np.testing.assert_allclose(result[:, 0], expected, rtol=1e-9)


def test_with_many_degrees_of_freedom_the_same_network_says_the_same_as_normal_noise():
    f, y = torch.randn(3, 6, 4, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    heavy, normal = bn.HeteroscedasticStudentT(1.3, df=1e7, floor=0.2), bn.HeteroscedasticGaussian(1.3, floor=0.2)
    torch.testing.assert_close(heavy.predictive(f).log_prob(y), normal.predictive(f).log_prob(y), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(heavy.loss(f[0], y), normal.loss(f[0], y), rtol=1e-5, atol=1e-5)
