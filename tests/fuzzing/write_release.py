"""Write one file of every kind, and a run, for the tests of later releases: `python -m tests.fuzzing.write_release`.

Run it once for a release. The tests of later releases read the files.
"""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path

import bayesnorm

from .commands import ended
from .kinds import kinds
from .small_run import fit, write_table

# The first numbers of each array that a file gives.
NUMBERS = 4


def release_folder(version: str) -> Path:
    """Return the folder of a release's files, such as written_by_0_2 for version 0.2.0."""
    return Path(__file__).with_name("written_by_" + "_".join(version.split(".")[:2]))


def predictions_of_run(run: Path, table: Path, out: Path) -> list[list[float]]:
    """Return the means and standard deviations that a run predicts for the first rows of a table."""
    done = ended("predict", str(run), str(table), "--out", str(out), "--force")
    assert done.code == 0, done.err
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:NUMBERS]
    return [[float(row[name]) for row in rows] for name in ("mean", "std")]


def main() -> None:
    folder = release_folder(bayesnorm.__version__)
    folder.mkdir()
    expected = {}
    for name, kind in kinds().items():
        path = folder / f"{name.replace(' ', '_')}.bayesnorm"
        kind.write(path)
        content = path.read_bytes()  # using some kinds of files continues them
        expected[path.stem] = [array.flatten()[:NUMBERS].double().tolist() for array in kind.use(path)]
        path.write_bytes(content)
    with contextlib.chdir(folder):
        table, run, out = write_table(Path("run.csv")), Path("run"), Path("predictions.csv")
        fit(table, run)
        expected["run"] = predictions_of_run(run, table, out)
        for path in (out, run / "report.html", run / "test_predictions.csv"):
            path.unlink()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
