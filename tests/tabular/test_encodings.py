"""Numbers as several: places in bins, and waves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bayesnorm.tabular.networks import Encoded, PiecewiseLinear, Waves


@pytest.fixture
def x() -> torch.Tensor:
    """A number, one that is on or off, one that never changes, and one of five values."""
    generator = torch.Generator().manual_seed(0)
    many = torch.randn(200, generator=generator, dtype=torch.float64)
    return torch.stack([many, many.sign(), torch.ones_like(many), (3 * many).round().clamp(-2, 2)], 1)


def test_bins_end_at_quantiles(x):
    encoder = PiecewiseLinear.from_inputs(x, 8)
    assert encoder.column.tolist() == [0] * 8 + [3] * 4  # five values are their own edges
    edges = np.quantile(x[:, 0].numpy(), np.linspace(0, 1, 9))
    np.testing.assert_allclose(encoder.low[:8], edges[:-1])
    np.testing.assert_allclose((encoder.low + encoder.width)[:8], edges[1:])
    assert encoder.low[8:].tolist() == [-2, -1, 0, 1]


def test_inputs_go_on_beside_their_places(x):
    encoder = PiecewiseLinear.from_inputs(x, 8)
    result = encoder(x)
    assert result.shape == (200, 4 + 12)
    assert torch.equal(result[:, :4], x)
    assert ((result[:, 4:] >= 0) & (result[:, 4:] <= 1)).all()
    assert encoder(x[None, :3]).shape == (1, 3, 16)
    assert encoder(x.float()[:3]).shape == (3, 16)


def test_places_are_linear_within_a_bin_and_still_outside(x):
    encoder = PiecewiseLinear.from_inputs(x, 8)
    low, width = encoder.low[3], encoder.width[3]
    at = x[:1].repeat(5, 1)
    at[:, 0] = torch.stack([low - 1, low, low + 0.25 * width, low + width, low + width + 1])
    torch.testing.assert_close(encoder(at)[:, 4 + 3], torch.tensor([0.0, 0.0, 0.25, 1.0, 1.0], dtype=torch.float64))
    far = x[:1].repeat(2, 1)
    far[:, 0] = torch.tensor([-1e6, 1e6])
    assert encoder(far)[:, 4:12].tolist() == [[0.0] * 8, [1.0] * 8]


def test_a_larger_input_never_makes_a_place_smaller(x):
    encoder = PiecewiseLinear.from_inputs(x, 8)
    at = torch.zeros(300, 4, dtype=torch.float64)
    at[:, 0] = torch.linspace(-5, 5, 300)
    assert (encoder(at)[:, 4:12].diff(dim=0) >= 0).all()
    # bins follow each other: what is in a bin has all of those before it
    places = encoder(at)[:, 4:12]
    assert ((places[:, 1:] == 0) | (places[:, :-1] == 1)).all()


def test_a_linear_layer_behind_bins_can_follow_any_piecewise_linear_function(x):
    encoder = PiecewiseLinear.from_inputs(x[:, :1], 8)
    knots = torch.cat([encoder.low, (encoder.low + encoder.width)[-1:]])
    heights = torch.randn(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = torch.cat([torch.zeros(1, dtype=torch.float64), heights.diff()])
    at = torch.linspace(float(knots[0]), float(knots[-1]), 100, dtype=torch.float64)
    result = encoder(at[:, None]) @ weights + heights[0]
    np.testing.assert_allclose(result, np.interp(at, knots, heights), atol=1e-12)


def test_one_input_more_often_than_others_has_fewer_bins():
    x = torch.cat([torch.zeros(150), torch.arange(50.0)])[:, None]
    encoder = PiecewiseLinear.from_inputs(x, 10)
    assert (encoder.width > 0).all()
    assert len(encoder.width) < 10


@pytest.mark.parametrize("kind", [PiecewiseLinear, Waves])
def test_where_nothing_can_be_bent_inputs_stay_as_they_are(x, kind):
    encoder = kind.from_inputs(x[:, 1:3], 8)
    assert torch.equal(encoder(x[:, 1:3]), x[:, 1:3])


def test_waves_are_sines_and_cosines(x):
    encoder = Waves.from_inputs(x, 3, spread=0.5, seed=2)
    assert encoder.column.tolist() == [0, 0, 0, 3, 3, 3]
    result = encoder(x)
    assert result.shape == (200, 4 + 12)
    assert torch.equal(result[:, :4], x)
    sines, cosines = result[:, 4:10], result[:, 10:]
    torch.testing.assert_close(sines.square() + cosines.square(), torch.ones_like(sines))
    expected = np.sin(2 * np.pi * x[:, 3].numpy() * float(encoder.frequency[4]))
    np.testing.assert_allclose(sines[:, 4], expected)
    assert not torch.equal(Waves.from_inputs(x, 3, seed=3).frequency, Waves.from_inputs(x, 3, seed=2).frequency)


def test_frequencies_have_the_spread_that_was_asked_for():
    result = Waves.from_inputs(torch.randn(10, 1, dtype=torch.float64), 4000, spread=0.5).frequency
    assert float(result.std()) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(2 * 4000))  # 4 standard errors


def test_encoders_are_part_of_a_network(x):
    for encoder in (PiecewiseLinear.from_inputs(x.float(), 8), Waves.from_inputs(x.float(), 3)):
        assert not list(encoder.parameters())
        assert encoder.double()(x).dtype == torch.float64
        again = type(encoder)(*[torch.zeros_like(b) for b in encoder.buffers()])
        again.load_state_dict(encoder.state_dict())
        assert torch.equal(again(x), encoder(x))


@pytest.mark.parametrize("bins", [8, 60, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_behind_bins_is_the_same_however_many_there_are(x, bins, bias):
    encoder = PiecewiseLinear.from_inputs(x, bins)
    layers = encoder, nn.Linear(4 + len(encoder.column), 6, bias=bias).double(), nn.ReLU()
    beyond = torch.cat([x, x * 3, encoder.low[:20, None].expand(-1, 4)])  # outside of all bins, and at their ends
    torch.testing.assert_close(Encoded(*layers)(beyond), nn.Sequential(*layers)(beyond), rtol=1e-12, atol=1e-12)


def test_infinite_inputs_lie_in_their_own_last_bin(x):
    encoder = PiecewiseLinear.from_inputs(x, 300)
    layers = encoder, nn.Linear(4 + len(encoder.column), 6).double()
    far = x[:2].clone()
    far[0, 3], far[1, 0] = torch.inf, -torch.inf  # the fourth has the fewest bins, and no other behind
    torch.testing.assert_close(Encoded(*layers)(far), nn.Sequential(*layers)(far))


def test_other_encodings_go_on_as_in_a_sequence(x):
    layers = Waves.from_inputs(x, 2), nn.Linear(4 + 8, 6).double()
    torch.testing.assert_close(Encoded(*layers)(x), nn.Sequential(*layers)(x), rtol=0, atol=0)
