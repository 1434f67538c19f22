"""Test, without labels, whether new data come from the training distribution, and find the layers that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from ..errors import BayesNormError, NotComparableError
from ..posterior import BatchNormPosterior, Posterior
from ..words import ShortRepr
from .adapting import adapt_by
from .class_mix import MixShift, estimate_shift, joined_shift, mix_p_value
from .comparison import Comparison, compare_with_present, inputs_in_memory, over_statistics
from .expected_error import NOT_ESTIMATED, ExpectedError

LEVEL = 0.05
"""The false-alarm rate of the drift test: below this p-value, data differ from the training distribution."""


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return p-values adjusted by Holm's method, which bounds the probability of any false alarm by the level."""
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return adjusted


# The inputs of a classifier have changed if their distance, given the class mix, is larger than this.
LARGE_DISTANCE = 1.25

CAUSES = {
    "inputs": "The inputs have changed; the mix of classes has not changed significantly.",
    "class mix": "The mix of classes has changed, which explains the difference.",
    "inputs and class mix": "The inputs and the mix of classes have changed.",
}
"""What `Drift.cause` means."""

# The share of the false-alarm rate that goes to the single most different layer; the rest goes to the distance over
# all layers. The share is smaller if fewer than OF_BATCHES batches show the tail of the distribution.
ONE_LAYER, OF_BATCHES = 0.1, 256


@dataclass(frozen=True, eq=False)
class LayerDrift:
    """The drift at one batch-norm layer, with the layers before it normalised by the new data.

    Args:
        name: The layer's name in the network.
        p_value: The probability that as many training examples differ at least this much at this layer.
        mean_shift: The shift of the channel means in standard deviations of the channels in training: the root mean
            square over channels, minus the part expected by chance.
        spread_ratio: The channels' standard deviation divided by that in training, geometric mean over channels.
    """

    name: str
    p_value: float
    mean_shift: float
    spread_ratio: float


@dataclass(frozen=True, eq=False, repr=False)
class Drift(ShortRepr):
    """The result of a test whether n new examples come from the training distribution.

    Args:
        p_value: The probability that n training examples differ at least this much. Below 0.05 the data differ
            significantly.
        rows: The number of new examples, n.
        distance: The mean over layers of squared standardised deviations; about 1 for training data.
        layers: One result per layer, in running order; for an ensemble, those of the first member.
        members: One result per member of an ensemble; empty otherwise.
        estimate: Estimates the shift of a classifier's inputs when it is first needed, which takes up to five more
            forward passes; None for other networks.
        adapt_to_examples: Adapts the posterior to the examples, given their shift for each part over batch statistics.
    """

    repr_names = ("p_value", "rows", "distance", "first_layer", "layers", "members")

    p_value: float
    rows: int
    distance: float
    layers: tuple[LayerDrift, ...]
    members: tuple[Drift, ...] = ()
    estimate: Callable[[], MixShift] | None = field(default=None, repr=False)
    adapt_to_examples: Callable[[Sequence[MixShift | None]], Posterior] | None = field(default=None, repr=False)

    @cached_property
    def _mix_shift(self) -> MixShift | None:
        if self.members:
            shifts = [member._mix_shift for member in self.members]
            return joined_shift([shift for shift in shifts if shift is not None])
        return None if self.estimate is None else self.estimate()

    def adapted(self) -> Posterior:
        """Return the posterior adapted to these examples, as `adapt` does.

        What was computed for the estimated error is used again, so reading `expected_error` and adapting together take
        no more forward passes than one of them.
        """
        if self.adapt_to_examples is None:
            raise BayesNormError("This result has no examples. Call bn.adapt(posterior, x) with them.")
        return self.adapt_to_examples([result._mix_shift for result in self.members or (self,)])

    def without_inputs(self) -> Drift:
        """Return the result without the examples; it has estimates only if they were read before."""
        members = tuple(member.without_inputs() for member in self.members)
        result = replace(self, estimate=None, adapt_to_examples=None, members=members)
        if "_mix_shift" in vars(self):
            vars(result)["_mix_shift"] = self._mix_shift
        return result

    @cached_property
    def expected_error(self) -> ExpectedError | None:
        """The estimated error on these examples, before and after adapting; None unless the network is a classifier."""
        return None if self._mix_shift is None else self._mix_shift.expected_error()

    @property
    def class_mix(self) -> tuple[float, ...] | None:
        """The estimated shares of the classes among these examples; None unless the network is a classifier."""
        return None if self._mix_shift is None else tuple(self._mix_shift.mix.tolist())

    @property
    def cause(self) -> str | None:
        """What has changed: "inputs", "class mix" or "inputs and class mix"; None without drift or if unknown."""
        if self.p_value >= LEVEL or self._mix_shift is None:
            return None
        changed = ["inputs"] * (self._mix_shift.input_distance > LARGE_DISTANCE)
        changed += ["class mix"] * (mix_p_value(self._mix_shift.after, self._mix_shift.training_mix) < LEVEL)
        return " and ".join(changed) or None

    def error_text(self) -> str:
        """Say in a sentence how wrong the network probably is, or why this is unknown; "" without drift if unknown."""
        if self.expected_error is not None:
            return str(self.expected_error)
        return NOT_ESTIMATED if self.p_value < LEVEL else ""

    @property
    def first_layer(self) -> str | None:
        """The first layer that differs significantly; None if the data do not differ, or no single layer does."""
        if self.p_value >= LEVEL:
            return None
        adjusted = holm([layer.p_value for layer in self.layers])
        return next((layer.name for layer, p in zip(self.layers, adjusted, strict=True) if p < LEVEL), None)

    def summary(self) -> str:
        """Return the result as text: a sentence with the p-value, the first layer that differs, and a table."""
        examples = f"{self.rows} example{'s' if self.rows != 1 else ''}"
        verdict = "differ" if self.p_value < LEVEL else "do not differ significantly"
        p_value = f"p = {self.p_value:.2g}" if self.p_value >= 0.001 else "p < 0.001"
        lines = [
            f"The data ({examples}) {verdict} from the training distribution ({p_value}). "
            f"Distance: {self.distance:.2f} (training data: about 1)."
        ]
        if self.cause is not None:
            lines.append(CAUSES[self.cause] + self._largest_shares())
        if text := self.error_text():
            lines.append(text)
        if self.first_layer is not None:
            lines.append(f"First layer that differs: {self.first_layer}.")
        width = max(len("layer"), *(len(layer.name) for layer in self.layers))
        lines.append(f"{'layer':{width}s}  {'p-value':>8s}  {'mean shift':>13s}  {'spread':>7s}")
        lines += [
            f"{layer.name:{width}s}  {layer.p_value:8.2g}  {layer.mean_shift:10.2f} sd  x{layer.spread_ratio:6.2f}"
            for layer in self.layers
        ]
        return "\n".join(lines)

    def _largest_shares(self) -> str:
        """Return the estimated shares of the most frequent classes as text, if the mix has changed."""
        if self.cause == "inputs" or self.class_mix is None:
            return ""
        largest = sorted(range(len(self.class_mix)), key=lambda label: -self.class_mix[label])[:3]  # type: ignore[index]
        shares = ", ".join(f"{label} ({100 * self.class_mix[label]:.0f} %)" for label in largest)
        return f" Most frequent classes, estimated: {shares}."


def drift(posterior: Posterior, x: Any) -> Drift:
    """Test whether new data come from the training distribution; labels are not needed.

    One forward pass, in which every batch-norm layer normalises by the new data as in training, gives their batch
    statistics. These are compared with the statistics of training batches, which `fit` has recorded; see
    `posterior/training_batches.py`. The test is of all examples together: it can overlook a few unusual ones among
    many.

    For a classifier, the result also estimates the error on these examples (`expected_error`), their mix of classes
    (`class_mix`), and whether the mix or the inputs have changed (`cause`). These are computed when they are first
    read, with up to five more forward passes. `adapted()` uses them again. The result holds `x`; see `without_inputs`.

    Args:
        posterior: A posterior over batch statistics (`MCBN`, `GaussianBN`, `StochasticBN`), a combination that
            contains one, or an ensemble of these. An adapted posterior is compared with the data it was adapted to.
        x: New inputs, (n, ...), as a tensor or anything that `fit` takes; n is at least 1. Of data sets and streams,
            as many examples are used as fit into 1 GiB.
    """
    parts = over_statistics(posterior)
    x = inputs_in_memory(parts[0], x)
    results = tuple(drift_of(part, x) for part in parts)
    if len(results) == 1:
        return replace(results[0], adapt_to_examples=partial(adapt_by, posterior, x))
    # All members test the same data; the Cauchy combination is valid for dependent tests.
    score = float(np.mean([1 / math.tan(math.pi * min(max(result.p_value, 1e-300), 1 - 1e-15)) for result in results]))
    p_value = math.atan2(1, score) / math.pi
    distance = float(np.mean([result.distance for result in results]))
    adapt_again = partial(adapt_by, posterior, x)
    return Drift(p_value, results[0].rows, distance, results[0].layers, results, adapt_to_examples=adapt_again)


def drift_of(posterior: BatchNormPosterior, x: Any) -> Drift:
    """Test new data with one posterior over batch statistics."""
    comparison = compare_with_present(posterior, x)
    if not bool(comparison.varies.any()):
        raise NotComparableError(
            f"x has {comparison.rows} example{'s' if comparison.rows != 1 else ''}, too few for a test: statistics "
            "of so few training examples do not vary. Pass more examples."
        )
    batches = comparison.batches
    distances = batches.parts.distances(comparison.standardised, comparison.varies)
    tails = batches.tail(distances, comparison.size, comparison.groups)
    if bool(np.isnan(tails).all()):
        raise NotComparableError(
            "posterior: the statistics of its training batches do not vary, so new data cannot be compared with them. "
            "Fit again on examples that differ, or use a network whose output depends on its inputs."
        )
    # A drift that later layers normalise away, such as a change of contrast, shows at one layer only.
    farthest = float(np.nanmin(tails[:-1])) * int(comparison.varies.sum())
    share = ONE_LAYER * min(1.0, batches.looked_at(comparison.size) / OF_BATCHES)
    p_value = min(1.0, float(tails[-1]) / (1 - share), farthest / share)
    estimate = None if posterior.class_statistics is None else partial(estimate_shift, posterior, x)
    return Drift(p_value, comparison.rows, float(distances[-1]), _layers(comparison, tails), estimate=estimate)


def _layers(comparison: Comparison, tails: np.ndarray) -> tuple[LayerDrift, ...]:
    batches = comparison.batches
    count = len(batches.layers)
    spread = batches.centers[-1].double().chunk(2)[1].exp().sqrt()
    mean_shift, log_shift = comparison.shift.chunk(2)
    beyond = (mean_shift.square() - comparison.noise.chunk(2)[0]) / spread.square()
    tails_or_one = np.where(np.isnan(tails[:-1]), 1.0, tails[:-1])
    together = np.minimum(1, 2 * np.minimum(tails_or_one[:count], tails_or_one[count:]))
    means = batches.parts.means(torch.cat([beyond, log_shift]))
    shifts = means[:count].clamp_min(0).sqrt().tolist()
    ratios = torch.where(comparison.varies[count:], (0.5 * means[count:]).exp(), 1.0).tolist()
    names = [layer.name for layer in batches.layers]
    return tuple(map(LayerDrift, names, together.tolist(), shifts, ratios))
