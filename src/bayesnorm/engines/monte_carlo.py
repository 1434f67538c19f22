"""Monte Carlo: sample states, run the network under each, and average.

A summary adds outputs up as they arrive, so that the outputs of all samples are never in memory together.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_seed, require_whole
from ..likelihoods import Likelihood
from ..network import Executable, State, delayed_checks
from ..predictive import Predictive, RegressionPredictive, RunningSummary, at_least_single
from ..progress import Progress, long_progress
from .base import Engine, Passes, Samplable, finite_summary, require_finite, require_one_shape

Take = Callable[[slice, Tensor, Tensor | None], None]
"""A function of a slice of examples, their outputs under some samples, (n, rows, *out), and the samples' weights."""


def summary_of(likelihood: Likelihood, rows: int, run_parts: Callable[[Take], None]) -> Predictive:
    """Return the summary of the mixture over samples.

    Args:
        likelihood: Turns outputs into distributions of targets. If it uses the variance of the outputs across samples,
            all samples run twice: first for the variance, then for the mixture.
        rows: Number of examples.
        run_parts: Runs the samples and passes their outputs to the given function.
    """
    variance: Tensor | None = None
    if likelihood.uses_sample_variance:
        spread = RunningSummary(rows)

        def measure(part: slice, f: Tensor, weights: Tensor | None) -> None:
            finite = at_least_single(f).nan_to_num(0.0, neginf=0.0)  # logits of impossible classes are -inf
            spread.add(part, RegressionPredictive(finite, finite.new_zeros(()), weights), _total(f, weights))

        run_parts(measure)
        variance = spread.predictive().epistemic
    running = RunningSummary(rows)

    def take(part: slice, f: Tensor, weights: Tensor | None) -> None:
        part_variance = None if variance is None else variance[part]
        running.add(part, likelihood.part_predictive(f, weights, part_variance), _total(f, weights))

    run_parts(take)
    return running.predictive()


def run_passes(passes: Sequence[Passes], samples: int, x: Any, take: Take, **options: Any) -> None:
    """Run the forward passes of n samples, and pass on their outputs as they arrive.

    Args:
        passes: The passes.
        samples: The number of samples n.
        x: Inputs.
        take: Called with the outputs.
        options: Further arguments of `Executable.stream`.
    """
    shape: torch.Size | None = None
    for one in passes:
        counts = _counts(one, samples)

        def hand_on(rows: slice, part: slice, f: Tensor, counts: Tensor | None = counts) -> None:
            nonlocal shape
            shape = shape or f.shape[2:]
            require_one_shape(shape, f.shape[2:])
            take(rows, f, None if counts is None else counts[part].to(f.device))

        one.executable.stream(one.states, x, hand_on, **options)


def _counts(passes: Passes, samples: int) -> Tensor | None:
    """Return how many of the n samples use each pass; None for one each."""
    if passes.states is None:
        return torch.tensor([float(samples if passes.places is None else len(passes.places))])
    if passes.sources is None:
        return None
    return torch.bincount(passes.sources, minlength=len(next(iter(passes.states.values())))).double()


def _total(f: Tensor, weights: Tensor | None) -> float:
    return float(len(f)) if weights is None else float(weights.sum())


def _unchanged(executable: Executable, states: State) -> State | None:
    """Return one state with the network's own values of the same buffers; None if others are sampled."""
    buffers = dict(executable.model.named_buffers())
    if not states.keys() <= buffers.keys():
        return None
    return {name: buffers[name].detach()[None].to(value) for name, value in states.items()}


def _assembled(passes: Sequence[Passes], samples: int, outputs: Iterator[Tensor]) -> Tensor:
    """Return the outputs of a posterior's samples, (samples, batch, *out), given those of its passes."""
    result: Tensor | None = None
    for part, f in zip(passes, outputs, strict=False):
        if part.states is None:
            f = f.expand(samples if part.places is None else len(part.places), *f.shape[1:])
        elif part.sources is not None:
            f = f[part.sources]
        if part.places is None:
            return f
        if result is None:
            result = f.new_empty(samples, *f.shape[1:])
        require_one_shape(result.shape[2:], f.shape[2:])
        result[part.places] = f.to(result)
    assert result is not None
    return result


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
    def forward_passes(self, posterior: Samplable, seed: int) -> tuple[Sequence[Passes], int]:
        """Return the forward passes, and the number of samples that they give."""

    def predict(self, posterior: Samplable, x: Any, seed: int = 0) -> Predictive:
        with delayed_checks() as passed:
            with long_progress("predict") as tell:
                (f,) = self.outputs_of_several([posterior], x, seed, tell)
            predictive = posterior.likelihood.predictive(f)
            require_finite(posterior, x, f, predictive, passed)
        return predictive

    def summary(self, posterior: Samplable, x: Any, seed: int = 0) -> Predictive:
        """Return a summary. Samples are added one block at a time, so memory does not grow with their number."""
        passes, samples = self.forward_passes(posterior, seed)

        def run_parts(take: Take) -> None:
            stored = 0

            def counted(rows: slice, f: Tensor, weights: Tensor | None) -> None:
                nonlocal stored
                take(rows, f, weights)
                stored += f.shape[0] * f.shape[1]
                tell(stored, samples * len(x))

            run_passes(passes, samples, x, counted, **self._options())

        with delayed_checks() as passed, long_progress("predict") as tell:
            x = posterior.executable.input(x)
            return finite_summary(posterior, x, summary_of(posterior.likelihood, len(x), run_parts), passed)

    def outputs(self, posterior: Samplable, x: Any, seed: int = 0) -> Tensor:
        """Run the network under every state and return the outputs, (samples, batch, *out)."""
        return self.outputs_of_several([posterior], x, seed)[0]

    def outputs_of_several(
        self, posteriors: Sequence[Samplable], x: Any, seed: int = 0, progress: Progress | None = None
    ) -> list[Tensor]:
        """Return the outputs of each posterior. Those over the same tensors of one network run together.

        Everything before the first of these tensors is then computed once for all of them.

        Args:
            posteriors: The posteriors, such as one at several effective batch sizes.
            x: Inputs.
            seed: Seed of the samples.
            progress: Called with the number of outputs so far and of all outputs of a network.
        """
        plans = list(map(self.forward_passes, posteriors, [seed] * len(posteriors)))
        parts = [part for passes, _ in plans for part in passes]
        if len(parts) == 1:  # nothing to join: the way of a prediction, which has to be fast
            f = parts[0].executable.run(parts[0].states, x, progress, **self._options())
            return [_assembled(*plans[0], iter([f]))]
        sampled = {part.executable: part.states for part in parts if part.states is not None}
        groups: dict[tuple[Executable, frozenset[str]], dict[int, State]] = {}  # an empty state changes nothing
        for place, part in enumerate(parts):
            states = part.states
            if states is None and part.executable in sampled:
                states = _unchanged(part.executable, sampled[part.executable])
            groups.setdefault((part.executable, frozenset(states or ())), {})[place] = states or {}
        outputs: dict[int, Tensor] = {}
        for (executable, _), members in groups.items():
            first, *others = members.values()
            joined = first
            if others:
                joined = {name: torch.cat([first[name], *(other[name] for other in others)]) for name in first}
            f = executable.run(joined or None, x, progress, **self._options())
            sizes = [len(next(iter(states.values()))) for states in members.values() if states]
            outputs.update(zip(members, f.split(sizes) if first else [f] * len(members), strict=True))
        ordered = (outputs.pop(place) for place in range(len(parts)))
        return [_assembled(passes, samples, ordered) for passes, samples in plans]

    def _options(self) -> dict[str, Any]:
        return {"vectorize": self.vectorize, "chunk": self.chunk, "block_bytes": self.block_bytes}


# More would take all memory before the first forward pass.
MOST_SAMPLES = 1_000_000


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
        require_whole("samples", self.samples, 1, MOST_SAMPLES)
        if self.chunk is not None:
            require_whole("chunk", self.chunk)
        if self.block_bytes is not None:
            require_whole("block_bytes", self.block_bytes)

    def forward_passes(self, posterior: Samplable, seed: int) -> tuple[Sequence[Passes], int]:
        return posterior.passes(self.samples, require_seed(seed)), self.samples
