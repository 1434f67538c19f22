"""The file of the live page: it is up to date, small, and it asks for nothing from outside."""

import re

import pytest

from bayesnorm.demo import build


@pytest.fixture(scope="module")
def page():
    return build.PAGE.read_text("utf-8")


def test_the_built_page_is_up_to_date(page):
    assert page == build.demo_page(), "run: python -m bayesnorm.demo.build"


def test_the_page_is_one_small_file_that_loads_nothing(page):
    assert len(page.encode()) <= build.LARGEST
    assert re.search(r"\b(?:src|href)=\"(?!#)|url\(|@import", page) is None
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|WebSocket|importScripts|sendBeacon)\b", page)
    assert "default-src 'none'" in page


def test_names_of_modules_must_differ(tmp_path):
    first, second = tmp_path / "first.js", tmp_path / "second.js"
    first.write_text("export const SIZE = 1;\n")
    second.write_text("function SIZE() {}\n")
    with pytest.raises(ValueError, match=r"SIZE is declared in first\.js and in second\.js"):
        build.require_unique_names([first, second])
