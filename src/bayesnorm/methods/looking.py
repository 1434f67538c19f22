"""Look before the work of a fit: two training rows tell what outputs are, and targets are there to be seen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from ..errors import BayesNormError, InputError
from ..likelihoods import Gaussian, Likelihood, require_likelihood
from ..network import Executable, as_tensor, renamed_argument

# How many numbers of outputs targets are held against at a time.
LOOKED_AT = 2**22


def fitting_likelihood(executable: Executable, rows: Tensor, given: Likelihood | None) -> Likelihood:
    """Return the likelihood that was given, or a Gaussian for one real output; refuse one that outputs do not fit.

    With more outputs than one, only the user knows what they mean.

    Args:
        executable: The network.
        rows: Some training rows; two of them are run.
        given: The likelihood, or None.
    """
    with renamed_argument("x", "train_data"):
        f = executable.point(rows[:2])
    if given is None:
        shape = f[0].shape
        if shape.numel() != 1:
            raise BayesNormError(
                f"likelihood: none was given and the network has outputs of shape {tuple(shape)} per row; pass "
                "Categorical() for classes, or Gaussian() for several real targets."
            )
        given = Gaussian()
    require_likelihood(given, networks=False)
    given.predictive(f[None])  # which refuses outputs that it does not fit
    return given


@torch.no_grad()
def require_targets(executable: Executable, rows: Tensor, train_data: Any, likelihood: Likelihood) -> None:
    """Refuse targets in memory that a likelihood cannot be trained on: other shapes, no classes, NaN.

    Args:
        executable: The network.
        rows: Some training rows; one of them is run, and its output stands for those of all others.
        train_data: What training is given; targets that a loader gives are seen when it gives them.
        likelihood: What is trained on.
    """
    if isinstance(train_data, TensorDataset):
        train_data = train_data.tensors
    if not isinstance(train_data, tuple | list) or len(train_data) != 2:
        return
    y = as_tensor(train_data[1], "y").cpu()
    if len(y) != len(train_data[0]):
        raise InputError(f"train_data: x has {len(train_data[0])} rows and y {len(y)}; they must agree.")
    f = executable.point(rows[:1]).cpu()
    y = y.to(f.dtype) if y.is_floating_point() else y
    for part in y.split(max(1, LOOKED_AT // max(1, f.numel()))):
        likelihood.loss(f.expand(len(part), *f.shape[1:]), part)
