"""Columns that alone give the target away, and honest ones that are only good."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from bayesnorm.tabular.column_checks import leak

GENERATOR = np.random.default_rng(0)
PRICE = np.exp(2 * GENERATOR.normal(size=60))
NOISE = GENERATOR.normal(size=60)
DEAR = np.array(["yes" if price > 1 else "no" for price in PRICE], dtype=object)
PRODUCT = GENERATOR.integers(0, 6, 300)
LISTED = np.array([5.0, 9.0, 7.0, 2.0, 11.0, 3.5])[PRODUCT]


def texts(values):
    return np.array(list(values), dtype=object)


@pytest.mark.parametrize(
    ("column", "y", "how"),
    [
        (PRICE, PRICE, "is (nearly) a linear function of price"),
        (3 - 2 * PRICE, PRICE, "is (nearly) a linear function of price"),
        (np.round(PRICE, 1), PRICE, "is (nearly) a linear function of price"),
        (np.where(NOISE > 1, np.nan, PRICE), PRICE, "is (nearly) a linear function of price"),
        (1e300 * PRICE / PRICE.max(), PRICE, "is (nearly) a linear function of price"),
        (np.log(PRICE), PRICE, "puts the rows in (nearly) the same order as price"),
        (np.log(PRICE) + 0.1 * NOISE, PRICE, ""),
        (NOISE, PRICE, ""),
        (np.full(60, np.nan), PRICE, ""),
        (np.zeros(60), PRICE, ""),
        (PRODUCT.astype(float), LISTED, "alone predicts price almost exactly"),
        (texts(f"p{value}" for value in PRODUCT), LISTED, "alone predicts price almost exactly"),
        (PRICE[:15], PRICE[:15], ""),  # too few to tell
    ],
)
def test_numbers(column, y, how):
    assert leak(column, y, "price", classes=False) == how


def test_one_far_row_is_no_copy():
    x, y = GENERATOR.normal(size=(2, 60))
    x[7] = y[7] = 1e6
    assert leak(x, y, "price", classes=False) == ""


ALL = "alone predicts dear correctly in all 60 rows"


@pytest.mark.parametrize(
    ("column", "how"),
    [
        (PRICE, ALL),
        (texts("ab"[value == "yes"] for value in DEAR), ALL),
        (texts(None if value == "no" else "abc"[row % 3] for row, value in enumerate(DEAR)), ALL),
        (np.where(DEAR == "yes", NOISE, np.nan), ALL),  # there, or not there
        (texts("ab"[(value == "yes") ^ (row % 20 == 0)] for row, value in enumerate(DEAR)), ""),
        (np.log(PRICE) + 0.6 * NOISE, ""),
        (NOISE, ""),
        (np.zeros(60), ""),
    ],
)
def test_classes(column, how):
    assert leak(column, DEAR, "dear", classes=True) == how


def test_a_copy_with_a_few_slips():
    y = GENERATOR.integers(0, 3, 3000)
    slipped = np.where(np.arange(3000) % 300 == 0, (y + 1) % 3, y)
    assert (
        leak(slipped.astype(float), y, "kind", classes=True) == "alone predicts kind correctly in 2,990 of 3,000 rows"
    )


def test_a_class_with_few_rows_is_no_proof():
    y = np.arange(60) < 9
    assert leak(y.astype(float), y.astype(int), "kind", classes=True) == ""


@pytest.mark.parametrize(("load", "classes"), [(load_iris, True), (load_breast_cancer, True), (load_diabetes, False)])
def test_honest_columns_are_none(load, classes):
    X, y = load(return_X_y=True)
    assert not any(leak(column, y, "y", classes=classes) for column in X.T)
