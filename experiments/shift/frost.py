"""Frost, the fifteenth corruption of CIFAR-10-C: photographs of ice over the images (Hendrycks and Dietterich 2019).

The photographs are in the package `imagecorruptions`, which is not a dependency: only its files are read.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np

from bayesnorm.errors import MissingExtraError

from ..data import open_pixels
from .corruptions import SIDE, Images

FROST = "frost"
PACKAGE = "imagecorruptions"
"""The package with the photographs; it is never imported."""
# By severity: the share of the image, and that of the ice.
SHARES = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
# The authors choose among the first five of six photographs, and reduce them to a fifth.
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
REDUCTION = 5


def has_photographs() -> bool:
    """Return whether the photographs are on this machine."""
    return _folder() is not None


def frost(images: Images, severity: int, seed: int = 0) -> Images:
    """Return images behind ice, uint8 (N, 32, 32, 3)."""
    image_share, ice_share = SHARES[severity - 1]
    random = np.random.default_rng((seed, severity, 15))
    ice = np.empty(images.shape)
    chosen = random.integers(0, len(PHOTOGRAPHS), len(images))
    for place, number in enumerate(chosen):
        photograph = photographs()[number]
        top, left = (random.integers(0, length - SIDE) for length in photograph.shape[:2])
        ice[place] = photograph[top : top + SIDE, left : left + SIDE]
    return np.clip(image_share * images + ice_share * ice, 0, 255).astype(np.uint8)


@lru_cache(maxsize=1)
def photographs() -> list[Images]:
    """Return the reduced photographs of ice."""
    folder = _folder()
    if folder is None:
        raise MissingExtraError(
            "frost needs the photographs of the package imagecorruptions: pip install --no-deps imagecorruptions"
        )
    # Linear interpolation to a fifth takes every fifth pixel, from the third on.
    start = REDUCTION // 2
    kinds = {".png": "PNG", ".jpg": "JPEG"}
    return [open_pixels(folder / name, kinds[name[-4:]])[start::REDUCTION, start::REDUCTION] for name in PHOTOGRAPHS]


def _folder() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return next((Path(place) / "frost" for place in places if (Path(place) / "frost").is_dir()), None)
