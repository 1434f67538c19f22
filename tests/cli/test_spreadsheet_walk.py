"""The walk from a spreadsheet to a decision: its page has what its script makes, and anyone can make its tables."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorials" / "spreadsheet.md"


@pytest.fixture(scope="module")
def walk():
    return runpy.run_path(str(DOCS / "spreadsheet_walk.py"))


def test_the_page_has_a_place_for_everything(walk):
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall("<!-- made: (.*) -->", page)) == sorted(["table", "offers", "outcome", *walk["COMMANDS"]])
    for command in walk["COMMANDS"].values():
        assert f"$ bayesnorm {command}\n" in page
    pictures = re.findall(r"\((\.\./spreadsheet_.*?\.png)\)", page)
    assert len(pictures) == 5
    for picture in pictures:
        assert (PAGE.parent / picture).stat().st_size < 300_000


def test_the_tables(walk, tmp_path):
    walk["main"](["--tables", str(tmp_path)])
    page = PAGE.read_text(encoding="utf-8")
    lines = (tmp_path / "flats.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 601
    assert "\n".join(lines[:4]) in page
    assert "rent" not in (tmp_path / "new_flats.csv").read_text(encoding="utf-8").splitlines()[0]
    assert walk["amount"](walk["euros"](1234567.891)) == 1234567.89
