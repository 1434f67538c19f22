"""The masks of seeded dropout: as good as random, torch's own in distribution, the same however they are computed."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from bayesnorm.network import SEEDS
from bayesnorm.network.running.seeded_dropout import seed_dropout

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison of a normal number."""


def seeds(n, seed=0):
    return torch.randint(SEEDS, (n,), generator=torch.Generator().manual_seed(seed))


def seeded(layer, consistent=True, axes=(0,)):
    """A network that is one seeded layer."""
    network = nn.Sequential(copy.deepcopy(layer)).eval()
    seed_dropout(network, {"0": layer.p}, consistent, {"0": axes}, torch.device("cpu"))
    return network


def masked(layer, h, drawn, consistent=True):
    """What a layer makes of `h` under each seed, (samples, *shape)."""
    network = seeded(layer, consistent)
    return torch.vmap(lambda seed: functional_call(network, {"0.seed": seed}, (h,)))(drawn)


def deviations(n, units, p, consistent=True, rows=1, drawn=None):
    """Kept or not, less the keep rate and divided by its standard deviation: (n, rows, units)."""
    mask = masked(nn.Dropout(p), torch.ones(rows, units), seeds(n) if drawn is None else drawn, consistent) > 0
    return (mask.double() - (1 - p)) / math.sqrt(p * (1 - p))


def worst(comparisons):
    """The largest of so many standard normal numbers, but for one chance in a thousand."""
    return -torch.special.ndtri(torch.tensor(0.5e-3 / comparisons, dtype=torch.float64)).item()


@pytest.mark.parametrize("p", [0.5, 0.1, 0.8])
@pytest.mark.parametrize("consistent", [True, False])
def test_keep_rates_of_units_samples_and_rows(p, consistent):
    n, units, rows = 2000, 300, 1 if consistent else 4
    z = deviations(n, units, p, consistent, rows)
    assert abs(z.mean().item() * math.sqrt(z.numel())) < SIGMAS
    # A mean of k standardised bits has standard error 1 / sqrt(k); 300 units and 2000 samples are compared.
    assert (z.mean((0, 1)) * math.sqrt(n * rows)).abs().max() < worst(units)
    assert (z.mean((1, 2)) * math.sqrt(units * rows)).abs().max() < worst(n) + 0.5  # bits of p = 0.1 have longer tails
    assert (z.mean((0, 2)) * math.sqrt(n * units)).abs().max() < SIGMAS


def test_no_pair_of_units_or_samples_is_correlated():
    for drawn in (seeds(1500), torch.arange(1500)):
        z = deviations(1500, 400, 0.5, drawn=drawn)[:, 0]
        for matrix, count in ((z.T @ z, 1500), (z @ z.T, 400)):
            pairs = matrix[~torch.eye(len(matrix), dtype=torch.bool)] / math.sqrt(count)
            assert pairs.abs().max() < worst(len(pairs) / 2)
            # Of standard normal numbers; the variance of m of them has standard error sqrt(2 / m), pairs come twice.
            assert abs(pairs.var().item() - 1) < SIGMAS * math.sqrt(2 / (len(pairs) / 2)) + 2 / math.sqrt(
                len(matrix) * count
            )


def test_no_pair_of_rows_is_correlated():
    z = deviations(30, 500, 0.5, consistent=False, rows=50).flatten(0, 1)
    pairs = (z @ z.T)[~torch.eye(len(z), dtype=torch.bool)] / math.sqrt(500)
    assert pairs.abs().max() < worst(len(pairs) / 2)
    other = deviations(30, 500, 0.5, rows=1).flatten(0, 1)
    cross = z @ other.T / math.sqrt(500)
    assert cross.abs().max() < worst(cross.numel()), "nor with the masks that rows share"


def test_neighbouring_units_samples_rows_and_calls_are_uncorrelated():
    n, rows, units = 1000, 6, 200
    z = deviations(n, units, 0.3, consistent=False, rows=rows)
    for a, b in ((z[1:], z[:-1]), (z[:, 1:], z[:, :-1]), (z[..., 1:], z[..., :-1]), (z[..., 7:], z[..., :-7])):
        assert abs((a * b).mean().item() * math.sqrt(a.numel())) < SIGMAS
    twice = nn.Sequential(drop := nn.Dropout(0.3), drop)
    seed_dropout(twice.eval(), {"0": 0.3}, True, {}, torch.device("cpu"))
    both = torch.vmap(lambda seed: functional_call(twice, {"0.seed": seed}, (torch.ones(1, units),)))(seeds(n))
    first = deviations(n, units, 0.3) > 0
    kept_by_second = (both > 0)[first].double()  # among units that the first call kept
    assert abs(kept_by_second.mean().item() - 0.7) < SIGMAS * math.sqrt(0.21 / len(kept_by_second))


CASES = [
    (nn.Dropout(0.3), (5, 7)),
    (nn.Dropout(0.3), (3, 4, 2, 2)),
    (nn.Dropout1d(0.3), (5, 4, 3)),
    (nn.Dropout1d(0.3), (5, 4)),
    (nn.Dropout2d(0.3), (5, 4, 2, 3)),
    (nn.Dropout2d(0.3), (5, 4, 3)),
    (nn.Dropout3d(0.3), (3, 4, 2, 2, 2)),
    (nn.Dropout3d(0.3), (4, 2, 3, 2)),
    (nn.AlphaDropout(0.3), (5, 7)),
    (nn.FeatureAlphaDropout(0.3), (5, 4, 3)),
    (nn.Dropout(1.0), (5, 7)),
]


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 3D input")
@pytest.mark.parametrize(("layer", "shape"), CASES, ids=lambda value: str(value))
def test_every_kind_of_layer_is_torchs_own_in_distribution(layer, shape):
    n = 2000
    h = torch.randn(shape, dtype=torch.float64)
    torchs = torch.stack([layer.train()(h) for _ in range(n)]).flatten(1)
    for consistent in (True, False):
        drawn = masked(layer, h, seeds(n), consistent).flatten(1)
        # Entry by entry both take two values: the same two (which is exact), equally often.
        for ours, theirs in ((drawn.amin(0), torchs.amin(0)), (drawn.amax(0), torchs.amax(0))):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        error = (drawn.var(0) / n + torchs.var(0) / n).sqrt()
        assert ((drawn.mean(0) - torchs.mean(0)).abs() <= SIGMAS * error + 1e-12).all()
    # And, unless rows share masks, the same entries go together.
    ours, theirs = (value.T.corrcoef().nan_to_num().abs() > 0.5 for value in (drawn, torchs))
    assert torch.equal(ours, theirs)


def test_alpha_dropout_keeps_mean_and_variance():
    h = F.selu(torch.randn(1, 40_000, dtype=torch.float64))
    h = (h - h.mean()) / h.std()
    dropped = masked(nn.AlphaDropout(0.2), h, seeds(4))
    # Torch's own claim, for inputs of mean 0 and variance 1; standard errors over 160,000 entries.
    assert abs(dropped.mean().item()) < SIGMAS * math.sqrt(1 / dropped.numel())
    assert abs(dropped.var().item() - 1) < SIGMAS * math.sqrt(4 / dropped.numel())


@pytest.mark.parametrize("layer", [nn.Dropout(0.4), nn.AlphaDropout(0.4)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept_and_masks_are_the_same_in_all(layer, dtype):
    h = torch.randn(6, 9).to(dtype)
    result = masked(layer, h, seeds(5), consistent=False)
    assert result.dtype == dtype
    mask = masked(nn.Dropout(0.4), torch.ones(6, 9), seeds(5), consistent=False) > 0
    scale = 1 / 0.6 if isinstance(layer, nn.Dropout) else 1
    if scale != 1:
        expected = torch.where(mask, h.double() * scale, 0.0)
        torch.testing.assert_close(result.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_off_is_the_identity_bit_by_bit():
    h = torch.randn(4, 9)
    for layer in (nn.Dropout(0.3), nn.AlphaDropout(0.3)):
        assert torch.equal(seeded(layer)(h), h)
        assert torch.equal(masked(layer, h, torch.tensor([-1, 5]))[0], h)


@pytest.mark.parametrize("consistent", [True, False])
def test_masks_do_not_depend_on_how_they_are_computed(consistent):
    h, drawn = torch.randn(10, 12, dtype=torch.float64), seeds(7)
    whole = masked(nn.Dropout(0.4), h, drawn, consistent)
    network = seeded(nn.Dropout(0.4), consistent)
    looped = torch.stack([functional_call(network, {"0.seed": seed}, (h,)) for seed in drawn])
    assert torch.equal(looped, whole)
    network[0].first_row = 6
    part = torch.vmap(lambda seed: functional_call(network, {"0.seed": seed}, (h[6:],)))(drawn)
    assert torch.equal(part, whole[:, 6:])
    by_rows_of_h = torch.vmap(lambda seed, row: functional_call(copy.deepcopy(network), {"0.seed": seed}, (row,)))
    network[0].first_row = 0
    assert torch.equal(by_rows_of_h(drawn, h.expand(7, 10, 12)), whole), "samples in the input too"
    channels_last = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    plain = masked(nn.Dropout(0.4), channels_last.contiguous(), drawn, consistent)
    assert torch.equal(masked(nn.Dropout(0.4), channels_last, drawn, consistent), plain)
