"""A table's posterior as tensors and plain JSON values, network and all, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..files import under
from ..likelihoods import likelihood_from
from ..nets import Rescaled
from ..network import Executable, tensors_of
from ..posterior import Posterior, restored_posterior
from ..schema import Array, anything, arrays_like, one_of, record, require_tensors, whole
from .networks import network_for

DOUBLE = (torch.float64,)

SCALES = ("x_mean", "x_std", "y_mean", "y_std")

POSTERIOR = record(
    inputs=whole(1),
    outputs=whole(1),
    kind=one_of("batchnorm", "adapted", "dropout", "ensemble"),
    config=anything,  # each kind of posterior says itself what it consists of, and so does a likelihood
    likelihood=anything,
)
"""What the JSON values of a posterior consist of."""


def posterior_parts(posterior: Posterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and JSON values from which `posterior_from` makes the same posterior."""
    network = tensors_of(posterior.model)
    weights = [tensor for name, tensor in network.items() if name.endswith("weight") and tensor.dim() == 2]
    tensors = {f"network.{name}": tensor.detach().clone() for name, tensor in network.items()}
    tensors |= {f"posterior.{name}": tensor.detach().clone() for name, tensor in posterior.tensors().items()}
    config = {
        "inputs": weights[0].shape[1],
        "outputs": weights[-1].shape[0],
        "kind": posterior.kind,
        "config": posterior.config(),
        "likelihood": posterior.likelihood.config(),
    }
    return tensors, config


def posterior_from(
    tensors: dict[str, Tensor], config: dict[str, Any], method: str, hidden: Sequence[int], dropout_rate: float | None
) -> Posterior:
    """Return the posterior that `posterior_parts` described, or refuse it before a network is made."""
    own = under("network.", tensors)
    _require_sizes(own, [config["inputs"], *hidden, config["outputs"]])
    network = network_for(method, config["inputs"], config["outputs"], hidden, dropout_rate, 0).double()
    model = Rescaled(network, *(own[name] for name in SCALES)).eval()
    require_tensors(own, arrays_like(tensors_of(model), DOUBLE))
    model.load_state_dict(own)
    likelihood = likelihood_from(config["likelihood"])
    parts = under("posterior.", tensors)
    return restored_posterior(config["kind"], Executable(model), likelihood, parts, config["config"])


def _require_sizes(own: dict[str, Tensor], widths: list[int]) -> None:
    """Refuse widths of layers that are not those of the tensors of a network, of which every third module is linear."""
    expected = {f"network.{3 * i}.weight": Array((b, a), DOUBLE) for i, (a, b) in enumerate(pairwise(widths))}
    for name, width in zip(SCALES, (widths[0], widths[0], widths[-1], widths[-1]), strict=True):
        shape = (1,) if own.get(name, torch.empty(0)).shape == (1,) else (width,)  # one for all, or one for each
        expected[name] = Array(shape, DOUBLE, 5e-324 if name.endswith("std") else -math.inf)
    require_tensors({name: tensor for name, tensor in own.items() if tensor.dim() == 2 or name in SCALES}, expected)
