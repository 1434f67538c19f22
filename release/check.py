"""Check the wheel and the source distribution in dist/, in a new environment outside of the checkout: `make dist`."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

# Files that programs need besides modules, and places whose files must stay in a checkout.
NEEDED = (
    "bayesnorm/py.typed",
    "bayesnorm/demo/demo.html",
    "bayesnorm/report/page.html",
    "bayesnorm/report/page.css",
    "bayesnorm/report/page.js",
    "bayesnorm/report/maps.html",
    "bayesnorm_command.py",
)
PLACES = r"bayesnorm/|bayesnorm_runtime/|bayesnorm_command\.py$|bayesnorm-[\d.]+\.dist-info/"

PROGRAM = """
import torch
import bayesnorm as bn
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).eval()
posterior = bn.MCBN(batch_size=16).fit(model, torch.randn(200, 3))
print(bn.__version__, posterior.predict(torch.randn(5, 3)).interval(0.9)[0].shape)
"""

COMMANDS = (
    "data csv sklearn:iris --out iris.csv",
    "fit iris.csv --target target --out run --fast --members 2 --epochs 20 --quiet",
    "predict run iris.csv --out predictions.csv",
    "drift run iris.csv",
    "demo --out demo.html --no-browser",
)


def check_contents(wheel: Path, source: Path, version: str) -> None:
    """Check the files and the metadata of both distributions."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        stray = [name for name in names if not re.match(PLACES, name)]
        missing = [name for name in NEEDED if name not in names]
        metadata = email.message_from_bytes(archive.read(f"bayesnorm-{version}.dist-info/METADATA"))
        assert not stray, f"the wheel must not contain {stray}"
        assert not missing, f"the wheel lacks {missing}"
        assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel lacks its licence"
    assert metadata["Version"] == version
    assert "uncertainty" in metadata["Summary"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(metadata.get_all("Classifier")) >= 5
    with tarfile.open(source) as tar:
        files = {name.partition("/")[2] for name in tar.getnames()}
    lacking = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "tests/conftest.py"} - files
    assert not lacking, f"the source distribution lacks {lacking}"
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB, {len(names)} files")
    print(f"{source.name}: {source.stat().st_size / 2**20:.1f} MiB, {len(files)} files")


def try_out(wheel: Path) -> None:
    """Install the wheel in a new environment, run a program and the commands, and write the bill of materials."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        venv.create(folder / "env", with_pip=True)
        python = str(folder / "env" / "bin" / "python")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

        def run(*arguments: str) -> str:
            done = subprocess.run(arguments, cwd=folder, env=clean, stdout=subprocess.PIPE, text=True, check=True)
            return done.stdout

        pip = (python, "-m", "pip", "--disable-pip-version-check", "-q")
        run(*pip, "install", "-c", str(ROOT / "constraints.txt"), f"{wheel}[tabular,cli,plots,report]")
        run(*pip, "check")
        print(run(python, "-W", "error", "-c", PROGRAM).strip())
        place_of_package = run(python, "-c", "import bayesnorm; print(bayesnorm.__file__)").strip()
        assert Path(place_of_package).is_relative_to(folder.resolve()), place_of_package
        for command in COMMANDS:
            run(str(folder / "env" / "bin" / "bayesnorm"), *command.split())
            print(f"bayesnorm {command}")
        for file in ("run/report.html", "run/model.bayesnorm", "predictions.csv", "demo.html"):
            assert (folder / file).stat().st_size > 1000, file
        bill = run(python, "-I", str(ROOT / "release" / "bill_of_materials.py"), "bayesnorm")
    path = wheel.with_name(f"{wheel.name.partition('-py3')[0]}.cdx.json")
    path.write_text(bill, encoding="utf-8")
    print(f"{path.name}: {bill.count('bom-ref')} parts")


def main(arguments: Sequence[str] | None = None) -> None:
    (version,) = (arguments if arguments is not None else sys.argv[1:]) or [declared_version()]
    wheel, source = DIST / f"bayesnorm-{version}-py3-none-any.whl", DIST / f"bayesnorm-{version}.tar.gz"
    check_contents(wheel, source, version)
    try_out(wheel)


def declared_version() -> str:
    """Return the version in pyproject.toml."""
    match = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert match
    return match[1]


if __name__ == "__main__":
    main()
