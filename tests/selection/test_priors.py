"""q, priors and their divergence against closed forms, torch's own divergence, Monte Carlo and real batches.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence as torch_kl
from torch.func import functional_call

from bayesnorm.errors import BayesNormError, InputError, NetworkError
from bayesnorm.network import BatchNormLayer, collect_statistics, mini_batches
from bayesnorm.selection import (
    BatchNormKL,
    GaussianPrior,
    UnitGaussians,
    kl_divergence,
    unit_gaussians,
    weight_decay_prior,
)

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

TIGHT = {"rtol": 1e-9, "atol": 1e-12}
PRIOR = GaussianPrior(mean_loc=0.2, mean_std=0.7, std_loc=0.9, std_std=0.4)
FLAT = GaussianPrior(mean_loc=0.0, mean_std=None, std_loc=0.9, std_std=0.4)
PER_UNIT_4 = GaussianPrior(torch.arange(4), torch.ones(4), torch.tensor(1.0), 1)
FIELDS = ("mean_loc", "mean_var", "std_loc", "std_var")
NAN = float("nan")


def rows(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network():
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)
    ).double()


def some_q(units=6, batch_size=20.0):
    layers = (BatchNormLayer("a", units - 2, 1e-5), BatchNormLayer("b", 2, 1e-5))
    mean_loc, std_loc = rows(units, seed=1), rows(units, seed=2).abs() + 0.3
    mean_var, std_var = (rows(units, seed=seed).square() / 4 + 0.01 for seed in (3, 4))
    return UnitGaussians(layers, mean_loc, mean_var, std_loc, std_var, batch_size)


def by_hand(h, size):
    """q's four parameters from the layer's inputs; for h without pixels the paper's formulas as they stand."""
    over = [0, *range(2, h.dim())]
    mean, var = h.mean(over), h.var(over, correction=0)
    if h.dim() == 2:
        m4 = (h - mean).pow(4).mean(0)
        return mean, var / size, var.sqrt(), (m4 - var.square()) / (4 * var * size)
    flat = h.flatten(2)
    squares = (flat - mean[:, None]).square().mean(2)
    mean_var, square_var = flat.mean(2).var(0, correction=0), squares.var(0, correction=0)
    return mean, mean_var / size, var.sqrt(), square_var / (4 * var * size)


def assert_same(q, expected, **tolerance):
    for name, value in zip(FIELDS, expected, strict=True):
        torch.testing.assert_close(getattr(q, name), value, **(tolerance or TIGHT))


# ---- q


def test_q_is_the_papers_at_the_first_layer():
    x = rows(320, 3) + 2
    model = network()
    model[1].running_mean.normal_()
    q = unit_gaussians(model, x, 16, layers="1")
    assert_same(q, by_hand(model[0](x).detach(), 16))
    assert [layer.name for layer in q.layers] == ["1"]
    assert q.batch_size == 16


def test_q_of_images_counts_images_and_not_pixels():
    x = rows(60, 2, 4, 3) + 0.8 * rows(60, 2, 1, 1, seed=1)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(6, 1)).double()
    q = unit_gaussians(model, x, 12)
    assert_same(q, by_hand(model[0](x).detach(), 12))
    pixels = q.std_loc.square() / (12 * 2)
    assert (q.mean_var / pixels).max() > 1.2, "independent pixels would have given less"


def test_layers_come_one_after_the_other_and_can_be_chosen():
    model, x = network(), rows(48, 3)
    both = unit_gaussians(model, x, 8)
    assert [layer.name for layer in both.layers] == ["1", "4"]
    first = unit_gaussians(model, x, 8, layers=lambda name, _module: name == "1")
    assert_same(first, [getattr(both, name)[:5] for name in FIELDS])


def test_one_pass_serves_every_batch_size(calls):
    model, x = network(), rows(48, 3)
    calls.watch(model[0])
    q = unit_gaussians(model, x, 8)
    assert calls.count == 1 + 48 // 8, "a look at the order of layers, then every row once"
    for size in (1, 2.5, 8, 1000.0):
        other = q.at_batch_size(size)
        assert_same(other, (q.mean_loc, q.mean_var * 8 / size, q.std_loc, q.std_var * 8 / size))
        assert other.batch_size == size
    assert calls.count == 7


def test_real_batches_have_qs_moments():
    """Batches of independent rows: a uniform, a normal, a two-valued and a Laplace unit, kurtosis 1.8, 3, 1.8 and 6."""
    n, size, batches = 4000, 512, 3000
    generator = torch.Generator().manual_seed(5)
    uniform = torch.rand(4, n, dtype=torch.float64, generator=generator)
    laplace = -torch.sign(uniform[3] - 0.5) * torch.log1p(-2 * (uniform[3] - 0.5).abs())
    x = torch.stack([3 * uniform[0], 1 + rows(n), (uniform[2] < 0.3).double(), laplace], 1)
    q = unit_gaussians(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).double(), x, 50).at_batch_size(size)
    mean, std = [], []
    for _ in range(batches):
        batch = x[torch.randint(n, (size,), generator=generator)]
        mean.append(batch.mean(0))
        std.append(batch.std(0, correction=0))
    mean, std = torch.stack(mean), torch.stack(std)
    kurtosis = (x - x.mean(0)).pow(4).mean(0) / x.var(0).square()
    # The central limit's corrections are of relative order kurtosis / M; that of a mean and its variance is zero.
    for drawn, loc, var, order in ((mean, q.mean_loc, q.mean_var, 0.0), (std, q.std_loc, q.std_var, kurtosis / size)):
        error = (var / batches).sqrt()
        assert ((drawn.mean(0) - loc).abs() < SIGMAS * error + order * loc).all()
        spread = (drawn - drawn.mean(0)).square()
        relative = spread.std(0) / spread.mean(0) / math.sqrt(batches)
        assert ((spread.mean(0) / var - 1).abs() < SIGMAS * relative + order).all()
    normal = q.std_loc.square() / (2 * size)
    assert (q.std_var / normal - 1).abs()[[0, 2, 3]].min() > 0.5, "three units are far from what normal ones would have"


def test_moments_of_collected_batches_fit_in():
    model, x, states = network(), rows(400, 3), 1500
    found = collect_statistics(model, mini_batches(x, 16, states, 0), "1")
    std = found.var.sqrt()
    real = UnitGaussians(found.layers, found.mean.mean(0), found.mean.var(0), std.mean(0), std.var(0), 16.0).floored()
    q = unit_gaussians(model, x, 16, layers="1")
    # 16 of 400 rows without replacement: (N - M) / (N - 1) of the variance; its relative standard error is sqrt(2 / S).
    ratio = real.mean_var / q.mean_var / ((400 - 16) / 399)
    assert ((ratio - 1).abs() < SIGMAS * math.sqrt(2 / states)).all()
    assert ((real.mean_loc - q.mean_loc).abs() < SIGMAS * (q.mean_var / states).sqrt()).all()
    assert torch.isfinite(kl_divergence(real, PRIOR)).all()


# ---- divergence


PER_UNIT = GaussianPrior(rows(6, seed=5), rows(6, seed=6).abs() + 0.1, rows(6, seed=7), rows(6, seed=8).abs() + 0.1)


def normals(q, prior):
    mean_loc, mean_std, std_loc, std_std = (
        torch.as_tensor(getattr(prior, field.name), dtype=torch.float64) for field in dataclasses.fields(prior)
    )
    yield Normal(q.mean_loc, q.mean_var.sqrt()), Normal(mean_loc, mean_std)
    yield Normal(q.std_loc, q.std_var.sqrt()), Normal(std_loc, std_std)


@pytest.mark.parametrize(
    "prior", [PRIOR, PER_UNIT, dataclasses.replace(PER_UNIT, std_std=2)], ids=["one", "each", "mix"]
)
def test_divergence_is_torchs_own(prior):
    q = some_q()
    expected = sum(torch_kl(ours, theirs) for ours, theirs in normals(q, prior))
    torch.testing.assert_close(kl_divergence(q, prior), expected, **TIGHT)
    assert (kl_divergence(q, prior) > 0).all()


def test_divergence_is_the_mean_log_ratio_of_draws():
    q, n = some_q(), 40_000
    total = torch.zeros(n, 6, dtype=torch.float64)
    for seed, (ours, theirs) in enumerate(normals(q, PRIOR)):
        drawn = ours.loc + ours.scale * rows(n, 6, seed=seed)
        total += ours.log_prob(drawn) - theirs.log_prob(drawn)
    error = total.std(0) / math.sqrt(n)
    assert ((total.mean(0) - kl_divergence(q, PRIOR)).abs() < SIGMAS * error).all()
    assert (error < 0.02 * kl_divergence(q, PRIOR)).all(), "the comparison means something"


def test_divergence_from_the_prior_itself_is_zero():
    q = some_q()
    same = GaussianPrior(q.mean_loc, q.mean_var.sqrt(), q.std_loc, q.std_var.sqrt())
    torch.testing.assert_close(kl_divergence(q, same), torch.zeros(6, dtype=torch.float64), **TIGHT)


def test_a_flat_prior_leaves_minus_the_entropy():
    q = some_q()
    _, std_part = (torch_kl(ours, theirs) for ours, theirs in normals(q, dataclasses.replace(FLAT, mean_std=1.0)))
    torch.testing.assert_close(
        kl_divergence(q, FLAT), std_part - Normal(q.mean_loc, q.mean_var.sqrt()).entropy(), **TIGHT
    )


def test_a_flat_prior_is_the_limit_of_wide_ones_up_to_their_constant():
    q, wide = some_q(), 1e7
    constant = math.log(wide) + 0.5 * math.log(2 * math.pi)
    nearly = kl_divergence(q, dataclasses.replace(FLAT, mean_std=wide)) - constant
    torch.testing.assert_close(nearly, kl_divergence(q, FLAT), rtol=0, atol=1e-9)


def test_between_batch_sizes_the_constant_cancels():
    """Flat on means, nearly flat on standard deviations: each adds ln(M' / M) / 2 per unit."""
    q = some_q(batch_size=20.0)
    prior = dataclasses.replace(FLAT, std_std=1e7)
    more = kl_divergence(q.at_batch_size(50.5), prior) - kl_divergence(q, prior)
    torch.testing.assert_close(more, torch.full((6,), math.log(50.5 / 20), dtype=torch.float64), rtol=0, atol=1e-9)


# ---- the prior of weight decay


def test_weight_decay_prior_is_the_papers():
    prior = weight_decay_prior(rows=500, precision=4.0, weight_decay=1e-3)
    assert prior.mean_std is None
    assert prior.std_loc == 0
    assert prior.std_std**2 == pytest.approx(1 / (2 * 500 * 4.0 * 1e-3)), "a variance, not a standard deviation"
    each = weight_decay_prior(500, 4.0, torch.tensor([1e-3, 1e-2]))
    torch.testing.assert_close(each.std_std, torch.tensor([0.5, 0.05**0.5 / math.sqrt(2)]))


def test_its_divergence_has_the_gradient_of_weight_decay():
    """Independent inputs, no scale and shift, large N tau lambda and M: dKL/dW = N tau d(lambda |W|^2)/dW."""
    x = rows(400, 5)
    x = torch.linalg.qr(x - x.mean(0))[0] * math.sqrt(400)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4, affine=False)).double()
    n, precision, decay = 400, 50.0, 50.0
    with BatchNormKL(model, weight_decay_prior(n, precision, decay), batch_size=1e9) as omega:
        model(x)
        omega().backward()
    weight = model[0].weight
    # What the paper drops is of order 1 / (N tau lambda |w|^2) and 1 / M next to what it keeps.
    expected = n * precision * decay * 2 * weight.detach()
    torch.testing.assert_close(weight.grad, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


# ---- Omega


class Activated(nn.BatchNorm2d):
    """A subclass that carries its activation, called by keyword."""

    def forward(self, input):
        return torch.relu(super().forward(input))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(3), (10, 3)),
        (nn.BatchNorm1d(3), (10, 3, 4)),
        (nn.BatchNorm2d(3, affine=False), (10, 3, 4, 2)),
        (nn.BatchNorm2d(3, track_running_stats=False).eval(), (10, 3, 4, 2)),
        (Activated(3), (10, 3, 4, 2)),
        (nn.BatchNorm3d(3, eps=0.1), (10, 3, 2, 1, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(len(value)),
)
@pytest.mark.parametrize("prior", [PRIOR, FLAT], ids=["gaussian", "flat"])
def test_omega_is_the_divergence_at_the_batchs_moments(layer, shape, prior):
    x = 2 * rows(*shape) + 1
    with BatchNormKL(layer.double(), prior, batch_size=7.5) as omega:
        layer(input=x)
        assert_same(omega.units(), by_hand(x, 7.5))
        expected = kl_divergence(UnitGaussians(omega.units().layers, *by_hand(x, 7.5), 7.5), prior).sum()
        torch.testing.assert_close(omega(), expected, **TIGHT)
        assert torch.equal(omega(), omega()), "asking changes nothing"


def test_on_all_rows_at_once_it_is_the_one_pass_q():
    model, x = network(), rows(48, 3)
    q = unit_gaussians(model, x, 8, layers="1")
    with BatchNormKL(model, PRIOR, 8, layers="1") as omega:
        model.train()(x)
        assert_same(omega.units(), [getattr(q, name) for name in FIELDS])
        assert omega.units().layers == q.layers


def test_later_layers_see_the_batch_normalised_before_them():
    model, x = network(), rows(16, 3)
    seen = []
    for index in (1, 4):
        model[index].register_forward_pre_hook(lambda _module, args: seen.append(args[0].detach()))
    with BatchNormKL(model, PRIOR, 16) as omega:
        model(x)
        parts = zip(*(by_hand(h, 16) for h in seen), strict=True)
        assert_same(omega.units(), [torch.cat(part) for part in parts])


@pytest.mark.parametrize("prior", [PRIOR, FLAT, weight_decay_prior(50, 2.0, 0.01)], ids=["gaussian", "flat", "decay"])
@pytest.mark.parametrize("kind", ["dense", "images"])
def test_gradients(prior, kind):
    if kind == "dense":
        model, x = network(), rows(6, 3)
    else:
        parts = nn.Conv2d(2, 2, 2), nn.BatchNorm2d(2), nn.Tanh(), nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)
        model, x = nn.Sequential(*parts).double(), rows(4, 2, 4, 3)
    reach = {name: p for name, p in model.named_parameters() if int(name.split(".")[0]) < 4}  # what is before a layer
    with BatchNormKL(model, prior, batch_size=3.5) as omega:

        def value(*parameters):
            functional_call(model, dict(zip(reach, parameters, strict=True)), (x,))
            return omega()

        assert torch.autograd.gradcheck(value, tuple(reach.values()))


def test_the_fourth_moment_has_its_part_in_the_gradient():
    """A prior that only the spread of standard deviations can feel: q's means stay at mean and deviation of x."""
    x = rows(32, 1).requires_grad_()
    layer = nn.BatchNorm1d(1).double()
    with BatchNormKL(layer, PRIOR, batch_size=1.0) as omega:
        layer(x)
        (gradient,) = torch.autograd.grad(omega.units().std_var.sum(), x)
    centred = (x - x.mean(0)).detach()
    var, m4, m3 = (centred.pow(k).mean(0) for k in (2, 4, 3))
    exact = (4 * (centred.pow(3) - m3) / (4 * var) - (m4 / var.square() + 1) * 2 * centred / 4) / 32
    torch.testing.assert_close(gradient, exact, **TIGHT)


def trained(prior):
    """A network and its units after training on nll + Omega / N, or on nll alone."""
    torch.manual_seed(3)
    x = rows(256, 3)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2]
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    with BatchNormKL(model, prior or PRIOR, batch_size=64) as omega:
        for _ in range(400):
            batch = torch.randperm(256, generator=generator)[:64]
            loss = (model(x[batch]) - y[batch]).square().mean()
            optimiser.zero_grad()
            (loss + (omega() / 256 if prior else 0)).backward()
            optimiser.step()
    return loss.item() / y.var().item(), unit_gaussians(model, x, 64)


def test_training_with_omega_pulls_the_units_to_the_prior():
    """Batch norm undoes shift and scale of its input, so the likelihood leaves both to the prior."""
    prior = GaussianPrior(mean_loc=1.5, mean_std=0.05, std_loc=0.5, std_std=0.05)
    plain_loss, plain = trained(None)
    loss, pulled = trained(prior)

    def distance(q):
        return torch.cat([(q.mean_loc - 1.5) / 0.05, (q.std_loc - 0.5) / 0.05]).abs()

    assert distance(pulled).max() < 2, "every unit is within two of the prior's standard deviations"
    assert distance(plain).median() > 5, "where training alone does not bring them"
    assert loss < 0.2, "and the network has learned the task nonetheless"
    assert plain_loss < 0.2


def test_statistics_of_half_precision_are_in_single():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(torch.bfloat16)
    with BatchNormKL(model, PER_UNIT_4, 8) as omega:
        model(rows(8, 3).bfloat16())
        assert omega().dtype == torch.float32
        omega().backward()
    assert torch.isfinite(model[0].weight.grad).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_as_on_a_cpu():
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double().to(device), rows(16, 3).to(device)
        with BatchNormKL(model, PER_UNIT_4, 8) as omega:
            model(x)
            omega().backward()
            q = unit_gaussians(model, x, 4)
            found.append([part.cpu() for part in (omega(), model[0].weight.grad, kl_divergence(q, PER_UNIT_4))])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


# ---- units without spread


@pytest.mark.parametrize("prior", [PRIOR, FLAT], ids=["gaussian", "flat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_dead_unit_stays_finite(prior, dtype):
    model, x = network().to(dtype), rows(48, 3).to(dtype)
    model[0].weight.data[1] = 0.0
    q = unit_gaussians(model, x, 8)
    assert torch.isfinite(kl_divergence(q, prior)).all()
    assert q.std_loc[1].item() == pytest.approx(1e-6)
    assert 8 * q.mean_var[1].item() == pytest.approx(1e-18)
    assert 8 * q.std_var[1].item() == pytest.approx(1e-18)
    with BatchNormKL(model.train(), prior, 8) as omega:
        model(x)
        omega().backward()
        assert torch.isfinite(omega())
    for name in ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"):
        assert torch.isfinite(model.get_parameter(name).grad).all()
    pull = (model[0].bias[1] - 0.2) / 0.7**2 if prior is PRIOR else torch.zeros(())
    torch.testing.assert_close(model[0].bias.grad[1], pull.detach().to(dtype), rtol=1e-4, atol=1e-4)


def test_two_rows_stay_finite():
    """m4 = s^4 for two values: the standard deviation would have no spread."""
    model = network()
    with BatchNormKL(model, PRIOR, 2) as omega:
        model(rows(2, 3))
        q = omega.units()
        torch.testing.assert_close(q.std_var, 1e-6 / 2 * q.std_loc.square())
        omega().backward()
    assert all(torch.isfinite(p.grad).all() for p in model[:4].parameters())


# ---- what is left behind


def test_hooks_look_on_and_go(snapshot):
    """Training under BatchNormKL, with Omega asked for but not used, is training without it, bit for bit."""
    plain, x = network(), rows(32, 3)
    watched = copy.deepcopy(plain)
    hooks = [part["hooks"] for part in snapshot(watched).values()]
    omega = BatchNormKL(watched, PRIOR, 8)
    for model in (plain, watched):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if model is watched:
            omega.attach().attach()
        for batch in x.split(8):
            optimiser.zero_grad()
            loss = model(batch).square().mean()
            if model is watched:
                omega()
            loss.backward()
            optimiser.step()
    assert [part["hooks"] for part in snapshot(watched).values()] != hooks
    omega.close()
    omega.close()
    assert [part["hooks"] for part in snapshot(watched).values()] == hooks
    ours, theirs = watched.state_dict(), plain.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("limit", [1, 2])
def test_nothing_is_left_when_the_forward_raises(snapshot, calls, limit):
    model = network().eval()
    calls.watch(model[0], model[3])
    calls.reset(limit)
    before = snapshot(model)
    with pytest.raises(calls.Boom), BatchNormKL(model, PRIOR, 8):
        model(rows(8, 3))
    assert snapshot(model) == before


def test_making_q_leaves_the_model_alone(snapshot, calls):
    model = network()
    before = snapshot(model)
    unit_gaussians(model, rows(48, 3), 8)
    assert snapshot(model) == before
    calls.watch(model[0])
    before = snapshot(model)
    calls.reset(limit=3)
    with pytest.raises(InputError, match="Boom"):
        unit_gaussians(model, rows(48, 3), 8)
    assert snapshot(model) == before


def test_the_latest_forward_counts():
    model, first, second = network(), rows(8, 3), rows(12, 3, seed=1)
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(second)
        expected = omega()
        model(first)
        other = omega()
        model(first)
        model(second)
        assert torch.equal(omega(), expected)
        assert not torch.equal(other, expected)


def test_evaluation_in_between_does_no_harm():
    model, x = network(), rows(8, 3)
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(x)
        expected = omega()
        model.eval()(x)
        model.train()(x)
        assert torch.equal(omega(), expected)


def test_a_copy_of_a_watched_network_is_not_watched():
    model, x = network(), rows(8, 3)
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(x)
        expected = omega()
        copy.deepcopy(model)(2 * x)
        unit_gaussians(model, rows(48, 3), 8)
        assert torch.equal(omega(), expected)


def test_parts_of_a_network_may_be_called_by_themselves():
    model, x = network(), rows(8, 3)
    with BatchNormKL(model, PRIOR, 8) as omega:
        for batch in (2 * x, x):
            h = model[3:](model[:3](batch))
            value = omega()
        assert h.shape == (8, 1)
        model(x)
        assert torch.equal(omega(), value)


@pytest.mark.parametrize(
    ("layers", "names"),
    [(None, ["1", "4"]), (1, ["4"]), (2, ["1", "4"]), (["4", "1"], ["1", "4"]), (lambda name, _: name < "2", ["1"])],
)
def test_layers_are_chosen_in_running_order(layers, names):
    model = network()
    with BatchNormKL(model, PRIOR, 8, layers=layers) as omega:
        model(rows(8, 3))
        assert [layer.name for layer in omega.units().layers] == names


class LastFirst(nn.Module):
    """Runs its layers in the opposite order to that in which it names them."""

    def __init__(self):
        super().__init__()
        self.last, self.first = nn.BatchNorm1d(3), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


@pytest.mark.parametrize(("layers", "names"), [(None, ["first", "last"]), (1, ["last"])])
def test_the_order_is_that_in_which_layers_run(layers, names):
    model = LastFirst()
    with BatchNormKL(model, PRIOR, 8, layers=layers) as omega:
        model(rows(8, 3).float())
        assert [layer.name for layer in omega.units().layers] == names


def test_layers_that_are_left_out_may_be_frozen():
    model = network()
    model[1].eval()
    with BatchNormKL(model, PRIOR, 8, layers=1) as omega:
        model(rows(8, 3))
        assert len(omega.units().mean_loc) == 4


# ---- what is refused


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.spare = nn.BatchNorm2d(2), nn.BatchNorm2d(2)

    def forward(self, x, times=1):
        for _ in range(times):
            x = self.bn(x)
        return x


X4 = torch.randn(6, 2, 3, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("match", "kind", "layers", "forward"),
    [
        (
            r"model: none of its batch-norm layers has seen a batch yet; call model\(x\) .*first",
            NetworkError,
            None,
            None,
        ),
        (
            r"model: batch-norm layer 'spare' did not run .*leave it out with layers=",
            NetworkError,
            None,
            lambda m: m(X4),
        ),
        (r"layers: 2 was given, but 1 batch-norm layers run", NetworkError, 2, lambda m: m(X4)),
        (
            r"model: batch-norm layer 'bn' was in evaluation mode .*model.train\(\)",
            NetworkError,
            "bn",
            lambda m: m.eval()(X4),
        ),
        (r"model: batch-norm layer 'bn' was called 2 times in one forward", NetworkError, "bn", lambda m: m(X4, 2)),
        (r"x: the latest forward brought 1 row .*at least 2 rows would work", InputError, "bn", lambda m: m(X4[:1])),
    ],
    ids=["no forward", "not reached", "too few", "evaluation", "twice", "one row"],
)
def test_omega_of_a_forward_that_has_none(match, kind, layers, forward):
    model = Branches()
    with BatchNormKL(model, PRIOR, 8, layers=layers) as omega:
        if forward:
            forward(model)
        with pytest.raises(kind, match=match):
            omega()


def test_a_failed_forward_leaves_no_omega_of_the_one_before(calls):
    model = network()
    calls.watch(model[3])
    with BatchNormKL(model, PRIOR, 8) as omega:
        model(rows(8, 3))
        omega()
        calls.reset(limit=1)
        with pytest.raises(calls.Boom):
            model(rows(8, 3))
        with pytest.raises(NetworkError, match=r"model: batch-norm layer '4' did not run .*or that forward failed"):
            omega()


def test_omega_before_and_after():
    model = network()
    omega = BatchNormKL(model, PRIOR, 8)
    with pytest.raises(NetworkError, match=r"model: its batches are not watched; .*attach\(\)"):
        omega()
    with omega:
        model(rows(8, 3))
    with pytest.raises(NetworkError, match="not watched"):
        omega()
    with omega, pytest.raises(NetworkError, match=r"none of its .* has seen a batch yet"):
        omega()


@pytest.mark.parametrize("size", [0, -1, NAN, math.inf, True, "32", None])
def test_batch_sizes_are_positive_numbers(size):
    for call in (lambda: BatchNormKL(network(), PRIOR, size), lambda: some_q().at_batch_size(size)):
        with pytest.raises(BayesNormError, match=r"batch_size: .* was given; a positive number would work"):
            call()


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (nn.Linear(3, 1), "model: has no batch-norm layer"),
        (nn.DataParallel(network()), "model: DataParallel splits a batch"),
        ("network", "model: str was given"),
    ],
    ids=["no batch norm", "data parallel", "no network"],
)
def test_networks_that_cannot_be_watched(model, match):
    with pytest.raises(NetworkError, match=match):
        BatchNormKL(model, PRIOR, 8)


def test_unknown_layers():
    with pytest.raises(NetworkError, match=r"layers: '2' is not a batch-norm layer"):
        BatchNormKL(network(), PRIOR, 8, layers="2")


@pytest.mark.parametrize("field", ["mean_loc", "mean_std", "std_loc", "std_std"])
@pytest.mark.parametrize("value", [NAN, math.inf, "1", True, torch.ones(2, 2), torch.ones(0), torch.tensor([1, NAN])])
def test_a_prior_has_finite_numbers(field, value):
    with pytest.raises(BayesNormError, match=rf"{field}: .* finite number, or a flat tensor of one per unit"):
        dataclasses.replace(PRIOR, **{field: value})


@pytest.mark.parametrize("field", ["mean_std", "std_std"])
@pytest.mark.parametrize("value", [0, -1.0, torch.tensor([1.0, 0.0])])
def test_a_prior_has_some_width(field, value):
    with pytest.raises(BayesNormError, match=rf"{field}: (0|-1.0|0.0) was given; a positive finite number"):
        dataclasses.replace(PRIOR, **{field: value})


@pytest.mark.parametrize("field", ["mean_loc", "std_loc", "std_std"])
def test_only_means_may_be_flat(field):
    with pytest.raises(BayesNormError, match=f"{field}: None was given"):
        dataclasses.replace(PRIOR, **{field: None})


@pytest.mark.parametrize("field", ["mean_loc", "mean_std", "std_loc", "std_std"])
def test_a_prior_fits_the_units(field):
    with pytest.raises(BayesNormError, match=rf"prior: {field} has 5 numbers for 6 units; one number, or one per unit"):
        kl_divergence(some_q(), dataclasses.replace(PRIOR, **{field: torch.ones(5)}))


def test_divergences_of_something_else():
    with pytest.raises(BayesNormError, match="q: a Tensor was given; UnitGaussians would work"):
        kl_divergence(torch.ones(3), PRIOR)
    for call in (lambda: kl_divergence(some_q(), Normal(0, 1)), lambda: BatchNormKL(network(), Normal(0, 1), 8)):
        with pytest.raises(BayesNormError, match="prior: a Normal was given; a GaussianPrior would work"):
            call()


def test_q_has_four_numbers_per_unit():
    with pytest.raises(BayesNormError, match=r"std_var: has shape \(5,\) for layers of 6 units; \(6,\) would work"):
        dataclasses.replace(some_q(), std_var=torch.ones(5))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0, 1.0, 1e-3), "rows: 0 was given"),
        ((10.0, 1.0, 1e-3), "rows: 10.0 was given"),
        ((True, 1.0, 1e-3), "rows: True was given"),
        ((10, 0.0, 1e-3), "precision: 0.0 was given; a positive finite number"),
        ((10, 1.0, -1e-3), "weight_decay: -0.00.* was given; a positive finite number"),
        ((10, 1.0, 0.0), "weight_decay: 0.0 was given; a positive finite number"),
    ],
)
def test_weight_decay_is_of_something(arguments, match):
    with pytest.raises(BayesNormError, match=match):
        weight_decay_prior(*arguments)


@pytest.mark.parametrize(
    ("size", "match"), [(48, "batch_size: 48 of only 48"), (1, "batch_size: 1 "), (None, "batch_size: None")]
)
def test_q_wants_batches_of_the_data(size, match):
    with pytest.raises(InputError, match=match):
        unit_gaussians(network(), rows(48, 3), size)
