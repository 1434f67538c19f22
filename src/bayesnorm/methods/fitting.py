"""What several methods do in `fit`: check arguments, compare targets with outputs, and train on a likelihood."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import TypeVar

from ..arguments import require_function, require_seed
from ..errors import BayesNormError, InputError
from ..likelihoods import Gaussian, Likelihood, require_likelihood
from ..network import Executable, as_tensor, renamed_argument, select_output
from ..predictive import Predictive, RegressionPredictive
from ..training import train

P = TypeVar("P", bound=Predictive, default=RegressionPredictive)
"""The predictive of a fitted posterior: that of the likelihood, or of `Gaussian()` if there is none."""

# Count of output values that are compared with targets at once.
LOOKED_AT = 2**22


def checked_seed(seed: Any, likelihood: Any, progress: Any) -> int:
    """Return the seed of a fit as a plain number. Raise an error if one of these arguments cannot be used."""
    require_function("progress", progress)
    if likelihood is not None:
        require_likelihood(likelihood)
    return require_seed(seed)


def fitting_likelihood(executable: Executable, rows: Tensor, likelihood: Likelihood | None) -> Likelihood[Any]:
    """Return the given likelihood, or `Gaussian()` for one real output. Raise an error if the outputs do not fit it.

    With several outputs there is no default, because their meaning is unknown.

    Args:
        executable: The network.
        rows: A few training inputs.
        likelihood: The likelihood, or None.
    """
    with renamed_argument("x", "train_data"):
        f = executable.point(rows)
    if likelihood is None:
        shape = f[0].shape
        if shape.numel() != 1:
            raise BayesNormError(
                f"likelihood is needed, because the network has outputs of shape {tuple(shape)} per example. Pass "
                "Categorical() for classes, or Gaussian() for several real targets."
            )
        likelihood = Gaussian()
    require_likelihood(likelihood)
    likelihood.predictive(f[None])  # raises an error if the outputs do not fit
    return likelihood


def require_one_input(executable: Executable) -> None:
    """Raise an error if a network takes several inputs, which training does not support."""
    form = executable.form
    if form.required > 1:
        raise BayesNormError(
            f"model: {form.text} takes {form.required} inputs, but methods that train networks support one. Train the "
            "networks yourself, and pass them to bn.ensemble."
        )


@torch.no_grad()
def require_targets(executable: Executable, rows: Tensor, train_data: Any, likelihood: Likelihood) -> None:
    """Raise an error if targets in memory do not fit a likelihood: wrong shape, invalid classes, NaN.

    Args:
        executable: The network.
        rows: Some training inputs. One of them is run, and its output is used for all.
        train_data: The training data. Targets of a loader are only checked in training.
        likelihood: The likelihood to train on.
    """
    if isinstance(train_data, TensorDataset):
        train_data = train_data.tensors
    if not isinstance(train_data, tuple | list) or len(train_data) != 2:
        return
    y = as_tensor(train_data[1], "y").cpu()
    if len(y) != len(train_data[0]):
        raise InputError(
            f"train_data: x has {len(train_data[0])} rows, but y has {len(y)}. Pass one target per row of x."
        )
    f = executable.point(rows[:1]).cpu()
    y = y.to(f.dtype) if y.is_floating_point() else y
    for part in y.split(max(1, LOOKED_AT // max(1, f.numel()))):
        likelihood.loss(f.expand(len(part), *f.shape[1:]), part)


def train_on(
    likelihood: Likelihood,
    network: nn.Module,
    train_data: Any,
    *,
    output: str | int | None,
    batch_size: int | None,
    **options: Any,
) -> None:
    """Train a network on the loss of a likelihood.

    Args:
        likelihood: The likelihood.
        network: The network, which is modified.
        train_data: The training data.
        output: The entry to use if the network returns a dict or a tuple.
        batch_size: Examples per step; None for the batch size of a `DataLoader`, or 32.
        options: Other arguments of `training.train`.
    """

    def loss(result: Any, y: Tensor) -> Tensor:
        return likelihood.loss(select_output(result, output, len(y)), y)

    if batch_size is None and not isinstance(train_data, DataLoader):
        batch_size = 32
    with renamed_argument("data", "train_data"):
        train(network, train_data, loss=loss, batch_size=batch_size, **options)
