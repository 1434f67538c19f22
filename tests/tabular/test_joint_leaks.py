"""Equations of several columns and row numbers are named, and honest columns are not."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from sklearn.datasets import load_breast_cancer, load_diabetes

from bayesnorm.tabular import joint_leaks

ROWS = 300
GENERATOR = np.random.default_rng(0)
SENT = np.datetime64("2024-01-01", "s") + GENERATOR.integers(0, 400 * 86_400, ROWS)
DELAY = GENERATOR.exponential(20, ROWS).round(2)
RECEIVED = SENT + (DELAY * 86_400).astype(int)
A, B, C, NOISE = GENERATOR.normal(size=(4, ROWS))


def leaks(columns, y, classes=False):
    return joint_leaks(columns, y, "delay", classes=classes)


def test_a_difference_of_two_dates():
    result = leaks({"sent": SENT, "received": RECEIVED, "noise": NOISE, "a": A}, DELAY)
    equation = result["sent"].partition(": ")[2]
    assert set(result) == {"sent", "received"}
    assert equation in ("-sent + received", "received - sent")


@pytest.mark.parametrize(
    ("y", "terms"),
    [
        (2 * A - 0.5 * B + 7, {"2 a", "0.5 b"}),
        (A + B + C + 0.01 * NOISE, {"a", "b", "c"}),  # nearly: the noise has a 30,000th of the variance
        (np.where(np.arange(ROWS) % 20 == 0, 50 * NOISE, A - B), {"a", "b"}),  # a twentieth of the rows break it
        (A - B + 0.3 * NOISE, set()),
        (A * B, set()),
        (NOISE, set()),
    ],
)
def test_equations(y, terms):
    result = leaks({"a": A, "b": B, "c": C, "d": C[::-1]}, y)
    assert set(result) == {term.split()[-1] for term in terms}
    for how in result.values():
        assert all(term in how for term in terms)


def test_too_few_rows_and_empty_columns_prove_nothing():
    columns = {"a": A[:12], "b": B[:12], "c": C[:12]}
    assert leaks(columns, A[:12] - B[:12]) == {}
    assert leaks({"a": A, "b": np.where(np.arange(ROWS) % 3, np.nan, B)}, A - B) == {}
    assert leaks({}, A) == {}
    assert leaks({"text": np.array(["x"] * ROWS, dtype=object)}, A) == {}


def test_row_numbers_of_a_sample_of_a_sorted_table():
    numbers = GENERATOR.permutation(5 * ROWS)[:ROWS].astype(float)
    related = numbers / numbers.std() + 2 * NOISE
    assert set(leaks({"index": numbers, "a": A}, related)) == {"index"}
    labels = np.where(related > np.median(related), "yes", "no")
    assert set(leaks({"index": numbers, "a": A}, labels, classes=True)) == {"index"}
    assert leaks({"index": numbers}, NOISE) == {}  # harmless: the order says nothing about the target
    assert leaks({"days": numbers}, related) == {}  # a time may be informative
    assert leaks({"price": np.round(np.exp(numbers / 300))}, related) == {}
    assert leaks({"length": np.round(1e5 + 1e4 * A)}, A + NOISE) == {}


@pytest.mark.parametrize(("load", "classes"), [(load_breast_cancer, True), (load_diabetes, False)])
def test_honest_columns_are_none(load, classes):
    X, y = load(return_X_y=True)
    assert leaks(dict(zip(map(str, range(X.shape[1])), X.T, strict=True)), y, classes) == {}
