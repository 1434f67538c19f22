"""Priors and the divergence from them against closed forms, torch's own divergence and Monte Carlo.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence as torch_kl

from bayesnorm.errors import BayesNormError
from bayesnorm.theory import BatchNormKL, GaussianPrior, kl_divergence, weight_decay_prior

from ..two_norms import TIGHT, network, rows
from .units_by_hand import FLAT, NAN, PRIOR, some_q

PER_UNIT = GaussianPrior(rows(6, seed=5), rows(6, seed=6).abs() + 0.1, rows(6, seed=7), rows(6, seed=8).abs() + 0.1)


def normals(q, prior):
    mean_loc, mean_std, std_loc, std_std = (
        torch.as_tensor(getattr(prior, field.name), dtype=torch.float64) for field in dataclasses.fields(prior)
    )
    yield Normal(q.mean_loc, q.mean_var.sqrt()), Normal(mean_loc, mean_std)
    yield Normal(q.std_loc, q.std_var.sqrt()), Normal(std_loc, std_std)


def test_divergence_is_torchs_own():
    for prior in (PRIOR, PER_UNIT, dataclasses.replace(PER_UNIT, std_std=2)):
        q = some_q()
        expected = sum(torch_kl(ours, theirs) for ours, theirs in normals(q, prior))
        torch.testing.assert_close(kl_divergence(q, prior), expected, **TIGHT)
        assert (kl_divergence(q, prior) > 0).all()


def test_a_flat_prior_leaves_minus_the_entropy():
    q = some_q()
    _, std_part = (torch_kl(ours, theirs) for ours, theirs in normals(q, dataclasses.replace(FLAT, mean_std=1.0)))
    torch.testing.assert_close(
        kl_divergence(q, FLAT), std_part - Normal(q.mean_loc, q.mean_var.sqrt()).entropy(), **TIGHT
    )


def test_weight_decay_prior_is_the_papers():
    prior = weight_decay_prior(rows=500, precision=4.0, weight_decay=1e-3)
    assert prior.mean_std is None
    assert prior.std_loc == 0
    assert prior.std_std**2 == pytest.approx(1 / (2 * 500 * 4.0 * 1e-3)), "a variance, not a standard deviation"
    decays = weight_decay_prior(500, 4.0, torch.tensor([1e-3, 1e-2]))
    torch.testing.assert_close(decays.std_std, torch.tensor([0.5, 0.05**0.5 / math.sqrt(2)]))


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


def test_a_prior_has_finite_tensors_and_some_width():
    for field in ("mean_loc", "mean_std", "std_loc", "std_std"):
        for value in (torch.ones(2, 2), torch.ones(0), torch.tensor([1, NAN])):
            with pytest.raises(BayesNormError, match=rf"{field} must be .*finite number or a flat tensor .*, got"):
                dataclasses.replace(PRIOR, **{field: value})
    for field in ("mean_std", "std_std"):
        with pytest.raises(BayesNormError, match=rf"{field} must be a positive finite number.* got 0.0"):
            dataclasses.replace(PRIOR, **{field: torch.tensor([1.0, 0.0])})


def test_a_prior_fits_the_units():
    for field in ("mean_loc", "mean_std", "std_loc", "std_std"):
        with pytest.raises(BayesNormError, match=rf"prior: {field} has 5 numbers, but there are 6 units"):
            kl_divergence(some_q(), dataclasses.replace(PRIOR, **{field: torch.ones(5)}))


def test_divergences_of_something_else():
    with pytest.raises(BayesNormError, match="q must be UnitGaussians, got a Tensor"):
        kl_divergence(torch.ones(3), PRIOR)
    for call in (lambda: kl_divergence(some_q(), Normal(0, 1)), lambda: BatchNormKL(network(), Normal(0, 1), 8)):
        with pytest.raises(BayesNormError, match="prior must be a GaussianPrior, got a Normal"):
            call()
