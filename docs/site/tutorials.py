"""Run the tutorials, and write each as a page with its output and as a notebook.

A tutorial is a program in `docs/tutorials/`. `# %% [markdown]` begins a cell of text, whose lines are comments, and
`# %%` begins a cell of code. What a cell prints and the figures that it leaves open follow it on the page.

`python -m docs.site.tutorials` writes the pages and pictures in `docs/tutorials/` again. `make docs` runs all
tutorials as well, into the site.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

from .links import ROOT

FOLDER = ROOT / "docs" / "tutorials"
MARK = re.compile(r"^# %%(?P<text> \[markdown\])?\n", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A cell of a tutorial: text, as Markdown, or code."""

    source: str
    is_text: bool


def programs() -> list[Path]:
    """Return the tutorials that are programs, sorted by name."""
    return sorted(FOLDER.glob("*.py"))


def cells(program: str) -> list[Cell]:
    """Return the cells of a program. Lines before its first mark are no part of the tutorial."""
    marks = list(MARK.finditer(program))
    ends = [mark.start() for mark in marks[1:]] + [len(program)]
    results = []
    for mark, end in zip(marks, ends, strict=True):
        source = program[mark.end() : end].strip("\n")
        if mark["text"]:
            source = "\n".join(line.removeprefix("#").removeprefix(" ") for line in source.splitlines())
        results.append(Cell(source, bool(mark["text"])))
    return results


def notebook(program: str) -> str:
    """Return a tutorial as a Jupyter notebook without output, in format 4.5."""
    parts = []
    for number, cell in enumerate(cells(program)):
        part: dict[str, object] = {
            "cell_type": "markdown" if cell.is_text else "code",
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        parts.append(part if cell.is_text else {**part, "execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": parts, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def run_cells(program: Path, pictures: Path) -> list[str]:
    """Run a tutorial in an empty folder, and return what follows each cell: printed text, and links to pictures."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    names: dict[str, object] = {"__name__": "__main__"}
    results: list[str] = []
    pyplot.close("all")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(cells(program.read_text(encoding="utf-8"))):
            printed = io.StringIO()
            if not cell.is_text:
                with contextlib.redirect_stdout(printed):
                    exec(compile(cell.source, f"{program.name}, cell {number}", "exec"), names)
            after = f"```\n{printed.getvalue().rstrip()}\n```\n" if printed.getvalue() else ""
            for figure in map(pyplot.figure, pyplot.get_fignums()):
                name = f"{program.stem}_{number}.png"
                figure.savefig(pictures / name, dpi=110, bbox_inches="tight", metadata={"Software": None})
                after += f"\n![{figure.get_label()}]({name})\n"
            pyplot.close("all")
            results.append(after)
    return results


def page(program: Path, outputs: Sequence[str], ending: str) -> str:
    """Return a tutorial as a page of Markdown."""
    parts = []
    for cell, after in zip(cells(program.read_text(encoding="utf-8")), outputs, strict=True):
        parts.append(f"{cell.source}\n" if cell.is_text else f"```python\n{cell.source}\n```\n")
        if after:
            parts.append(after)
    return "\n".join(parts) + ending


def write_tutorial(program: Path, folder: Path, ending: str = "") -> float:
    """Run a tutorial and write its page and pictures to a folder; return the seconds that it took."""
    begin = time.perf_counter()
    text = page(program, run_cells(program, folder), ending)
    (folder / f"{program.stem}.md").write_text(text, encoding="utf-8")
    return time.perf_counter() - begin


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for tutorial in programs():
        if sys.argv[1:] in ([], [tutorial.stem]):
            print(f"{tutorial.name}: {write_tutorial(tutorial, FOLDER):.1f} s")
