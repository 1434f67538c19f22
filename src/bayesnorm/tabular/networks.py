"""Build networks for tables and the posterior of each method, and store posteriors as tensors and JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from ..files import under
from ..likelihoods import Likelihood, likelihood_from
from ..methods import MCBN, BatchNormMethod, GaussianBN, MCDropout, StochasticBN
from ..network import Executable, tensors_of
from ..posterior import Posterior, deterministic, restored_posterior
from ..schema import Array, anything, arrays_like, one_of, record, refuse, require_tensors, whole
from ..training import Rescaled
from .encodings import Encoded, PiecewiseLinear, Waves
from .search_results import NetworkSetting
from .stacked import Skip

BATCH_STATISTICS = ("mcbn", "gaussian", "stochastic")
"""The methods that sample batch statistics."""
METHODS = (*BATCH_STATISTICS, "dropout", "ensemble")

# Epsilon of batch norm, which keeps units finite that are constant on a batch.
EPS = 1e-5

# Number of batch-norm layers, counted from the last, whose statistics are sampled; all earlier layers run once for all
# samples. The variance of the samples is scaled anyway (`uncertainty_parts.py`), so other layers would add little.
LATE_LAYERS = 1

# Rank of the covariance of batch statistics for the method "gaussian".
RANK = 64


def network_for(
    method: str, inputs: int, outputs: int, hidden: Sequence[int], dropout_rate: float, seed: int
) -> nn.Sequential:
    """Return a network with new weights, without its encoding: linear, batch norm and ReLU for each hidden layer.

    Dropout follows each ReLU if the rate is above 0. The method "dropout" has no batch norm. Every hidden layer except
    the first has a skip connection if it is as wide as the layer before.
    """
    normed = method != "dropout"
    layers: list[nn.Module] = []
    generator = torch.Generator().manual_seed(seed)
    for number, (fan_in, fan_out) in enumerate(pairwise([inputs, *hidden])):
        block: list[nn.Module] = [_linear(fan_in, fan_out, generator, bias=not normed)]
        block += [nn.BatchNorm1d(fan_out, eps=EPS)] * normed + [nn.ReLU()]
        block += [nn.Dropout(float(dropout_rate))] * bool(dropout_rate > 0 or not normed)
        layers += [Skip(*block)] if number and fan_in == fan_out else block
    return nn.Sequential(*layers, _linear(hidden[-1], outputs, generator, bias=True))


def _linear(fan_in: int, fan_out: int, generator: torch.Generator, *, bias: bool) -> nn.Linear:
    """Return a linear layer with torch's default initialisation, from a generator that no other thread uses."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, fan_in, fan_out, bias=bias)
    bound = 1 / math.sqrt(fan_in)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


def encoder_for(encoding: str, x: Tensor) -> nn.Module:
    """Return the encoder of a network's inputs, fitted to the training inputs, (rows, inputs).

    Args:
        encoding: "plain", "bins 16" or "waves 8", with any number.
        x: The inputs.
    """
    kind, count = parsed_encoding(encoding)
    if kind == "bins":
        return PiecewiseLinear.from_inputs(x, count)
    return Waves.from_inputs(x, count) if kind == "waves" else nn.Identity()


def parsed_encoding(encoding: str) -> tuple[str, int]:
    """Return the kind and the number of an encoding, or raise an error."""
    kind, _, count = str(encoding).partition(" ")
    if kind == "plain" and not count:
        return kind, 0
    if kind in ("bins", "waves") and count.isascii() and count.isdigit() and 1 <= int(count) <= 1_000:
        return kind, int(count)
    raise BayesNormError(
        f'encoding must be "plain", "bins N" or "waves N" with a number N from 1 to 1000, got {encoding!r}.'
    )


def posterior_for(
    method: str, network: nn.Module, x: Tensor, likelihood: Likelihood, batch_size: int, states: int, seed: int
) -> Posterior:
    """Return the posterior of a method for one trained network.

    Args:
        method: One of `METHODS`; "ensemble" makes the network deterministic.
        network: A network that was trained on x.
        x: Training inputs.
        likelihood: The likelihood, which maps outputs to distributions of targets.
        batch_size: The training batch size.
        states: Number of batches whose statistics are stored.
        seed: Seed for the choice of these batches.
    """
    if method == "ensemble":
        return deterministic(network, likelihood)
    if method == "dropout":
        return MCDropout().fit(network, None, likelihood)
    fitted: Any = batchnorm_method(method, batch_size, states).fit(network, x, likelihood, seed=seed)
    return fitted.at_layers(LATE_LAYERS)


def batchnorm_method(method: str, batch_size: int, states: int) -> BatchNormMethod:
    """Return the batch-norm method with a name in `BATCH_STATISTICS`."""
    if method == "mcbn":
        return MCBN(batch_size, states)
    if method == "gaussian":
        return GaussianBN(batch_size, states, rank=min(RANK, states - 1))
    return StochasticBN(batch_size, states)


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
    return tensors, json.loads(json.dumps(config))  # lists for tuples, as in a file


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
