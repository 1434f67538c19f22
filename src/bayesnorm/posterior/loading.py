"""Read posteriors from files, for the network that they were fitted on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from .. import files
from ..errors import BayesNormError, FileFormatError, NetworkError, warn
from ..likelihoods import likelihood_from
from ..network import Executable, changed_weights
from ..schema import anything, either, later, listed, mapping, optional, record, text, whole
from .base import Posterior, kind_named, restored_posterior

_FILE = record(
    kind=text,
    posterior=anything,
    likelihood=anything,
    output=optional(either(str, text, whole(-1000, 1000))),
    network=mapping(listed(whole())),
    weights=later(mapping(text)),
    forward_kwargs=later(listed(text)),
)
"""The schema of a file's JSON. Posterior and likelihood have their own schemas."""


def load(
    path: str | os.PathLike[str], model: nn.Module, *, forward_kwargs: Mapping[str, Any] | None = None
) -> Posterior[Any]:
    """Read a posterior that `save` wrote, for the network that it was fitted on.

    Args:
        path: The file.
        model: The network with its weights, which the file does not contain. For methods that train networks (an
            ensemble, distributions over weights) the file contains the weights, and only the architecture of `model` is
            used. For members of different architectures, pass an `nn.ModuleList` of networks.
        forward_kwargs: Further arguments of the network's forward, which the file does not contain. Default: None.
    """
    if isinstance(path, nn.Module):
        raise BayesNormError(f"path is a network ({type(path).__name__}). Pass the file first: load(path, model).")
    tensors, config = files.read(files.as_path(path))
    if "kind" not in config or "likelihood" not in config:  # e.g. a tabular model
        raise FileFormatError(f"path: {path} is not the file of a posterior. Pass a file that posterior.save wrote.")
    try:
        _FILE(config, "config")
        likelihood = likelihood_from(config["likelihood"])
        _require_arguments(config.get("forward_kwargs", []), forward_kwargs)
        executable = Executable(model, config["output"], forward_kwargs)
        kind_named(config["kind"]).require_network(executable.model, config["network"])
        tensors = {name: tensor.to(executable.device) for name, tensor in tensors.items()}
        posterior = restored_posterior(config, executable, likelihood, tensors)
    except (FileFormatError, NetworkError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).removeprefix("path: ") if isinstance(error, BayesNormError) else repr(error)
        raise FileFormatError(f"path: {path} does not contain a valid posterior ({reason}). Save it again.") from error
    if changed := changed_weights(posterior.model, config.get("weights", {})):
        warn(
            "The weights of model differ from those of the network that the posterior was saved for, in "
            f"{len(changed)} of {len(config['weights'])} tensors, such as {changed[0]!r}. Load the weights of that "
            "network, or fit the method again for this one."
        )
    return posterior


def _require_arguments(names: list[str], forward_kwargs: Mapping[str, Any] | None) -> None:
    """Raise an error if these are not the arguments of forward that the posterior was fitted with."""
    if sorted(names) != sorted(forward_kwargs or ()):
        fitted, passed = (", ".join(map(repr, sorted(some))) or "none" for some in (names, forward_kwargs or ()))
        raise FileFormatError(
            f"forward_kwargs has {passed}, but the posterior was fitted with {fitted}. Pass the same arguments of "
            "forward as to fit."
        )
