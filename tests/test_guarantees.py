"""The pages of guarantees and of the package structure name files that exist."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "guarantees.md").read_text(encoding="utf-8")
STRUCTURE = (ROOT / "docs" / "project" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "bayesnorm"
HEADS = ("| guarantee |", "| code |", "|---")


def test_all_files_that_the_page_names_exist():
    named = re.findall(r"`((?:tests|benchmarks|results|docs)/[\w./]+)`", PAGE)
    assert len(named) > 40
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_the_tour_of_the_code_names_files_that_exist_and_their_number():
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", STRUCTURE)
    assert len(named) > 25
    assert not [name for name in named if not (SOURCE / name).is_file()]
    assert f"The package has {sum(1 for _ in SOURCE.rglob('*.py'))} files." in STRUCTURE


def test_every_guarantee_names_its_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(HEADS)]
    assert len(rows) > 40
    for row in rows:
        *_, tested, _ = re.split(r"(?<!\\)\|", row)
        assert re.search(r"`tests/[\w/]+\.py`|by hand", tested), row


def test_the_soak_test_found_no_growth():
    soak = json.loads((ROOT / "results" / "soak.json").read_text())
    last = soak["rounds"][-1]
    assert (last["fits"], last["predictions"]) == (200, 1000)
    assert soak["growth"].pop("resident_mib") < 1
    assert set(soak["growth"].values()) == {0}
