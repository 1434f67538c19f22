"""What the package asks of an installer: all that it imports, with lowest versions, and nothing besides."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

requirements = pytest.importorskip("packaging.requirements", reason="needs packaging, which comes with pytest")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
GATHERED = ("all", "dev")
"""Extras that stand for others; the second is for work on the package."""

APART = ("mlflow", "lightning")
"""Extras of integrations, which no other extra brings; their tests have an environment of their own."""

DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "typing_extensions": "typing-extensions"}
"""What brings a module of another name."""

BESIDE = {"triton", "bayesnorm", "bayesnorm_command", "bayesnorm_runtime", "experiments"}
"""Our own, and what comes with torch where it has a GPU."""


def distributions(lines: list[str]) -> set[str]:
    """Return the names in lines of requirements; for extras of this package, what is in them."""
    result = set()
    for line in lines:
        one = requirements.Requirement(line)
        inner = [distributions(EXTRAS[extra]) for extra in one.extras]
        result |= {one.name} if one.name != PROJECT["name"] else set().union(*inner)
    return result


def imported(source: str) -> set[str]:
    """Return the packages that a module imports anywhere, also by `importlib` or `load_package`."""
    result = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            result.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "importlib.import_module",
            "importlib.util.find_spec",
            "load_package",
        ):
            result |= {argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return {name.split(".")[0] for name in result}


def third_party(folder: str) -> set[str]:
    """Return the distributions that bring what the modules in a folder import."""
    names = set().union(*(imported(path.read_text()) for path in (ROOT / folder).rglob("*.py")))
    return {DISTRIBUTIONS.get(name, name) for name in names - sys.stdlib_module_names - BESIDE}


def test_what_the_package_imports_is_what_it_asks_for():
    extras = [distributions(lines) for name, lines in EXTRAS.items() if name not in GATHERED]
    assert third_party("src") == distributions(PROJECT["dependencies"]).union(*extras)


def test_experiments_run_where_the_package_is_worked_on():
    assert third_party("experiments") <= distributions([*PROJECT["dependencies"], *EXTRAS["dev"]])


def test_all_is_every_extra():
    (line,) = EXTRAS["all"]
    assert requirements.Requirement(line).extras == EXTRAS.keys() - {*GATHERED, *APART}


@pytest.mark.parametrize(
    "line", [*PROJECT["dependencies"], *(line for name in EXTRAS if name not in GATHERED for line in EXTRAS[name])]
)
def test_every_requirement_says_its_lowest_version(line):
    assert ">=" in {one.operator for one in requirements.Requirement(line).specifier}


def test_the_pinned_releases_are_ones_that_work():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [requirements.Requirement(line) for line in lines if not line.startswith("#")]
    assert "torch" in {one.name for one in pinned}
    for line in [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]:
        required = requirements.Requirement(line)
        for one in pinned:
            if one.name == required.name:
                assert required.specifier.contains(str(one.specifier).removeprefix("=="))


def test_all_ways_of_importing_are_seen():
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\ndef h():\n    importlib.import_module('i.j')"
    assert imported(source) == {"a", "c", "d", "i"}
