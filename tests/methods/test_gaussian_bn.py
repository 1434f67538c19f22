"""GaussianBN against the central-limit formulas of the MCBN paper's appendix 1.3 and against real batches.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import bayesnorm as bn

from ..two_norms import SIGMAS, TIGHT, Difference, network, rows


def factorised(posterior):
    """Standard deviations of means and of log variances."""
    assert len(posterior.fluctuations.factor) == 0
    return posterior.fluctuations.independent_std.chunk(2)


def test_first_layer_has_the_central_limits_moments():
    """mean_B ~ N(mu, s^2 / M) and std_B ~ N(s, (m4 - s^4) / (4 s^2 M)), from the data's own moments."""
    size, x = 16, rows(320, 4) + 2
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=0.3), nn.Linear(6, 1)).double()
    model[1].running_mean.normal_()
    posterior = bn.GaussianBN(batch_size=size, center="batch").fit(model, x)
    h = model[0](x).detach()
    centred = h - h.mean(0)
    var, m4 = centred.square().mean(0), centred.pow(4).mean(0)
    mean_std, log_std = factorised(posterior)
    torch.testing.assert_close(mean_std.square(), var / size, **TIGHT)
    # The coordinate is log(v + eps) = log of (std_B^2 + eps): its deviation is 2 std_B / (v + eps) times that of std_B.
    std_var = (m4 - var.square()) / (4 * var * size)
    torch.testing.assert_close(log_std.square(), 4 * var / (var + 0.3).square() * std_var, **TIGHT)
    mean, log_var = posterior.location.chunk(2)
    torch.testing.assert_close(mean, h.mean(0), **TIGHT)
    torch.testing.assert_close(log_var, (var + 0.3).log(), **TIGHT)


def test_first_layer_in_closed_form_for_gaussian_data():
    """h = w x with x ~ N(0, I): s^2 = |w|^2 and m4 = 3 s^4, so log variances have variance 2 / M."""
    size, n = 32, 20_000
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6, eps=1e-30), nn.Linear(6, 1)).double()
    posterior = bn.GaussianBN(batch_size=size).fit(model, rows(n, 4))
    mean_std, log_std = factorised(posterior)
    exact = model[0].weight.detach().square().sum(1)
    # A sample variance of n normal numbers has relative standard error sqrt(2 / n), a sample kurtosis sqrt(24 / n).
    assert ((size * mean_std.square() / exact - 1).abs() < SIGMAS * math.sqrt(2 / n)).all()
    assert ((size * log_std.square() - 2).abs() < SIGMAS * math.sqrt(24 / n)).all()


def test_drawn_standard_deviations_follow_the_paper():
    size, n = 64, 20_000
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-10), nn.Linear(6, 1)).double()
    x = rows(1280, 4)
    posterior = bn.GaussianBN(batch_size=size, center="batch").fit(model, x)
    drawn = posterior.sample(n)
    h = model[0](x).detach()
    var, m4 = h.var(0, correction=0), (h - h.mean(0)).pow(4).mean(0)
    std_var = (m4 - var.square()) / (4 * var * size)
    std = drawn["1.running_var"].sqrt()
    # A variance from n samples has relative standard error sqrt(2 / n); log-normal and normal differ by order 1 / M.
    relative = SIGMAS * math.sqrt(2 / n)
    assert ((drawn["1.running_mean"].var(0) * size / var - 1).abs() < relative).all()
    assert ((std.var(0) / std_var - 1).abs() < relative + 2 / size).all()
    assert ((std.mean(0) / var.sqrt() - 1).abs() < SIGMAS * (std_var / var / n).sqrt() + 1 / size).all()
    together = torch.corrcoef(torch.cat([drawn["1.running_mean"], std], 1).T)
    off = together[~torch.eye(12, dtype=torch.bool)]
    assert (off.abs() < SIGMAS / math.sqrt(n)).all(), "factorised: correlations of n samples are within 1 / sqrt(n)"


def test_of_a_convolution_it_is_the_images_that_are_independent_not_the_pixels():
    size, x = 8, rows(160, 2, 5, 4)
    x = x + 0.8 * rows(160, 2, 1, 1, seed=1)  # images differ in brightness: their pixels go together
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(60, 1)).double()
    posterior = bn.GaussianBN(batch_size=size).fit(model, x)
    h = model[0](x).detach()
    mean, var = h.mean((0, 2, 3)), h.var((0, 2, 3), correction=0)
    averages = h.mean((2, 3))
    squares = (h - mean[:, None, None]).square().mean((2, 3))
    mean_std, log_std = factorised(posterior)
    torch.testing.assert_close(mean_std.square(), averages.var(0, correction=0) / size, **TIGHT)
    expected = squares.var(0, correction=0) / (var + 1e-5).square() / size
    torch.testing.assert_close(log_std.square(), expected, **TIGHT)
    independent_pixels = var / (size * 20)
    assert (mean_std.square() / independent_pixels).max() > 3, "independent pixels would have given far less"
    real = bn.MCBN(batch_size=size, states=1500).fit(model, x).fluctuations.deviations[:, :3].var(0)
    # Real batches of 8 out of 160 rows: finite population (N - M) / (N - 1); relative standard error sqrt(2 / S).
    ratio = real / (mean_std.square() * (160 - size) / 159)
    assert ((ratio - 1).abs() < SIGMAS * math.sqrt(2 / 1500)).all()


def test_any_batch_size_follows_without_another_pass():
    """First layer: the moments do not depend on M, so scaling is what fitting would have found."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).double()
    x = rows(320, 4)
    scaled = bn.GaussianBN(batch_size=16).fit(model, x).at_batch_size(64)
    direct = bn.GaussianBN(batch_size=64).fit(model, x)
    ours, theirs = scaled.sample(10), direct.sample(10)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-10)


def test_one_pass_over_the_data(calls):
    model = network()
    calls.watch(model[0])
    seen = []
    bn.GaussianBN(batch_size=8).fit(model, rows(60, 3), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 7) for k in range(1, 8)]
    # Two rows for the check before, two for the default likelihood, two for the order of layers, and seven batches
    # (four rows are left over).
    assert calls.count == 10


def deviations_of(size, states, model, x):
    return bn.MCBN(batch_size=size, states=states).fit(model, x).fluctuations.deviations


def test_correlated_samples_have_the_batches_covariance_at_full_rank():
    model, x, n = network(), rows(200, 3), 20_000
    deviations = deviations_of(16, 40, model, x)
    posterior = bn.GaussianBN(batch_size=16, states=40, rank=39, center="batch").fit(model, x)
    drawn = posterior.spread * posterior.fluctuations.sample(n, torch.Generator().manual_seed(0))
    exact = deviations.T @ deviations / len(deviations)
    scale = exact.diag().sqrt()
    # n normal samples: Var(c_ij) = (c_ii c_jj + c_ij^2) / n. The factor is rounded to 8 bits, 2^-8 of a number,
    # and so at most 2^-7 sqrt(c_ii c_jj) in a covariance.
    error = ((torch.outer(exact.diag(), exact.diag()) + exact.square()) / n).sqrt()
    result = drawn.T @ drawn / n
    assert ((result - exact).abs() < SIGMAS * error + 2**-7 * torch.outer(scale, scale)).all()
    off = ~torch.eye(len(exact), dtype=torch.bool)
    strongest = (exact / torch.outer(scale, scale))[off].abs().max()
    assert strongest > 0.3, "there are correlations to keep"


@pytest.mark.parametrize("rank", [1, 5, 20])
def test_every_rank_keeps_every_coordinates_variance(rank):
    model, x = network(), rows(200, 3)
    deviations = deviations_of(16, 40, model, x)
    fluctuations = bn.GaussianBN(batch_size=16, states=40, rank=rank).fit(model, x).fluctuations
    result = fluctuations.factor.square().sum(0) + fluctuations.independent_std.square()
    torch.testing.assert_close(result, deviations.square().mean(0), rtol=2**-7, atol=0)
    assert len(fluctuations.factor) == rank


def test_correlated_keeps_what_factorised_loses():
    """Two layers that normalise the same thing: jointly their deviations cancel."""
    model, x = Difference().double(), rows(200, 1)
    model.b.running_mean, model.b.running_var = 3 * model.a.running_mean, 9 * model.a.running_var
    results = {
        rank: bn.GaussianBN(batch_size=16, states=40, rank=rank).fit(model, x).predict(x[:5]).epistemic
        for rank in (None, 2)
    }
    # Two directions hold all of the covariance; what is left of it is the rounding to 8 digits, 2^-8 squared.
    assert (results[2] < 1e-3 * results[None]).all()


@pytest.mark.parametrize("rank", [None, 4])
def test_the_deployed_network_is_the_centre(rank):
    model, x = network(), rows(100, 3)
    model[1].running_mean.normal_()
    options = {"batch_size": 8, "states": 20, "rank": rank}
    running, batch = (bn.GaussianBN(**options, center=c).fit(model, x) for c in ("running", "batch"))
    torch.testing.assert_close(running.predict(x, bn.Delta()).mean, model.eval()(x).detach(), **TIGHT)
    assert not torch.allclose(batch.predict(x, bn.Delta()).mean, model(x).detach(), atol=1e-2)
    assert torch.equal(running.batch_mean, batch.batch_mean)


class Nested:
    """Every tensor reachable from an object's fields, network aside."""

    @staticmethod
    def tensors(value):
        if isinstance(value, Tensor):
            yield value
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                if field.name != "executable":
                    yield from Nested.tensors(getattr(value, field.name))


@pytest.mark.parametrize(
    "method", [bn.GaussianBN(16), bn.GaussianBN(16, states=40, rank=12), bn.StochasticBN(16, states=40)], ids=str
)
def test_no_training_data_is_kept(method, tmp_path):
    width, n = 30, 3000
    x = rows(n, width).float()
    # Batch norm on the inputs themselves: were rows kept anywhere, this is where they would be.
    model = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 1))
    posterior = method.fit(model, x)
    posterior.directions(1)
    posterior.save(tmp_path / "posterior")
    content = (tmp_path / "posterior").read_bytes()
    coordinates, rank_of_factor = 2 * width, len(posterior.fluctuations.factor)
    # bfloat16 factor, components and sensitivities, float32 centre, mean and remainder, and a header.
    result = posterior.output_directions
    low_precision = coordinates * (rank_of_factor + len(result.components)) + result.sensitivities.numel()
    assert len(content) < 2 * low_precision + 3 * 4 * coordinates + 4096
    assert len(content) < x.numel() * 4 / 10
    for row in x:
        assert row.numpy().tobytes() not in content
        assert row.bfloat16().view(torch.uint8).numpy().tobytes() not in content
    for tensor in [*load_file(tmp_path / "posterior").values(), *Nested.tensors(posterior)]:
        assert tensor.numel() < n, "nothing is as long as the data"
