"""A small table, a run that is fitted to it, and a small folder of images with maps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from .commands import ended

QUICK = ("--epochs", "2", "--hidden", "4", "--members", "2", "--test-fraction", "0.2")

MODULE = """
import torch
from torch import nn

MAPS = {"size": [16, 16], "classes": ["sky", "road"], "output": "out", "ignore": 255}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))

    def forward(self, x):
        return {"out": self.body(x)}


def make():
    generator = torch.Generator().manual_seed(0)
    network = Network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(generator=generator)
    return network
"""

FOLDERS = {"train": (6, 3), "images": (2, 3), "truth": (2, 0)}
"""For each folder, the number of images and of channels; 0 for class numbers."""


def write_table(path: Path, rows: int = 40) -> Path:
    """Write a table of houses and their prices."""
    generator = np.random.default_rng(0)
    area, age = generator.uniform(30, 200, rows), generator.integers(0, 90, rows)
    town, noise = generator.choice(["Ede", "Oss", "Ulft"], rows), generator.normal(0, 10, rows)
    lines = (f"{a:.2f},{b},{c},{3 * a - b + n:.3f}\n" for a, b, c, n in zip(area, age, town, noise, strict=True))
    path.write_text("area,age,town,price\n" + "".join(lines))
    return path


def fit_arguments(table: Path, run: Path, *, target: str = "price", seed: int = 0) -> list[str]:
    """Return the arguments of a short `bayesnorm fit` that replaces a run."""
    return ["fit", str(table), "--target", target, "--out", str(run), "--seed", str(seed), "--force", *QUICK]


def fit(table: Path, run: Path, *, target: str = "price", seed: int = 0) -> None:
    """Fit a small run."""
    fitted = ended(*fit_arguments(table, run, target=target, seed=seed))
    assert fitted.code == 0, fitted.err


def write_images(folder: Path) -> None:
    """Write a network's module, and folders with small images."""
    (folder / "pixel_net.py").write_text(MODULE)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    sys.modules.pop("pixel_net", None)
    generator = np.random.default_rng(0)
    for name, (count, channels) in FOLDERS.items():
        (folder / name).mkdir()
        for number in range(count):
            size, high = ((16, 20, 3), 256) if channels else ((16, 20), 2)
            picture = Image.fromarray(generator.integers(0, high, size, np.uint8))
            picture.save(folder / name / f"{number}.png")


def map_arguments(folder: Path, out: Path) -> list[str]:
    """Return the arguments of `bayesnorm maps` for these images."""
    named = [text for name in ("train", "images", "truth") for text in (f"--{name}", str(folder / name))]
    options = ["--batch-size", "3", "--states", "8", "--samples", "4", "--json"]
    return ["maps", "--model", "pixel_net:make", *named, "--out", str(out), *options]
