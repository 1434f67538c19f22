"""What `bayesnorm fit` says of small hostile tables, which `hostile_tables/make.py` makes."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass

import pytest

from bayesnorm.cli.options import Device, FitOptions, Holdout
from bayesnorm.errors import BayesNormError

from .conftest import QUICK
from .hostile_tables.make import HERE, tables

pytest.importorskip("pandas", reason="needs pandas: pip install scikit-learn pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

from bayesnorm.cli.tables import open_table
from bayesnorm.cli.training_table import load_training_table

HOUSE = {"area": "number", "town": "category"}
NUMBER = "Task: regression, because price is numeric with 48 different values (use --task to override)."
CLASSES = "Task: classification, because churn is text with 2 different values (use --task to override)."


@dataclass(frozen=True)
class Says:
    """All that is said of a table before training, and what is then learned from."""

    told: list[str]
    kinds: dict[str, str]
    target: str = "price"


def left_out(name, why):
    return f"{name} was left out: it {why}. (Use --keep {name} to include it.)"


def leaks(name, how, shown=None):
    return f"Possible leak: {name} {how}. (Use --drop {shown or name} to leave it out.)"


def reads(name, kind, cell, value):
    return f"{name} contains {kind} such as '{cell}', which is read as {value}."


def sold(*told):
    return Says([NUMBER, *told], {"sold": "date", **HOUSE})


def of_churn(column, told):
    return Says([CLASSES, told], {"months": "number", column: "category"}, "churn")


TEXT_IDS = "contains text such as '7922e4ff-084c' that differs in most rows"
ALONE = "alone predicts churn correctly in all 48 rows"
LEARNED = {
    "ids.csv": Says(
        [
            NUMBER,
            left_out("listing", TEXT_IDS),
            left_out("customer_id", "is an id, with a different whole number in every row"),
            left_out("address", "contains text such as 'High Street 3' that differs in most rows"),
        ],
        HOUSE,
    ),
    "counted.csv": Says(
        [
            "1 column without a name in the first line was left out.",
            NUMBER,
            left_out("nr", "numbers the rows, from 1 to 48"),
        ],
        {"year": "number", **HOUSE},
    ),
    "constant_and_empty.csv": Says(
        [NUMBER, left_out("country", "is 'NL' in every row"), "remarks was left out: it is empty."], HOUSE
    ),
    "crowd.csv": Says([NUMBER], {"agent": "category", **HOUSE}),
    "copied_target.csv": Says(
        [NUMBER, leaks("price_cents", "is (nearly) a linear function of price")], {**HOUSE, "price_cents": "number"}
    ),
    "ranked_target.csv": Says(
        [NUMBER, leaks("value", "puts the rows in (nearly) the same order as price")], {**HOUSE, "value": "number"}
    ),
    "recoded_target.csv": of_churn("segment", leaks("segment", ALONE)),
    "known_afterwards.csv": of_churn("reason for leaving", leaks("reason for leaving", ALONE, "'reason for leaving'")),
    "dates_iso.csv": sold(),
    "dates_day_first.csv": sold(reads("sold", "dates", "23/07/2022", "2022-07-23")),
    "dates_month_first.csv": sold(reads("sold", "dates", "07/23/2022", "2022-07-23")),
    "dates_either_way.csv": Says(
        [NUMBER, "sold was left out: it contains dates in more than one format, such as '1/19/2023' and '23/7/2022'."],
        HOUSE,
    ),
    "dates_undecided.csv": sold(
        reads("sold", "dates", "2.3.2022", "2022-03-02 (a guess; use --as sold=month-first to override)")
    ),
    "dates_of_excel.csv": Says(
        [NUMBER, reads("sale date", "dates", "44765", "2022-07-23")], {"sale date": "date", **HOUSE}
    ),
    "dates_with_words.csv": sold("1 cell of sold cannot be read as a date and counts as empty (such as 'unknown')."),
    "endless.csv": Says(
        [NUMBER, "1 cell of area cannot be read as a number and counts as empty (such as 'inf')."], HOUSE
    ),
    "times_of_day.csv": Says([NUMBER], {"viewed": "date", **HOUSE}),
    "dollars.csv": Says([NUMBER, reads("price", "numbers", "$440,800.00", "440800")], HOUSE),
    "euros.csv": Says([NUMBER, reads("price", "numbers", "440.800,00 €", "440800")], HOUSE),
    "percents.csv": Says([NUMBER, reads("rate", "numbers", "10.0 %", "10")], {"rate": "number", **HOUSE}),
    "two_currencies.csv": Says(
        [NUMBER, left_out("rent", "contains amounts in more than one unit, such as '142 €' and '$83'")], HOUSE
    ),
    "quoted.csv": Says([NUMBER], HOUSE),
    "targets_missing.csv": Says(
        [
            "8 rows without a value in price were left out. (Cells such as NA, None and null count as missing.)",
            "Task: regression, because price is numeric with 40 different values (use --task to override).",
        ],
        HOUSE,
    ),
    "stars.csv": Says(
        ["Task: classification, because stars has only 5 different values (use --task to override)."],
        HOUSE,
        target="stars",
    ),
    "formulas.csv": Says(
        ["Task: classification, because kind is text with 5 different values (use --task to override)."],
        {"area": "number"},
        "kind",
    ),
}

REFUSED = {
    "eleven_rows.csv": "only 11 rows have a value in 'price'. Pass at least 12 such rows.",
    "long_line.csv": "cells, but the first line has",
    "names_as_target.csv": "--target: 'owner' has 48 different values in 48 rows, too many for classes.",
    "nothing_but_names.csv": "has no column to predict from (listing contains text such as '7922e4ff-084c' that",
    "same_target.csv": "--target: 'price' is 7 in every row, so there is nothing to predict. Choose another column.",
    "words_among_numbers.csv": "column 'area' contains numbers, but 'about 90' in row 6 and 1 more such cell. Correct "
    "or empty such cells, or use --as area=number (counts them as empty), --categorical area or --drop area.",
}

# Those whose fits are looked at as a whole.
FITTED = {"thirty_rows.csv", "rare_class.csv", "trend.csv", "patients.csv", "two_targets.csv"}


UNSET = dict.fromkeys(
    ["task", "test_fraction", "time", "group", "weight", "epochs", "members", "effective_batch_size", "max_rows"]
)
OFF = dict.fromkeys(["networks_only", "fast", "interruptible", "conformal", "homoscedastic"], False)
CHOSEN = {"method": "mcbn", "read_as": {}, "holdout": Holdout.random, "seed": 0, "hidden": (4,), "device": Device.cpu}


def options(target):
    return FitOptions(target=target, drop=(), keep=(), categorical=(), **UNSET, **OFF, **CHOSEN)


def test_the_files_are_those_that_are_made():
    made = tables()
    assert {path.name for path in HERE.iterdir() if path.suffix != ".py" and path.is_file()} == made.keys()
    assert {*LEARNED, *REFUSED, *FITTED} == made.keys()
    for name, content in made.items():
        assert (HERE / name).read_bytes() == content, f"{name}: run python -m tests.cli.hostile_tables.make"


def test_what_is_said():
    for name in LEARNED:
        told = []
        loaded = load_training_table(open_table(HERE / name), options(LEARNED[name].target), told.append)
        assert told == LEARNED[name].told
        assert loaded.kinds == LEARNED[name].kinds
        # The report says all of it, but what it takes the target for.
        assert [*loaded.warnings] == [line for line in told if "(use --task to override)" not in line]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    told = []
    asked = options("owner" if name == "names_as_target.csv" else "price")
    with pytest.raises(BayesNormError) as refused:
        load_training_table(open_table(HERE / name), asked, told.append)
    assert REFUSED[name] in str(refused.value)
    assert told == []


@pytest.fixture
def fitted(bayesnorm, tmp_path, monkeypatch):
    """`fitted("trend.csv", "--target", ...)`: a short fit without its page; gives what it printed, and its facts."""
    monkeypatch.setattr("bayesnorm.report.write_report", lambda _, path: path.touch())

    def call(name, *arguments):
        ended = bayesnorm("fit", HERE / name, "--out", tmp_path / "run", *QUICK[:4], *arguments)
        assert ended.code == 0, ended.err
        return ended, json.loads((tmp_path / "run" / "run.json").read_text())

    return call


def test_a_trend_is_flagged_before_it_fails(bayesnorm, fitted, tmp_path):
    ended, _ = fitted("trend.csv", "--target", "visits", "--time", "day")
    assert "The last 36 rows (by day, from 2023-05-07 on) were held out." in ended.err
    with (tmp_path / "run" / "test_predictions.csv").open() as file:
        rows = [*csv.DictReader(file)]
    beyond = [row for row in rows if row["unusual"] == "True"]
    assert len(beyond) >= 20  # the first ones lie hardly beyond what was trained on
    assert sum("day" in row["reason"] for row in beyond) == len(beyond)
    assert beyond[-1]["reason"] == "day after 2023-05-04, the latest in training"
