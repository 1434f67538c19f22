"""Numbers as readers see them."""

import math

import pytest

from bayesnorm.report.words import column_of_numbers, count, duration, number, percent, unbroken


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        ("Bonn", "Bonn"),
        (True, "True"),
        (12345, "12,345"),
        (-3, "−3"),
        (0.0, "0"),
        (0.1 + 0.2, "0.3"),
        (1234.5678, "1,235"),
        (9.99999, "10"),
        (-0.0012346, "−0.001235"),
        (3.2e-9, "3.2e−9"),
        (25113.4, "25,113"),
        (12345678.5, "12,345,678"),
        (1.5e12, "1.5e12"),
        (math.inf, "∞"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (0.914, 0, "91 %"),
        (0.914, 1, "91.4 %"),
        (1.0, 1, "100 %"),
        (0.0, 1, "0 %"),
        (0.9999, 0, "over 99 %"),
        (0.9999, 1, "over 99.9 %"),
        (0.0001, 0, "under 1 %"),
        (-0.25, 0, "−25 %"),
    ],
)
def test_nothing_less_than_all_reads_as_all(share, decimals, text):
    assert percent(share, decimals) == text


def test_columns_share_their_decimals():
    assert column_of_numbers([10.0, 2.345, -0.1]) == ["10.00", "2.35", "−0.10"]  # median size 2.345
    assert column_of_numbers([0.0, 0.0]) == ["0.00", "0.00"]
    assert column_of_numbers([1e13, 2e13]) == ["1e13", "2e13"]
    assert column_of_numbers([1e9, 2e9]) == ["1,000,000,000", "2,000,000,000"]
    assert column_of_numbers([1.0, 20.0], like=[1234.0]) == ["1", "20"]


def test_words():
    assert [count(1, "row"), count(2000, "row")] == ["1 row", "2,000 rows"]
    assert [count(1, "class", "classes"), count(2, "class", "classes")] == ["1 class", "2 classes"]
    assert [duration(3.21), duration(42.4), duration(210), duration(7300)] == [
        "3.2 s",
        "42 s",
        "3.5 minutes",
        "2 hours",
    ]
    assert unbroken("± 3, 9 %") == "±\N{NO-BREAK SPACE}3, 9\N{NO-BREAK SPACE}%"
