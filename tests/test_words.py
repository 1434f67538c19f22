"""Numbers as readers see them."""

import math

from bayesnorm.words import (
    format_column,
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_tick,
    keep_together,
)


def test_number():
    for value, text in (
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
    ):
        assert format_number(value) == text


def test_nothing_less_than_all_reads_as_all():
    for share, decimals, text in (
        (0.914, 0, "91 %"),
        (0.914, 1, "91.4 %"),
        (1.0, 1, "100 %"),
        (0.0, 1, "0 %"),
        (0.9999, 0, "over 99 %"),
        (0.9999, 1, "over 99.9 %"),
        (0.0001, 0, "under 1 %"),
        (-0.25, 0, "−25 %"),
    ):
        assert format_percent(share, decimals) == text


def test_columns_share_their_decimals():
    assert format_column([10.0, 2.345, -0.1]) == ["10.00", "2.35", "−0.10"]  # median size 2.345
    assert format_column([0.0, 0.0]) == ["0.00", "0.00"]
    assert format_column([1e13, 2e13]) == ["1e13", "2e13"]
    assert format_column([1e9, 2e9]) == ["1,000,000,000", "2,000,000,000"]
    assert format_column([1.0, 20.0], like=[1234.0]) == ["1", "20"]


def test_words():
    assert [format_count(1, "row"), format_count(2000, "row")] == ["1 row", "2,000 rows"]
    assert [format_count(1, "class", "classes"), format_count(2, "class", "classes")] == ["1 class", "2 classes"]
    assert [format_duration(3.21), format_duration(42.4), format_duration(210), format_duration(7300)] == [
        "3.2 s",
        "42 s",
        "3.5 minutes",
        "2 hours",
    ]
    assert keep_together("± 3, 9 %") == "±\N{NO-BREAK SPACE}3, 9\N{NO-BREAK SPACE}%"


def test_ticks():
    for values, texts in (
        ([0, 20_000, 40_000], ["0", "20,000", "40,000"]),
        ([-2.5, 0, 2.5], ["−2.5", "0.0", "2.5"]),
        ([0.25, 0.5], ["0.25", "0.50"]),
        ([2015, 2020], ["2015", "2020"]),
        ([1_234_567.0, 1_234_567.5], ["1,234,567.0", "1,234,567.5"]),
        ([0, 500_000, 1_000_000], ["0", "0.5 M", "1.0 M"]),
        ([-2e9, 0, 2e9], ["−2 bn", "0", "2 bn"]),
        ([100_000, 200_000], ["100,000", "200,000"]),
        ([1e13, 1.5e13], ["1e13", "1.5e13"]),
        ([1e-6, 2e-6], ["1e−6", "2e−6"]),
        ([-0.0, 0.1], ["0.0", "0.1"]),
    ):
        assert [format_tick(value, values[1] - values[0], max(map(abs, values))) for value in values] == texts
