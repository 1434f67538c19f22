"""Sigma points: deterministic points instead of random samples.

Two points, location +- sqrt(R) v_r, lie along each of R directions v_r of the statistics. All points have the same
weight, so their mean is the location, and their covariance is the sum of v_r v_r^T. The directions are chosen to
reproduce the variances of the *outputs*. They are computed at first use, from training examples
that the fit kept in memory.

S is the covariance of the coordinates. J contains the derivatives of outputs on some training examples, each output
divided by its standard deviation, so that all outputs count equally. J S J^T are then the correlations of the outputs.
Its leading eigenvectors w_r, with eigenvalues l_r, are the outputs' principal components. The corresponding deviation
of the statistics is

    v_r = S J^T w_r / sqrt(l_r),

so that J v_r = sqrt(l_r) w_r: moving the statistics along v_r moves the outputs by one standard deviation along w_r.

The first R of them leave out a part of every output's variance, which differs between outputs. Therefore R *mixtures*
u_r of the leading components are chosen, whose variances sum_r (J_o u_r)^2 are closest to the outputs' variances, in
the mean square of log ratios. That needs no further forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_whole
from ..errors import BayesNormError, NetworkError
from ..network import Executable
from .base import CoordinatePosterior, Passes, Samplable, in_coordinates
from .delta import outputs_with_derivatives, rows_per_graph
from .monte_carlo import PassEngine

MOST_COMPONENTS = 32
MOST_OUTPUTS = 16
ITERATIONS = 200


class OutputDirections:
    """The directions of a posterior's fluctuations that change its outputs: computed at first use, then stored.

    Posteriors over the same fluctuations, such as those with other batch sizes, share one instance. The result only
    depends on `rows`.

    Args:
        rows: Inputs on the network's device to compute them with; None if there are none, for example after loading.
        components: Deviations that change the outputs most, (n, 2C), if they are already computed.
        sensitivities: How far each of them moves some outputs, (outputs, n).
    """

    def __init__(
        self, rows: Tensor | None = None, components: Tensor | None = None, sensitivities: Tensor | None = None
    ) -> None:
        self.rows, self.computed = rows, components is not None
        self.components, self.sensitivities = components, sensitivities
        self._mixed: dict[int, Tensor] = {}

    def deviations(self, posterior: CoordinatePosterior, rank: int) -> Tensor:
        """Return `rank` deviations that approximate the covariance of all fluctuations, (rank, 2C).

        If the network has no derivatives with respect to its statistics, they are principal components of the
        fluctuations, scaled up to the total variance.
        """
        self.find(posterior)
        if rank not in self._mixed:
            if self.components is None or self.sensitivities is None:
                components, explained = posterior.fluctuations.principal(rank)
                self._mixed[rank] = components / explained[-1].sqrt()
            else:
                self._mixed[rank] = mixed_directions(self.components, self.sensitivities, rank)
        return self._mixed[rank]

    def over(self, executable: Executable) -> OutputDirections:
        """Return the directions for a moved network."""
        parts = (None if part is None else part.to(executable.device) for part in (self.components, self.sensitivities))
        return OutputDirections(None if self.rows is None else executable.input(self.rows), *parts)

    def find(self, posterior: CoordinatePosterior) -> None:
        """Compute the directions from `rows`, unless that was done before."""
        posterior = in_coordinates(posterior, "SigmaPoints")
        if self.computed:
            return
        if self.rows is None:
            raise BayesNormError(
                "This posterior has no directions for SigmaPoints: they had not been computed before it was saved, and "
                "files contain no training data. Call posterior.with_directions(x) with a few dozen training inputs x."
            )
        # Independent of the modes that the caller has set.
        with torch.autocast(self.rows.device.type, enabled=False), posterior.executable.forbid_weight_changes():
            parts = output_components(posterior, self.rows)
        if parts is not None:
            self.components, self.sensitivities = (rounded_for_files(part) for part in parts)
        self.computed = True


def rounded_for_files(directions: Tensor) -> Tensor:
    """Round directions to the 8 significant bits that files keep, so that saved and used directions are the same."""
    return directions.bfloat16().to(directions.dtype).contiguous()


def output_components(posterior: CoordinatePosterior, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the outputs' leading components as deviations, (n, 2C), and how far each moves the outputs, (outputs, n).

    Movements are in units of the output's standard deviation. Return None if the network has no derivatives with
    respect to its statistics; Monte Carlo prediction works for such a network.
    """
    factor, independent = (None if part is None else part.double() for part in posterior.fluctuations.root())
    assert factor is not None
    blocks = []
    try:
        for block in x.split(rows_per_graph(x)):
            _, derivatives = outputs_with_derivatives(posterior, block, MOST_OUTPUTS)
            blocks.append(derivatives())
    except (RuntimeError, TypeError, NetworkError):  # the forward cannot be differentiated
        return None
    flat = torch.cat(blocks).flatten(0, 1).double()
    half = flat @ factor.T
    variance = half.square().sum(1)
    if independent is not None:
        variance += (flat * independent).square().sum(1)
    if not bool(torch.isfinite(variance).all()) or not bool((variance > 0).any()):
        return None
    moved = variance > 0
    weight = variance[moved].rsqrt()[:, None]
    flat, half = flat[moved] * weight, half[moved] * weight
    correlation = half @ half.T
    if independent is not None:
        correlation += (flat * independent.square()) @ flat.T
    values, vectors = torch.linalg.eigh(correlation)
    count = int((values[-MOST_COMPONENTS:] > 1e-9 * values[-1]).sum())
    values, vectors = values[-count:].flip(0), vectors[:, -count:].flip(1)
    components = (half.T @ vectors).T @ factor
    if independent is not None:
        components += (vectors.T @ flat) * independent.square()
    components /= values.sqrt()[:, None]
    return components.to(posterior.location.dtype), (vectors * values.sqrt()).to(posterior.location.dtype)


@torch.inference_mode(False)
def mixed_directions(components: Tensor, sensitivities: Tensor, rank: int) -> Tensor:
    """Return `rank` mixtures of the components that best fit the outputs' variances, (rank, 2C). Deterministic."""
    moves = sensitivities.double().cpu().clone()  # a copy that autograd can use, even after a fit in inference mode
    outputs, count = moves.shape
    share = moves[:, :rank].square().sum(1).mean()
    start = torch.eye(min(rank, count), count, dtype=torch.float64) / share.sqrt()
    if rank >= count:
        return _mixed(start, components)
    generator = torch.Generator().manual_seed(0)
    mixture = start + 0.02 * torch.randn(start.shape, generator=generator, dtype=torch.float64)
    tiny = torch.finfo(torch.float64).tiny

    def loss() -> Tensor:
        optimiser.zero_grad()
        # A small penalty on the distance to the start determines what the outputs leave undetermined.
        ratio = ((moves @ mixture.T).square().sum(1) + tiny).log()
        value = ratio.square().mean() + 1e-3 * (mixture - start).square().sum() * count / outputs
        value.backward()
        return value

    with torch.enable_grad():
        mixture.requires_grad_()
        optimiser = torch.optim.LBFGS([mixture], max_iter=ITERATIONS, line_search_fn="strong_wolfe")
        optimiser.step(loss)
    return _mixed(mixture.detach(), components)


def _mixed(mixture: Tensor, components: Tensor) -> Tensor:
    with torch.autocast(components.device.type, enabled=False):
        return mixture.to(components) @ components


@dataclass(frozen=True)
class SigmaPoints(PassEngine):
    """Propagate the posterior by 2 x rank deterministic, equally weighted forward passes.

    The passes lie along the directions of the statistics that change the outputs most. The posterior must be over
    batch-norm statistics.

    Args:
        rank: Number of directions. If fewer exist (at most 32 are computed), all of them are used. Default: 8.
        vectorize: Whether several points run in one vectorised forward pass. The results are the same. Default: True.
        chunk: Number of points per vectorised pass. Default: None, chosen by memory.
    """

    rank: int = 8
    vectorize: bool = True
    chunk: int | None = None

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("rank", self.rank)
        if self.chunk is not None:
            require_whole("chunk", self.chunk)

    def forward_passes(self, posterior: Samplable, seed: int) -> tuple[Sequence[Passes], int]:
        chosen = in_coordinates(posterior, "SigmaPoints")
        chosen.output_directions.find(chosen)
        directions = chosen.directions(self.rank)
        step = directions * (chosen.spread * len(directions) ** 0.5)
        states = chosen.state(torch.cat([chosen.location + step, chosen.location - step]))
        return [Passes(posterior.executable, states)], 2 * len(directions)
