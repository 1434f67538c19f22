"""First-order propagation: the network linearised in its statistics.

For fluctuations with covariance F^T F + diag(d^2) and g the gradient of an output with respect to the coordinates,

    mean = f(location),     variance = |F g|^2 + |d g|^2.

The covariance is joint over all layers, so what is correlated stays correlated; the price is one forward and one
backward pass per output, whatever the number of batches. Where a row has more outputs than F has directions, the
derivatives along the directions (forward mode) are cheaper and are taken instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_whole
from ..network import derivative_errors_explained
from ..predictive import Predictive
from ..predictive.base import at_least_single
from .base import CoordinatePosterior, Drawable, Engine, in_coordinates
from .finite import finite_summary, require_finite
from .gaussian_outputs import GaussianOutputs

# Input elements whose graph is held at a time; all layers' activations of a network are some hundred times that.
GRAPH_ELEMENTS = 2**18

# Memory for the Jacobian of one block of rows.
BLOCK_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Delta(Engine):
    """The delta method: a Gaussian over outputs from first derivatives, deterministic.

    Gives a Gaussian predictive for regression. For classes the logits are Gaussian, and the softmax is averaged over
    cheap samples of them (no further network pass).

    Args:
        block_bytes: Memory for derivatives of one block of rows.
    """

    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("block_bytes", self.block_bytes)

    def predict(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        found = self.outputs(posterior, x)
        predictive = found.predictive(posterior.likelihood, seed)
        require_finite(posterior, x, torch.stack([found.mean, found.variance.to(found.mean)]), predictive)
        return predictive

    def summary(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        found = self.outputs(posterior, x)
        return finite_summary(posterior, x, found.summary(posterior.likelihood, seed))

    def outputs(self, posterior: Drawable, x: Any) -> GaussianOutputs:
        """Mean and covariance root of the outputs."""
        chosen = in_coordinates(posterior, "Delta")
        x = posterior.executable.input(x)
        factor, independent = chosen.fluctuations.root()
        factor = factor * chosen.spread
        independent = None if independent is None else independent * chosen.spread
        with posterior.executable.unchanged():
            parts = self._parts(chosen, x, factor, independent)
        if len(parts) == 1:
            return parts[0]
        return GaussianOutputs(torch.cat([p.mean for p in parts]), torch.cat([p.root for p in parts]))

    def _parts(
        self, posterior: CoordinatePosterior, x: Tensor, factor: Tensor, independent: Tensor | None
    ) -> list[GaussianOutputs]:
        """Outputs of as many rows at a time as fit the memory."""
        parts, start, rows = [], 0, rows_per_graph(x)
        while start < len(x):
            block = x[start : start + rows]
            mean, derivatives = outputs_with_derivatives(posterior, block)
            outputs = mean[0].numel()
            forward = independent is None and outputs > len(factor)
            row_bytes = outputs * (len(factor) if forward else len(posterior.location)) * factor.element_size()
            fitting = max(1, self.block_bytes // row_bytes)
            if forward:
                return [_forward_mode(posterior, factor, block) for block in x.split(fitting)]
            rows = min(rows, fitting)
            if len(block) > rows:  # now that it is known how many outputs a row has
                continue
            parts.append(GaussianOutputs(mean, _root(derivatives(), factor, independent)))
            start += len(block)
        return parts


def rows_per_graph(x: Tensor) -> int:
    """How many rows to hold the graph of at a time."""
    return max(1, GRAPH_ELEMENTS // max(1, x[0].numel()))


@torch.inference_mode(False)
def outputs_with_derivatives(
    posterior: CoordinatePosterior, x: Tensor, most_outputs: int | None = None
) -> tuple[Tensor, Callable[[], Tensor]]:
    """Run the network at the location: outputs (batch, *out), and a function for their derivatives by coordinates,
    (batch, outputs, 2C).

    Every row has a copy of the coordinates of its own, so one backward pass gives an output's gradients for all rows.

    Args:
        posterior: Its location is where derivatives are taken.
        x: Inputs on the network's device.
        most_outputs: Where a row has more, as many random combinations of them are taken instead.
    """
    with torch.enable_grad():
        own = posterior.location.expand(len(x), -1).clone().requires_grad_()
        f = posterior.executable.derivable(posterior.state(own), x)
        flat = f.reshape(len(x), -1).sum(0)
        if most_outputs is not None and len(flat) > most_outputs:
            generator = torch.Generator().manual_seed(0)
            mixture = torch.randn(most_outputs, len(flat), generator=generator).to(flat)
            with torch.autocast(x.device.type, enabled=False):
                flat = mixture @ flat

    # Backward passes have the precision that the forward pass chose, also under autocast, which would lower it.
    @torch.inference_mode(False)
    @torch.enable_grad()
    @torch.autocast(x.device.type, enabled=False)
    @derivative_errors_explained()
    def derivatives() -> Tensor:
        if x.is_cuda and len(flat) > 1:  # a GPU has room for all backward passes at once
            each = torch.eye(len(flat), dtype=flat.dtype, device=flat.device)
            try:
                return torch.autograd.grad(flat, own, each, is_grads_batched=True, retain_graph=True)[0].movedim(0, 1)
            except RuntimeError as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
        last = len(flat) - 1
        rows = [torch.autograd.grad(flat[k], own, retain_graph=k < last)[0] for k in range(len(flat))]
        return torch.stack(rows, dim=1)

    return f.detach(), derivatives


def output_jacobian(
    posterior: CoordinatePosterior, x: Tensor, most_outputs: int | None = None
) -> tuple[Tensor, Tensor]:
    """`outputs_with_derivatives`, with the derivatives taken."""
    mean, derivatives = outputs_with_derivatives(posterior, x, most_outputs)
    return mean, derivatives()


def _root(jacobian: Tensor, factor: Tensor, independent: Tensor | None) -> Tensor:
    """A root of the outputs' covariance, (batch, outputs, R), square where that is smaller.

    The network may run under autocast; products of its derivatives must keep their digits.
    """
    if torch.is_autocast_enabled(jacobian.device.type):
        with torch.autocast(jacobian.device.type, enabled=False):
            return _root(jacobian, factor, independent)
    root = jacobian @ factor.T
    if independent is not None:
        root = torch.cat([root, jacobian * independent], dim=2)
    if root.shape[1] == 1:
        return torch.linalg.vector_norm(root, dim=2, keepdim=True)
    if root.shape[1] >= root.shape[2]:
        return root
    covariance = (root @ root.mT).double()
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)).to(root.dtype)


@torch.inference_mode(False)
def _forward_mode(posterior: CoordinatePosterior, factor: Tensor, x: Tensor) -> GaussianOutputs:
    """Derivatives of all outputs along each direction of the factor."""

    def outputs(coordinates: Tensor) -> Tensor:
        return posterior.executable.derivable(posterior.state(coordinates), x)

    with torch.no_grad(), warnings.catch_warnings():
        # Loading its forward mode, torch warns of its own use of torch.jit.script, each release in its own category.
        warnings.filterwarnings("ignore", message=".*torch.jit.script")
        mean = outputs(posterior.location)
        columns = [torch.func.jvp(outputs, (posterior.location,), (direction,))[1] for direction in factor]
    root = torch.stack(columns, dim=-1).reshape(len(x), -1, len(factor))
    return GaussianOutputs(mean, at_least_single(root))
