"""A table's posterior as tensors and plain JSON values, network and all, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..files import under
from ..likelihoods import likelihood_from
from ..nets import Rescaled
from ..network import Executable, tensors_of
from ..posterior import Posterior, restored_posterior
from .networks import network_for


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
    """Return the posterior that `posterior_parts` described."""
    own = under("network.", tensors)
    network = network_for(method, config["inputs"], config["outputs"], hidden, dropout_rate, 0).double()
    model = Rescaled(network, *(own[name] for name in ("x_mean", "x_std", "y_mean", "y_std"))).eval()
    model.load_state_dict(own)
    likelihood = likelihood_from(config["likelihood"])
    parts = under("posterior.", tensors)
    return restored_posterior(config["kind"], Executable(model), likelihood, parts, config["config"])
