"""The result of a test for drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .class_mix import MixShift, joined_shift
from .comparing import LEVEL, LayerDrift, first_layer
from .errors import BayesNormError
from .expected_error import NOT_ESTIMATED, ExpectedError
from .text import ShortRepr

CAUSES = {
    "inputs": "The inputs have changed; the mix of classes has not changed significantly.",
    "class mix": "The mix of classes has changed, which explains the difference.",
    "inputs and class mix": "The inputs and the mix of classes have changed.",
}
"""What `Drift.cause` means."""


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
        adapt_to_examples: Adapts the posterior or network to the examples, given their shift for each member.
    """

    repr_names = ("p_value", "rows", "distance", "first_layer", "layers", "members")

    p_value: float
    rows: int
    distance: float
    layers: tuple[LayerDrift, ...]
    members: tuple[Drift, ...] = ()
    estimate: Callable[[], MixShift] | None = field(default=None, repr=False)
    adapt_to_examples: Callable[[Sequence[MixShift | None]], Any] | None = field(default=None, repr=False)

    @cached_property
    def _mix_shift(self) -> MixShift | None:
        if self.members:
            shifts = [member._mix_shift for member in self.members]
            return joined_shift([shift for shift in shifts if shift is not None])
        return None if self.estimate is None else self.estimate()

    def adapted(self) -> Any:
        """Return the posterior or network adapted to these examples, as `adapt` does.

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
        return None if self._mix_shift is None else self._mix_shift.cause(self.p_value)

    def error_text(self) -> str:
        """Say in a sentence how wrong the network probably is, or why this is unknown; "" without drift if unknown."""
        if self.expected_error is not None:
            return str(self.expected_error)
        return NOT_ESTIMATED if self.p_value < LEVEL else ""

    @property
    def first_layer(self) -> str | None:
        """The first layer that differs significantly; None if the data do not differ, or no single layer does."""
        return first_layer(self.p_value, self.layers)

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
