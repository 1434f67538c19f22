"""Convert the posterior of a table, with its networks, to tensors and JSON values, and back."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..files import under
from ..likelihoods import likelihood_from
from ..network import Executable, tensors_of
from ..posterior import Posterior, restored_posterior
from ..schema import Array, anything, arrays_like, one_of, record, refuse, require_tensors, whole
from ..training import Rescaled
from .encodings import Encoded, PiecewiseLinear, Waves
from .networks import network_for, parsed_encoding
from .search_results import NetworkSetting

DOUBLE = (torch.float64,)

SCALES = ("x_mean", "x_std", "y_mean", "y_std")

# Largest number of encoded inputs that a file may declare.
MOST_ENCODED = 2**20

POSTERIOR = record(
    inputs=whole(1),
    encoded=whole(0, MOST_ENCODED),
    outputs=whole(1),
    kind=one_of("batchnorm", "adapted", "dropout", "deterministic", "ensemble"),
    config=anything,  # each kind of posterior and likelihood checks its own configuration
    likelihood=anything,
)
"""The structure of a posterior's JSON values."""


def posterior_parts(posterior: Posterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and JSON values from which `posterior_from` restores the posterior."""
    network = tensors_of(posterior.model)
    weights = [tensor for name, tensor in network.items() if name.endswith("weight") and tensor.dim() == 2]
    encoder = posterior.model.get_submodule("network.0")
    tensors = {f"network.{name}": tensor.detach().clone() for name, tensor in network.items()}
    tensors |= {f"posterior.{name}": tensor.detach().clone() for name, tensor in posterior.tensors().items()}
    numbers = len(encoder.get_buffer("column")) if not isinstance(encoder, nn.Identity) else 0
    made = 2 * numbers if isinstance(encoder, Waves) else numbers
    config = {
        "inputs": weights[0].shape[1] - made,
        "encoded": numbers,
        "outputs": weights[-1].shape[0],
        "kind": posterior.kind,
        "config": posterior.config(),
        "likelihood": posterior.likelihood.config(),
    }
    return tensors, config


def posterior_from(
    tensors: dict[str, Tensor], config: dict[str, Any], method: str, setting: NetworkSetting
) -> Posterior:
    """Return the posterior from the result of `posterior_parts`; sizes are checked before networks are built."""
    own = under("network.", tensors)
    encoder, made = _encoder(setting.encoding, config["encoded"], own)
    widths = [config["inputs"] + made, *setting.hidden, config["outputs"]]
    _require_sizes(own, widths, config["inputs"])
    inner = network_for(method, widths[0], widths[-1], setting.hidden, setting.dropout_rate, 0)
    network = Encoded(encoder, *inner).double()
    model = Rescaled(network, *(own[name] for name in SCALES)).eval()
    require_tensors(own, arrays_like(tensors_of(model), DOUBLE))
    model.load_state_dict(own)
    likelihood = likelihood_from(config["likelihood"])
    part = {"kind": config["kind"], "posterior": config["config"]}
    return restored_posterior(part, Executable(model), likelihood, under("posterior.", tensors))


def _encoder(encoding: str, numbers: int, own: dict[str, Tensor]) -> tuple[nn.Module, int]:
    """Return an encoder with the sizes of a file's encoder, and how many numbers it adds to the inputs."""
    kind, _ = parsed_encoding(encoding)
    if kind == "plain":
        whole(0, 0)(numbers, "posterior.encoded")
        return nn.Identity(), 0
    nothing, column = torch.zeros(numbers, dtype=torch.float64), torch.zeros(numbers, dtype=torch.long)
    expected = {"network.0.column": Array((numbers,), (torch.long,), 0)}
    least = {"low": -math.inf, "width": 5e-324} if kind == "bins" else {"frequency": -math.inf}
    expected |= {f"network.0.{name}": Array((numbers,), DOUBLE, bound) for name, bound in least.items()}
    require_tensors({name: own[name] for name in expected if name in own}, expected)
    if kind == "bins":
        return PiecewiseLinear(column, nothing, nothing + 1), numbers
    return Waves(column, nothing), 2 * numbers


def _require_sizes(own: dict[str, Tensor], widths: list[int], inputs: int) -> None:
    """Raise an error if the layer widths differ from those of the tensors, or if the encoder uses unknown columns."""
    matrices = [name for name, tensor in own.items() if tensor.dim() == 2]
    in_order = sorted(matrices, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()])
    shapes, wanted = [tuple(own[name].shape) for name in in_order], [(b, a) for a, b in pairwise(widths)]
    if shapes != wanted:
        refuse("posterior.network", shapes, f"weights of shapes {wanted}")
    expected = {}
    column = own.get("network.0.column")
    if column is not None and len(column) and int(column.max()) >= inputs:
        refuse("posterior.network.0.column", int(column.max()), f"numbers below {inputs}")
    if column is not None and bool((column.diff() < 0).any()):
        refuse("posterior.network.0.column", column.tolist(), "numbers in ascending order")
    for name, width in zip(SCALES, (inputs, inputs, widths[-1], widths[-1]), strict=True):
        shape = (1,) if own.get(name, torch.empty(0)).shape == (1,) else (width,)  # one value for all, or one for each
        expected[name] = Array(shape, DOUBLE, 5e-324 if name.endswith("std") else -math.inf)
    require_tensors({name: tensor for name, tensor in own.items() if name in SCALES}, expected)
