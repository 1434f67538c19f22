"""What `bayesnorm fit` says of small hostile tables, which `hostile_tables/make.py` makes."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass

import pytest

from bayesnorm.cli.fit_options import Device, FitOptions, Holdout
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


LEARNED = {
    "ids.csv": Says(
        [
            NUMBER,
            "listing was left out: it contains text such as '7922e4ff-084c' that differs in most rows. "
            "(Use --keep listing to include it.)",
            "customer_id was left out: it is an id, with a different whole number in every row. "
            "(Use --keep customer_id to include it.)",
            "address was left out: it contains text such as 'High Street 3' that differs in most rows. "
            "(Use --keep address to include it.)",
        ],
        HOUSE,
    ),
    "counted.csv": Says(
        [
            "1 column without a name in the first line was left out.",
            NUMBER,
            "nr was left out: it numbers the rows, from 1 to 48. (Use --keep nr to include it.)",
        ],
        {"year": "number", **HOUSE},
    ),
    "constant_and_empty.csv": Says(
        [
            NUMBER,
            "country was left out: it is 'NL' in every row. (Use --keep country to include it.)",
            "remarks was left out: it is empty.",
        ],
        HOUSE,
    ),
    "crowd.csv": Says([NUMBER], {"agent": "category", **HOUSE}),
    "copied_target.csv": Says(
        [
            NUMBER,
            "Possible leak: price_cents is (nearly) a linear function of price. "
            "(Use --drop price_cents to leave it out.)",
        ],
        {**HOUSE, "price_cents": "number"},
    ),
    "ranked_target.csv": Says(
        [
            NUMBER,
            "Possible leak: value puts the rows in (nearly) the same order as price. "
            "(Use --drop value to leave it out.)",
        ],
        {**HOUSE, "value": "number"},
    ),
    "recoded_target.csv": Says(
        [
            CLASSES,
            "Possible leak: segment alone predicts churn correctly in all 48 rows. "
            "(Use --drop segment to leave it out.)",
        ],
        {"months": "number", "segment": "category"},
        "churn",
    ),
    "known_afterwards.csv": Says(
        [
            CLASSES,
            "Possible leak: reason for leaving alone predicts churn correctly in all 48 rows. "
            "(Use --drop 'reason for leaving' to leave it out.)",
        ],
        {"months": "number", "reason for leaving": "category"},
        "churn",
    ),
    "dates_iso.csv": Says([NUMBER], {"sold": "date", **HOUSE}),
    "dates_day_first.csv": Says(
        [NUMBER, "sold contains dates such as '23/07/2022', which is read as 2022-07-23."], {"sold": "date", **HOUSE}
    ),
    "dates_month_first.csv": Says(
        [NUMBER, "sold contains dates such as '07/23/2022', which is read as 2022-07-23."], {"sold": "date", **HOUSE}
    ),
    "dates_either_way.csv": Says(
        [NUMBER, "sold was left out: it contains dates in more than one format, such as '1/19/2023' and '23/7/2022'."],
        HOUSE,
    ),
    "dates_undecided.csv": Says(
        [
            NUMBER,
            "sold contains dates such as '2.3.2022', which is read as 2022-03-02 (a guess; "
            "use --as sold=month-first to override).",
        ],
        {"sold": "date", **HOUSE},
    ),
    "dates_of_excel.csv": Says(
        [NUMBER, "sale date contains dates such as '44765', which is read as 2022-07-23."],
        {"sale date": "date", **HOUSE},
    ),
    "times_of_day.csv": Says([NUMBER], {"viewed": "date", **HOUSE}),
    "dollars.csv": Says([NUMBER, "price contains numbers such as '$440,800.00', which is read as 440800."], HOUSE),
    "euros.csv": Says([NUMBER, "price contains numbers such as '440.800,00 €', which is read as 440800."], HOUSE),
    "percents.csv": Says(
        [NUMBER, "rate contains numbers such as '10.0 %', which is read as 10."], {"rate": "number", **HOUSE}
    ),
    "two_currencies.csv": Says(
        [
            NUMBER,
            "rent was left out: it contains amounts in more than one unit, such as '142 €' and '$83'. "
            "(Use --keep rent to include it.)",
        ],
        HOUSE,
    ),
    "cp1252.csv": Says([NUMBER], {"town": "category", "größe": "number"}),
    "utf16.csv": Says([NUMBER], {"town": "category", "größe": "number"}),
    "with_mark.csv": Says([NUMBER], {"town": "category", "größe": "number"}),
    "packed.csv.gz": Says([NUMBER], HOUSE),
    "lines.jsonl": Says([NUMBER], HOUSE),
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
    "archive.csv": "is a ZIP archive. Unpack it first.",
    "blank.csv": "contains only blank lines. Pass a table with column names in its first line.",
    "dates_with_words.csv": "column 'sold' contains dates, but 'unknown' in row 1. Correct or empty such cells, or use "
    "--as 'sold'=date (counts them as empty), --categorical 'sold' or --drop 'sold'.",
    "eleven_rows.csv": "only 11 rows have a value in 'price'. Pass at least 12 such rows.",
    "endless.csv": "column 'area' contains 'inf' in row 10, which is infinite. Write a finite number,",
    "lists.jsonl": "column 'rooms' contains list values, as in row 1. Convert it to numbers or text, or leave it out",
    "long_line.csv": "cells, but the first line has",
    "names_alone.csv": "has column names, but no rows. Pass a table with rows.",
    "names_as_target.csv": "--target: 'owner' has 48 different values in 48 rows, too many for classes.",
    "no_names.csv": "the first line contains numbers (141.9, Ede, 440.8, ...) instead of column names.",
    "nothing_but_names.csv": "has no column to predict from (listing contains text such as '7922e4ff-084c' that",
    "pickle.csv": "is a Python pickle, which can run any code when it is read. Save the table as CSV first.",
    "picture.csv": "is a PNG image. Pass a CSV, TSV, JSON lines, Excel (.xlsx) or Parquet file.",
    "same_name_twice.csv": "has two columns called 'area'. Rename one of them.",
    "same_target.csv": "--target: 'price' is 7 in every row, so there is nothing to predict. Choose another column.",
    "words_among_numbers.csv": "column 'area' contains numbers, but 'about 90' in row 6. Correct or empty such cells, "
    "or use --as 'area'=number (counts them as empty), --categorical 'area' or --drop 'area'.",
}

# Those whose fits are looked at as a whole.
FITTED = {"thirty_rows.csv", "rare_class.csv", "trend.csv", "patients.csv", "two_targets.csv"}


def options(target):
    return FitOptions(
        target=target,
        task=None,
        method="mcbn",
        drop=(),
        keep=(),
        categorical=(),
        read_as={},
        test_fraction=None,
        holdout=Holdout.random,
        time=None,
        group=None,
        seed=0,
        epochs=None,
        hidden=(4,),
        members=None,
        fast=False,
        interruptible=False,
        conformal=False,
        homoscedastic=False,
        effective_batch_size=None,
        device=Device.cpu,
        max_rows=None,
    )


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

    def call(name, *given):
        ended = bayesnorm("fit", HERE / name, "--out", tmp_path / "run", *QUICK[:4], *given)
        assert ended.code == 0, ended.err
        return ended, json.loads((tmp_path / "run" / "run.json").read_text())

    return call


def test_a_class_that_is_never_found_is_said_in_the_verdict(fitted, tmp_path):
    _, facts = fitted("rare_class.csv", "--target", "outcome")
    verdict = facts["summary"]["Does it predict well?"]
    with (tmp_path / "run" / "test_predictions.csv").open() as file:
        ill = [row["predicted"] for row in csv.DictReader(file) if row["y"] == "relapse"]
    assert len(ill) == 2
    missed = "relapse" not in ill
    assert ("It finds no row of “relapse” (0 of 2)." in verdict) == missed
    assert ("Next: Collect more rows of “relapse”, or add columns that separate them" in verdict) == missed


def test_a_trend_is_flagged_before_it_fails(bayesnorm, fitted, tmp_path):
    ended, _ = fitted("trend.csv", "--target", "visits", "--time", "day")
    assert "The last 36 rows (by day, from 2023-05-07 on) were held out." in ended.err
    with (tmp_path / "run" / "test_predictions.csv").open() as file:
        rows = [*csv.DictReader(file)]
    beyond = [row for row in rows if row["unusual"] == "True"]
    assert len(beyond) >= 20  # the first ones lie hardly beyond what was trained on
    assert {row["reason"] for row in beyond} == {"day after 2023-05-04, the latest in training"}
