"""Settings of a segmentation network: how images become its input, and the names of its classes."""

from __future__ import annotations

import colorsys
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import FileFormatError
from ..files import parse_json
from ..plots import CLASS_COLOURS
from ..schema import later, listed, number, optional, record, text, whole

_COLOUR = listed(whole(0, 255), 3, 3)
_SETTINGS = record(
    classes=later(listed(text, 2, 65535)),
    colours=later(listed(_COLOUR)),
    size=later(optional(listed(whole(1, 2**16), 2, 2))),
    multiple=later(whole(1, 4096)),
    mean=later(listed(number(), 1, 64)),
    std=later(listed(number(above=0), 1, 64)),
    ignore=later(optional(whole(0, 65535))),
    output=later(optional(text)),
)


@dataclass(frozen=True)
class MapSettings:
    """How images become a network's input, and what its outputs mean.

    Args:
        classes: Names of the classes. [default: "class 0", "class 1", ...]
        colours: Red, green and blue of each class, 0 to 255. [default: distinct colours]
        size: Height and width to which all images are resized. [default: images keep their size]
        multiple: Images are padded at the right and below, with their mirror image, to a multiple of this number of
            pixels; maps are cut back to the image. Use the total stride of the network. [default: 1]
        mean, std: One number per channel. Pixels are scaled to [0, 1], then `mean` is subtracted, and the result is
            divided by `std`. With one number, images are read as greyscale.
        ignore: The label of pixels without a class in the images of true classes.
        output: The entry to use if the network returns a dict.
    """

    classes: tuple[str, ...] = ()
    colours: tuple[tuple[int, int, int], ...] = ()
    size: tuple[int, int] | None = None
    multiple: int = 1
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    ignore: int | None = None
    output: str | None = None

    @classmethod
    def from_json(cls, content: Any, where: str = "settings") -> MapSettings:
        """Return settings from JSON values; missing entries get their defaults."""
        try:
            plain = parse_json(json.dumps(content, ensure_ascii=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise FileFormatError(f"{where}: it must consist of JSON values ({error}).") from error
        _SETTINGS(plain, where)
        if len(plain.get("mean", (0,) * 3)) != len(plain.get("std", (0,) * 3)):
            raise FileFormatError(f"{where}: mean and std have different lengths. Give one number each per channel.")
        return cls(**{name: _as_tuples(value) for name, value in plain.items()})

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def class_names(self, count: int) -> tuple[str, ...]:
        """Return the names of `count` classes, or raise an error if the settings name another number of classes."""
        if self.classes and len(self.classes) != count:
            raise FileFormatError(
                f"settings: they name {len(self.classes)} classes, but the network has {count}. Name all of them."
            )
        return self.classes or tuple(f"class {number}" for number in range(count))

    def class_colours(self, count: int) -> list[tuple[int, int, int]]:
        """Return colours for `count` classes: first those of the settings, then other distinct colours."""
        colours = [*self.colours[:count], *(_from_hex(colour) for colour in CLASS_COLOURS[len(self.colours) : count])]
        for k in range(len(colours), count):
            made = colorsys.hsv_to_rgb((0.62 * k) % 1, 0.55 + 0.35 * (k % 2), 0.95 - 0.2 * (k % 3))
            colours.append((round(255 * made[0]), round(255 * made[1]), round(255 * made[2])))
        return colours


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _from_hex(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


def read_settings(path: Path) -> MapSettings:
    """Return the settings of a JSON file."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"settings: {path} cannot be read as a JSON file ({error}).") from error
    return MapSettings.from_json(content, str(path))
