"""Adapt a classifier to a stream of batches while it predicts them, without labels.

The stream is treated in blocks: a batch, or as many examples of smaller batches as a window holds. For every block the
network runs twice. First it runs with the statistics of now. These predictions give the class mix of the block. The
second forward pass measures the shift that this mix does not explain (`bayesnorm_runtime/class_mix.py`), together with
the shift of earlier blocks. Earlier blocks count as at most `memory` examples, so their weight falls exponentially.

Three decisions follow:

- Has the shift changed? The mean squared difference between the block's shift and the earlier one, in units of their
  noise, is about 1 or less if not. If it is larger than CHANGED, earlier blocks are dropped, and the shift is estimated
  from this block alone, as `adapt` does. If only the mean confidence falls by UNSURE, because a wrong class mix
  explains the shift, both are tried. The one with the more confident predictions is kept.
- Adapt or not? The rule is that of `adapt`: the estimated error must fall by LEAST_GAIN.
- Is adapting still worthwhile? While the stream is adapted, every CHECK-th block runs with the network's own statistics
  instead of measuring the shift. If adapting lowers the estimated error by less than half of LEAST_GAIN, the stream
  returns to them.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Generic, Self

import numpy as np
import torch
from torch import Tensor

from bayesnorm_runtime import (
    LEAST_GAIN,
    MIX_ERROR,
    MOST_EXAMPLES,
    ErrorEstimate,
    MixShift,
    chosen_probability,
    estimate_mix,
)

from .. import files
from ..arguments import require_whole
from ..engines import Engine
from ..errors import FileFormatError, NotComparableError
from ..network import joined_rows
from ..posterior import Adaptation, AdaptedPosterior, BatchNormPosterior, Posterior
from ..predictive import P_co
from ..schema import Array, flag, number, one_of, optional, record, refuse, require_tensors, text, whole
from .class_mix import NetworkLayers, estimate_shift
from .comparison import all_alike, inputs_in_memory, require_batches

KIND = "adaptive-stream"
# The shift has changed if the mean squared difference of a block from earlier ones, in units of noise, is larger. It
# was at most 3.3 on images of one corruption, and at least 5 where a corruption began (ResNet-20, blocks of 64).
CHANGED = 4.0
# The shift may have changed if the mean confidence falls by more than this.
UNSURE = 0.1
# While the stream is adapted, every so many blocks the network's own statistics are tried.
CHECK = 8

_ESTIMATE = record(value=number(0, 1), low=number(0, 1), high=number(0, 1))
_SCHEMA = record(
    kind=one_of(KIND),
    window=whole(8, MOST_EXAMPLES),
    memory=whole(8),
    examples=whole(),
    blocks=whole(),
    decision=text,
    adapted=flag,
    adapted_to=optional(whole(1)),
    usual_confidence=number(0, 1),
    expected_error=optional(_ESTIMATE),
)


class AdaptiveStream(Generic[P_co]):
    """Predict a stream of batches with statistics that follow its inputs; labels are not needed.

        stream = AdaptiveStream(posterior)
        for x in batches:
            predictive = stream.predict(x)

    Memory use is constant: the shift, and the examples of an incomplete window.

    Args:
        posterior: A posterior over batch statistics of a classifier with one class per example. `calibrate` it first.
        window: If batches are smaller, so many examples are used together. They are predicted with the statistics of
            the last complete window until then.
        memory: The number of examples that earlier ones count as, at most.
    """

    def __init__(self, posterior: Posterior[P_co], window: int = 64, memory: int = 512) -> None:
        if not isinstance(posterior, BatchNormPosterior) or posterior.class_statistics is None:
            raise NotComparableError(
                f"posterior is a {type(posterior).__name__} without class statistics, so shifted inputs look like a "
                "changed class mix. Fit MCBN, GaussianBN or StochasticBN to a classifier with one class per "
                "example. For other networks, use DriftMonitor, and adapt when you know that the measurement changed."
            )
        self.window = require_whole("window", window, least=8, most=MOST_EXAMPLES)
        self.memory = require_whole("memory", memory, least=8)
        self.original: BatchNormPosterior[P_co] = (
            posterior.original if isinstance(posterior, AdaptedPosterior) else posterior
        )
        self.posterior: BatchNormPosterior[P_co] = self.original
        """The posterior with the statistics of now; `original` as long as the stream is not adapted."""
        self.decision = f"Left as it was, because fewer than {window} examples have been seen."
        """Whether and why the statistics were changed, at the last complete window."""
        self.expected_error: ErrorEstimate | None = None
        """The estimated error of the present predictions, at the last complete window; None before the first one."""
        self.class_mix: tuple[float, ...] | None = None
        """The estimated shares of the classes in the last complete window."""
        self.examples = 0
        self._blocks = 0
        self._usual_confidence = 0.0
        self._shift: Adaptation | None = None
        self._waiting: list[tuple[Tensor, np.ndarray]] = []  # examples of an incomplete window, and their probabilities

    def __repr__(self) -> str:
        return f"AdaptiveStream(adapted={self.adapted}, examples={self.examples}, decision={self.decision!r})"

    @property
    def adapted(self) -> bool:
        """Whether predictions use adapted statistics."""
        return self.posterior is not self.original

    def predict(self, x: Any, engine: Engine | None = None, seed: int = 0) -> P_co:
        """Adapt to the next batch of the stream, (n, ...), and return its predictions; see `Posterior.predict`."""
        x = inputs_in_memory(self.original, x)
        self.update(x)
        return self.posterior.predict(x, engine, seed=seed)

    def update(self, x: Any) -> Tensor:
        """Adapt to the next batch of the stream, (n, ...), and return its class probabilities, (n, K).

        They are those of the network without sampling, so nothing more has to be run. The cost is two forward passes;
        when the shift changes, up to seven.
        """
        x = NetworkLayers.inputs(self.original, inputs_in_memory(self.original, x))
        probs: list[np.ndarray] = []
        while len(x):
            part = x[: MOST_EXAMPLES - sum(len(waiting) for waiting, _ in self._waiting)]
            probs.append(self._update_part(part))
            x = x[len(part) :]
        return torch.from_numpy(np.concatenate(probs))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state of the stream to one safetensors file, without the posterior and without examples.

        The examples of an incomplete window are lost.
        """
        config = {
            "kind": KIND,
            "window": self.window,
            "memory": self.memory,
            "examples": self.examples,
            "blocks": self._blocks,
            "decision": self.decision,
            "adapted": self.adapted,
            "adapted_to": None if self._shift is None else self._shift.rows,
            "usual_confidence": self._usual_confidence,
            "expected_error": None if self.expected_error is None else dataclasses.asdict(self.expected_error),
        }
        tensors = {} if self._shift is None else self._shift.tensors()
        if self.class_mix is not None:
            tensors = tensors | {"class_mix": torch.tensor(self.class_mix, dtype=torch.float64)}
        files.write(Path(path), tensors, config)

    @classmethod
    def load(cls, path: str | os.PathLike[str], posterior: Posterior[P_co]) -> Self:
        """Return the stream that `save` wrote, ready for the next batch.

        Args:
            path: The file.
            posterior: The posterior that the saved stream used.
        """
        tensors, config = files.read(Path(path))
        if config.get("kind") != KIND:
            raise FileFormatError(f"{path} is not an adaptive stream. Pass a file that AdaptiveStream.save wrote.")
        _SCHEMA(config, "config")
        stream = cls(posterior, config["window"], config["memory"])
        stream.examples, stream._blocks, stream.decision = config["examples"], config["blocks"], config["decision"]
        stream._usual_confidence = config["usual_confidence"]
        if config["expected_error"] is not None:
            stream.expected_error = ErrorEstimate(**config["expected_error"])
        if config["adapted_to"] is None:
            if config["adapted"]:
                refuse("config.adapted", True, "false without a shift")
            require_tensors(tensors, {})
            return stream
        assert stream.original.class_statistics is not None
        layers, double = require_batches(stream.original).layers, (torch.float64,)
        channels = sum(layer.channels for layer in layers)
        arrays = {
            "shift": Array((2 * channels,), double),
            "noise": Array((2 * channels,), double, 0.0),
            "strength": Array((2 * len(layers),), double, 0.0),
            "reference": Array((channels,), double),
            "class_mix": Array((stream.original.class_statistics.classes,), double, 0.0),
        }
        require_tensors(tensors, arrays)
        stream.class_mix = tuple(tensors.pop("class_mix").tolist())
        stream._shift = Adaptation(config["adapted_to"], **tensors)
        if config["adapted"]:
            stream.posterior = AdaptedPosterior.from_original(stream.original, stream._shift, stream.decision)
        return stream

    def _update_part(self, x: Tensor) -> np.ndarray:
        """Update by examples that fit into one block, and return their class probabilities."""
        now = NetworkLayers(self.posterior, x).run()
        self.examples += len(x)
        self._waiting.append((x, now))
        examples, probs = zip(*self._waiting, strict=True)
        if sum(map(len, examples)) < self.window:
            return now
        self._waiting = []
        return self._follow(joined_rows(list(examples)), np.concatenate(probs))[-len(x) :]

    def _follow(self, x: Tensor, now: np.ndarray) -> np.ndarray:
        """Follow the shift of a block, given its class probabilities with the statistics of now; return new ones."""
        if all_alike(x):  # copies of one example do not show a shift
            return now
        self._blocks += 1
        if self.adapted and self._blocks % CHECK == 0:
            return self._check(x, now)
        if self._shift is None:
            return self._take(self._estimated(x, now))
        shift = self._continued(x, now, self._shift)
        if float(shift.change.mean()) > CHANGED:
            return self._take(self._estimated(x, now))
        if self._usual_confidence - float(now.max(1).mean()) > UNSURE:
            afresh = self._estimated(x, now)
            if afresh.worthwhile and afresh.confidences[1] > shift.confidences[1]:
                return self._take(afresh)
        if self.adapted and not shift.trusted:
            return now
        return self._take(shift, decided=self.adapted)

    def _estimated(self, x: Tensor, now: np.ndarray) -> MixShift:
        """Return the shift of a block alone, as `adapt` estimates it."""
        return estimate_shift(self.original, x, before=None if self.adapted else now)

    def _continued(self, x: Tensor, now: np.ndarray, earlier: Adaptation) -> MixShift:
        """Return the shift of a block together with that of earlier blocks."""
        assert self.original.class_statistics is not None
        earlier = dataclasses.replace(earlier, rows=min(earlier.rows, self.memory))
        mix, share = estimate_mix(now, self.original.class_statistics.moments.shares)
        mix_error = MIX_ERROR * share * float(1 - now.max(1).mean())
        return NetworkLayers(self.original, x, None, earlier).solution(now, mix, share, mix_error)

    def _check(self, x: Tensor, now: np.ndarray) -> np.ndarray:
        """Return to the network's own statistics unless adapting is still worthwhile for a block."""
        unadapted = NetworkLayers(self.original, x).run()
        fall = float((now.max(1) - chosen_probability(unadapted, now)).mean())
        if fall >= LEAST_GAIN / 2:
            return now
        self.posterior = self.original
        points = f"{100 * fall:.1f} percentage points"
        self.decision = f"Left as it is again, because adapting lowers the estimated error by {points} only."
        return unadapted

    def _take(self, shift: MixShift, decided: bool = False) -> np.ndarray:
        """Keep a shift, and return the class probabilities with its statistics, or with the network's own ones.

        Args:
            shift: The shift.
            decided: Whether the stream stays adapted. Its gain is then unknown, because `shift.before` is adapted too.
        """
        self._shift, self.class_mix = Adaptation.from_shift(shift.shift), tuple(shift.mix.tolist())
        expected = shift.expected_error()
        if not decided:
            self.decision = shift.decision
        self._usual_confidence = shift.confidences[int(decided or shift.worthwhile)]
        if decided or shift.worthwhile:
            self.posterior = AdaptedPosterior.from_original(self.original, self._shift, self.decision)
            self.expected_error = expected.after
            return shift.after
        self.posterior, self.expected_error = self.original, expected.before
        return shift.before
