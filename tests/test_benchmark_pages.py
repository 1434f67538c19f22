"""The pages of docs/ hold the tables that `python -m benchmarks.readme_tables` writes."""

import pytest

from benchmarks.readme_tables import PAGES, ROOT, filled

TABLES = [(page, mark) for page, tables in PAGES.items() for mark in tables]


def test_tables_are_those_of_the_results():
    for page, mark in TABLES:
        text = (ROOT / "docs" / page).read_text()
        assert filled(text, mark, PAGES[page][mark]()) == text, "run `python -m benchmarks.readme_tables`"


def test_marks_are_needed_once():
    text = "a\n<!-- b -->\nold\n<!-- /b -->\nc"
    assert filled(text, "b", "new") == "a\n<!-- b -->\nnew\n<!-- /b -->\nc"
    with pytest.raises(ValueError, match="must have <!-- d --> and <!-- /d --> once each"):
        filled(text, "d", "new")
