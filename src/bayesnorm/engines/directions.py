"""Few directions of the statistics that together move a network's outputs as all of them do.

With S the covariance of the coordinates and J the derivatives of outputs on some training rows, each output divided by
its own standard deviation so that all of them count the same, J S J^T are the outputs' correlations. Its leading
eigenvectors w_r, with eigenvalues l_r, are the outputs' principal components; the deviation of the statistics that goes
with one of them is

    v_r = S J^T w_r / sqrt(l_r),

so that J v_r = sqrt(l_r) w_r: moving the statistics along v_r moves the outputs by one standard deviation along w_r.

The first R of these leave out part of every output's variance, and not the same part of each. So R *mixtures* of the
leading components are chosen instead, whose variances sum_r (J_o u_r)^2 come closest to the outputs' own in the mean
square of log ratios. That takes no further pass through the network.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import BayesNormError, NetworkError
from .base import CoordinatePosterior, in_coordinates
from .delta import output_jacobian, rows_per_graph

MOST_COMPONENTS = 32
MOST_OUTPUTS = 16
ITERATIONS = 200


class OutputDirections:
    """The directions of a posterior's fluctuations that move its outputs: found when first asked for, then kept.

    Posteriors over the same fluctuations, such as those of other batch sizes, share one. What is found depends on the
    rows alone, whoever asks first.

    Args:
        rows: Inputs on the network's device to find them with; None where there are none, as after loading.
        components: Deviations that move the outputs most, (n, 2C), where they are known.
        sensitivities: How far each of them moves some outputs, (outputs, n).
    """

    def __init__(
        self, rows: Tensor | None = None, components: Tensor | None = None, sensitivities: Tensor | None = None
    ) -> None:
        self.rows, self.known = rows, components is not None
        self.components, self.sensitivities = components, sensitivities
        self._mixed: dict[int, Tensor] = {}

    def of(self, posterior: CoordinatePosterior, rank: int) -> Tensor:
        """Choose `rank` deviations whose covariance stands for that of all fluctuations, (rank, 2C).

        Where the network has no derivatives by its statistics, they are principal components of the fluctuations,
        scaled up for what they leave out.
        """
        self.find(posterior)
        if rank not in self._mixed:
            if self.components is None or self.sensitivities is None:
                found, explained = posterior.fluctuations.principal(rank)
                self._mixed[rank] = found / explained[-1].sqrt()
            else:
                self._mixed[rank] = mixed_directions(self.components, self.sensitivities, rank)
        return self._mixed[rank]

    def find(self, posterior: CoordinatePosterior) -> None:
        """Derive them from the rows, unless that was done before."""
        posterior = in_coordinates(posterior, "SigmaPoints")
        if self.known:
            return
        if self.rows is None:
            raise BayesNormError(
                "posterior: its directions are not known, because it was saved before they were found and files hold "
                "no training rows; posterior.with_directions(x), with some dozen training rows x, would work."
            )
        # The same whatever the caller runs under.
        with torch.autocast(self.rows.device.type, enabled=False), posterior.executable.unchanged():
            found = output_components(posterior, self.rows)
        if found is not None:
            self.components, self.sensitivities = (rounded_for_files(part) for part in found)
        self.known = True


def rounded_for_files(directions: Tensor) -> Tensor:
    """Round to the 8 binary digits that files keep of directions: what is saved is what was used."""
    return directions.bfloat16().to(directions.dtype).contiguous()


def output_components(posterior: CoordinatePosterior, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """The outputs' leading components as deviations, (n, 2C), and how far each moves the outputs, (outputs, n).

    An output's movements are in units of its own standard deviation. None where the network has no derivatives by its
    statistics (such a network still predicts by Monte Carlo).
    """
    factor, independent = (None if part is None else part.double() for part in posterior.fluctuations.root())
    assert factor is not None
    try:
        blocks = [output_jacobian(posterior, block, MOST_OUTPUTS)[1] for block in x.split(rows_per_graph(x))]
    except (RuntimeError, TypeError, NetworkError):  # a forward that cannot work on tensors with derivatives
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
    kept = int((values[-MOST_COMPONENTS:] > 1e-9 * values[-1]).sum())
    values, vectors = values[-kept:].flip(0), vectors[:, -kept:].flip(1)
    components = (half.T @ vectors).T @ factor
    if independent is not None:
        components += (vectors.T @ flat) * independent.square()
    components /= values.sqrt()[:, None]
    return components.to(posterior.location.dtype), (vectors * values.sqrt()).to(posterior.location.dtype)


@torch.inference_mode(False)
def mixed_directions(components: Tensor, sensitivities: Tensor, rank: int) -> Tensor:
    """`rank` mixtures of the components that reproduce the outputs' variances best, (rank, 2C). Deterministic."""
    moves = sensitivities.double().cpu().clone()  # which autograd may keep, whatever mode the fit was in
    outputs, known = moves.shape
    share = moves[:, :rank].square().sum(1).mean()
    start = torch.eye(min(rank, known), known, dtype=torch.float64) / share.sqrt()
    if rank >= known:
        return _mixed(start, components)
    generator = torch.Generator().manual_seed(0)
    mixture = start + 0.02 * torch.randn(start.shape, generator=generator, dtype=torch.float64)
    tiny = torch.finfo(torch.float64).tiny

    def loss() -> Tensor:
        optimiser.zero_grad()
        # A small weight on the start keeps what the outputs at hand leave open.
        ratio = ((moves @ mixture.T).square().sum(1) + tiny).log()
        value = ratio.square().mean() + 1e-3 * (mixture - start).square().sum() * known / outputs
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
