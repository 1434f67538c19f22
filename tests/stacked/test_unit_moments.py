"""Moments of batch norm's inputs in a stack, other deviations, and fewer rows."""

from __future__ import annotations

import pytest
import torch

from bayesnorm.errors import InputError
from bayesnorm.nets import paper_mlp
from bayesnorm.stacked import Stack, StackedRows, train_stacked, unit_moments
from bayesnorm.theory import unit_gaussians

M, COUNTS, WIDTH = 16, (96, 80), 10
SEEDS = 30
FAR = 6.0
"""Standard errors, themselves from 30 numbers, that the largest of some hundred differences stays within."""

PARTS = "mean_var", "std_loc", "std_var"


@pytest.fixture(scope="module")
def task():
    """Two networks with rows of their own, some of which only one has; their rows in their units."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 4, generator=generator, dtype=torch.float64).exp()
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2]
    stack = Stack.of([paper_mlp(4, hidden=(WIDTH, WIDTH), seed=i).double() for i in range(2)])
    rows = StackedRows.of(x, y, [torch.randperm(100, generator=generator)[:n] for n in COUNTS], standardise=True)
    train_stacked(stack, rows, epochs=20, batch_size=M, learning_rate=1e-2)
    return stack, rows, [rows.inputs()[i, :n] for i, n in enumerate(COUNTS)]


def far(found, expected):
    """The largest distance of two means, (numbers, units) each, in standard errors; rounding is none."""
    error = sum(part.var(0) / len(part) for part in (found, expected)) + (1e-9 * expected.mean(0)).square()
    return float(((found.mean(0) - expected.mean(0)).abs() / error.sqrt()).max())


def test_moments_are_those_of_many_passes(task):
    """Random batches see what passes over all rows see, and beside it how far the passes' own means differ."""
    stack, rows, own = task
    found = [unit_moments(stack, rows, M, seed=seed) for seed in range(SEEDS)]
    for i, x in enumerate(own):
        passes = [unit_gaussians(stack.network(i), x, M, seed=seed) for seed in range(SEEDS)]
        between = torch.stack([q.mean_loc for q in passes]).var(0)
        for name in PARTS:
            expected = torch.stack([getattr(q, name) for q in passes])
            if name == "mean_var":
                expected = expected + between / M
            elif name == "std_loc":
                expected = (expected.square() + between).sqrt()
            assert far(torch.stack([getattr(q, name)[i] for q in found]), expected) < FAR, name
    other = torch.stack([unit_gaussians(stack.network(0), own[1], M, seed=s).mean_var for s in range(SEEDS)])
    assert far(torch.stack([q.mean_var[0] for q in found]), other) > 2 * FAR, "other rows would be noticed"


def test_moments_of_one_batch_of_nearly_all_rows(task):
    """Where batches differ by one row only, there is hardly any chance: moments to the share of a row."""
    stack, rows, own = task
    size = COUNTS[1] - 1
    found = unit_moments(stack.take(torch.tensor([1])), rows.take(torch.tensor([1])), size)
    expected = unit_gaussians(stack.network(1), own[1], size)
    h = own[1] @ stack.network(1)[0].weight.T
    deviation = h - h.mean(0)
    var, fourth = deviation.square().mean(0), deviation.pow(4).mean(0)
    first = slice(0, WIDTH)
    # Leaving out the row that is furthest off, in every batch alike, changes a mean of n numbers by its n-th part.
    for name, exact, powers in (
        ("mean_var", var / size, 2),
        ("std_loc", var.sqrt(), 2),
        ("std_var", (fourth - var.square()) / (4 * var * size), 4),
    ):
        share = (deviation.abs().amax(0) / var.sqrt()) ** powers / size
        assert ((getattr(found, name)[0, first] / exact - 1).abs() < share).all(), name
        assert ((getattr(expected, name)[first] / exact - 1).abs() < share).all(), name


@pytest.mark.parametrize("batch_size", [0, 1, 2.5, 1000])
def test_moments_of_batches_that_cannot_be(task, batch_size):
    with pytest.raises(InputError, match=rf"batch_size: {batch_size} was given"):
        unit_moments(task[0], task[1], batch_size)


def test_moments_are_the_same_alone_and_from_the_same_seed(task):
    stack, rows, _ = task
    together = unit_moments(stack, rows, M, seed=[3, 4])
    for i, seed in enumerate((3, 4)):
        member = torch.tensor([i])
        alone = unit_moments(stack.take(member), rows.take(member), M, seed=seed)
        for name in PARTS:
            torch.testing.assert_close(getattr(together, name)[i], getattr(alone, name)[0], rtol=1e-12, atol=0)
    assert not torch.equal(unit_moments(stack, rows, M, seed=5).mean_var, together.mean_var)


def test_units_without_spread_have_moments(task):
    stack, rows, _ = task
    dead = stack.take(torch.arange(2))
    dead.weights["0.weight"][0, 0] = 0
    found = unit_moments(dead, rows, M)
    for name in PARTS:
        values = getattr(found, name)
        assert torch.isfinite(values).all()
        assert (values > 0).all()
    assert found.std_loc[0, 0] == pytest.approx(1e-6)


def test_other_deviations(task):
    stack, rows, _ = task
    statistics = stack.batch_statistics(rows, M, 8).about("batch").at_batch_size([4 * M, M])
    deviations = torch.randn(5, 2, 4 * WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    changed = statistics.with_deviations(deviations)
    assert (changed.draws, statistics.draws) == (5, 8)
    found = changed.coordinates() - statistics.batch_mean[:, None]
    torch.testing.assert_close(found[0], deviations[:, 0] / 2)  # at four times the batch size
    torch.testing.assert_close(found[1], deviations[:, 1])
    assert stack.predict_under(changed, rows).shape == (5, 2, 96, 1)
    same = stack.moments_under(statistics.with_deviations(0 * deviations), rows)[1]
    assert same.max() < 1e-25, "no deviations, no doubt"
    with pytest.raises(InputError, match=r"deviations: have shape \(5, 2, 39\); \(draws, 2, 40\) would work"):
        statistics.with_deviations(deviations[..., 1:])
    with pytest.raises(InputError, match=r"have shape \(5, 1, 40\)"):
        statistics.with_deviations(deviations[:, :1])


def test_thinned_rows_are_the_first(task):
    stack, rows, own = task
    some = rows.thinned(90)
    assert some.lengths.tolist() == [90, 80]
    assert some.mask.sum(1).tolist() == [90, 80]
    for i, n in enumerate((90, 80)):
        assert torch.equal(some.inputs()[i, :n], own[i][:n]), "in the units of all rows"
    f = rows.targets() + torch.arange(96.0)[None, :, None]
    expected = [
        torch.arange(n).double().square().mean().sqrt() * rows.scales.y_std[i, 0] for i, n in ((0, 90), (1, 80))
    ]
    torch.testing.assert_close(some.rmse(f[:, :90]), torch.stack(expected))
    assert rows.thinned(500).lengths.tolist() == list(COUNTS)
    assert stack.predict(some).shape == (2, 90, 1)
