"""Distributions of deviations: covariance, principal components, what is stored of them."""

import math

import pytest
import torch

from bayesnorm.engines import rounded_for_files
from bayesnorm.posterior.fluctuations import FLUCTUATIONS, Empirical, LowRankGaussian

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

BFLOAT16 = 2**-8
"""Largest relative error of rounding to 8 binary digits."""

S, P = 12, 7


@pytest.fixture
def deviations():
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(S, P, generator=generator, dtype=torch.float64) @ torch.randn(
        P, P, generator=generator, dtype=torch.float64
    )
    return mixed - mixed.mean(0)


def covariance(fluctuations):
    factor, independent = fluctuations.root()
    shared = factor.T @ factor
    return shared if independent is None else shared + independent.square().diag()


def test_the_root_of_an_empirical_distribution_is_its_covariance(deviations):
    torch.testing.assert_close(covariance(Empirical(deviations)), deviations.T.cov(correction=0))


def test_principal_components_are_those_of_the_covariance(deviations):
    components, shares = Empirical(deviations).principal(3)
    values, vectors = torch.linalg.eigh(deviations.T.cov(correction=0))
    values, vectors = values.flip(0), vectors.flip(1)
    for k in range(3):
        outer = values[k] * torch.outer(vectors[:, k], vectors[:, k])
        torch.testing.assert_close(torch.outer(components[k], components[k]), outer)
        assert shares[k].item() == pytest.approx((values[: k + 1].sum() / values.sum()).item(), rel=1e-12)


def test_what_is_independent_counts_in_the_shares(deviations):
    low_rank = LowRankGaussian.fit(deviations, 2)
    _, shares = low_rank.principal(2)
    factor, independent = low_rank.factor, low_rank.independent_std
    whole = factor.square().sum() + independent.square().sum()
    assert shares[-1].item() == pytest.approx((factor.square().sum() / whole).item(), rel=1e-12)
    assert shares[-1] < 0.999


def test_principal_components_of_independent_coordinates_are_the_axes_with_the_largest_first():
    std = torch.tensor([1.0, 3.0, 0.5, 2.0], dtype=torch.float64)
    components, shares = LowRankGaussian.independent(std).principal(2)
    expected = torch.tensor([[0.0, 3, 0, 0], [0, 0, 0, 2]], dtype=torch.float64)
    torch.testing.assert_close(components.abs(), expected)
    torch.testing.assert_close(shares, torch.tensor([9.0, 13], dtype=torch.float64) / 14.25)


@pytest.mark.parametrize("rank", [1, 3, P])
def test_low_rank_keeps_every_variance(deviations, rank):
    fitted = LowRankGaussian.fit(deviations, rank)
    assert fitted.factor.shape == (rank, P)
    result, exact = covariance(fitted).diag(), deviations.square().mean(0)
    # The remainder is taken after rounding, so variances are exact unless the rounded factor already has more than all
    # of one: by at most twice the relative error of a rounded number.
    torch.testing.assert_close(result, exact, rtol=2.1 * BFLOAT16, atol=0)
    varies = fitted.independent_std > 0
    torch.testing.assert_close(result[varies], exact[varies], rtol=1e-12, atol=0)


def test_low_rank_is_the_best_of_its_rank_up_to_rounding(deviations):
    u, values, v = torch.linalg.svd(deviations / math.sqrt(S), full_matrices=False)
    best = (v[:2].T * values[:2].square()) @ v[:2]
    factor = LowRankGaussian.fit(deviations, 2).factor
    assert ((factor.T @ factor - best).norm() / best.norm()) < 2.1 * BFLOAT16
    assert u.shape == (S, P)


def test_samples_have_the_covariance(deviations):
    fitted, n = LowRankGaussian.fit(deviations, 3), 20_000
    drawn = fitted.sample(n, torch.Generator().manual_seed(1))
    exact = covariance(fitted)
    # For n normal samples Var(c_ij) = (c_ii c_jj + c_ij^2) / n, and a mean has variance c_ii / n.
    error = ((torch.outer(exact.diag(), exact.diag()) + exact.square()) / n).sqrt()
    assert ((drawn.T @ drawn / n - exact).abs() < SIGMAS * error).all()
    assert (drawn.mean(0).abs() < SIGMAS * (exact.diag() / n).sqrt()).all()
    off = ~torch.eye(P, dtype=torch.bool)
    assert (exact.abs() > 2 * SIGMAS * error)[off].any(), "correlations are there to be missed"


def test_every_batch_is_drawn_once_before_any_again(deviations):
    drawn = Empirical(deviations).sample(2 * S + 1, torch.Generator().manual_seed(3))
    for block in (drawn[:S], drawn[S : 2 * S]):
        assert {tuple(row) for row in block.tolist()} == {tuple(row) for row in deviations.tolist()}


@pytest.mark.parametrize("make", [Empirical, lambda d: LowRankGaussian.fit(d, 3)], ids=["empirical", "low rank"])
def test_columns_are_the_marginal(deviations, make):
    whole, chosen = make(deviations), torch.tensor([5, 0, 2])
    torch.testing.assert_close(covariance(whole.columns(chosen)), covariance(whole)[chosen][:, chosen])


@pytest.mark.parametrize("make", [Empirical, lambda d: LowRankGaussian.fit(d, 3)], ids=["empirical", "low rank"])
def test_what_is_stored_is_what_was_used(deviations, make):
    fluctuations = make(deviations)
    parts = {name: tensor.to(deviations.dtype) for name, tensor in fluctuations.tensors().items()}
    again = FLUCTUATIONS[fluctuations.kind](**parts)
    first, second = (f.sample(9, torch.Generator().manual_seed(2)) for f in (fluctuations, again))
    assert torch.equal(first, second)


def test_stored_directions_are_rounded_once(deviations):
    once = rounded_for_files(deviations)
    assert torch.equal(once, rounded_for_files(once))
    assert torch.equal(once, once.bfloat16().double())
    assert ((once / deviations - 1).abs() <= BFLOAT16).all()
    assert not torch.equal(once, deviations)


def test_autocast_does_not_reach_the_samples(deviations):
    gaussian = LowRankGaussian.fit(deviations.float(), 3)
    expected = gaussian.sample(5, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        samples = gaussian.sample(5, torch.Generator().manual_seed(0))
    assert torch.equal(samples, expected)


def test_no_fluctuation_at_all_has_a_root():
    factor, independent = LowRankGaussian.independent(torch.zeros(3)).root()
    assert factor.shape == (0, 3)
    assert torch.equal(independent, torch.zeros(3))
