"""q against the paper's formulas and real batches.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import dataclasses
import math

import pytest
import torch
from torch import nn

from bayesnorm.errors import BayesNormError
from bayesnorm.theory import unit_gaussians

from ..two_norms import SIGMAS, network, rows
from .units_by_hand import FIELDS, assert_same, by_hand, some_q


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


def test_q_has_four_numbers_per_unit():
    with pytest.raises(BayesNormError, match=r"std_var must have shape \(6,\) for layers of 6 units, got \(5,\)"):
        dataclasses.replace(some_q(), std_var=torch.ones(5))
