"""A user's network, made by a function that is named, with weights from a file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError, FileFormatError
from ..files import read_tensors

# Names that files give to the weights among other things.
_ENTRIES = ("state_dict", "model_state_dict", "model")


class Entry(nn.Module):
    """A network that gives one entry of another's dict.

    Args:
        network: The other.
        name: The entry.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.network, self.name = network, name

    def forward(self, x: Tensor) -> Any:
        """Return the entry."""
        return self.network(x)[self.name]


def load_network(named: str, weights: Path | None) -> tuple[nn.Module, Any]:
    """Return a network in evaluation mode, and the module that its function is in.

    The module is imported, so that its code runs: name only your own. Weights cannot run code.

    Args:
        named: "package.module:function"; the function takes no argument and returns the network.
        weights: A safetensors file, or one of `torch.save` that holds tensors only; None takes the network as made.
    """
    module_name, _, function_name = named.partition(":")
    if not module_name or not function_name:
        raise BayesNormError(f"--model must be package.module:function, got {named!r}.")
    sys.path.insert(0, "")  # as `python -m` does: modules of the folder that one is in
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BayesNormError(f"--model: {module_name} cannot be imported ({error}).") from error
    finally:
        sys.path.remove("")
    make = getattr(module, function_name, None)
    if not callable(make):
        raise BayesNormError(f"--model: {module_name} has no function {function_name}.")
    network = make()
    if not isinstance(network, nn.Module):
        raise BayesNormError(f"--model: {named} gave {type(network).__name__}; a torch.nn.Module would work.")
    if weights is not None:
        _load(network, weights)
    return network.eval(), module


def _load(network: nn.Module, path: Path) -> None:
    state = read_tensors(path)[0] if path.suffix == ".safetensors" else _torch_file(path)
    state = {name.removeprefix("module."): value for name, value in state.items()}
    try:
        missing, unexpected = network.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise FileFormatError(
            f"--weights: {path} does not fit the network: {str(error).splitlines()[-1].strip()}"
        ) from error
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        odd = f"lacks {missing[0]}" if missing else f"holds {unexpected[0]}, which the network has not"
        raise FileFormatError(f"--weights: {path} {odd}; a file of the same network's weights would work.")


def _torch_file(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        why = str(error).strip().splitlines()[0]
        raise FileFormatError(
            f"--weights: {path} cannot be read as tensors alone ({why}); safetensors would work."
        ) from error
    for name in _ENTRIES:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise FileFormatError(f"--weights: {path} holds no tensors by name; the network's state_dict() would work.")
    return found
