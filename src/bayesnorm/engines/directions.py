"""The directions of the statistics that matter most for a network's outputs.

With S the covariance of the coordinates and J the derivatives of outputs on some training rows, each output divided by
its own standard deviation so that all of them count the same, the outputs' correlations are J S J^T. Its leading
eigenvectors w_r, with eigenvalues l_r, are the outputs' principal components; the deviation of the statistics that goes
with one of them is

    v_r = S J^T w_r / sqrt(l_r),

so that J v_r = sqrt(l_r) w_r: moving the statistics along v_r moves the outputs by one standard deviation along w_r.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import NetworkError
from .base import CoordinatePosterior
from .delta import output_jacobian

MOST_DIRECTIONS = 16
MOST_OUTPUTS = 16


def output_directions(posterior: CoordinatePosterior, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Leading directions (R, 2C), one standard deviation long, and the share of the outputs that the first r explain.

    None where the network has no derivatives by its statistics (such a network still predicts by Monte Carlo).
    """
    factor, independent = (None if part is None else part.double() for part in posterior.fluctuations.root())
    assert factor is not None
    try:
        _, jacobian = output_jacobian(posterior, x, MOST_OUTPUTS)
    except (RuntimeError, TypeError, NetworkError):  # a forward that cannot work on tensors with derivatives
        return None
    flat = jacobian.flatten(0, 1).double()
    half = flat @ factor.T
    variance = half.square().sum(1)
    if independent is not None:
        variance += (flat * independent).square().sum(1)
    weight = torch.where(variance > 0, variance.rsqrt(), 0.0)
    if not bool(torch.isfinite(flat).all()) or not bool((weight > 0).any()):
        return None
    flat, half = flat * weight[:, None], half * weight[:, None]
    correlation = half @ half.T
    if independent is not None:
        correlation += (flat * independent.square()) @ flat.T
    values, vectors = torch.linalg.eigh(correlation)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    kept = int((values[:MOST_DIRECTIONS] > 1e-9 * values[0]).sum())
    directions = (half.T @ vectors[:, :kept]).T @ factor
    if independent is not None:
        directions += (vectors[:, :kept].T @ flat) * independent.square()
    directions /= values[:kept, None].sqrt()
    return directions.to(posterior.centre.dtype), (values.cumsum(0)[:kept] / values.sum()).to(posterior.centre.dtype)
