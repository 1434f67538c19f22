"""MCBN against closed forms, the central-limit formulas, and real images.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.network import mini_batches

from ..two_norms import SIGMAS, Difference, rows


def mlp(width=4, hidden=6, eps=1e-5):
    return nn.Sequential(
        nn.Linear(width, hidden, bias=False),
        nn.BatchNorm1d(hidden, eps=eps),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.BatchNorm1d(hidden, eps=eps),
        nn.Tanh(),
        nn.Dropout(0.4),
        nn.Linear(hidden, 1),
    ).double()


def train_mode_without_dropout(model):
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    return model


@pytest.mark.parametrize("eps", [1e-5, 1e-10, 0.3])
def test_one_cached_batch_is_the_network_in_training_mode(eps):
    model, x = mlp(eps=eps), rows(50, 4)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 3)
    posterior = bn.MCBN(batch_size=10, states=1, center="batch").fit(model, x, seed=7)
    (batch,) = mini_batches(x, 10, 1, seed=7)
    outputs = bn.MonteCarlo(samples=3).outputs(posterior, batch)
    expected = train_mode_without_dropout(model)(batch).detach()
    torch.testing.assert_close(outputs, expected.expand(3, -1, -1), rtol=1e-9, atol=1e-10)


def test_several_cached_batches_are_each_a_training_pass():
    model, x = mlp(), rows(50, 4)
    posterior = bn.MCBN(batch_size=10, states=6, center="batch").fit(model, x, seed=7)
    states = posterior.sample(6, seed=1)  # every batch once, in some order
    network = train_mode_without_dropout(model)
    results = []
    for batch in mini_batches(x, 10, 6, seed=7):
        expected = network(batch).detach()
        outputs = posterior.executable.run(states, batch)
        distance = (outputs - expected).abs().amax((1, 2))
        results.append(int(distance.argmin()))
        assert distance.min() < 1e-10
        assert distance.kthvalue(2).values > 1e-6, "the other samples are other batches'"
    assert sorted(results) == list(range(6))


def clt(h, batch_size, n_rows):
    """Variances of a batch's mean and standard deviation: the paper's appendix 1.3, drawn without replacement.

    A sample of M out of N has its mean's variance times (N - M)/(N - 1); to first order the variance statistic too.
    """
    centred = h - h.mean(0)
    var, m4 = centred.square().mean(0), centred.pow(4).mean(0)
    correction = (n_rows - batch_size) / (n_rows - 1)
    return correction * var / batch_size, correction * (m4 - var**2) / (4 * var * batch_size)


def test_mean_and_spread_of_the_statistics_are_those_of_the_central_limit():
    n_rows, size, states = 2000, 64, 3000
    model, x = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).double(), rows(2000, 4)
    posterior = bn.MCBN(batch_size=size, states=states, center="batch").fit(model, x)
    drawn = posterior.sample(states)  # every batch once
    mean, std = drawn["1.running_mean"], drawn["1.running_var"].sqrt()
    h = model[0](x).detach()
    mean_var, std_var = clt(h, size, n_rows)
    sigma = h.std(0, correction=0)

    # A mean over S independent batches has standard error sqrt(var / S).
    assert ((mean.mean(0) - h.mean(0)).abs() < SIGMAS * (mean_var / states).sqrt()).all()
    # E[biased var] = sigma^2 (1 - 1/M) N/(N-1), and E[std] = sqrt(E[var]) - var(std) / (2 sigma) to that order; what is
    # left out is of order sigma / M^2 = sigma / 4096, a tenth of the standard error sqrt(std_var / S) = sigma / 620.
    expected = (sigma**2 * (1 - 1 / size) * n_rows / (n_rows - 1)).sqrt() - std_var / (2 * sigma)
    assert ((std.mean(0) - expected).abs() < SIGMAS * (std_var / states).sqrt() + sigma / size**2).all()
    # A variance estimated from S near-normal samples has relative standard error sqrt(2 / S) = 2.6 %. The formula for
    # std_B is first order in 1/M, so its own relative error is of order 1/M = 1.6 %.
    relative = SIGMAS * math.sqrt(2 / states)
    assert ((mean.var(0) / mean_var - 1).abs() < relative).all()
    assert ((std.var(0) / std_var - 1).abs() < relative + 2 / size).all()


def test_small_populations_fluctuate_less():
    """The finite-population correction: with M = N/2 the mean's variance is about half of sigma^2 / M."""
    model, x = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).double(), rows(40, 4)
    states = 3000
    posterior = bn.MCBN(batch_size=20, states=states, center="batch").fit(model, x)
    result = posterior.sample(states)["1.running_mean"].var(0)
    expected, _ = clt(model[0](x).detach(), 20, 40)  # exact for the mean
    assert ((result / expected - 1).abs() < SIGMAS * math.sqrt(2 / states)).all()
    assert (result < 0.6 * model[0](x).detach().var(0, correction=0) / 20).all()


def test_epistemic_variance_of_a_linear_gaussian_network_in_closed_form():
    """One BN on h = w x with x ~ N(0, 1), read out at the centre of the data.

    f(x*) = (w x* - m) / sqrt(v) with batch mean m ~ N(mu, sigma^2 / M) and v = sigma^2 chi2_{M-1} / M independent of m
    (x Gaussian), so at x* with w x* = mu:  Var f = E[(m - mu)^2] E[1/v] = (sigma^2 / M) * (M / sigma^2) / (M - 3) =
    1 / (M - 3), and E f = 0.
    """
    size, states = 12, 6000
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, eps=1e-30, affine=False)).double()
    x = rows(200_000, 1)
    posterior = bn.MCBN(batch_size=size, states=states, center="batch").fit(model, x)
    mu = x.mean(0, keepdim=True)
    predictive = posterior.predict(mu, engine=bn.MonteCarlo(samples=states))
    exact = 1 / (size - 3)
    # f is Student-like: sqrt(M/(M-1)) f sqrt(...) ~ t_{M-1} / sqrt(M-1), kurtosis 3 + 6 / (M - 5): the variance over S
    # samples has relative standard error sqrt((kurtosis - 1) / S).
    relative = math.sqrt((2 + 6 / (size - 5)) / states)
    assert abs(predictive.epistemic.item() / exact - 1) < SIGMAS * relative
    assert abs(predictive.mean.item()) < SIGMAS * math.sqrt(exact / states)
    assert predictive.aleatoric.item() == pytest.approx(1.0, abs=1e-12)
    assert predictive.variance.item() == pytest.approx(1 + predictive.epistemic.item(), abs=1e-12)


def test_centred_linear_gaussian_in_closed_form():
    """center="running": means fluctuate by sigma^2 / M about the running mean, whatever the running mean is."""
    size, states = 32, 4000
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, eps=1e-30, affine=False)).double().eval()
    x = rows(100_000, 1)
    h = model[0](x).detach()
    model[1].running_mean.copy_(h.mean(0) + 5 * h.std(0))  # far from the data: only its own centre counts
    model[1].running_var.copy_(4 * h.var(0))
    posterior = bn.MCBN(batch_size=size, states=states).fit(model, x)
    drawn = posterior.sample(states)
    var = h.var(0)
    torch.testing.assert_close(drawn["1.running_mean"].mean(0), model[1].running_mean, rtol=1e-9, atol=1e-12)
    result = drawn["1.running_mean"].var(0)
    assert abs(result / (var / size) - 1) < SIGMAS * math.sqrt(2 / states)
    # log v = log sigma^2 + log(chi2_k / k) with k = M - 1: variance trigamma(k / 2), and excess kurtosis about 2 / k.
    exact = torch.polygamma(1, torch.tensor((size - 1) / 2, dtype=torch.float64))
    log_var = drawn["1.running_var"].log()
    assert abs(log_var.var(0) / exact - 1) < SIGMAS * math.sqrt((2 + 4 / (size - 1)) / states)
    torch.testing.assert_close(log_var.mean(0), model[1].running_var.log(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_of_all_samples_is_the_centre(dtype, regression):
    task = regression.to(dtype)
    for center in ("running", "batch"):
        posterior = bn.MCBN(batch_size=8, states=50, center=center).fit(task.model, task.x)
        drawn = posterior.sample(50)  # every batch once
        for layer in posterior.layers:
            module = task.model.get_submodule(layer.name)
            centre = module.running_mean, torch.log(module.running_var + layer.eps)
            mean = drawn[f"{layer.name}.running_mean"].mean(0)
            log_var = torch.log(drawn[f"{layer.name}.running_var"] + layer.eps).mean(0)
            exact = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-11}
            if center == "running":
                torch.testing.assert_close(mean, centre[0], **exact)
                torch.testing.assert_close(log_var, centre[1], **exact)
            else:
                assert (mean - centre[0]).abs().max() > 1e-3
                assert (log_var - centre[1]).abs().max() > 1e-3


def test_both_centres_have_the_same_fluctuations(regression):
    task = regression.to(torch.float64)
    running, batch = (
        bn.MCBN(batch_size=8, states=20, center=center).fit(task.model, task.x) for center in ("running", "batch")
    )
    for layer in running.layers:
        a, b = (p.sample(20, seed=2)[f"{layer.name}.running_mean"] for p in (running, batch))
        torch.testing.assert_close(a - a.mean(0), b - b.mean(0))
        a, b = ((p.sample(20, seed=2)[f"{layer.name}.running_var"] + layer.eps).log() for p in (running, batch))
        torch.testing.assert_close(a - a.mean(0), b - b.mean(0))


def test_effective_batch_size_scales_fluctuations_exactly(regression):
    task = regression.to(torch.float64)
    posterior = bn.MCBN(batch_size=8, states=20).fit(task.model, task.x)
    for effective in (2, 8, 32.0, 128.5):
        other = posterior.at_batch_size(effective)
        assert other.batch_size == effective
        assert other.fitted_batch_size == 8
        for layer in posterior.layers:
            at, scaled = posterior.sample(20), other.sample(20)
            name = f"{layer.name}.running_mean"
            ratio = math.sqrt(8 / effective)
            deviation = at[name] - at[name].mean(0)
            torch.testing.assert_close(scaled[name] - scaled[name].mean(0), ratio * deviation)
            name = f"{layer.name}.running_var"
            a, b = (at[name] + layer.eps).log(), (scaled[name] + layer.eps).log()
            torch.testing.assert_close(b - b.mean(0), ratio * (a - a.mean(0)))
    assert posterior.batch_size == 8, "the posterior itself is as it was"
    back = posterior.at_batch_size(128).at_batch_size(8)
    assert torch.equal(back.predict(task.new_x).mean, posterior.predict(task.new_x).mean)


def test_epistemic_variance_falls_as_one_over_the_effective_batch_size():
    """At w x* = mu the network is linear in the mean's fluctuation, if variances are not drawn."""
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, affine=False)).double()
    posterior = bn.MCBN(batch_size=16, states=200).fit(model, rows(5000, 1))
    states = posterior.sample(200)
    x = rows(3, 1, seed=1)

    def epistemic(at):
        means_only = {"1.running_mean": at.sample(200)["1.running_mean"]}
        return posterior.executable.run(means_only, x).var(0, correction=0)

    for effective in (4, 64, 1000):
        torch.testing.assert_close(epistemic(posterior.at_batch_size(effective)), 16 / effective * epistemic(posterior))
    assert states["1.running_mean"].std() > 0


def test_a_fitted_batch_size_agrees_with_the_effective_one():
    """M' = 64 by scaling M = 16 is what M = 64 would have found: variances of means agree within standard errors."""
    x, states = rows(4000, 4), 1500
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).double()
    scaled = bn.MCBN(batch_size=16, states=states).fit(model, x, seed=0).at_batch_size(64)
    direct = bn.MCBN(batch_size=64, states=states).fit(model, x, seed=1)
    a, b = (p.sample(states)["1.running_mean"].var(0) for p in (scaled, direct))
    # Finite population: (N - 16) against (N - 64), 1.2 %. Each variance has relative standard error sqrt(2 / S).
    assert ((a / b / ((4000 - 16) / (4000 - 64)) - 1).abs() < SIGMAS * math.sqrt(4 / states)).all()


def test_one_draw_is_one_batch_for_all_layers():
    """Law 2: drawn jointly, the layers' deviations cancel; drawn independently, their variances would add."""
    x, states = rows(2000, 1), 200
    posterior = bn.MCBN(batch_size=20, states=states, center="batch").fit(Difference().double(), x)
    drawn = posterior.sample(states, seed=3)
    torch.testing.assert_close(drawn["b.running_mean"], 3 * drawn["a.running_mean"])
    torch.testing.assert_close(drawn["b.running_var"], 9 * drawn["a.running_var"])
    joint = posterior.executable.run(drawn, x[:5]).var(0)
    shuffle = torch.randperm(states)
    apart = {name: value[shuffle] if name.startswith("b") else value for name, value in drawn.items()}
    independent = posterior.executable.run(apart, x[:5]).var(0)
    assert joint.max() < 1e-20
    assert (independent > 0.01).all()


def test_every_batch_is_drawn_once_before_any_is_drawn_again(regression):
    posterior = bn.MCBN(batch_size=8, states=10).fit(regression.model, regression.x)
    drawn = posterior.sample(25, seed=4)["1.running_mean"]
    distinct = {tuple(row) for row in posterior.sample(10)["1.running_mean"].tolist()}
    assert len(distinct) == 10
    for block in (drawn[:10], drawn[10:20]):
        assert {tuple(row) for row in block.tolist()} == distinct


def test_another_seed_samples_other_batches(regression):
    first, again, other = (
        bn.MCBN(batch_size=8, states=6).fit(regression.model, regression.x, seed=seed).sample(6)["1.running_mean"]
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_a_loader_gives_its_batch_size_and_loses_no_rows(regression):
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(regression.x, regression.y), batch_size=16, shuffle=True
    )
    posterior = bn.MCBN(states=40).fit(regression.model, loader)
    assert (posterior.fitted_batch_size, posterior.batch_size, posterior.rows) == (16, 16, 80)


# Real images.


@pytest.mark.parametrize("eps", [1e-5, 0.0])
def test_predictions_are_finite_if_some_batches_do_not_vary(eps):
    """The log of their variance is far below the others', and a small effective batch size multiplies this distance."""
    x = torch.zeros(200, 1)
    x[:10] = 1 + torch.arange(10.0)[:, None]
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4, eps=eps), nn.ReLU(), nn.Linear(4, 2)).eval()
    if eps:
        posterior = bn.MCBN(batch_size=4, states=32).fit(model, x, bn.Categorical()).at_batch_size(0.5)
        assert bool(torch.isfinite(posterior.predict(x).probs).all())
    else:
        with pytest.raises(bn.BayesNormError):
            bn.MCBN(batch_size=4, states=32).fit(model, x, bn.Categorical())
