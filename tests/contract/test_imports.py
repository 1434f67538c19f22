"""The design's packages: they stand in one order, imports point down it, and the core needs no extra."""

from __future__ import annotations

import ast
import dataclasses
import functools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import bayesnorm

PACKAGE = Path(bayesnorm.__file__).parent
RUNTIME = PACKAGE.parent / "bayesnorm_runtime"
BESIDE = [Path(__file__).parents[2] / name for name in ("experiments", "benchmarks", "examples")]

LEAVES = ["errors", "arguments", "writing", "files", "schema", "words", "progress"]
CORE = ["network", "predictive", "likelihoods", "engines", "posterior", "training", "methods"]
PACKAGES = [
    "bayesnorm_runtime",
    *LEAVES,
    *CORE,
    "metrics",
    "theory",
    "calibration",
    "shift",
    "compression",
    "export",
    "active",
    "network_report",
    "tabular",
    "plots",
    "report",
    "maps",
    "serving",
    "demo",
    "cli",
    "integrations",
    "__init__",
    "__main__",
    "experiments",
    "benchmarks",
    "examples",
]
"""All packages there are, and what stands beside the package. Each may import those that stand before it."""

NARROWER = {
    "predictive": ["bayesnorm_runtime", *LEAVES],
    "likelihoods": [*LEAVES, "predictive"],
    "active": [*LEAVES, *CORE, "metrics"],
}
"""Packages that may import only some of those before them."""

EXTERNAL = {
    "bayesnorm_runtime": {"numpy", "scipy", "onnxruntime", "pyarrow"},
    "errors": set(),
    "arguments": {"numpy"},
    "writing": set(),
    "network": {"torch", "numpy"},
    "schema": {"torch"},
    "words": {"numpy"},
    **{
        package: {"torch", "numpy", "scipy", "safetensors", "typing_extensions"}
        for package in ("files", *CORE[1:], "theory", "calibration", "shift", "compression", "network_report")
    },
    "progress": {"rich"},
}
"""Third-party packages that these packages may import; elsewhere, what an extra brings."""

EXTRAS = (
    "sklearn",
    "pandas",
    "typer",
    "rich",
    "matplotlib",
    "jinja2",
    "PIL",
    "ray",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "torchmetrics",
    "uvicorn",
    "msgspec",
)


@dataclasses.dataclass(frozen=True)
class Import:
    """One name that a module imports, wherever in its file this stands, also for type checkers only."""

    by: str
    module: str
    """The module that has to be run for it, as a dotted name."""
    name: str | None
    """What is taken from that module; None for the module itself."""

    def __str__(self) -> str:
        return f"{self.by} imports {self.module}" + (f": {self.name}" if self.name else "")


def imports_in(source: str, by: str, is_package: bool, modules: frozenset[str]) -> list[Import]:
    """Return all that `source`, the text of module `by`, imports; `modules` are those that exist."""
    parts = by.split(".")
    results = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            results += [Import(by, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = parts[: len(parts) - node.level + is_package] if node.level else []
            module = ".".join([*here, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                results.append(Import(by, inner, None) if inner in modules else Import(by, module, alias.name))
    return results


@functools.cache
def files() -> dict[str, Path]:
    """Module -> its file, in the package and beside it."""
    results = {}
    for folder in (PACKAGE, RUNTIME, *BESIDE):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            results[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return results


def shadowed(package: str, source: str) -> set[str]:
    """Return what a package's `__init__` takes out of its modules, each as it would be called if it were one."""
    taken = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.module]
    return {f"{package}.{alias.asname or alias.name}" for node in taken for alias in node.names}


@functools.cache
def all_imports() -> list[Import]:
    packages = {module: path for module, path in files().items() if path.stem == "__init__"}
    modules = frozenset(files()).difference(*(shadowed(name, path.read_text()) for name, path in packages.items()))
    return [
        one
        for module, path in files().items()
        for one in imports_in(path.read_text(), module, module in packages, modules)
    ]


def package_of(module: str) -> str:
    first, *rest = module.split(".")
    return first if first != "bayesnorm" else rest[0] if rest else "__init__"


def is_ours(module: str) -> bool:
    return module.split(".")[0] in ("bayesnorm", "bayesnorm_runtime", "experiments", "benchmarks", "examples")


def points_up(one: Import) -> bool:
    package, below = package_of(one.by), package_of(one.module)
    allowed = NARROWER.get(package) or PACKAGES[: PACKAGES.index(package)]
    return below != package and below not in allowed


@functools.cache
def exported() -> frozenset[str]:
    """Return all that packages export: what their `__init__` imports from their modules."""
    packages = {module: path for module, path in files().items() if path.stem == "__init__"}
    relative = [
        (module, node)
        for module, path in packages.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    return frozenset(f"{module}.{alias.asname or alias.name}" for module, node in relative for alias in node.names)


def must_use_the_init(module: str) -> bool:
    return module.split(".")[0] in ("bayesnorm", "examples")


def bypasses_the_init(one: Import, exports: frozenset[str]) -> bool:
    """Return whether a package imports from inside another package, and not what that package exports."""
    is_inside = one.module.startswith("bayesnorm.") and one.module.count(".") > 1
    is_inside = is_inside or one.module.startswith("bayesnorm_runtime.")
    return (
        is_inside
        and package_of(one.by) != package_of(one.module)
        and (one.name is not None or one.module not in exports)
    )


def takes_a_private_name(one: Import) -> bool:
    taken = [*one.module.split("."), *([one.name] if one.name else [])]
    private = any(part.startswith("_") and not part.startswith("__") for part in taken)
    return private and package_of(one.by) != package_of(one.module)


def cycles(imports: list[Import]) -> list[tuple[str, ...]]:
    """Return groups of modules each of which imports, over others, all of its group and itself."""
    below: dict[str, set[str]] = {}
    for one in imports:
        below.setdefault(one.by, set()).add(one.module)

    def reached_from(module: str) -> set[str]:
        reached: set[str] = set()
        waiting = [module]
        while waiting:
            fresh = below.get(waiting.pop(), set()) - reached
            reached |= fresh
            waiting += fresh
        return reached

    reached = {module: reached_from(module) for module in below}
    groups = [{other for other in down if module in reached.get(other, set())} for module, down in reached.items()]
    return sorted({tuple(sorted(group)) for group in groups if group})


def lines(offenders: Iterable[object]) -> str:
    return "".join(f"\n{offender}" for offender in offenders)


def test_these_are_all_packages():
    assert {package_of(module) for module in files()} == set(PACKAGES)


def test_imports_point_down():
    offenders = [one for one in all_imports() if is_ours(one.module) and points_up(one)]
    assert not lines(offenders)


def test_no_modules_import_each_other():
    groups = cycles([one for one in all_imports() if is_ours(one.module)])
    assert not lines(groups)


def test_packages_are_imported_through_their_init():
    offenders = [one for one in all_imports() if must_use_the_init(one.by) and bypasses_the_init(one, exported())]
    assert not lines(offenders)


def test_no_package_takes_private_names_of_another():
    offenders = [one for one in all_imports() if is_ours(one.module) and takes_a_private_name(one)]
    assert not lines(offenders)


def test_the_core_imports_only_its_dependencies():
    def foreign(one: Import) -> bool:
        ours = {"bayesnorm", "bayesnorm_runtime"}
        return one.module.split(".")[0] not in {*sys.stdlib_module_names, *ours, *EXTERNAL[package_of(one.by)]}

    offenders = [one for one in all_imports() if package_of(one.by) in EXTERNAL and foreign(one)]
    assert not lines(offenders)


def test_all_ways_of_importing_are_seen():
    source = """
from __future__ import annotations
import bayesnorm.metrics.pll
from typing import TYPE_CHECKING
from .. import files, methods as m
from ..posterior import load
from .base import Engine
from bayesnorm import network
if TYPE_CHECKING:
    from ..calibration import calibrate
def f():
    from ...bayesnorm.plots import _draw
"""
    package = frozenset({"bayesnorm.files", "bayesnorm.methods", "bayesnorm.network"})
    result = imports_in(source, "bayesnorm.engines.any", is_package=False, modules=package)
    assert {(one.module, one.name) for one in result if is_ours(one.module)} == {
        ("bayesnorm.metrics.pll", None),
        ("bayesnorm.files", None),
        ("bayesnorm.methods", None),
        ("bayesnorm.posterior", "load"),
        ("bayesnorm.engines.base", "Engine"),
        ("bayesnorm.network", None),
        ("bayesnorm.calibration", "calibrate"),
        ("bayesnorm.plots", "_draw"),
    }
    within = "from .doctor import doctor as doctor"  # a function of its module's name
    assert shadowed("bayesnorm.network", within) == {"bayesnorm.network.doctor"}
    (through_init,) = imports_in(
        "from .layers import choose_layers", "bayesnorm.network", is_package=True, modules=package
    )
    assert through_init == Import("bayesnorm.network", "bayesnorm.network.layers", "choose_layers")


def test_offenders_are_told_from_the_rest():
    def one(by: str, module: str, name: str | None = None) -> Import:
        return Import(f"bayesnorm.{by}", f"bayesnorm.{module}", name)

    assert points_up(one("engines.delta", "posterior"))
    assert not points_up(one("posterior.base", "engines"))
    exports = frozenset({"bayesnorm.report.drift_page"})
    assert bypasses_the_init(one("cli.fit", "report.page", "render"), exports)
    assert not bypasses_the_init(one("cli.drift", "report.drift_page"), exports)
    assert takes_a_private_name(one("cli.fit", "report._page", "fill"))
    assert not takes_a_private_name(one("report.page", "report.advice", "_fill"))
    ring = [one("a", "b"), one("b", "c"), one("c", "a"), one("c", "d"), one("e", "a")]
    assert cycles(ring) == [("bayesnorm.a", "bayesnorm.b", "bayesnorm.c")]


def test_no_file_is_called_utils():
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "tools"}
    assert not [module for module in files() if vague & {part.strip("_") for part in module.split(".")}]


def test_no_pickle():
    guilty = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    package = {module: path for module, path in files().items() if module.split(".")[0] == "bayesnorm"}
    offenders = [one for one in all_imports() if one.by in package and one.module.split(".")[0] in guilty]
    assert not lines(offenders)
    unsafe = {"torch.load", "torch.save", "eval", "exec"}
    for module, path in package.items():
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        # Of a file that somebody else wrote, tensors alone.
        safe = [call for call in calls if "weights_only=True" in map(ast.unparse, call.keywords)]
        assert not unsafe & {ast.unparse(call.func) for call in calls if call not in safe}, module


WITHOUT_EXTRAS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
import torch
import bayesnorm as bn

assert "scipy.stats" not in sys.modules, "it takes half a second: `import scipy` loads it where it is used"
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
x = torch.randn(30, 2)
predictive = bn.MCBN(batch_size=8, states=4).fit(model, (x, x[:, 0])).predict(x)
print(predictive.crps(x[:, 0]).mean().item(), predictive.interval(0.9)[0].mean().item())
assert not set(sys.argv[1:]) & {name.split(".")[0] for name in sys.modules}
"""


def test_the_core_works_without_the_extras():
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_EXTRAS, *EXTRAS], check=True, timeout=120)
