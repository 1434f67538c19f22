"""Identifiers and docstrings are in plain English: nouns for values, verbs for functions, one name for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "bayesnorm"

# Participles and pronouns, which say nothing of a value.
VAGUE = {"found", "own", "each", "known", "given", "kept", "of"}

# Fields under which committed results store their numbers.
STORED = {"kendall_uncertainty/medians.py": {"found"}, "kendall_uncertainty/retention.py": {"kept"}}

# First words of docstrings that are no verbs in the imperative.
NO_VERBS = {
    "a",
    "an",
    "the",
    "this",
    "that",
    "these",
    "it",
    "its",
    "if",
    "for",
    "whether",
    "how",
    "what",
    "which",
    "where",
}
NO_VERBS |= {
    "returns",
    "yields",
    "raises",
    "true",
    "false",
    "none",
    "all",
    "every",
    "each",
    "one",
    "no",
    "some",
    "to",
    "of",
}

# The same word for the same thing: a command and what it runs, functions that load different files, and true-or-false
# values of files and of commands.
SHARED = {"doctor", "drift", "export", "serve", "load", "flag"}


def modules(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of variables, parameters, attributes, functions and classes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


@pytest.mark.parametrize("folder", ["src", "experiments", "benchmarks", "tests", "examples"])
def test_names_say_what_a_value_is(folder):
    vague = {}
    for path in modules(ROOT / folder):
        allowed = STORED.get("/".join(path.parts[-2:]), set())
        names = {name for name in bound_names(ast.parse(path.read_text())) if name.lstrip("_") in VAGUE - allowed}
        if names:
            vague[str(path.relative_to(ROOT))] = names
    assert vague == {}


def test_names_say_sample_and_uncertainty():
    """Only figures are drawn."""
    wrong = set()
    for path in modules(PACKAGE):
        if path.relative_to(PACKAGE).parts[0] not in ("plots", "report"):
            for name in bound_names(ast.parse(path.read_text())):
                if {"draws", "drawn", "drawable", "doubt"} & set(name.lower().split("_")):
                    wrong.add(f"{path.relative_to(PACKAGE)}: {name}")
    assert wrong == set()


def test_docstrings_of_functions_start_with_a_verb():
    wrong = []
    for path in modules(PACKAGE, ROOT / "experiments", ROOT / "benchmarks"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or any("property" in ast.unparse(d) for d in node.decorator_list):
                continue
            first = (ast.get_docstring(node) or "Return").split()[0]
            is_summary_of_the_command = path.name == "app.py" and node.name == "everything"
            if (first.lower().strip(".,:") in NO_VERBS or not first[0].isupper()) and not is_summary_of_the_command:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {first}")
    assert wrong == []


def test_no_public_name_stands_for_two_things():
    """Functions and classes of different packages have different names."""
    packages = defaultdict(set)
    for path in modules(PACKAGE):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                packages[node.name].add(path.relative_to(PACKAGE).parts[0])
    assert {name: sorted(where) for name, where in packages.items() if len(where) > 1 and name not in SHARED} == {}


def test_files_that_comments_and_docstrings_name_exist():
    names = {path.name for path in modules(PACKAGE)}
    for path in modules(PACKAGE):
        for mentioned in re.findall(r"`([a-z_/]+)\.py`", path.read_text()):
            folders = (PACKAGE, PACKAGE.parent, path.parent, ROOT)
            assert any((folder / f"{mentioned}.py").is_file() for folder in folders) or f"{mentioned}.py" in names, (
                f"{path.name}: {mentioned}.py"
            )
