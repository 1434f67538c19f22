"""Compare `adapt` and the estimated errors with methods of test-time adaptation and error estimation from papers.

All methods see the same streams of CIFAR-10 images after corruptions. The first 1,000 test images, clean and with
labels, give temperatures and thresholds; streams have other ones (`Lengths.first`). The methods are implementations of
our own with the settings of their papers, written so that many streams run side by side (`grouped.py`). Probabilities
of all methods have the temperature of the network without adaptation, so that NLL and ECE compare adaptations, not
temperatures.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from bayesnorm.writing import write_bytes

from ..frost import has_photographs
from .measuring import Place
from .plan import LENGTHS, planned_units
from .running import lines, prepare, run_units
from .short_plan import SHORT, short_units
from .sources import PUBLISHED
from .streaming import corruptions
from .summary import as_text, summarised


def compare_peers(
    preset: str, device: str, workers: int, networks: Path, out: Path, *, seconds: float, short: bool, only: str
) -> None:
    """Measure everything that is not in `out/shift_peers_units.jsonl` yet, and write `out/shift_peers_streams.json`.

    Args:
        preset: How much to measure, one of `LENGTHS`.
        device: The device.
        workers: Number of processes.
        networks: Folder of trained networks (`resnet20_1.safetensors`), fitted posteriors and corrupted images.
        out: Folder of the results.
        seconds: No unit starts later than this; with 0, the results are only written again.
        short: Whether to measure `short_plan` in place of the preset's plan.
        only: A regular expression for the names of units to measure; see `Unit.name`.
    """
    deadline, lengths = time.time() + seconds, SHORT if short else LENGTHS[preset]
    networks.mkdir(parents=True, exist_ok=True)
    names = corruptions()[: lengths.corruptions]
    taken = range(lengths.first, lengths.images)
    place = Place(networks / "images", networks, device, taken, names)
    trained = sorted(path.stem for path in networks.glob("resnet*_[0-9].safetensors"))
    published = list(PUBLISHED) if short or preset == "paper" else list(PUBLISHED)[:1]
    planned = short_units(*published) if short else planned_units(published, trained, lengths)
    units = [unit for unit in planned if re.search(only, unit.name)]
    path = out / "shift_peers_units.jsonl"
    if seconds:
        if not has_photographs():
            print("frost is left out: its photographs are in the package imagecorruptions, which is not installed.")
        prepare(units, place, workers)
        run_units(units, place, workers, path, deadline)
    write_bytes(out / "shift_peers_streams.json", as_text(summarised(lines(path))).encode())
