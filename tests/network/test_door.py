"""Other rooms, experiments and benchmarks import from `bayesnorm.network`, never from a file inside it."""

from __future__ import annotations

import ast
from pathlib import Path

import bayesnorm

PACKAGE = Path(bayesnorm.__file__).parent
ROOM = PACKAGE / "network"
CHECKOUT = PACKAGE.parents[1]
INSIDE = {path.stem for path in ROOM.iterdir() if not path.name.startswith("_")}


def go_around(path: Path) -> list[str]:
    """Imports of a file that go past the door."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            parts = module.split(".") if not module.endswith("network") else [*module.split("."), node.names[0].name]
            if "network" in parts and (node.level or parts[0] == "bayesnorm"):
                inner = parts[parts.index("network") + 1 :]
                found += [f"{module}: {inner[0]}"] if inner and inner[0] in INSIDE else []
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("bayesnorm.network.")]
    return found


def test_the_door_is_the_only_way_in():
    folders = [PACKAGE, *(CHECKOUT / name for name in ("experiments", "benchmarks", "examples"))]
    files = [path for folder in folders for path in folder.rglob("*.py") if ROOM not in path.parents]
    around = {str(path): go_around(path) for path in files}
    assert not {path: found for path, found in around.items() if found}


def test_all_ways_around_the_door_are_seen(tmp_path):
    source = """
from ..network import Executable
from ..network.inputs import as_tensor
from ..network import running
from bayesnorm.network.running.prefix import PrefixCache
import bayesnorm.network.layers
def f():
    from bayesnorm.network.copying import unwrap
"""
    path = tmp_path / "any.py"
    path.write_text(source)
    assert len(go_around(path)) == 5
