"""Omega: its value, its gradients, and what training with it does; units without spread."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from bayesnorm.theory import (
    BatchNormKL,
    GaussianPrior,
    UnitGaussians,
    kl_divergence,
    unit_gaussians,
    weight_decay_prior,
)

from ..two_norms import TIGHT, network, rows
from .units_by_hand import FIELDS, FLAT, PRIOR, assert_same, by_hand

PER_UNIT_4 = GaussianPrior(torch.arange(4), torch.ones(4), torch.tensor(1.0), 1)


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
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    with BatchNormKL(model, prior or PRIOR, batch_size=64) as omega:
        for _ in range(150):
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
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double().to(device), rows(16, 3).to(device)
        with BatchNormKL(model, PER_UNIT_4, 8) as omega:
            model(x)
            omega().backward()
            q = unit_gaussians(model, x, 4)
            results.append([part.cpu() for part in (omega(), model[0].weight.grad, kl_divergence(q, PER_UNIT_4))])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


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
