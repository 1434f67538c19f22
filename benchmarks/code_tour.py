"""Count the files, functions and levels of calls that a reader of bayesnorm passes, for four typical calls.

    python -m benchmarks.code_tour [--files]

It runs `fit`, `predict`, `calibrate` and `bayesnorm fit` on small data and records every function of the package that
is called. `docs/project/architecture.md` quotes the result.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn

import bayesnorm as bn

PACKAGE = str(Path(bn.__file__).parent)


@dataclass
class Calls:
    """The functions of the package that were called, by file, and the deepest nesting of their calls."""

    functions: dict[str, set[str]] = field(default_factory=dict)  # files in the order of their first call
    depth: int = 0
    result: Any = None  # what the function returned
    _level: int = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record an event of `sys.setprofile`."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name in ("<module>", "<genexpr>"):
            return
        if event == "call":
            self._level += 1
            self.depth = max(self.depth, self._level)
            file = str(Path(code.co_filename).relative_to(PACKAGE))
            self.functions.setdefault(file, set()).add(code.co_qualname)
        elif event == "return":
            self._level -= 1


def calls_of(run: Callable[[], object]) -> Calls:
    """Run a function and return the calls in this thread."""
    calls = Calls()
    sys.setprofile(calls)
    try:
        calls.result = run()
    finally:
        sys.setprofile(None)
    return calls


def library_calls() -> Iterator[tuple[str, Calls]]:
    """Yield the calls of `fit`, `predict` and `calibrate` for a small network with two batch-norm layers."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(16, 3)).eval()
    x, y = torch.randn(256, 4), torch.randint(3, (256,))
    fit = calls_of(lambda: bn.MCBN(32, states=16).fit(network, x, bn.Categorical()))
    yield "MCBN.fit", fit
    posterior = fit.result
    yield "predict", calls_of(lambda: posterior.predict(x[:8]).entropy)
    yield "predict, SigmaPoints", calls_of(lambda: posterior.predict(x[:8], bn.SigmaPoints(4)).entropy)
    yield "predict, Delta", calls_of(lambda: posterior.predict(x[:8], bn.Delta()).entropy)
    yield "calibrate", calls_of(lambda: bn.calibrate(posterior, x, y))


def command_calls() -> Iterator[tuple[str, Calls]]:
    """Yield the calls of `bayesnorm fit` and `bayesnorm predict` for a small table."""
    from bayesnorm.cli.app import run as run_command

    numbers = np.random.default_rng(0).normal(size=(60, 3))
    lines = [f"{a},{b},{a + b + 0.1 * noise}" for a, b, noise in numbers]
    with tempfile.TemporaryDirectory() as folder:
        table, run = Path(folder, "table.csv"), Path(folder, "run")
        table.write_text("\n".join(["a,b,target", *lines]) + "\n")
        commands = {
            "bayesnorm fit": ["fit", str(table), "--target", "target", "--out", str(run), "--fast"],
            "bayesnorm predict": ["predict", str(run), str(table)],
        }
        for name, arguments in commands.items():
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
                calls = calls_of(partial(run_command, arguments))
            if calls.result:
                raise SystemExit(f"{name} failed: {errors.getvalue()}")
            yield name, calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="Also list the files in the order of their first call.")
    options = parser.parse_args()
    files = sum(1 for _ in Path(PACKAGE).rglob("*.py"))
    print(f"The package has {files} files.\n\n| call | files | functions | deepest level |\n|---|---|---|---|")
    listings = io.StringIO()
    for part in (library_calls, command_calls):
        for name, calls in part():
            count = sum(map(len, calls.functions.values()))
            print(f"| `{name}` | {len(calls.functions)} | {count} | {calls.depth} |")
            with contextlib.redirect_stdout(listings):
                print(f"\n{name}:", *calls.functions, sep="\n  ")
    if options.files:
        print(listings.getvalue())


if __name__ == "__main__":
    main()
