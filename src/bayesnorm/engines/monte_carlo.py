"""Monte Carlo: sample states, run the network under each, and average."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..arguments import hold_plain_numbers, require_seed, require_whole
from ..network import delayed_checks
from ..predictive import Predictive, at_least_single
from .base import Drawable, Engine, Passes, require_one_shape
from .finite import finite_summary, require_finite
from .summing import Take, run_passes, summary_of


class PassEngine(Engine):
    """Run the network under several states with equal weights. Subclasses choose the states.

    Args:
        vectorize: Whether several states run in one vectorised forward pass. The results are the same.
        chunk: Number of states per vectorised pass; None chooses by memory.
        block_bytes: Memory for the largest activation of a pass; None chooses by device.
    """

    vectorize: bool
    chunk: int | None
    block_bytes: int | None = None

    @abstractmethod
    def _passes(self, posterior: Drawable, seed: int) -> tuple[Sequence[Passes], int]:
        """Return the forward passes, and the number of samples that they give."""

    def predict(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        with delayed_checks() as passed:
            f = self.outputs(posterior, x, seed)
            predictive = posterior.likelihood.predictive(f)
            require_finite(posterior, x, f, predictive, passed)
        return predictive

    def summary(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Return a summary. Samples are added one block at a time, so memory does not grow with their number."""
        passes, samples = self._passes(posterior, seed)

        def run_parts(take: Take) -> None:
            run_passes(passes, samples, x, take, **self._options())

        with delayed_checks() as passed:
            x = posterior.executable.input(x)
            return finite_summary(posterior, x, summary_of(posterior.likelihood, len(x), run_parts), passed)

    def outputs(self, posterior: Drawable, x: Any, seed: int = 0) -> Tensor:
        """Run the network under every state and return the outputs, (samples, batch, *out)."""
        passes, samples = self._passes(posterior, seed)
        outputs: Tensor | None = None
        for part in passes:
            if part.states is None:
                f = part.executable.point(x)
                f = f.expand(samples if part.places is None else len(part.places), *f.shape)
            else:
                f = part.executable.run(part.states, x, **self._options())
                f = f if part.sources is None else f[part.sources]
            if part.places is None:
                return f
            if outputs is None:
                outputs = f.new_empty(samples, *f.shape[1:])
            require_one_shape(outputs.shape[2:], f.shape[2:])
            outputs[part.places] = f.to(outputs)
        assert outputs is not None
        return outputs

    def _options(self) -> dict[str, Any]:
        return {"vectorize": self.vectorize, "chunk": self.chunk, "block_bytes": self.block_bytes}


@dataclass(frozen=True)
class MonteCarlo(PassEngine):
    """Propagate the posterior by plain Monte Carlo: average p(y | x, state_t) over random samples of the state.

    It is the default engine, and supports every posterior.

    Args:
        samples: Number of samples. Default: 64.
        vectorize: Whether several samples run in one vectorised forward pass. The results are the same. Default: True.
        chunk: Number of samples per vectorised pass. Default: None, chosen by `block_bytes`.
        block_bytes: Memory for the largest activation of a pass. Default: None, chosen by device (a CPU's caches, or a
            share of a GPU's free memory, at most 1 GiB).
    """

    samples: int = 64
    vectorize: bool = True
    chunk: int | None = None
    block_bytes: int | None = None

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("samples", self.samples)
        if self.chunk is not None:
            require_whole("chunk", self.chunk)
        if self.block_bytes is not None:
            require_whole("block_bytes", self.block_bytes)

    def _passes(self, posterior: Drawable, seed: int) -> tuple[Sequence[Passes], int]:
        return posterior.passes(self.samples, require_seed(seed)), self.samples

    def moments(self, posterior: Drawable, x: Any, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the outputs over samples, (batch, *out) each."""
        outputs = at_least_single(self.outputs(posterior, x, seed))
        mean = outputs.mean(0)
        return mean, (outputs - mean).square().mean(0)
