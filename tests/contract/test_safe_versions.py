"""The lowest dependency versions are free of known faults that let a file run code."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]

# The first version without the fault.
SAFE = {
    "torch": ("2.6", "CVE-2025-32434"),
    "scikit-learn": ("1.7", "CVE-2022-21797"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "pyarrow": ("14.0.1", "CVE-2023-47248"),
    "openpyxl": ("2.4.2", "CVE-2017-5992"),
    "onnx": ("1.21", "CVE-2025-51480, CVE-2026-27489, CVE-2026-34445"),
    "pillow": ("10.3", "CVE-2023-4863, CVE-2023-50447, CVE-2024-28219"),
    "ray": ("2.52", "CVE-2025-62593"),
}


def test_the_lowest_versions_have_no_known_faults():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    requirements = [Requirement(text) for text in texts]
    for requirement in requirements:
        if requirement.name in SAFE:
            lowest = [Version(part.version) for part in requirement.specifier if part.operator in (">=", "==")]
            assert lowest, f"{requirement.name} has no lowest version"
            assert max(lowest) >= Version(SAFE[requirement.name][0]), str(requirement)
    assert {requirement.name for requirement in requirements} >= SAFE.keys()


def test_the_page_about_security_lists_them():
    page = (ROOT / "docs" / "reference" / "security.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| (CVE[^|]*?) \|", page, re.MULTILINE)
    assert {name: (version, faults) for name, version, faults in rows} == SAFE
