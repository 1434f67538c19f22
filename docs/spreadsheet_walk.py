"""Make the tables, numbers and pictures of `tutorials/spreadsheet.md`: `python docs/spreadsheet_walk.py`.

The commands run in an empty folder. Their output replaces the text between `<!-- made: NAME -->` and `<!-- end -->` of
the page. Chromium takes the pictures. `--tables FOLDER` only writes the tables.
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
PAGE = HERE / "tutorials" / "spreadsheet.md"
README = HERE.parent / "README.md"

# The columns of the predictions, and the number of rows, that the page shows.
SHOWN = ("listing", "district", "area", "mean", "lower", "upper", "unusual", "reason")
MOST_SHOWN = 9

# A rent is offered without a check if half of its interval's width is at most this share of the interval's centre.
NARROW = 0.2

COMMANDS = {
    "first": "fit flats.csv --target rent --out first",
    "fit": "fit flats.csv --target rent --drop deposit --drop listed --out run",
    "predict": "predict run new_flats.csv --id listing --with-inputs --out offers.csv",
    "drift": "drift run new_flats.csv",
}

# What `make quickstart` runs; README.md shows the output.
QUICKSTART_TABLE = "data csv sklearn:breast_cancer --out breast_cancer.csv"
QUICKSTART = "fit breast_cancer.csv --target target --out breast_cancer --fast"

DISTRICTS = {"Old Town": 15.0, "Mill Quarter": 12.5, "Hillside": 11.0, "Station": 10.0}


def flats(rows: int, seed: int, first_day: date, districts: dict[str, float], largest: float) -> list[dict[str, Any]]:
    """Return invented flats. The rent depends on area, district, age, lift and condition, with 8 % of noise."""
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
    """Return an amount as a German spreadsheet writes it."""
    return f"{amount:,.2f} €".translate(str.maketrans(",.", ".,"))


def amount(text: str) -> float:
    """Return the number that `euros` wrote."""
    return float(text.removesuffix(" €").translate(str.maketrans(",.", ".,")).replace(",", ""))


def write_tables(folder: Path) -> None:
    """Write last year's flats, the new flats, and the rents of the new flats, which only the end of the page uses."""
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
    """Run a command in a folder, and return the command with its output, as a terminal shows them."""
    ended = subprocess.run(
        [sys.executable, "-m", "bayesnorm", *shlex.split(command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    # A terminal erases progress bars at the end.
    lines = [line for line in ended.stderr.splitlines() if "━" not in line]
    return "\n".join([f"$ bayesnorm {command}", *lines, *ended.stdout.splitlines()])


def outcome(folder: Path) -> tuple[str, str]:
    """Return some predictions as a table, and a table of how good all of them were."""
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
    lines = ["| decision | flats | rent inside the predicted interval |", "|---|---|---|"]
    for name, chosen in (
        ("offer at the predicted rent", [n and not f for n, f in zip(narrow, flagged, strict=True)]),
        ("check by hand: the interval is too wide", [not n and not f for n, f in zip(narrow, flagged, strict=True)]),
        ("ask an expert: the row is unusual", flagged),
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
    """Yield a running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        yield opened
        opened.close()


def take_pictures(folder: Path) -> None:
    """Take the pictures of the page: the warning, the verdict, the uncertainty, the rows, and the drift."""
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


def fill(page: Path, made: dict[str, str]) -> None:
    """Replace the generated parts of a page."""
    text = page.read_text(encoding="utf-8")
    for name, content in made.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{page} must contain <!-- made: {name} --> exactly once.")
        text = pattern.sub(lambda found, content=content: f"{found[1]}{content}\n{found[2]}", text)
    page.write_text(text, encoding="utf-8")


def terminal(text: str) -> str:
    return f"```\n{text}\n```"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="Write the tables to this folder and stop.")
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
        run(folder, QUICKSTART_TABLE)
        quickstart = terminal(run(folder, QUICKSTART))
        take_pictures(folder)
    fill(PAGE, made)
    fill(README, {"quickstart": quickstart})


if __name__ == "__main__":
    main()
