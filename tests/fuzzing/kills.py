"""Kill -9 at random moments: runs, maps and models are complete afterwards, old or new, and nothing is left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch

import bayesnorm as bn
from bayesnorm.cli.run_folder import require_run_free

from .commands import contents, ended
from .folders import without_pictures
from .kinds import network, rows
from .small_run import fit, fit_arguments, map_arguments, write_images, write_table


def killed(work: Callable[[], object], seconds: float) -> bool:
    """Run a function in a copy of this process and kill it after some time; return whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


class Kills:
    """Works that are killed, and what must be there afterwards.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.table = folder, write_table(folder / "table.csv")
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.seconds: dict[str, float] = {}
        with without_pictures():
            for seed in (0, 1):
                fit(self.table, self.runs / "run", seed=seed)
                shutil.move(self.runs / "run", folder / f"run {seed}")
            self.predictions = [self._predict(folder / f"run {seed}") for seed in (0, 1)]
            write_images(folder)
            self.mapped = ended(*map_arguments(folder, folder / "valid")).out
            self.maps = contents(folder / "valid")
        data, noise = rows(), bn.Gaussian(4.0)
        self.posteriors = [bn.MCBN(batch_size=8, states=states).fit(network(), data, noise) for states in (4, 6)]
        self.means = [posterior.predict(data[0]).mean for posterior in self.posteriors]

    def outcome(self, seed: int) -> tuple[str, str]:
        """Return the kind of a case, and what comes of it."""
        chance = random.Random(seed)
        ways = {
            "fit, new run": self._new_run,
            "fit --force": self._replaced_run,
            "maps": self._maps,
            "save": self._saved_model,
        }
        kind = list(ways)[seed % len(ways)]
        with without_pictures():
            return kind, ways[kind](chance)

    def _moment(self, kind: str, work: Callable[[], object], chance: random.Random) -> float:
        """Return seconds after which work is killed, every second time near its end; the first time measures it."""
        if kind not in self.seconds:
            start = time.monotonic()
            killed(work, 600)
            self.seconds[kind] = time.monotonic() - start
        share = chance.uniform(0.8, 1.1) if chance.random() < 0.5 else chance.uniform(0, 1)
        return share * self.seconds[kind]

    def _predict(self, run: Path) -> str:
        out = self.folder / "predictions.csv"
        told = ended("predict", run, self.table, "--out", out, "--force")
        return out.read_text() if told.code == 0 else told.err

    def _judged_run(self, right: list[str], *, may_be_missing: bool = False) -> str:
        run = self.runs / "run"
        if run.exists() or not may_be_missing:
            predicted = self._predict(run)
            if predicted not in right:
                return f"fault: {predicted[-200:]!r}"
        require_run_free(run, force=True)
        left = sorted(path.name for path in self.runs.iterdir() if path.name != "run")
        if left:
            return f"fault: {left} were left"
        return "complete" if run.exists() else "nothing"

    def _new_run(self, chance: random.Random) -> str:
        def work() -> None:
            ended(*fit_arguments(self.table, self.runs / "run", seed=1))

        seconds = self._moment("new run", work, chance)
        shutil.rmtree(self.runs / "run", ignore_errors=True)
        killed(work, seconds)
        return self._judged_run(self.predictions[1:], may_be_missing=True)

    def _replaced_run(self, chance: random.Random) -> str:
        def work() -> None:
            ended(*fit_arguments(self.table, self.runs / "run", seed=1))

        seconds = self._moment("new run", work, chance)
        shutil.rmtree(self.runs / "run", ignore_errors=True)
        shutil.copytree(self.folder / "run 0", self.runs / "run")
        if chance.random() < 0.5:  # the moment of the exchange
            seconds = self.seconds["new run"] * chance.uniform(0.9, 1.05)
        killed(work, seconds)
        return self._judged_run(self.predictions)

    def _maps(self, chance: random.Random) -> str:
        out = self.folder / "out"

        def work() -> None:
            ended(*map_arguments(self.folder, out))

        seconds = self._moment("maps", work, chance)
        shutil.rmtree(out, ignore_errors=True)
        killed(work, seconds)
        told = ended(*map_arguments(self.folder, out))
        if told.out.replace(str(out), "") != self.mapped.replace(str(self.folder / "valid"), ""):
            return f"fault: other numbers, {told.err[-200:]!r}"
        result, pages = contents(out), ("maps.html", "maps.json")
        same = all(result.get(name) == content for name, content in self.maps.items() if name not in pages)
        if not same or set(result) != set(self.maps):
            return f"fault: other files, {sorted(set(result) ^ set(self.maps))}"
        return "complete"

    def _saved_model(self, chance: random.Random) -> str:
        folder = self.folder / "models"
        folder.mkdir(exist_ok=True)
        path = folder / "model.bayesnorm"

        def work() -> None:
            for number in range(1000):
                self.posteriors[number % 2].save(path)

        killed(work, chance.uniform(0, 0.1))
        if path.exists():
            mean = bn.load(path, network()).predict(rows()[0]).mean
            if not any(torch.equal(mean, right) for right in self.means):
                return "fault: another model"
        self.posteriors[0].save(path)
        left = sorted(entry.name for entry in folder.iterdir() if entry != path)
        return f"fault: {left} were left" if left else "complete"
