"""Makes the small hostile tables of this folder: `python -m tests.cli.hostile_tables.make`.

What `bayesnorm fit` must say of each is in `test_hostile_tables.py`, which also asks whether the files are those that
this makes.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent

ROWS = 48
"""Rows of a table, if nothing else is said."""

FIRST_DAY = date(2022, 3, 1)


def tables() -> dict[str, bytes]:
    """Return all files by name."""
    return {
        **_columns_that_are_no_features(),
        **_columns_that_give_the_target_away(),
        **_dates(),
        **_written_numbers(),
        **_files(),
        **_targets(),
        **_rows(),
    }


def _houses(rows: int = ROWS, seed: int = 0) -> dict[str, list[Any]]:
    """Columns that a price can be learned from, and the price."""
    generator = np.random.default_rng(seed)
    area, town = generator.uniform(40, 200, rows).round(1), generator.choice(["Ede", "Oss", "Ulft"], rows)
    price = 3 * area + 60 * (town == "Oss") + generator.normal(0, 15, rows)
    return {"area": area.tolist(), "town": town.tolist(), "price": price.round(1).tolist()}


def _text(columns: Mapping[str, Sequence[Any]], delimiter: str = ",") -> str:
    """Write columns as lines of text."""
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return written.getvalue()


def _csv(columns: Mapping[str, Sequence[Any]], delimiter: str = ",") -> bytes:
    return _text(columns, delimiter).encode()


def _columns_that_are_no_features() -> dict[str, bytes]:
    generator = np.random.default_rng(1)
    ids = [f"{number:08x}-{number % 9973:04x}" for number in generator.integers(0, 2**32, ROWS).tolist()]
    numbers = (generator.permutation(ROWS) * 37 + 100_000).tolist()
    streets = [f"{'Mill Lane' if row % 3 else 'High Street'} {row}" for row in range(3, 3 + ROWS)]
    crowd = [f"agent {row // 2}" if row < 30 else f"agent {row}" for row in range(ROWS)]
    return {
        "ids.csv": _csv({"listing": ids, "customer_id": numbers, "address": streets, **_houses()}),
        "counted.csv": _csv({"": range(ROWS), "nr": range(1, ROWS + 1), "year": range(1970, 1970 + ROWS), **_houses()}),
        "constant_and_empty.csv": _csv({"country": ["NL"] * ROWS, "remarks": [""] * ROWS, **_houses()}),
        "nothing_but_names.csv": _csv({"listing": ids, "price": _houses()["price"]}),
        "crowd.csv": _csv({"agent": crowd, **_houses()}),
    }


def _columns_that_give_the_target_away() -> dict[str, bytes]:
    houses = _houses()
    left = np.random.default_rng(2).random(ROWS) < 0.4
    reasons = [("price", "moved")[row % 2] if gone else "" for row, gone in enumerate(left)]
    codes = ["B7" if gone else "A1" for gone in left]
    months = np.random.default_rng(3).integers(1, 60, ROWS).tolist()
    churn = ["yes" if gone else "no" for gone in left]
    return {
        "copied_target.csv": _csv({**houses, "price_cents": [round(100 * price) for price in houses["price"]]}),
        "ranked_target.csv": _csv({**houses, "value": [round(price**3, 2) for price in houses["price"]]}),
        "recoded_target.csv": _csv({"months": months, "segment": codes, "churn": churn}),
        "known_afterwards.csv": _csv({"months": months, "reason for leaving": reasons, "churn": churn}),
    }


def _dates() -> dict[str, bytes]:
    houses = _houses()
    days = [FIRST_DAY + timedelta(days=9 * row) for row in range(ROWS)]
    shuffled = [days[row] for row in np.random.default_rng(4).permutation(ROWS).tolist()]
    times = [datetime(2022, 3, 1, 8) + timedelta(minutes=37 * row) for row in range(ROWS)]
    ways = "{0.day}/{0.month}/{0.year}", "{0.month}/{0.day}/{0.year}"
    either = [ways[row % 2].format(day) for row, day in enumerate(shuffled)]
    low = [day.replace(day=day.day % 12 + 1) for day in days]
    return {
        "dates_iso.csv": _csv({"sold": [day.isoformat() for day in shuffled], **houses}),
        "dates_day_first.csv": _csv({"sold": [day.strftime("%d/%m/%Y") for day in shuffled], **houses}),
        "dates_month_first.csv": _csv({"sold": [day.strftime("%m/%d/%Y") for day in shuffled], **houses}),
        "dates_either_way.csv": _csv({"sold": either, **houses}),
        "dates_undecided.csv": _csv({"sold": [f"{day.day}.{day.month}.{day.year}" for day in low], **houses}),
        "dates_of_excel.csv": _csv({"sale date": [(day - date(1899, 12, 30)).days for day in shuffled], **houses}),
        "times_of_day.csv": _csv({"viewed": [time.strftime("%H:%M") for time in times], **houses}),
        "dates_with_words.csv": _csv({"sold": ["unknown", *(day.isoformat() for day in shuffled[1:])], **houses}),
    }


def _written_numbers() -> dict[str, bytes]:
    houses = _houses()
    dollars = [f"${1000 * price:,.2f}" for price in houses["price"]]
    euros = [f"{1000 * price:,.2f} €".translate(str.maketrans(",.", ".,")) for price in houses["price"]]
    rates = [f"{area / 20:.1f} %" for area in houses["area"]]
    mixed = [f"${area:.0f}" if row % 2 else f"{area:.0f} €" for row, area in enumerate(houses["area"])]
    words = ["about 90" if row in (5, 17) else area for row, area in enumerate(houses["area"])]
    endless = ["inf" if row == 9 else area for row, area in enumerate(houses["area"])]
    commas = [f"{area}".replace(".", ",") for area in houses["area"]]
    return {
        "dollars.csv": _csv({**houses, "price": dollars}),
        "euros.csv": _csv({**houses, "area": commas, "price": euros}, ";"),
        "percents.csv": _csv({"rate": rates, **houses}),
        "two_currencies.csv": _csv({"rent": mixed, **houses}),
        "words_among_numbers.csv": _csv({**houses, "area": words}),
        "endless.csv": _csv({**houses, "area": endless}),
    }


def _files() -> dict[str, bytes]:
    houses = _houses()
    return {
        "long_line.csv": _csv(houses).replace(b"\n", b",and,more\n", 4).replace(b"price,and,more", b"price"),
        "quoted.csv": _csv({**houses, "town": [f'{town}, "the\nold"' for town in houses["town"]]}),
    }


def _targets() -> dict[str, bytes]:
    houses = _houses()
    gaps = [("", "NA", "n/a", "null")[row % 4] if row < 8 else price for row, price in enumerate(houses["price"])]
    stars = (np.array(houses["price"]) // 130).astype(int).tolist()
    return {
        "targets_missing.csv": _csv({**houses, "price": gaps}),
        "same_target.csv": _csv({**houses, "price": [7] * ROWS}),
        "names_as_target.csv": _csv({**houses, "owner": [f"owner {row}" for row in range(ROWS)]}),
        "stars.csv": _csv({"area": houses["area"], "town": houses["town"], "stars": stars}),
        "formulas.csv": _csv({"area": houses["area"], "kind": [f"=1+{star}" for star in stars]}),
        "two_targets.csv": _csv({**houses, "rent": [round(price / 20, 2) for price in _houses(seed=5)["price"]]}),
    }


def _rows() -> dict[str, bytes]:
    generator = np.random.default_rng(6)
    rows = 180
    age, dose = generator.integers(18, 90, rows), generator.uniform(0, 5, rows).round(2)
    outcome = np.where(generator.random(rows) < 0.05, "relapse", "well")
    day = [(FIRST_DAY + timedelta(days=3 * row)).isoformat() for row in range(rows)]
    visits = (0.5 * np.arange(rows) + generator.normal(0, 3, rows)).round(1)
    patients = [f"p{row // 9:02}" for row in range(rows)]
    score = (dose * 2 + age / 30).round(2).tolist()
    return {
        "eleven_rows.csv": _csv(_houses(11)),
        "thirty_rows.csv": _csv(_houses(30)),
        "rare_class.csv": _csv({"age": age.tolist(), "dose": dose.tolist(), "outcome": outcome.tolist()}),
        "trend.csv": _csv({"day": day, "dose": dose.tolist(), "visits": visits.tolist()}),
        "patients.csv": _csv({"patient": patients, "age": age.tolist(), "dose": dose.tolist(), "score": score}),
    }


def main() -> None:
    """Write the files that are missing or differ."""
    for name, content in tables().items():
        (HERE / name).write_bytes(content)
    print(f"wrote {len(tables())} tables to {HERE}", file=sys.stderr)


if __name__ == "__main__":
    main()
