"""Group normal-Jeffreys and group horseshoe: divergences against quadrature, moments against samples, and sparsity."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Gamma, LogNormal, Normal

import bayesnorm as bn
from bayesnorm.network import NoisyNetwork
from bayesnorm.posterior import HorseshoeWeights, NormalJeffreysWeights, WeightPrior
from bayesnorm.posterior.group_weights import LOG_UNIT

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, of which some tens are made here."""

METHODS = [bn.GroupNormalJeffreys, bn.GroupHorseshoe]
each_method = pytest.mark.parametrize("method", METHODS)


def weights(kind, shape, axis, std=0.3):
    """Return a distribution of float64 weights, stirred so that nothing is where it starts."""
    generator = torch.Generator().manual_seed(3)
    mean = nn.Parameter(torch.randn(*shape, dtype=torch.float64, generator=generator))
    options = {"global_scale": 0.1} if kind is HorseshoeWeights else {}
    made = kind(mean, torch.full_like(mean, std).detach(), axis, **options)
    with torch.no_grad():
        for name, group in made.named_parameters():
            if name not in ("mean", "rho"):
                group.add_(0.4 / LOG_UNIT * torch.rand(group.shape, dtype=group.dtype, generator=generator))
    return made


def quadrature_kl(q, p, low, high):
    """KL(q || p) of two densities of one number, by the trapezoidal rule in the number's logarithm."""
    log_x = torch.linspace(low, high, 20_001, dtype=torch.float64)
    x = log_x.exp()
    return torch.trapezoid((q(x) + log_x).exp() * (q(x) - p(x)), log_x)


def test_the_horseshoes_divergence_is_that_of_log_normals_from_gammas():
    group = weights(HorseshoeWeights, (2, 3), 1)
    expected = torch.zeros((), dtype=torch.float64)
    parts = [(group.a, 1.0, 1), (group.b, 1.0, -1), (group.s_a[:, None], 0.1, 1), (group.s_b[:, None], 1.0, -1)]
    with torch.no_grad():
        for held, scale, power in parts:
            prior = Gamma(torch.tensor(0.5, dtype=torch.float64), scale**-2)
            for mean, log_std in LOG_UNIT * held.T:
                q = LogNormal(power * mean, log_std.exp())
                expected += quadrature_kl(q.log_prob, prior.log_prob, -30, 20)
        torch.testing.assert_close(group.kl_scales(), expected)
        v = torch.distributions.kl_divergence(Normal(group.mean, group.std), Normal(0.0, 0.7)).sum()
        torch.testing.assert_close(group.kl(WeightPrior.parse(0.7)), expected + v)


def test_the_normal_jeffreys_divergence_is_that_of_quadrature_up_to_a_constant():
    """KL(N(1, alpha) || 1 / |z|) = -ln(alpha) / 2 + E ln|z| + c, whose limit at much noise is 0 by convention."""
    grid = torch.linspace(-12, 12, 40_001, dtype=torch.float64)
    density = Normal(0.0, 1.0).log_prob(grid).exp()

    def exact(alpha):
        return -0.5 * math.log(alpha) + torch.trapezoid(
            density * (1 + alpha**0.5 * grid).abs().clamp_min(1e-12).log(), grid
        )

    for alpha in (0.01, 0.1, 1.0, 10.0):
        group = weights(NormalJeffreysWeights, (1, 1), 1)
        with torch.no_grad():
            group.z_mean.fill_(2.0)
            group.z_log_std.fill_((math.log(2) + 0.5 * math.log(alpha)) / LOG_UNIT)
            torch.testing.assert_close(group.log_noise()[0].item(), math.log(alpha))
            # The published approximation is good to some hundredths.
            assert group.kl_scales().item() == pytest.approx(float(exact(alpha) - exact(1e8)), abs=0.03)


@pytest.mark.parametrize("kind", [NormalJeffreysWeights, HorseshoeWeights])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 1), ((3, 2, 2), 0)])
def test_moments_are_those_of_samples(kind, shape, axis):
    group, n = weights(kind, shape, axis), 20_000
    with torch.no_grad():
        drawn = group.samples(n)
        mean, var = group.moments()
    spread = (drawn - mean).square()
    assert ((drawn.mean(0) - mean).abs() < SIGMAS * drawn.std(0) / n**0.5).all()
    assert ((spread.mean(0) - var).abs() < SIGMAS * spread.std(0) / n**0.5).all()


@pytest.mark.parametrize("kind", [NormalJeffreysWeights, HorseshoeWeights])
@pytest.mark.parametrize("make", [lambda: nn.Linear(3, 2), lambda: nn.Conv1d(2, 3, 2)], ids=["linear", "convolution"])
def test_outputs_in_training_vary_as_those_of_drawn_weights(kind, make):
    layer, n = make().double(), 1_000
    x = torch.randn(1, *((3,) if isinstance(layer, nn.Linear) else (2, 2)), dtype=torch.float64)
    group = weights(kind, tuple(layer.weight.shape), 1 if isinstance(layer, nn.Linear) else 0)
    layer.weight = group.mean
    with torch.no_grad():
        noisy = NoisyNetwork(nn.Sequential(layer), {"0.weight": group}, "local", x)
        values = torch.stack([noisy(x).flatten() for _ in range(n)])  # flipout's rows share the noise up to signs
        drawn = torch.einsum("noi,i->no", group.samples(n).flatten(2), x.flatten()) + layer.bias
    for first, second in ((values, drawn), ((values - drawn.mean(0)).square(), (drawn - drawn.mean(0)).square())):
        error = ((first.var(0) + second.var(0)) / n).sqrt()
        assert ((first.mean(0) - second.mean(0)).abs() < SIGMAS * error).all()


@each_method
def test_inputs_without_a_say_become_noise(method):
    """Two of eight inputs decide the target: their groups are the least noisy, by far."""
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    y = x[:, :1] - 2 * x[:, 1:2]
    fitted = method(epochs=20, learning_rate=0.08, kl_warmup=4).fit(nn.Linear(8, 1), (x, y), bn.Gaussian(25.0))
    noise = fitted.weights["weight"].log_noise()
    assert noise[2:].min() > noise[:2].max() + 2
    assert fitted.predict(x).mean.sub(y).square().mean() < 0.05


@each_method
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prior": (0.5, 1.0, 0.1)}, r"prior must be one standard deviation.*Gaussian"),
        ({"prior_center": "trained", "start": "trained"}, "prior_center must be .*zero"),
    ],
)
def test_arguments_that_do_not_go_with_groups(method, arguments, words):
    with pytest.raises(bn.BayesNormError, match=words):
        method(**arguments)
