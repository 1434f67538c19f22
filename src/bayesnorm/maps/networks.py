"""Load a segmentation network from a named function of the user's code, with weights and settings from files.

The settings say how images become its input, and the names of its classes.
"""

from __future__ import annotations

import colorsys
import importlib
import json
import sys
import warnings
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError, FileFormatError, quoted
from ..files import parse_json, read_json_file, read_tensors
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
        content = read_json_file(path)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"settings: {path} cannot be read as a JSON file ({error}).") from error
    return MapSettings.from_json(content, str(path))


# Common names of the weights in files that contain other things too.
_ENTRIES = ("state_dict", "model_state_dict", "model")


class Entry(nn.Module):
    """A network that returns one entry of the dict that another network returns.

    Args:
        network: The network that returns a dict.
        name: The name of the entry.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.network, self.name = network, name

    def forward(self, x: Tensor) -> Any:
        """Return the entry."""
        return self.network(x)[self.name]


def load_network(named: str, weights: Path | None, argument: str = "--model") -> tuple[nn.Module, Any]:
    """Return a network in evaluation mode, and the module of its function.

    The module is imported, which runs its code: use only modules that you trust. A file of weights cannot run code.

    Args:
        named: "package.module:function"; the function takes no arguments and returns the network.
        weights: A safetensors file, or a file of `torch.save` with tensors only; None loads no weights.
        argument: The argument or option that named the function, for messages.
    """
    module_name, _, function_name = named.partition(":")
    if not module_name or not function_name or module_name.startswith("."):
        raise BayesNormError(f"{argument} must be package.module:function, got {quoted(named)}.")
    sys.path.insert(0, "")  # as `python -m` does: find modules in the current folder
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BayesNormError(
            f"{argument}: {module_name} cannot be imported ({error}). Run the command in the folder of the module, or "
            "install it."
        ) from error
    except (Exception, SystemExit) as error:
        raise BayesNormError(
            f"{argument}: importing {module_name} failed ({_words(error)}). Fix the module."
        ) from error
    finally:
        sys.path.remove("")
    make = getattr(module, function_name, None)
    if not callable(make):
        raise BayesNormError(
            f"{argument}: {module_name} has no function {function_name}. Name a function that returns the network."
        )
    try:
        network = make()
    except (Exception, SystemExit) as error:
        raise BayesNormError(f"{argument}: {named} failed ({_words(error)}). Fix the function.") from error
    if not isinstance(network, nn.Module):
        raise BayesNormError(f"{argument}: {named} must return a torch.nn.Module, got {type(network).__name__}.")
    if weights is not None:
        _load(network, weights)
    return network.eval(), module


def _load(network: nn.Module, path: Path) -> None:
    state = read_tensors(path)[0] if path.suffix == ".safetensors" else _torch_file(path)
    state = {name.removeprefix("module."): value for name, value in state.items()}
    expected = network.state_dict()
    for name, value in state.items():
        if isinstance(expected.get(name), Tensor) and _number_type(value) != _number_type(expected[name]):
            raise FileFormatError(
                f"--weights: {name} in {path} has {_number_type(value)}, but the network has "
                f"{_number_type(expected[name])}. Pass the weights of the same network."
            )
    try:
        missing, unexpected = network.load_state_dict(state, strict=False)
    except Exception as error:
        raise FileFormatError(f"--weights: {path} does not fit the network: {_words(error)}") from error
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        odd = f"has no {missing[0]}" if missing else f"has {unexpected[0]}, which the network does not have"
        raise FileFormatError(f"--weights: {path} {odd}. Pass the weights of the same network.")


def _torch_file(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileFormatError(f"--weights: {path} is not a file. Pass the weights of the network.")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                    raise ValueError("torch.save does not compress")  # small files could fill the memory
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old formats
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # The message of torch advises to read the file with code that could be in it.
        why = type(error).__name__ if "weights_only" in str(error) else _words(error)
        raise FileFormatError(
            f"--weights: {path} cannot be read as tensors only ({why}). Save the state_dict() as safetensors."
        ) from error
    for name in _ENTRIES:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise FileFormatError(f"--weights: {path} is not a dict of tensors. Save the network's state_dict().")
    return content


def _number_type(tensor: Tensor) -> str:
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "sparse or quantised numbers"
    if tensor.is_complex():
        return "complex numbers"
    return "real numbers" if tensor.is_floating_point() else "whole numbers"


def _words(error: BaseException) -> str:
    """Return the type of an error and the last line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1].strip()}" if lines else type(error).__name__
