"""The functions that numbers go through: which they take, what they make of them, and what they say."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import bayesnorm as bn
from bayesnorm.arguments import as_number, as_whole, hold_plain_numbers, require_number, require_positive, require_whole
from bayesnorm.errors import InputError, quoted

KINDS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
NO_WHOLE_NUMBERS = [
    True,
    1.5,
    "3",
    None,
    3.0,
    np.True_,
    np.float64(3),
    np.timedelta64(3, "D"),
    3j,
    b"3",
    [3],
    (3,),
    int,
]
NO_WHOLE_NUMBERS += [np.array(3), np.array([3]), torch.tensor(3), torch.tensor([3]), nn.Identity()]


@given(st.sampled_from(KINDS), st.data())
def test_whole_numbers_of_every_type_become_plain(kind, data):
    limits = np.iinfo(kind)
    number = data.draw(st.integers(int(limits.min), int(limits.max)))
    for value in (number, kind(number)):
        assert as_whole(value) == number
        assert type(as_whole(value)) is int


def test_named_numbers_become_plain():
    class Size(enum.IntEnum):
        SMALL = 3

    assert type(as_whole(Size.SMALL)) is int
    assert as_whole(Size.SMALL) == 3


def test_what_is_no_whole_number():
    for value in NO_WHOLE_NUMBERS:
        assert as_whole(value) is None
        with pytest.raises(bn.BayesNormError) as raised:
            require_whole("count", value)
        assert str(raised.value) == f"count must be a whole number of at least 1, got {value!r}."


@given(*[st.integers(-(2**70), 2**70)] * 2, st.none() | st.integers(-(2**70), 2**70))
def test_limits_belong_to_what_works(value, least, most):
    if value >= least and (most is None or value <= most):
        assert require_whole("count", value, least, most) == value
    else:
        with pytest.raises(bn.BayesNormError, match=rf"^count must be a whole number .*, got {value}\.$"):
            require_whole("count", value, least, most)


def test_what_the_error_says():
    with pytest.raises(bn.BayesNormError) as told:
        require_whole("k", 5, 2, 4)
    assert str(told.value) == "k must be a whole number from 2 to 4, got 5."
    with pytest.raises(InputError) as told:
        require_whole("k", "5", requirement="1 for two", error=InputError)
    assert str(told.value) == "k must be 1 for two, got '5'."


REAL_KINDS = (float, np.float16, np.float32, np.float64, np.longdouble, *KINDS)
NO_NUMBERS = [True, np.True_, "3", None, 3j, b"3", [3.0], (3.0,), float, np.timedelta64(3, "D"), 10**400]
NO_NUMBERS += [np.array(3.0), np.array([3.0]), torch.tensor(3.0), torch.tensor([3.0])]


def test_numbers_of_every_type_become_plain():
    for kind in REAL_KINDS:
        for number in (as_number(kind(3)), require_number("n", kind(3)), require_positive("n", kind(3))):
            assert type(number) is float
            assert number == 3


def test_what_is_no_positive_number():
    assert all(as_number(value) is None for value in NO_NUMBERS)
    for value in (*NO_NUMBERS, 0, -1.0, float("nan"), float("inf"), np.float32("inf"), np.float64(0)):
        with pytest.raises(bn.BayesNormError) as raised:
            require_positive("rate", value)
        assert str(raised.value) == f"rate must be a positive number, got {quoted(value)}."


@pytest.mark.parametrize(
    ("limits", "good", "bad", "told"),
    [
        ({}, (-1e300, 0), (float("inf"), float("nan")), "a finite number"),
        ({"least": 0}, (0, 5e-324, np.float32(0.5)), (-5e-324, float("inf"), "3", None, True), "a number from 0"),
        ({"least": 0, "below": 1}, (0, 0.999), (1, -1), "a number from 0 and below 1"),
        ({"above": 0, "most": 1}, (1e-300, 1), (0, 1.001), "a number above 0 and up to 1"),
    ],
)
def test_limits_of_numbers(limits, good, bad, told):
    for value in good:
        assert require_number("n", value, **limits) == value
    for value in bad:
        with pytest.raises(InputError) as raised:
            require_number("n", value, error=InputError, **limits)
        assert str(raised.value) == f"n must be {told}, got {value!r}."


def test_only_numbers_of_a_dataclass_change():
    @dataclasses.dataclass(frozen=True)
    class Several:
        whole: int
        real: float
        flag: bool
        other: object

        def __post_init__(self):
            hold_plain_numbers(self)

    array = np.array(3)
    held = Several(np.int64(3), np.float32(0.5), True, array)
    assert type(held.whole) is int
    assert type(held.real) is float
    assert held.flag is True
    assert held.other is array
