"""Hostile folders of runs and maps, and what comes of commands that read them.

Whoever changes a folder can also correct its checksums: with correct ones, a command may fail in one line, or give what
the folder now contains. With wrong ones, it must refuse the folder or compute the results again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import pandas as pd
from PIL import Image

from bayesnorm import tabular
from bayesnorm.maps.images import _digest as maps_digest
from bayesnorm.report import pictures

from ..sealed_runs import seal
from .commands import Ended, ended
from .mutations import MARKUP, change_json, changed_bytes, json_text, mutated
from .outcomes import Outcomes
from .small_run import fit, map_arguments, write_images, write_table

# One case in this many draws the pictures of pages, which take most of the time.
DRAWN = 40


@contextlib.contextmanager
def without_pictures() -> Iterator[None]:
    """Pages get frames in place of pictures."""
    draw = pictures.themed_svg
    pictures.themed_svg = lambda _draw, label, _prefix: f"<svg aria-label={quoteattr(label)}></svg>"
    try:
        yield
    finally:
        pictures.themed_svg = draw


# The files of a run that each command reads.
READ = {
    "predict": {"run.json", "model.bayesnorm"},
    "drift": {"run.json", "model.bayesnorm"},
    "report": {"run.json", "report.json"},
}


def change_json_file(path: Path, chance: random.Random) -> None:
    """Change one to three values of a JSON file."""
    values = json.loads(path.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 3])):
        change_json(values, chance)
    path.write_bytes(json_text(values, chance).encode("utf-8", "surrogatepass"))


def plain(content: bytes) -> bytes:
    """Return JSON without the blanks between its values, and anything else as it is."""
    try:
        return json.dumps(json.loads(content), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return content


def replaced(source: Path, target: Path) -> None:
    """Give a folder the files of another one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


class Runs:
    """Hostile runs of `bayesnorm fit`.

    Args:
        folder: An empty folder, in which small runs are fitted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.table = folder, write_table(folder / "table.csv")
        for target in ("price", "town"):
            fit(self.table, folder / target, target=target)

    def outcome(self, seed: int) -> tuple[str, str]:
        """Return the kind of a case, and what comes of it."""
        chance = random.Random(seed)
        run = self.folder / "case"
        replaced(self.folder / chance.choice(["price", "town"]), run)
        name = chance.choice(["run.json", "run.json", "report.json", "report.json", "model.bayesnorm", "any"])
        before = {path.name: path.read_bytes() for path in run.iterdir()}
        if name == "any":
            path = run / chance.choice(sorted(before))
            path.write_bytes(changed_bytes(before[path.name], chance))
        elif name == "model.bayesnorm":
            (run / name).write_bytes(mutated(run / name, seed))
        else:
            change_json_file(run / name, chance)
        is_sealed = chance.random() < 0.8
        if is_sealed:
            seal(run)
        command = chance.choice(["predict", "predict", "report", "report", "drift"])
        changed = {name for name, content in before.items() if plain((run / name).read_bytes()) != plain(content)}
        drawn = seed % DRAWN == 0
        if drawn:
            told = self._run(command)
        else:
            with without_pictures():
                told = self._run(command)
        return f"{name}, {command}", self._judged(told, command, is_sealed, changed)

    def _run(self, command: str) -> Ended:
        run, out = self.folder / "case", self.folder / "out"
        out.unlink(missing_ok=True)
        if command == "report":
            return ended("report", run, "--out", out)
        more = ["--force"] if command == "predict" else []
        return ended(command, run, self.table, "--out", out, "--json", *more)

    def _judged(self, told: Ended, command: str, is_sealed: bool, changed: set[str]) -> str:
        if told.outcome != "done":
            return told.outcome
        if not is_sealed and changed & READ[command]:
            return f"fault: read although {sorted(changed)} changed"
        text = (self.folder / "out").read_text()
        if command != "predict":
            return "fault: markup in a page" if MARKUP in text else "done"
        return self._judged_predictions(text, changed)

    def _judged_predictions(self, text: str, changed: set[str]) -> str:
        """Say whether predictions are finite, and those of the model in the folder."""
        frame = pd.read_csv(io.StringIO(text))
        numbers = frame.drop(columns=["unusual", "reason"]).select_dtypes("number")
        if len(frame) != 40 or not np.isfinite(numbers.to_numpy()).all():
            return "fault: predictions are missing or not finite"
        if "run.json" in changed and changed != {"run.json", "model.bayesnorm"}:
            return "done"  # other columns or another way to read them
        model = tabular.load(self.folder / "case" / "model.bayesnorm")
        inputs = pd.read_csv(self.table).astype({"town": object, "age": float})
        inputs = inputs[[name for name in model.feature_names_in_ if name in inputs]]
        predicted = model.predict(inputs)
        if predicted.dtype.kind == "f":
            same = np.allclose(frame["mean"], predicted, rtol=2e-3, atol=1e-3 * (1 + np.abs(predicted).max()))
        else:
            same = list(map(str, frame["predicted"])) == list(map(str, predicted))
        return "done" if same else "fault: predictions of another model"


class Maps:
    """Hostile folders of maps, and images that change under maps that exist.

    Args:
        folder: An empty folder, in which small images are mapped.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_images(folder)
        self.first = self._map()
        assert self.first.code == 0, self.first.err
        shutil.copytree(folder / "out", folder / "valid")
        for name in ("train", "images", "truth"):
            shutil.copytree(folder / name, folder / f"valid {name}")

    def _map(self, *options: str) -> Ended:
        return ended(*map_arguments(self.folder, self.folder / "out"), *options)

    def outcome(self, seed: int) -> tuple[str, str]:
        """Return the kind of a case, and what comes of it."""
        chance = random.Random(seed)
        replaced(self.folder / "valid", self.folder / "out")
        for name in ("train", "images", "truth"):
            replaced(self.folder / f"valid {name}", self.folder / name)
        ways: dict[str, Callable[[random.Random], str]] = {
            "numbers": self._numbers,
            "options": self._options,
            "posterior": self._posterior,
            "other files": self._other_files,
            "images": self._images,
            "settings": self._settings,
            "weights": self._weights,
        }
        kind = chance.choice(list(ways))
        with without_pictures():
            return kind, ways[kind](chance)

    def _judged(self, told: Ended, *, same: bool = False, options: tuple[str, ...] = ()) -> str:
        """Say what comes of a command: refused, or the numbers that it gives again when it computes all of them.

        Args:
            told: How the command ended.
            same: Whether only the numbers of the unchanged folder are right.
            options: Further options of the command.
        """
        if told.outcome != "done":
            return told.outcome
        if same:
            return "done" if told.out == self.first.out else "fault: other numbers than before"
        values = [entry[name] for entry in json.loads(told.out)["images"] for name in ("entropy", "mutual_information")]
        if not all(math.isfinite(value) for value in values):
            return "fault: not finite"
        for name in ("numbers", "labels", "entropy"):
            shutil.rmtree(self.folder / "out" / name)
        return "done" if self._map(*options).out == told.out else "fault: stale numbers"

    def _numbers(self, chance: random.Random) -> str:
        """Change the numbers of an image; nobody who does not know all inputs can correct their digest."""
        path = self.folder / "out" / "numbers" / chance.choice(["0.json", "1.json"])
        values = json.loads(path.read_bytes())
        for _ in range(chance.choice([1, 1, 2, 3])):
            change_json(values, chance)
        if isinstance(values, dict) and chance.random() < 0.5:
            maps = [(self.folder / "out" / kind / f"{path.stem}.png").read_bytes() for kind in ("labels", "entropy")]
            with contextlib.suppress(TypeError, ValueError):
                values["digest"] = maps_digest("", {k: v for k, v in values.items() if k != "digest"}, *maps)
        path.write_bytes(json_text(values, chance).encode("utf-8", "surrogatepass"))
        return self._judged(self._map(), same=True)

    def _options(self, chance: random.Random) -> str:
        """Change maps.json, which says what the posterior was made from."""
        change_json_file(self.folder / "out" / "maps.json", chance)
        return self._judged(self._map(), same=True)

    def _posterior(self, chance: random.Random) -> str:
        """Change the posterior, and mostly its digest in maps.json too."""
        path, options = self.folder / "out" / "posterior.bayesnorm", self.folder / "out" / "maps.json"
        path.write_bytes(mutated(path, chance.randrange(2**32)))
        is_sealed = chance.random() < 0.8
        if is_sealed:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            options.write_text(json.dumps({**json.loads(options.read_text()), "posterior": digest}))
        return self._judged(self._map(), same=not is_sealed)

    def _other_files(self, chance: random.Random) -> str:
        """Change the bytes of any file of the folder."""
        paths = sorted(path for path in (self.folder / "out").rglob("*") if path.is_file() and path.suffix != ".json")
        path = chance.choice(paths)
        path.write_bytes(changed_bytes(path.read_bytes(), chance))
        return self._judged(self._map(), same=True)

    def _images(self, chance: random.Random) -> str:
        """Replace or damage an image, a training image or an image of true classes."""
        folder = chance.choice(["train", "images", "images", "truth"])
        path = chance.choice(sorted((self.folder / folder).iterdir()))
        if chance.random() < 0.5:
            path.write_bytes(changed_bytes(path.read_bytes(), chance))
            return self._judged(self._map())
        pixels = np.asarray(Image.open(path))
        other = np.random.default_rng(chance.randrange(2**32)).integers(
            0, int(pixels.max()) + 1, pixels.shape, np.uint8
        )
        Image.fromarray(other).save(path)
        told = self._map()
        if folder == "train":
            return "refused" if "made with other inputs" in told.err else "fault: stale training images"
        return self._judged(told)

    def _settings(self, chance: random.Random) -> str:
        """Change the settings of the images."""
        path = self.folder / "settings.json"
        path.write_text('{"size": [16, 16], "classes": ["sky", "road"], "output": "out", "ignore": 255, "mean": null}')
        change_json_file(path, chance)
        shutil.rmtree(self.folder / "out")
        return self._judged(self._map("--settings", str(path)), options=("--settings", str(path)))

    def _weights(self, chance: random.Random) -> str:
        """Change the weights of the network."""
        import pixel_net
        from safetensors.torch import save

        from .mutations import change_tensors

        tensors = {name: tensor.clone() for name, tensor in pixel_net.make().state_dict().items()}
        change_tensors(tensors, chance)
        path = self.folder / "weights.safetensors"
        content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
        path.write_bytes(changed_bytes(content, chance) if chance.random() < 0.3 else content)
        shutil.rmtree(self.folder / "out")
        return self._judged(self._map("--weights", str(path)), options=("--weights", str(path)))


def read_hostile_folders(cases: Runs | Maps, seeds: range) -> Outcomes:
    """Read one hostile folder for every seed."""
    outcomes = Outcomes()
    for seed in seeds:
        start = time.process_time()
        try:
            kind, outcome = cases.outcome(seed)
        except Exception as error:
            kind, outcome = "the attack itself", f"fault: {type(error).__name__}: {error}"[:300]
        outcomes.add(kind, seed, outcome, time.process_time() - start)
    return outcomes
