"""The directions of the statistics that matter most for a network's outputs.

With S the covariance of the coordinates and J the derivatives of outputs on some training rows, the outputs' covariance
is J S J^T. Its leading eigenvectors w_r, with eigenvalues l_r, are principal components of the outputs; the deviation
of the statistics that goes with one of them is

    v_r = S J^T w_r / sqrt(l_r),

so that J v_r = sqrt(l_r) w_r: moving the statistics along v_r moves the outputs by one standard deviation along w_r.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TypeVar

import torch
from torch import Tensor

from ..batchnorm_posterior import BatchNormPosterior
from ..errors import BayesNormError
from .delta import output_jacobian

MOST_DIRECTIONS = 32
MOST_OUTPUTS = 16
P = TypeVar("P", bound=BatchNormPosterior)


def with_output_directions(posterior: P, x: Tensor) -> P:
    """The posterior with the leading output directions on rows `x`, for the `SigmaPoints` engine."""
    factor, independent = posterior.fluctuations.root()
    try:
        _, jacobian = output_jacobian(posterior, x, MOST_OUTPUTS)
    except BayesNormError:
        raise
    except RuntimeError as error:  # a network that has no derivatives still predicts by Monte Carlo
        warnings.warn(f"no output directions: {error}", stacklevel=2)
        return posterior
    flat = jacobian.flatten(0, 1).double()
    half = flat @ factor.double().T
    covariance = half @ half.T
    if independent is not None:
        covariance += (flat * independent.double().square()) @ flat.T
    values, vectors = torch.linalg.eigh(covariance)
    kept = min(MOST_DIRECTIONS, len(values))
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)[:, :kept]
    back = (half.T @ vectors).T @ factor.double()
    if independent is not None:
        back += (vectors.T @ flat) * independent.double().square()
    total = values.sum().clamp_min(torch.finfo(torch.float64).tiny)
    scale = values[:kept].sqrt().clamp_min(1e-6 * total.sqrt())
    directions = (back / scale[:, None]).to(factor.dtype)
    return dataclasses.replace(
        posterior, directions=directions, explained=(values[:kept].cumsum(0) / total).to(factor.dtype)
    )
