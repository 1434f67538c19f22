"""The design's room table: imports point one way, and the core needs no extra."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bayesnorm

PACKAGE = Path(bayesnorm.__file__).parent

BASE = {"errors", "arguments"}

# The design's "core" (posterior, engines, likelihoods, predictive), room by room.
POSTERIORS = {"batchnorm_posterior", "point_posterior", "ensemble_posterior", "combined_posterior"}
CORE = POSTERIORS | {"posterior", "engines", "likelihoods", "predictive", "files", "fluctuations"}
FOUNDATION = CORE | BASE | {"network"}
LIBRARY = FOUNDATION | {"training", "methods", "metrics", "selection"}
LEAVES = {"data", "nets"}
SERVICES = LIBRARY | LEAVES | {"tabular", "active", "compression", "export"}
WORK = SERVICES | {"experiments", "bench"}
FACES = {"plots", "report", "demo", "cli"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "arguments": {"errors"},
    "network": BASE,
    "predictive": BASE,
    "likelihoods": BASE | {"predictive"},
    "files": BASE,
    "fluctuations": BASE,
    "engines": BASE | {"network", "predictive", "likelihoods", "fluctuations"},
    "posterior": BASE | {"network", "files", "engines", "likelihoods", "predictive"},
    "batchnorm_posterior": FOUNDATION - POSTERIORS,
    "point_posterior": FOUNDATION - POSTERIORS,
    "ensemble_posterior": FOUNDATION - POSTERIORS | {"point_posterior"},
    "combined_posterior": FOUNDATION - POSTERIORS | {"ensemble_posterior"},
    "training": FOUNDATION,
    "methods": FOUNDATION | {"training"},
    "metrics": BASE | {"predictive"},
    "selection": FOUNDATION | {"metrics"},
    "tabular": LIBRARY | LEAVES,
    "active": FOUNDATION | {"metrics"},
    "compression": FOUNDATION,
    "export": FOUNDATION,
    "data": BASE,
    "nets": BASE | {"data"},
    "experiments": SERVICES | FACES | {"bench"},
    "bench": SERVICES,
    "plots": WORK | FACES,
    "report": WORK | FACES,
    "demo": WORK | FACES,
    "cli": WORK | FACES,
    "__init__": WORK | FACES,
    "__main__": WORK | FACES,
}
"""Room -> rooms that it may import, besides itself."""

EXTERNAL: dict[str, set[str]] = {
    "errors": set(),
    "arguments": set(),
    "network": {"torch", "numpy"},
    "methods": {"torch", "numpy"},
    **{room: {"torch", "numpy", "safetensors"} for room in CORE},
}
"""Third-party packages that the core may import."""

EXTRAS = ("sklearn", "pandas", "typer", "rich", "matplotlib", "jinja2", "PIL", "scipy", "bokeh", "ray", "onnx")

FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


class _Imports(ast.NodeVisitor):
    """Absolute names of all modules that a file imports, those for type checkers left out."""

    def __init__(self, path: Path) -> None:
        self.package = ("bayesnorm", *path.relative_to(PACKAGE).parts[:-1])
        self.found: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        name = test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")
        for child in node.orelse if name == "TYPE_CHECKING" else [*node.body, *node.orelse]:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        self.found |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = ".".join(self.package[: len(self.package) - node.level + 1]) if node.level else ""
        module = ".".join(part for part in (base, node.module or "") if part)
        if module == "bayesnorm":  # from . import files
            self.found |= {f"bayesnorm.{alias.name}" for alias in node.names}
        else:
            self.found.add(module)


def imports(path: Path) -> set[str]:
    visitor = _Imports(path)
    visitor.visit(ast.parse(path.read_text()))
    return visitor.found


def rooms_imported(path: Path) -> set[str]:
    rooms = {name.split(".")[1] for name in imports(path) if name.startswith("bayesnorm.")}
    return rooms | ({"__init__"} if "bayesnorm" in imports(path) else set())


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in FILES} <= ALLOWED.keys()


def test_the_table_itself_has_no_cycle_below_the_faces():
    order: list[str] = []
    waiting = {room: set(down) for room, down in ALLOWED.items() if room not in FACES | {"__init__", "__main__"}}
    waiting = {room: down - {room} - FACES for room, down in waiting.items()}
    while waiting:
        free = [room for room, down in waiting.items() if down <= {*order}]
        assert free, f"rooms that import each other: {sorted(waiting)}"
        order += free
        waiting = {room: down for room, down in waiting.items() if room not in free}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    room = room_of(path)
    upward = rooms_imported(path) - ALLOWED[room] - {room}
    assert not upward, f"{room} may not import {sorted(upward)}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if room_of(path) in EXTERNAL], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_the_core_imports_only_its_dependencies(path):
    outside = {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names - {"bayesnorm"}
    assert outside <= EXTERNAL[room_of(path)]


def test_the_parser_sees_all_ways_of_importing():
    source = """
from __future__ import annotations
import bayesnorm.metrics.pll
from typing import TYPE_CHECKING
from  import files
from posterior import load
from .base import Engine
if TYPE_CHECKING:
    from selection import calibrate
def f():
    from plots import draw
"""
    visitor = _Imports(PACKAGE / "engines" / "any.py")
    visitor.visit(ast.parse(source))
    ours = {name for name in visitor.found if name.startswith("bayesnorm")}
    assert ours == {
        "bayesnorm.metrics.pll",
        "bayesnorm.files",
        "bayesnorm.posterior",
        "bayesnorm.engines.base",
        "bayesnorm.plots",
    }


def test_no_file_is_called_utils():
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "tools"}
    assert not [path for path in FILES if path.stem.strip("_") in vague or path.parent.name in vague]


def test_no_pickle():
    guilty = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    assert not [path for path in FILES if guilty & {name.split(".")[0] for name in imports(path)}]
    for path in FILES:
        called = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        for node in called:
            text = ast.unparse(node.func)
            assert text not in ("torch.load", "torch.save", "eval", "exec"), f"{path}: {text}"


WITHOUT_EXTRAS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
import torch
import bayesnorm as bn

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
x = torch.randn(30, 2)
predictive = bn.MCBN(batch_size=8, states=4).fit(model, (x, x[:, 0])).predict(x)
print(predictive.crps(x[:, 0]).mean().item(), predictive.interval(0.9)[0].mean().item())
assert not set(sys.argv[1:]) & {name.split(".")[0] for name in sys.modules}
"""


def test_the_core_works_without_the_extras():
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_EXTRAS, *EXTRAS], check=True, timeout=120)
