"""A posterior as a plain module: inputs -> named outputs, with the samples and the likelihood inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..arguments import require_seed, require_whole
from ..engines import CoordinatePosterior, Engine, MonteCarlo, PassEngine, Passes, SigmaPoints
from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..network import State, sampled_module
from ..posterior import Posterior
from ..predictive import RegressionPredictive, require_level
from .outputs import output_names, read_outputs, tasks_of
from .quantiles import MixtureInterval


class SampledModule(nn.Module):
    """A network under several samples, and the mixture over them. It has no parameters and no random numbers.

    Calling it with the inputs returns a dict of tensors by name.

    Args:
        parts: Modules that give outputs (samples, batch, *out) of some samples each.
        order: The place of each sample in the outputs of all parts together.
        likelihood: Turns outputs into distributions of targets.
        names: Names of outputs.
        level: The probability of intervals.
    """

    def __init__(
        self,
        parts: Sequence[fx.GraphModule],
        order: Sequence[int],
        likelihood: Likelihood[Any],
        names: Sequence[str],
        level: float,
    ) -> None:
        super().__init__()
        self.parts, self._likelihood = nn.ModuleList(parts), likelihood
        in_order = list(order) == list(range(len(order)))
        self._order = None if in_order else list(order)
        self.samples, self.level = len(order), level
        self.chosen, self._intervals = tuple(names), dict[str, MixtureInterval]()
        self.names: tuple[str, ...] = ()  # of all tasks

    def prepare(self, *inputs: Tensor) -> None:
        """Compute the constants of intervals, which needs one prediction."""
        predictive = self._likelihood.predictive(self.outputs(*inputs))
        self.chosen = output_names(predictive, self.chosen or None)
        for task, part in tasks_of(predictive).items():
            if isinstance(part, RegressionPredictive):
                self._intervals[task] = MixtureInterval(self.level, part.noise)
        self.names = tuple(read_outputs(predictive, self.chosen, self._intervals.__getitem__))

    def outputs(self, *inputs: Tensor) -> Tensor:
        """Return the network's outputs under every sample, (samples, batch, *out)."""
        f = [part(*inputs) for part in self.parts]
        whole = f[0] if len(f) == 1 else torch.cat(f)
        return whole if self._order is None else whole[self._order]

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        predictive = self._likelihood.predictive(self.outputs(*inputs))
        return read_outputs(predictive, self.chosen, self._intervals.__getitem__)


def as_module(
    posterior: Posterior,
    example: Any = None,
    *,
    samples: int | None = None,
    engine: Engine | None = None,
    seed: int = 0,
    outputs: Sequence[str] | None = None,
    level: float = 0.95,
    group: int | None = None,
) -> SampledModule:
    """Return a posterior as a plain `nn.Module`, which maps inputs to a dict of named tensors.

    Its samples are fixed, and it has copies of all tensors, so it does not depend on the posterior and the network. Any
    number of examples can be passed. Everything before the first sampled layer is computed once. It can be exported,
    traced or quantised like any other module.

    Args:
        posterior: The posterior.
        example: Some inputs, as for `predict`. Default: None, training examples that the posterior keeps in memory.
        samples: Number of samples, short for engine=MonteCarlo(samples). Default: None.
        engine: `MonteCarlo` or `SigmaPoints`. Default: None, `SigmaPoints(8)`, which needs 16 forward passes of what
            follows the first sampled layer, for posteriors over batch-norm statistics; for others that of `predict`.
        seed: Seed of the samples. Default: 0.
        outputs: Names of outputs: predictive_mean, epistemic_std, aleatoric_std, predictive_std, lower and upper for
            regression; probs, label, entropy, mutual_information, confidence and expected_entropy for classes.
            Default: None, all but predictive_std, confidence and expected_entropy.
        level: The probability of the interval from lower to upper. Default: 0.95.
        group: Number of samples that run together; the others follow one after the other. Fewer need less memory.
            Default: None, all.
    """
    seed, level = require_seed(seed), require_level(level)
    group = None if group is None else require_whole("group", group)
    x = example_inputs(posterior, example)
    passes, count = chosen_engine(posterior, engine, samples).forward_passes(posterior, seed)
    return module_of_passes(posterior, x, passes, count, outputs, level, group)


def module_of_passes(
    posterior: Posterior,
    x: Any,
    passes: Sequence[Passes],
    count: int,
    outputs: Sequence[str] | None,
    level: float,
    group: int | None,
    free: State | None = None,
) -> SampledModule:
    """Return the module of an engine's forward passes.

    Args:
        posterior, outputs, level, group: See `as_module`.
        x: Inputs of the network.
        passes: The forward passes.
        count: The number of samples.
        free: Running statistics that are further inputs of the module, with their values.
    """
    parts = [sampled_module(part.executable, part.states, x, group, free) for part in passes]
    module = SampledModule(parts, sample_order(passes, count), posterior.likelihood, outputs or (), level)
    with torch.no_grad():
        module.prepare(*tensors_of_inputs(x[:2]), *(free or {}).values())
    return module.eval()


def chosen_engine(posterior: Posterior, engine: Engine | None, samples: int | None) -> PassEngine:
    """Return the engine that is exported, or raise an error."""
    if samples is not None:
        if engine is not None:
            raise BayesNormError(f"samples={samples!r} and engine={engine!r} both say how to sample. Pass one of them.")
        return MonteCarlo(samples)
    if engine is None:
        if isinstance(posterior, CoordinatePosterior) and _has_directions(posterior):
            return SigmaPoints()
        return MonteCarlo(posterior.default_samples)
    if not isinstance(engine, PassEngine):
        raise BayesNormError(
            f"engine={engine!r} cannot be exported, because a file cannot compute derivatives. Use SigmaPoints() or "
            "MonteCarlo()."
        )
    return engine


def example_inputs(posterior: Posterior, example: Any) -> Any:
    """Return inputs of the network from what the caller passed, or the training examples that a posterior keeps."""
    if example is None:
        rows = getattr(getattr(posterior, "output_directions", None), "rows", None)
        if rows is None:
            raise BayesNormError("example: this posterior keeps no training examples. Pass some inputs as example=.")
        return rows
    return posterior.executable.input(example, "example")


def tensors_of_inputs(x: Any) -> tuple[Tensor, ...]:
    """Return one tensor, or all of several inputs, in the order of the module's arguments."""
    return (x,) if isinstance(x, Tensor) else tuple(x.tensors)


def sample_order(passes: Sequence[Passes], count: int) -> list[int]:
    """Return for every sample the position of its outputs among those of all passes."""
    order, start = [-1] * count, 0
    for part in passes:
        places = range(count) if part.places is None else part.places.tolist()
        size = 1 if part.states is None else len(next(iter(part.states.values())))
        sources = [0] * len(places) if part.states is None else range(size)
        if part.sources is not None:
            sources = part.sources.tolist()
        for place, source in zip(places, sources, strict=True):
            order[place] = start + source
        start += size
    # One network without samples gives all of them.
    return [0] if set(order) == {0} else order


def _has_directions(posterior: Any) -> bool:
    directions = getattr(posterior, "output_directions", None)
    return directions is not None and (directions.computed or directions.rows is not None)
