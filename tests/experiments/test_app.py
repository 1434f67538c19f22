"""`python -m experiments`: one entry per table or figure, each with help, from a checkout alone."""

import ast
import re
import tomllib
from pathlib import Path

from experiments import teye_tables
from experiments.app import BENCHMARK, NETWORKS, TABLES_AND_FIGURES
from experiments.teye_tables import printing

ROOT = Path(__file__).parents[2]
ALL = [*TABLES_AND_FIGURES, *BENCHMARK, *NETWORKS, "data"]


def test_alone_it_lists_every_entry(experiments):
    for arguments in ((), ("--help",)):
        ended = experiments(*arguments)
        assert ended.code == 0
        first_words = [line.split()[1] for line in ended.out.splitlines() if line.startswith("│ ") and line[2] != " "]
        assert [word for word in first_words if not word.startswith("-")] == ALL
        assert set(ALL) > {"teye-figure1", "uci", *(f"teye-table{number}" for number in teye_tables.TABLES)}


def test_every_entry_teaches_with_an_example(experiments):
    for name in ALL:
        ended = experiments(name, "--help")
        assert (ended.code, ended.err) == (0, "")
        assert f"python -m experiments {name}" in ended.out.partition("Usage:")[2].partition("\n")[2]


def test_every_file_with_a_main_is_an_entry():
    """So that no table or figure is forgotten in the list."""
    result = set()
    for path in (ROOT / "experiments").rglob("*.py"):
        functions = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        if "main" in functions and path.name != "worker.py":
            result.add(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    listed = {main.__module__ for main in (*TABLES_AND_FIGURES.values(), *BENCHMARK.values(), *NETWORKS.values())}
    assert result == listed - {printing.__name__}


def test_documents_name_what_exists():
    """Every `python -m experiments NAME`, `NAME=...` and `python -m benchmarks.NAME` of a page or docstring."""
    places = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    places += [path for folder in ("src", "experiments", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    for path in places:
        text = path.read_text(encoding="utf-8")
        named = re.findall(r"(?:python -m experiments|\bNAME=)[ ]?([a-z][\w-]+)(?![\w{-])", text)
        assert set(named) <= set(ALL), path
        for name in re.findall(r"python -m benchmarks\.(\w+)", text):
            assert (ROOT / "benchmarks" / f"{name}.py").is_file(), f"{path}: {name}"
        if path.name != "CHANGELOG.md":  # which says what they are now
            assert not re.search(r"bayesnorm (bench|reproduce)\b|bayesnorm\.(bench|experiments)\b", text), path


def test_the_wheel_holds_no_experiments():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    packages = {"bayesnorm", "bayesnorm_command.py", "bayesnorm_runtime"}
    assert set(build.pop("wheel")["packages"]) == {f"src/{name}" for name in packages}
    results = {path.name for path in (ROOT / "src").iterdir() if not path.name.endswith((".egg-info", "__pycache__"))}
    assert results == packages
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert "experiments" not in {name.split(".")[0] for name in names}, path
