"""Moments of a batch, and the choice of its rows, are computed in one place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bayesnorm.network import batch_choices, mean_and_var, row_moments
from bayesnorm.network.collecting import moments
from bayesnorm.network.collecting.moments import moments_from_sums, row_averages, row_sums

SHAPES = [(7, 3), (7, 3, 5), (7, 3, 4, 2)]


def generate(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return 3 + 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def test_mean_and_variance_are_those_that_batch_norm_normalises_by():
    for shape in SHAPES:
        h = generate(*shape)
        mean, var = mean_and_var(h)
        h = h.transpose(0, 1).flatten(1)
        torch.testing.assert_close(mean, h.mean(1))
        torch.testing.assert_close(var, h.var(1, unbiased=False))


@pytest.mark.parametrize("shape", SHAPES)
def test_leading_axes_are_batches_of_their_own(shape):
    h = generate(2, 4, *shape)
    one_by_one = [[row_moments(batch) for batch in network] for network in h]
    for part, result in enumerate(row_moments(h, leading=2)):
        torch.testing.assert_close(result, torch.stack([torch.stack([b[part] for b in n]) for n in one_by_one]))
    mean, var = mean_and_var(h, leading=2)
    torch.testing.assert_close(mean, row_moments(h, leading=2).mean)
    torch.testing.assert_close(var, row_moments(h, leading=2).var)


def test_without_pixels_the_spread_of_squares_is_that_of_fourth_moments():
    h = generate(50, 3)
    result = row_moments(h)
    deviation = h - h.mean(0)
    torch.testing.assert_close(result.mean_var, result.var)
    torch.testing.assert_close(result.square_var, deviation.pow(4).mean(0) - result.var.square())


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_over_batches_give_the_moments_of_all_their_rows(shape):
    batches, about = [generate(*shape), 1 + generate(*shape).flip(0)], torch.full((3,), 2.5)
    sums = torch.zeros(5, 3, dtype=torch.float64)
    for batch in batches:
        mean, var, *averages = row_averages(batch)
        torch.testing.assert_close((mean, var), mean_and_var(batch))
        sums += row_sums(mean, *averages, about=about)
    for result, expected in zip(moments_from_sums(sums, 14, about), row_moments(torch.cat(batches)), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("elements", [1, 30, 10**6])
def test_rows_in_parts_give_the_moments_of_all(elements, monkeypatch):
    h = generate(7, 3, 4, 2)
    expected = mean_and_var(h), row_averages(h)
    monkeypatch.setattr(moments, "CPU_ELEMENTS", elements)
    torch.testing.assert_close((mean_and_var(h), row_averages(h)), expected)
    torch.testing.assert_close(mean_and_var(h.expand(2, *h.shape), leading=1)[1][1], expected[0][1])


def test_half_precision_is_raised():
    h = 300 + generate(64, 2, dtype=torch.float16)  # whose squares are more than half precision can hold
    assert mean_and_var(h)[1].dtype == torch.float32
    torch.testing.assert_close(mean_and_var(h)[1], h.float().var(0, unbiased=False))


def test_rows_of_batches_are_the_calls_of_one_generator():
    generator = np.random.default_rng(5)
    expected = [generator.choice(20, 6, replace=False) for _ in range(3)]
    chosen = batch_choices(20, 6, 3, seed=5)
    assert np.array_equal(chosen, expected)
    assert all(len(set(batch)) == 6 for batch in chosen.tolist())
