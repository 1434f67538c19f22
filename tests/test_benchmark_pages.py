"""The pages of docs/ hold the tables that `python -m benchmarks.readme_tables` writes; benchmarks can be imported."""

import ast
import importlib
import importlib.util

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


def test_benchmarks_import_names_that_exist():
    """Benchmarks run for minutes, so most of them run by hand only."""
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")
    pytest.importorskip("typer", reason="needs typer: pip install typer rich")
    missing = []
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("bayesnorm", "experiments"):
                module = importlib.import_module(str(node.module))
                names = [entry.name for entry in node.names if not hasattr(module, entry.name)]
                missing += [
                    f"{path.name}: {node.module}.{name}"
                    for name in names
                    if importlib.util.find_spec(f"{node.module}.{name}") is None
                ]
    assert missing == []
