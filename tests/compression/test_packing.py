"""Packing: values come back rounded, from the promised number of bytes, and no further off than half a step."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from bayesnorm.compression.compressed import Precision


@settings(max_examples=15)
@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40), st.floats(1e-6, 1e3))
def test_values_come_back_rounded(numbers, std):
    values = torch.tensor(numbers)
    precision = Precision.from_variances(values, torch.full_like(values, std**2), 1.0)
    packed = precision.packed(values)
    assert packed.numel() == precision.size(tuple(values.shape))
    back = precision.unpacked(packed, tuple(values.shape))
    torch.testing.assert_close(back.float(), precision.rounded(values), rtol=0, atol=0)
    assert precision.holds(precision.rounded(values))
    assert ((back - values.double()).abs() <= precision.step / 2 * (1 + 1e-6)).all()


def test_steps_follow_the_surest_weights():
    values, variances = torch.linspace(-1, 1, 101), torch.full((101,), 1.0)
    variances[:2] = 1e-4
    step = Precision.from_variances(values, variances, 0.5).step
    assert step == pytest.approx(0.5 * (101 / (2e4 + 99)) ** 0.5)


def test_what_is_not_held():
    precision = Precision(bits=3, step=0.5, lowest=-4)  # -2, -1.5, ... 1.5
    assert precision.holds(torch.tensor([-2.0, 0.0, 1.5]))
    assert not precision.holds(torch.tensor([0.1]))  # between two values
    assert not precision.holds(torch.tensor([2.0]))  # too large
    assert not precision.holds(torch.tensor([-2.5]))  # too small
    assert not precision.holds(torch.tensor([float("nan")]))


def test_whole_numbers_are_kept():
    columns = torch.tensor([3, 7, 8, 500])
    precision = Precision.of_whole(columns)
    assert precision.bits == 9
    assert torch.equal(precision.unpacked(precision.packed(columns), (4,)).long(), columns)


def test_zero_weights_take_a_bit():
    zero = torch.zeros(3, 3)
    precision = Precision.from_variances(zero, zero, 1.0)
    assert precision.bits == 1
    assert torch.equal(precision.unpacked(precision.packed(zero), (3, 3)), zero.double())
