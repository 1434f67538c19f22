"""What a release says of itself: one version everywhere, and a bill of materials of what is installed."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import bayesnorm as bn

ROOT = Path(__file__).parents[1]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_all_files_name_the_same_version():
    released = re.search(r"^## \[(\d\S*)\] - (\S+)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    citation = dict(re.findall(r"^(version|date-released): (\S+)$", text_of("CITATION.cff"), flags=re.MULTILINE))
    declared = re.search(r'^version = "(.+)"$', text_of("pyproject.toml"), flags=re.MULTILINE)[1]
    assert bn.__version__ == declared == released[1] == citation["version"]
    assert released[2] == citation["date-released"]
    assert f"The version is {declared}," in text_of("docs/project/releases.md")


def test_the_bill_of_materials_lists_what_is_installed():
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "release" / "bill_of_materials.py"), "torch"],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "torch")
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["numpy"]["version"] == version("numpy")
    assert parts["safetensors"]["purl"] == f"pkg:pypi/safetensors@{version('safetensors')}"
    assert not {"pip", "setuptools", "torch"} & set(parts)
    assert all(part["licenses"] for part in bill["components"])
    references = {part["bom-ref"] for part in [*bill["components"], bill["metadata"]["component"]]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert set(needs) == references
    assert all(set(others) <= references for others in needs.values())
    assert f"pkg:pypi/numpy@{version('numpy')}" in needs[f"pkg:pypi/scipy@{version('scipy')}"]
