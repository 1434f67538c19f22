"""Makes the tables, the numbers and the pictures of `spreadsheet.md`: `python docs/spreadsheet_walk.py`.

Commands are run in an empty folder, and what they print goes into the page, between `<!-- made: NAME -->` and
`<!-- end -->`. Pictures are taken by Chromium. `--tables FOLDER` writes the tables alone.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
PAGE = HERE / "spreadsheet.md"

# Columns of predictions that the page shows, and how many of their rows.
SHOWN = ("listing", "district", "area", "mean", "lower", "upper", "unusual", "reason")
MOST_SHOWN = 9

# Half an interval's width, in parts of its middle, up to which a rent is offered without a second look.
NARROW = 0.2

COMMANDS = {
    "first": "fit flats.csv --target rent --out first",
    "fit": "fit flats.csv --target rent --drop deposit --drop listed --out run",
    "predict": "predict run new_flats.csv --id listing --with-inputs --out offers.csv",
    "drift": "drift run new_flats.csv",
}

DISTRICTS = {"Old Town": 15.0, "Mill Quarter": 12.5, "Hillside": 11.0, "Station": 10.0}


def flats(rows: int, seed: int, first_day: date, districts: dict[str, float], largest: float) -> list[dict[str, Any]]:
    """Return made-up flats to let: rent follows area, district, age, lift and condition, with scatter of 8 %."""
    generator = np.random.default_rng(seed)
    found = []
    for row in range(rows):
        area = round(float(generator.uniform(25, largest)), 1)
        district = str(generator.choice(list(districts)))
        built, lift = int(generator.integers(1890, 2022)), bool(generator.random() < 0.4)
        condition = str(generator.choice(["renovated", "good", "simple", ""], p=[0.3, 0.4, 0.2, 0.1]))
        by_metre = districts[district] * (1 + 0.002 * (built - 1950)) * (1.06 if lift else 1)
        by_metre *= {"renovated": 1.15, "good": 1.0, "simple": 0.85, "": 1.0}[condition]
        rent = by_metre * area**0.9 * 1.6 * float(generator.normal(1, 0.08))
        day = first_day + timedelta(days=int(generator.integers(0, 365)))
        found.append(
            {
                "listing": f"W-{first_day.year % 100}{generator.integers(10**5, 10**6)}",
                "street": f"{generator.choice(['Garden Street', 'Long Row', 'Church Lane'])} {row + 1}",
                "listed": day.strftime("%d.%m.%Y"),
                "area": f"{area}".replace(".", ","),
                "rooms": max(1, round(area / 27 + float(generator.normal(0, 0.6)))),
                "district": district,
                "built": built,
                "lift": "yes" if lift else "no",
                "condition": condition,
                "deposit": euros(3 * rent),
                "rent": euros(rent),
            }
        )
    return found


def euros(amount: float) -> str:
    """Write an amount as a German spreadsheet does."""
    return f"{amount:,.2f} €".translate(str.maketrans(",.", ".,"))


def amount(text: str) -> float:
    """Read what `euros` wrote."""
    return float(text.removesuffix(" €").translate(str.maketrans(",.", ".,")).replace(",", ""))


def write_tables(folder: Path) -> None:
    """Write the flats of last year, those of this month, and what these were let for in the end."""
    known = flats(600, 0, date(2024, 1, 1), DISTRICTS, 140)
    new = flats(60, 1, date(2025, 1, 1), {**DISTRICTS, "Harbour": 19.0}, 190)
    for name, rows, columns in (
        ("flats.csv", known, list(known[0])),
        ("new_flats.csv", new, [name for name in new[0] if name not in ("deposit", "rent")]),
        ("let_for.csv", new, ["listing", "rent"]),
    ):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, delimiter=";", extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def run(folder: Path, command: str) -> str:
    """Run a command in a folder, and return it with what it printed, as a terminal would show it."""
    ended = subprocess.run(
        [sys.executable, "-m", "bayesnorm", *shlex.split(command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    # Bars of progress are gone when a fit ends.
    lines = [line for line in ended.stderr.splitlines() if "━" not in line]
    return "\n".join([f"$ bayesnorm {command}", *lines, *ended.stdout.splitlines()])


def outcome(folder: Path) -> tuple[str, str]:
    """Return some predictions as a table, and what became of all of them."""
    with (folder / "offers.csv").open(encoding="utf-8") as file:
        offers = [*csv.DictReader(file)]
    with (folder / "let_for.csv").open(encoding="utf-8") as file:
        rents = {row["listing"]: amount(row["rent"]) for row in csv.DictReader(file, delimiter=";")}
    narrow = [
        (float(row["upper"]) - float(row["lower"])) / (float(row["upper"]) + float(row["lower"])) <= NARROW
        for row in offers
    ]
    flagged = [row["unusual"] == "True" for row in offers]
    held = [float(row["lower"]) <= rents[row["listing"]] <= float(row["upper"]) for row in offers]
    lines = ["| what to do | flats | rent within its interval, as it turned out |", "|---|---|---|"]
    for name, chosen in (
        ("offer at the predicted rent", [n and not f for n, f in zip(narrow, flagged, strict=True)]),
        ("look once more: interval too wide", [not n and not f for n, f in zip(narrow, flagged, strict=True)]),
        ("ask somebody who knows: unlike last year’s", flagged),
    ):
        rows = sum(chosen)
        inside = sum(h for h, c in zip(held, chosen, strict=True) if c)
        lines.append(f"| {name} | {rows} | {inside} of {rows} |")
    order = sorted(range(len(offers)), key=lambda row: (row % (len(offers) // MOST_SHOWN) != 0, row))[:MOST_SHOWN]
    table = [f"| {' | '.join(SHOWN)} |", "|" + "---|" * len(SHOWN)]
    table += [f"| {' | '.join(offers[row][name] for name in SHOWN)} |" for row in order]
    return "\n".join(table), "\n".join(lines)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Give a Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        yield opened
        opened.close()


def take_pictures(folder: Path) -> None:
    """Take the pictures of the page: of a leak, a verdict, uncertain rows, and a drift."""
    with browser() as opened:
        page = opened.new_page(viewport={"width": 1100, "height": 760}, color_scheme="light")
        for name, report, section in (
            ("leak", "first/report.html", ""),
            ("verdict", "run/report.html", ""),
            ("uncertainty", "run/report.html", "#uncertainty"),
            ("rows", "run/report.html", "#rows"),
            ("drift", "run/drift.html", ""),
        ):
            page.goto((folder / report).resolve().as_uri() + section)
            page.wait_for_timeout(200)
            page.screenshot(path=HERE / f"spreadsheet_{name}.png")


def fill(made: dict[str, str]) -> None:
    """Put what was made into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in made.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{PAGE}: <!-- made: {name} --> has to be there once")
        text = pattern.sub(lambda found, content=content: f"{found[1]}{content}\n{found[2]}", text)
    PAGE.write_text(text, encoding="utf-8")


def terminal(text: str) -> str:
    return f"```\n{text}\n```"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="write the tables there, and do nothing else")
    given = parser.parse_args(arguments)
    if given.tables is not None:
        given.tables.mkdir(parents=True, exist_ok=True)
        write_tables(given.tables)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tables(folder)
        head = io.StringIO((folder / "flats.csv").read_text(encoding="utf-8"))
        made = {"table": terminal("".join(next(head) for _ in range(4)).rstrip())}
        for name, command in COMMANDS.items():
            made[name] = terminal(run(folder, command))
        made["offers"], made["outcome"] = outcome(folder)
        take_pictures(folder)
    fill(made)


if __name__ == "__main__":
    main()
