"""Delta: closed forms, finite differences, and the two modes of differentiation against each other."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.engines import delta
from bayesnorm.engines.delta import SOFTMAX_SAMPLES, Delta, GaussianOutputs
from bayesnorm.errors import NetworkError
from bayesnorm.posterior import Empirical

from ..apply import Apply
from ..two_norms import SIGMAS, TIGHT, Difference, network, output_jacobian, rows


class Activated(nn.BatchNorm1d):
    """A layer that carries an activation."""

    def forward(self, input):
        return super().forward(input).tanh()


class Skipping(nn.BatchNorm1d):
    """A layer that uses its input twice."""

    def forward(self, input):
        return input + super().forward(input)


def fitted(model, likelihood=None, states=20, width=3, **options):
    return bn.MCBN(batch_size=8, states=states, **options).fit(model.eval(), rows(60, width), likelihood)


def means_only(posterior):
    """The posterior without fluctuations of variances, under which one batch norm is linear in the deviation."""
    deviations = posterior.fluctuations.deviations.clone()
    deviations[:, deviations.shape[1] // 2 :] = 0
    return dataclasses.replace(posterior, fluctuations=Empirical(deviations))


def test_exact_where_the_network_is_linear_in_the_deviation():
    """f = a (h - m) / s + b: mean f(centre), variance (a gamma / s)^T Cov(m) (a gamma / s), whatever the row."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)).double()
    nn.init.normal_(model[1].weight)
    model[1].running_var.uniform_(0.5, 2)
    posterior = means_only(fitted(model))
    x = rows(7, 3, seed=1)
    predictive = posterior.predict(x, Delta())
    slope = model[2].weight[0].detach() * model[1].weight.detach() / (model[1].running_var + model[1].eps).sqrt()
    spread = posterior.fluctuations.deviations[:, :5].T.cov(correction=0)
    torch.testing.assert_close(predictive.epistemic, (slope @ spread @ slope).expand(7, 1), **TIGHT)
    torch.testing.assert_close(predictive.mean, model(x).detach(), **TIGHT)
    every_batch_once = posterior.predict(x, bn.MonteCarlo(samples=20))
    torch.testing.assert_close(predictive.epistemic, every_batch_once.epistemic, **TIGHT)
    torch.testing.assert_close(predictive.mean, every_batch_once.mean, **TIGHT)
    torch.testing.assert_close(predictive.aleatoric, torch.ones(7, 1, dtype=torch.float64), **TIGHT)


@pytest.mark.parametrize(("layers", "center"), [(None, "batch"), (1, "running")])
def test_derivatives_are_finite_differences(layers, center):
    posterior, x = fitted(network(2), bn.Gaussian(), layers=layers, center=center), rows(4, 3, seed=1)
    mean, jacobian = output_jacobian(posterior, x)
    centre, step = posterior.location, 1e-5
    assert jacobian.shape == (4, 2, len(centre))
    assert len(centre) == (2 * 9 if layers is None else 2 * 4)
    moves = step * torch.eye(len(centre), dtype=torch.float64)
    up, down = (posterior.executable.run(posterior.state(centre + sign * moves), x) for sign in (1, -1))
    # Central differences: an error of order step^2 = 1e-10 from third derivatives, and of 1e-16 / step from rounding.
    torch.testing.assert_close(jacobian, ((up - down) / (2 * step)).movedim(0, 2), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(mean, posterior.executable.run(posterior.state(centre[None]), x)[0], **TIGHT)


def test_variance_is_the_papers_sum():
    """|D g|^2 / S, with D the centred statistics and g the gradient of an output."""
    posterior, x = fitted(network()), rows(4, 3, seed=1)
    _, jacobian = output_jacobian(posterior, x)
    deviations = posterior.fluctuations.deviations
    expected = (jacobian[:, 0] @ deviations.T).square().sum(1) / len(deviations)
    torch.testing.assert_close(posterior.predict(x, Delta()).epistemic[:, 0], expected, **TIGHT)


def covariance(outputs):
    return outputs.root @ outputs.root.mT


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, Activated])
def test_forward_mode_is_reverse_mode(norm, monkeypatch):
    """Few batches and many outputs choose forward mode; the numbers are those of reverse mode."""
    posterior, x = fitted(network(8, norm), bn.Gaussian(), states=5).at_batch_size(3), rows(4, 3, seed=1)
    forward, calls = delta._forward_mode, []
    monkeypatch.setattr(delta, "_forward_mode", lambda *args: calls.append(1) or forward(*args))
    result = Delta().outputs(posterior, x)
    assert calls == [1]
    mean, jacobian = output_jacobian(posterior, x)
    root = jacobian @ (posterior.fluctuations.root()[0] * posterior.spread).T
    torch.testing.assert_close(result.mean, mean, **TIGHT)
    torch.testing.assert_close(covariance(result), root @ root.mT, **TIGHT)
    Delta().outputs(fitted(network(8), bn.Gaussian(), states=9), x)
    Delta().outputs(bn.StochasticBN(8, states=5).fit(network(8), rows(60, 3), bn.Gaussian()), x)
    assert calls == [1], "reverse mode where there are fewer outputs than directions, or independent coordinates"


@pytest.mark.parametrize("states", [5, 20])
@pytest.mark.parametrize("method", [bn.MCBN, bn.StochasticBN])
def test_a_square_root_is_as_good_as_a_wide_one(method, states):
    """Roots are made square where that is smaller; the covariance of the outputs is J S J^T either way."""
    posterior = method(8, states=states).fit(network(3), rows(60, 3), bn.Gaussian())
    x = rows(4, 3, seed=1)
    outputs = Delta().outputs(posterior, x)
    assert outputs.root.shape == (4, 3, 3)
    factor, independent = posterior.fluctuations.root()
    joint = factor.T @ factor + (0 if independent is None else independent.square().diag())
    _, jacobian = output_jacobian(posterior, x)
    torch.testing.assert_close(covariance(outputs), jacobian @ joint @ jacobian.mT, **TIGHT)
    torch.testing.assert_close(outputs.variance, covariance(outputs).diagonal(dim1=1, dim2=2), **TIGHT)


@pytest.mark.parametrize("block_bytes", [1, 3 * 2 * 18 * 8])
def test_blocks_of_rows_are_one_block(block_bytes, monkeypatch):
    monkeypatch.setattr(delta, "rows_per_graph", lambda _: 4)
    taken, take = [], delta.outputs_with_derivatives
    monkeypatch.setattr(delta, "outputs_with_derivatives", lambda p, block: taken.append(len(block)) or take(p, block))
    posterior, x = fitted(network(2), bn.Gaussian()), rows(7, 3, seed=1)
    whole, parts = Delta().outputs(posterior, x), Delta(block_bytes).outputs(posterior, x)
    assert taken == [4, 3, 4, *(7 * [1] if block_bytes == 1 else [3, 3, 1])], "the first block tells how many fit"
    torch.testing.assert_close(parts.mean, whole.mean, **TIGHT)
    torch.testing.assert_close(covariance(parts), covariance(whole), **TIGHT)


def test_correlations_count():
    """The two layers' deviations cancel; independent ones would add up."""
    x = rows(4, 1, seed=1)
    model = Difference().double().eval()
    model.b.running_mean, model.b.running_var = 3 * model.a.running_mean, 9 * model.a.running_var
    joint = bn.MCBN(batch_size=8, states=50).fit(model, rows(200, 1)).predict(x, Delta())
    factorised = bn.StochasticBN(batch_size=8, states=50).fit(model, rows(200, 1)).predict(x, Delta())
    assert joint.epistemic.max() < 1e-20
    assert (factorised.epistemic > 0.05).all()


def test_a_larger_effective_batch_size_scales_the_variance():
    posterior, x = fitted(network()), rows(4, 3, seed=1)
    expected = posterior.predict(x, Delta())
    for size in (2, 64.5):
        predictive = posterior.at_batch_size(size).predict(x, Delta())
        torch.testing.assert_close(predictive.epistemic, expected.epistemic * 8 / size, **TIGHT)
        torch.testing.assert_close(predictive.mean, expected.mean, **TIGHT)


def test_some_layers_are_the_joint_covariance_with_the_others_still():
    posterior, x = fitted(network()), rows(4, 3, seed=1)
    deviations = posterior.fluctuations.deviations.clone()
    deviations[:, [*range(5), *range(9, 14)]] = 0  # means, then log variances: the first layer's five of each
    still = dataclasses.replace(posterior, fluctuations=Empirical(deviations))
    predictive = posterior.at_layers(1).predict(x, Delta())
    torch.testing.assert_close(predictive.epistemic, still.predict(x, Delta()).epistemic, **TIGHT)
    assert (predictive.epistemic < posterior.predict(x, Delta()).epistemic).any()


def test_classes_agree_with_all_samples_where_the_network_is_nearly_linear():
    states = 400
    posterior = fitted(network(3), bn.Categorical(), states=states).at_batch_size(2000)
    x = rows(6, 3, seed=1)
    outputs, samples = Delta().outputs(posterior, x), bn.MonteCarlo(samples=states).outputs(posterior, x)
    # Every batch once: no Monte Carlo error. Deviations d of size sqrt(1 / 2000) = 0.022 leave second-order terms of
    # relative size d, some of each sign, times the number of layers.
    torch.testing.assert_close(outputs.variance, samples.var(0, correction=0), rtol=0.1, atol=0)
    many = posterior.predict(x, bn.MonteCarlo(samples=states))
    predictive = posterior.predict(x, Delta())
    # The mean over mirrored pairs has no first-order term, so that plain standard errors are an upper bound.
    error = (predictive.epistemic / (SOFTMAX_SAMPLES // 2)).sqrt()
    assert ((predictive.probs - many.probs).abs() < SIGMAS * error).all()
    # A variance from n/2 pairs has relative standard error sqrt(2 / 128) = 12.5 %.
    relative = math.sqrt(2 / (SOFTMAX_SAMPLES // 2))
    assert ((predictive.epistemic / many.epistemic - 1).abs() < SIGMAS * relative).all()
    assert predictive.mutual_information.min() > 0


def test_the_softmax_step_is_the_integral_over_a_gaussian_logit():
    """One logit N(mu, s^2): E sigmoid by quadrature, against 128 mirrored pairs."""
    mean = torch.tensor([[-1.0], [0.0], [2.0]], dtype=torch.float64)
    root = torch.tensor([[[0.5]], [[2.0]], [[3.0]]], dtype=torch.float64)
    predictive = GaussianOutputs(mean, root).predictive(bn.Categorical(), seed=0)
    z = torch.linspace(-9, 9, 20001, dtype=torch.float64)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    exact = (torch.sigmoid(mean + root[:, 0] * z) * density).sum(1)
    pairs = predictive.log_probs[:, :, 1].exp().view(2, -1, 3).mean(0)
    assert ((predictive.probs[:, 1] - exact).abs() < SIGMAS * pairs.std(0) / math.sqrt(len(pairs)) + 1e-12).all()
    assert predictive.probs[1, 1].item() == pytest.approx(0.5, abs=1e-12), "mirrored samples keep the symmetry"


def test_samples_of_the_outputs_have_their_mean_and_covariance():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    outputs = GaussianOutputs(torch.ones(2, 3, dtype=torch.float64), root)
    n = 20_000
    drawn = outputs.sample(n, seed=0)
    torch.testing.assert_close(drawn.mean(0), outputs.mean, **TIGHT)
    exact = covariance(outputs)
    result = torch.einsum("nbi,nbj->bij", drawn - 1, drawn - 1) / n
    variances = exact.diagonal(dim1=1, dim2=2)
    # n / 2 independent pairs: Var(c_ij) = (c_ii c_jj + c_ij^2) / (n / 2).
    error = ((variances[:, :, None] * variances[:, None] + exact.square()) / (n // 2)).sqrt()
    assert ((result - exact).abs() < SIGMAS * error).all()


@pytest.mark.parametrize("center", ["running", "batch"])
def test_a_layer_that_carries_an_activation_is_the_layer_and_the_activation(center):
    model = nn.Sequential(nn.Linear(3, 5), Activated(5), nn.Linear(5, 1)).double()
    model[1].running_var.uniform_(0.5, 2)
    nn.init.normal_(model[1].weight)
    plain = nn.BatchNorm1d(5).double()
    plain.load_state_dict(model[1].state_dict())
    same = nn.Sequential(model[0], plain, nn.Tanh(), model[2])
    x = rows(4, 3, seed=1)
    result, expected = (fitted(m, center=center).predict(x, Delta()) for m in (model, same))
    torch.testing.assert_close(result.epistemic, expected.epistemic, **TIGHT)
    torch.testing.assert_close(result.mean, expected.mean, **TIGHT)
    assert result.epistemic.min() > 1e-4


@pytest.mark.parametrize("center", ["running", "batch"])
def test_a_layer_that_reuses_its_input_is_refused_with_what_would_work(center, snapshot):
    model = nn.Sequential(nn.Linear(3, 5), Skipping(5), nn.Tanh(), nn.Linear(5, 1)).double()
    posterior, x = fitted(model, center=center), rows(4, 3, seed=1)
    before = snapshot(model)
    with pytest.raises(NetworkError, match=r"1 use their input for more than normalisation.*MonteCarlo\(\)"):
        posterior.predict(x, Delta())
    assert snapshot(model) == before
    assert posterior.output_directions.components is None
    assert torch.isfinite(posterior.predict(x, bn.SigmaPoints(2)).epistemic).all(), "principal components still work"


def test_a_reusing_layer_that_is_not_drawn_does_no_harm():
    model = nn.Sequential(nn.Linear(3, 5), Skipping(5), nn.Tanh(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    posterior = fitted(model.double(), layers=["4"])
    result, expected = (posterior.predict(rows(4, 3, seed=1), e) for e in (Delta(), bn.MonteCarlo(samples=20)))
    assert (result.epistemic / expected.epistemic - 1).abs().max() < 0.5, "one layer, mildly nonlinear at M = 8"


@pytest.mark.parametrize("outputs", [1, 8], ids=["reverse", "forward"])
@pytest.mark.parametrize(
    ("context", "requires_grad"), [(torch.no_grad, True), (torch.enable_grad, False), (torch.inference_mode, True)]
)
def test_contexts_change_nothing_and_no_gradient_stays(context, requires_grad, outputs, snapshot):
    model = network(outputs).requires_grad_(requires_grad)
    x = rows(4, 3, seed=1)
    expected = fitted(model, bn.Gaussian(), states=5).predict(x, Delta())
    before = snapshot(model)
    with context():
        predictive = fitted(model, bn.Gaussian(), states=5).predict(x * 1.0, Delta())
    for name in ("mean", "epistemic", "variance"):
        assert torch.equal(getattr(predictive, name), getattr(expected, name))
        assert not getattr(predictive, name).requires_grad
    assert snapshot(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_network_that_samples_numbers_leaves_the_global_generator_alone():
    model = nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), Apply(lambda h: h + 0.3 * torch.randn_like(h)), nn.Linear(5, 1)
    ).double()
    before = torch.get_rng_state()
    posterior = fitted(model)
    first, again = (posterior.predict(rows(4, 3, seed=1), Delta()).mean for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)


def test_images_and_half_precision():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1))
    x = torch.randn(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    posterior = bn.MCBN(batch_size=8, states=20).fit(model.eval(), x)
    single = posterior.predict(x[:5], Delta())
    half = bn.MCBN(batch_size=8, states=20).fit(model.bfloat16(), x).predict(x[:5], Delta())
    # Some tens of roundings to 8 digits, relative 0.4 % each, in numbers whose differences make up the variance.
    torch.testing.assert_close(half.epistemic, single.epistemic, rtol=0.1, atol=0)
    assert half.mean.dtype == half.variance.dtype == torch.float32


@pytest.mark.parametrize(("block_bytes", "expected"), [(1, 7 * [1]), (3 * 8 * 5 * 8, [3, 3, 1]), (2**20, [7])])
def test_blocks_of_rows_in_forward_mode(block_bytes, expected, monkeypatch):
    """8 outputs and 5 directions in double precision."""
    monkeypatch.setattr(delta, "rows_per_graph", lambda _: 4)
    taken, take = [], delta._forward_mode
    monkeypatch.setattr(delta, "_forward_mode", lambda p, f, block: taken.append(len(block)) or take(p, f, block))
    posterior, x = fitted(network(8), bn.Gaussian(), states=5), rows(7, 3, seed=1)
    parts = Delta(block_bytes).outputs(posterior, x)
    assert taken == expected
    for row, alone in enumerate(Delta().outputs(posterior, x[i : i + 1]) for i in range(7)):
        torch.testing.assert_close(parts.mean[row], alone.mean[0], **TIGHT)
        torch.testing.assert_close(covariance(parts)[row], covariance(alone)[0], **TIGHT)
