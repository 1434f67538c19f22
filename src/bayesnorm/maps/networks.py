"""Load a network from a named function of the user's code, with weights from a file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError, FileFormatError, quoted
from ..files import read_tensors

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
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
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
