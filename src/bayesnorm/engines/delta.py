"""First-order propagation: the network is linearised in its batch-norm statistics.

For fluctuations with covariance F^T F + diag(d^2), and g the gradient of an output with respect to the coordinates,

    mean = f(location),     variance = |F g|^2 + |d g|^2.

The covariance is joint over all layers, so correlations between layers are kept. The cost is one forward pass and one
backward pass per output, for any number of batches. If an example has more outputs than F has directions, derivatives
along the directions (forward mode) are cheaper and are used instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_whole
from ..likelihoods import Likelihood
from ..network import delayed_checks, derivative_errors_explained
from ..predictive import Predictive, at_least_single
from .base import CoordinatePosterior, Engine, Samplable, finite_summary, in_coordinates, require_finite
from .monte_carlo import Take, summary_of

# Number of output samples if a likelihood has no closed form. They need no forward pass, and half of them are mirrored.
SOFTMAX_SAMPLES = 256

# Memory of the samples that are added to a summary at once.
SAMPLE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class GaussianOutputs:
    """Outputs f(x) ~ N(mean, root root^T) for each example.

    Args:
        mean: (batch, *out).
        root: (batch, outputs, R), with `outputs` the flattened *out.
    """

    mean: Tensor
    root: Tensor

    @property
    def variance(self) -> Tensor:
        """The variance of each output, (batch, *out)."""
        return self.root.square().sum(2).view_as(self.mean)

    def predictive(self, likelihood: Likelihood, seed: int) -> Predictive:
        """Return the predictive, in closed form if the likelihood has one, otherwise from samples of the outputs."""
        exact = self._exact(likelihood)
        return likelihood.predictive(self.sample(SOFTMAX_SAMPLES, seed)) if exact is None else exact

    def summary(self, likelihood: Likelihood, seed: int) -> Predictive:
        """Return the summary, to which samples of the outputs are added in blocks."""
        exact = self._exact(likelihood)
        if exact is not None:
            return exact
        noise = self._noise(SOFTMAX_SAMPLES, seed)
        row_bytes = self.mean[0].numel() * self.mean.element_size()

        def run_parts(take: Take) -> None:
            rows = max(1, SAMPLE_BYTES // (2 * row_bytes))
            pairs = max(1, SAMPLE_BYTES // (2 * rows * row_bytes))
            for start in range(0, len(self.mean), rows):
                part = slice(start, start + rows)
                for some in noise.split(pairs, dim=1):
                    take(part, self._deviated(part, some), None)

        return summary_of(likelihood, len(self.mean), run_parts)

    def sample(self, n: int, seed: int) -> Tensor:
        """Return n samples of the outputs in mirrored pairs, whose mean is `mean`: (n, batch, *out)."""
        return self._deviated(slice(None), self._noise(n, seed))

    def _exact(self, likelihood: Likelihood) -> Predictive | None:
        return likelihood.gaussian_predictive(at_least_single(self.mean), at_least_single(self.variance))

    def _noise(self, n: int, seed: int) -> Tensor:
        """Return standard normal numbers for n samples, (R, n / 2); the other half mirrors them."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(self.root.shape[2], n // 2, generator=generator, dtype=torch.float64).to(self.root)

    def _deviated(self, rows: slice, noise: Tensor) -> Tensor:
        """Return samples of some examples' outputs, followed by their mirrored samples."""
        mean = self.mean[rows]
        with torch.autocast(self.root.device.type, enabled=False):
            deviation = (self.root[rows] @ noise).movedim(2, 0).reshape(noise.shape[1], *mean.shape)
        return torch.cat([mean + deviation, mean - deviation])


# Number of input elements per gradient graph. The activations of all layers are some hundred times as many.
GRAPH_ELEMENTS = 2**18

# Memory for the Jacobian of one block of examples.
BLOCK_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Delta(Engine):
    """Propagate the posterior by the delta method: linearise the network in its batch-norm statistics.

    It is deterministic, and costs one forward pass and one backward pass per output. For regression it returns a
    Gaussian predictive. For classification the logits are Gaussian, and the softmax is averaged over samples of the
    logits, which needs no further forward pass. The posterior must be over batch-norm statistics.

    Args:
        block_bytes: Memory for the derivatives of one block of examples. Default: 256 MiB.
    """

    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("block_bytes", self.block_bytes)

    def predict(self, posterior: Samplable, x: Any, seed: int = 0) -> Predictive:
        with delayed_checks() as passed:
            outputs = self.outputs(posterior, x)
            predictive = outputs.predictive(posterior.likelihood, seed)
            both = torch.stack([outputs.mean, outputs.variance.to(outputs.mean)])
            require_finite(posterior, x, both, predictive, passed)
        return predictive

    def summary(self, posterior: Samplable, x: Any, seed: int = 0) -> Predictive:
        with delayed_checks() as passed:
            outputs = self.outputs(posterior, x)
            return finite_summary(posterior, x, outputs.summary(posterior.likelihood, seed), passed)

    def outputs(self, posterior: Samplable, x: Any) -> GaussianOutputs:
        """Return the mean and a root of the covariance of the outputs."""
        chosen = in_coordinates(posterior, "Delta")
        x = posterior.executable.input(x)
        factor, independent = chosen.fluctuations.root()
        factor = factor * chosen.spread
        independent = None if independent is None else independent * chosen.spread
        with posterior.executable.forbid_weight_changes():
            parts = self._parts(chosen, x, factor, independent)
        if len(parts) == 1:
            return parts[0]
        return GaussianOutputs(torch.cat([p.mean for p in parts]), torch.cat([p.root for p in parts]))

    def _parts(
        self, posterior: CoordinatePosterior, x: Tensor, factor: Tensor, independent: Tensor | None
    ) -> list[GaussianOutputs]:
        """Return the outputs in blocks of as many examples as fit into the memory."""
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
            if len(block) > rows:  # the number of outputs per example is only known now
                continue
            parts.append(GaussianOutputs(mean, _root(derivatives(), factor, independent)))
            start += len(block)
        return parts


def rows_per_graph(x: Tensor) -> int:
    """Return the number of examples per gradient graph."""
    return max(1, GRAPH_ELEMENTS // max(1, x[0].numel()))


@torch.inference_mode(False)
def outputs_with_derivatives(
    posterior: CoordinatePosterior, x: Tensor, most_outputs: int | None = None
) -> tuple[Tensor, Callable[[], Tensor]]:
    """Run the network at the location of the posterior.

    Returns the outputs (batch, *out), and a function that computes their derivatives with respect to the coordinates,
    (batch, outputs, 2C). Every example has its own copy of the coordinates, so one backward pass gives the gradients of
    one output for all examples.

    Args:
        posterior: Derivatives are taken at its location.
        x: Inputs on the network's device.
        most_outputs: If an example has more outputs, this number of random combinations replaces them.
    """
    with torch.enable_grad():
        location = posterior.location.expand(len(x), -1).clone().requires_grad_()
        f = posterior.executable.derivable(posterior.state(location), x)
        flat = f.reshape(len(x), -1).sum(0)
        if most_outputs is not None and len(flat) > most_outputs:
            generator = torch.Generator().manual_seed(0)
            mixture = torch.randn(most_outputs, len(flat), generator=generator).to(flat)
            with torch.autocast(x.device.type, enabled=False):
                flat = mixture @ flat

    # Backward passes use the precision of the forward pass. Autocast would lower it, so it is disabled.
    @torch.inference_mode(False)
    @torch.enable_grad()
    @torch.autocast(x.device.type, enabled=False)
    @derivative_errors_explained()
    def derivatives() -> Tensor:
        if x.is_cuda and len(flat) > 1:  # a GPU has enough memory for all backward passes at once
            unit_vectors = torch.eye(len(flat), dtype=flat.dtype, device=flat.device)
            try:
                return torch.autograd.grad(flat, location, unit_vectors, is_grads_batched=True, retain_graph=True)[
                    0
                ].movedim(0, 1)
            except RuntimeError as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
        last = len(flat) - 1
        rows = [torch.autograd.grad(flat[k], location, retain_graph=k < last)[0] for k in range(len(flat))]
        return torch.stack(rows, dim=1)

    return f.detach(), derivatives


def _root(jacobian: Tensor, factor: Tensor, independent: Tensor | None) -> Tensor:
    """Return a root of the outputs' covariance, (batch, outputs, R), or a square root matrix if that is smaller.

    The network may run under autocast, but products of its derivatives need full precision.
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
    """Return Gaussian outputs from the derivatives of all outputs along each direction of the factor."""

    def outputs(coordinates: Tensor) -> Tensor:
        return posterior.executable.derivable(posterior.state(coordinates), x)

    with torch.no_grad(), warnings.catch_warnings():
        # When torch loads its forward mode, it warns about torch.jit.script, in a category that depends on the release.
        warnings.filterwarnings("ignore", message=".*torch.jit.script")
        mean = outputs(posterior.location)
        columns = [torch.func.jvp(outputs, (posterior.location,), (direction,))[1] for direction in factor]
    root = torch.stack(columns, dim=-1).reshape(len(x), -1, len(factor))
    return GaussianOutputs(mean, at_least_single(root))
