"""Run an exported network that watches its inputs: predict, test for drift, and adapt, without torch."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from .batch_reference import Array
from .class_mix import Layerwise, MixShift, Targets, chosen_examples, solve
from .comparing import Comparison, Shift, drift_test, group_sizes
from .drift_result import Drift
from .errors import InputError, NotComparableError
from .model_file import ModelFile, WatchedParts, read_adaptation, write_adaptation


class Network:
    """An exported network: `predict`, and for files of `export(..., watch=True)` also `drift` and `adapt`.

        network = Network("net.onnx")
        values = network.predict(x)["probs"]
        if network.drift(x).p_value < 0.05:
            network = network.adapt(x)

    Args:
        file: The path of the file, or its bytes.
        threads: Number of threads. Default: None, chosen by ONNX Runtime.
        providers: Execution providers of ONNX Runtime, in order of preference.
    """

    decision = ""
    """Whether and why `adapt` moved the statistics of a classifier; empty for other networks."""

    def __init__(
        self,
        file: str | os.PathLike[str] | bytes,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        self._file = ModelFile(file, threads, providers)
        self._file.require("posterior", "bn.export")
        self.inputs, self.outputs = self._file.names("inputs"), self._file.names("outputs")
        self.metadata: Mapping[str, Any] = self._file.metadata
        self._watched = WatchedParts.from_file(self._file) if "watch" in self.metadata else None
        self._shift: Shift | None = None
        self._statistics: dict[str, Array] = {}

    def __repr__(self) -> str:
        adapted = "" if self._shift is None else f", adapted to {self._shift.rows} examples"
        return f"Network(inputs={list(self.inputs)}, outputs={list(self.outputs)}{adapted})"

    @property
    def watches(self) -> bool:
        """Whether the file can test for drift and adapt."""
        return self._watched is not None

    @property
    def adapted(self) -> bool:
        """Whether predictions use adapted statistics."""
        return bool(self._statistics)

    def predict(self, x: Any, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Return predictions by name.

        Args:
            x: The examples, (n, ...); for several inputs a dict by name, or a tuple in the order of `inputs`.
            outputs: Names of outputs. Default: None, all.
        """
        names = self.outputs if outputs is None else tuple(outputs)
        if unknown := [name for name in names if name not in self.outputs]:
            raise InputError(f"outputs has {unknown[0]!r}, but the file has {', '.join(self.outputs)}.")
        feeds = self._feeds(x) | self._statistics
        return dict(zip(names, self._file.run(names, feeds), strict=True))

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return any outputs of the file, given any of its inputs by name."""
        return self._file.run(outputs, feeds)

    def drift(self, x: Any) -> Drift:
        """Test whether new data come from the training distribution; labels are not needed.

        It is the test of `bayesnorm.drift`, and gives the same numbers: `p_value`, `first_layer`, and for classifiers
        `expected_error`, `class_mix` and `cause`, which take up to five more forward passes when they are first read.
        An adapted network is compared with the data it was adapted to.
        """
        watched, feeds = self._require_watched(), self._feeds(x)
        comparison = self._compared(watched, feeds)
        if self._shift is not None:
            comparison = comparison.from_present(self._moved(watched), self._shift.strength, self._shift.noise)
        result = drift_test(comparison) if comparison.varies.any() else None
        if result is None:
            raise NotComparableError(
                f"The {comparison.rows} examples cannot be compared with the training data, because statistics of so "
                "few training examples do not vary. Pass more examples."
            )
        estimate = None
        if watched.classes is not None:
            estimate = partial(self._estimated, watched, feeds, None, None)
        adapt_again = partial(self._adapted, watched, feeds, None)
        layers, rows = result.layers, comparison.rows
        return Drift(result.p_value, rows, result.distance, layers, (), estimate, adapt_again)

    def adapt(self, x: Any, strength: float | None = None) -> Self:
        """Return a network with statistics adapted to new, unlabelled data, as `bayesnorm.adapt` does.

        A classifier stays as it is unless the estimated error falls; `decision` says why. Adapting an adapted network
        uses the examples of both adaptations.

        Args:
            x: The examples, at least one.
            strength: Share of the observed shift to apply at every layer, from 0 to 1. Default: None, estimated.
        """
        if strength is not None and not 0 <= strength <= 1:
            raise InputError(f"strength must be a number from 0 to 1, or None, got {strength!r}.")
        return self._adapted(self._require_watched(), self._feeds(x), strength)

    def _adapted(
        self,
        watched: WatchedParts,
        feeds: dict[str, Array],
        strength: float | None,
        shifts: Sequence[MixShift | None] = (None,),
    ) -> Self:
        """Adapt to examples; their shift may have been estimated before."""
        if watched.classes is not None:
            # The shift of an adapted network is estimated together with that of the earlier examples.
            mix_shift = shifts[0] if self._shift is None else None
            mix_shift = mix_shift or self._estimated(watched, feeds, strength, self._shift)
            shift, decision = mix_shift.decided(strength)
        else:
            comparison, decision = self._compared(watched, feeds), ""
            if self._shift is not None:
                comparison = comparison.with_earlier(self._shift)
            shift = comparison.adaptation(strength)
        return self._with_shift(watched, shift, decision)

    def save_adaptation(self, path: str | os.PathLike[str]) -> None:
        """Write the adapted statistics, a few numbers for each channel, for `with_adaptation` of the same file."""
        if self._shift is None:
            raise InputError("The network is not adapted, so there is nothing to save. Call adapt first.")
        write_adaptation(Path(path), self._shift, self.decision, self._file.digest)

    def with_adaptation(self, path: str | os.PathLike[str]) -> Self:
        """Return the network with the adapted statistics that `save_adaptation` wrote."""
        watched = self._require_watched()
        shift, decision = read_adaptation(Path(path), watched.batches, self._file.digest)
        return self._with_shift(watched, shift, decision)

    def layer_statistics(self, x: Any) -> dict[str, tuple[Array, Array]]:
        """Return the mean and variance of the input of every batch-norm layer, by the layer's name.

        The layers before it normalise by their running statistics, as in prediction.
        """
        watched = self._require_watched()
        feeds = self._feeds(x) | watched.present(self._location(watched))
        mean, var = self._file.run(watched.moment_outputs[0], feeds), self._file.run(watched.moment_outputs[1], feeds)
        return {layer.name: pair for layer, *pair in zip(watched.batches.layers, mean, var, strict=True)}  # type: ignore[misc]

    def batch_coordinates(self, x: Any) -> Array:
        """Return the means and log-variances, (2C,), if every layer normalises by these examples, as in training."""
        return self._batch_coordinates(self._require_watched(), self._feeds(x))

    def _batch_coordinates(self, watched: WatchedParts, feeds: dict[str, Array]) -> Array:
        values = self._file.run(
            (*watched.moment_outputs[0], *watched.moment_outputs[1]), feeds | watched.as_in_training()
        )
        mean, var = np.split(np.concatenate(values).astype(float), 2)
        return np.concatenate([mean, np.log(var + watched.eps)])

    def _compared(self, watched: WatchedParts, feeds: dict[str, Array]) -> Comparison:
        rows, values, start = len(feeds[self.inputs[0]]), [], 0
        if rows < watched.batches.sizes[0]:
            raise NotComparableError(
                f"x has {rows} examples, but the file knows only how at least {watched.batches.sizes[0]} training "
                "examples vary. Pass more examples."
            )
        for size, groups in group_sizes(rows, watched.batches.batch_size):
            for _ in range(groups):
                part = {name: tensor[start : start + size] for name, tensor in feeds.items()}
                values.append(self._batch_coordinates(watched, part))
                start += size
        return Comparison.from_statistics(watched.batches, _finite(np.stack(values)), rows, _all_alike(feeds))

    def _estimated(
        self, watched: WatchedParts, feeds: dict[str, Array], strength: float | None, earlier: Shift | None
    ) -> MixShift:
        """Return the shift that the class mix does not explain."""
        rows = chosen_examples(len(feeds[self.inputs[0]]))
        chosen = {name: tensor[rows] for name, tensor in feeds.items()}
        # Without an earlier shift this is about the error of the present network, which may be adapted.
        present = watched.location if earlier is not None else self._location(watched)
        return solve(_FileLayers(self._file, watched, chosen, len(rows), strength, earlier, present))

    def _with_shift(self, watched: WatchedParts, shift: Shift, decision: str) -> Self:
        result = copy.copy(self)
        result._shift, result.decision = shift, decision
        moved, widening = result._moved(watched), shift.widening(watched.batches, watched.scale)
        result._statistics = watched.statistics(watched.location + moved, widening)
        return result

    def _moved(self, watched: WatchedParts) -> Array:
        assert self._shift is not None
        return self._shift.moved(watched.batches, watched.location)

    def _location(self, watched: WatchedParts) -> Array:
        """Return the running statistics of a forward pass without sampling, in coordinates."""
        return watched.running if self._shift is None else watched.location + self._moved(watched)

    def _require_watched(self) -> WatchedParts:
        if self._watched is None:
            raise NotComparableError(
                "The file does not watch its inputs. Export it again with bn.export(posterior, path, watch=True)."
            )
        return self._watched

    def _feeds(self, x: Any) -> dict[str, Array]:
        if not isinstance(x, Mapping):
            arrays = x if isinstance(x, tuple) else (x,)
            if len(arrays) != len(self.inputs):
                raise InputError(f"x has {len(arrays)} arrays, but the network has {len(self.inputs)} inputs.")
            x = dict(zip(self.inputs, arrays, strict=True))
        if set(x) != set(self.inputs):
            raise InputError(f"x has the inputs {', '.join(map(str, x))}, but the file has {', '.join(self.inputs)}.")
        return self._file.checked({name: x[name] for name in self.inputs})


class _FileLayers(Layerwise):
    """Runs examples through the file, with statistics that are chosen layer by layer."""

    def __init__(
        self,
        file: ModelFile,
        watched: WatchedParts,
        feeds: dict[str, Array],
        rows: int,
        strength: float | None,
        earlier: Shift | None,
        present: Array,
    ) -> None:
        assert watched.classes is not None
        alike = _all_alike(feeds)
        super().__init__(watched.batches, watched.classes, watched.running, rows, alike, watched.validation, earlier)
        self._file, self._watched, self._feeds, self._present = file, watched, feeds, present
        self._strength = -1.0 if strength is None else strength

    def run(self) -> Array:
        (probs,) = self._file.run(("watch_probs",), self._feeds | self._watched.present(self._present))
        return _finite(probs.astype(float))

    def run_towards(self, targets: Targets) -> tuple[Array, Array, Array]:
        controls = self._watched.towards(targets, self._strength)
        names = ("watch_probs", "watch_shift", "watch_share")
        probs, shift, strength = self._file.run(names, self._feeds | controls)
        return _finite(probs.astype(float)), _finite(shift), strength


def _all_alike(feeds: Mapping[str, Array]) -> bool:
    """Return whether there is only one example, or all are the same."""
    return all(bool((tensor == tensor[:1]).all()) for tensor in feeds.values())


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise InputError(
            "x gives NaN or infinite statistics inside the network. Check x for very large values, and scale it as in "
            "training."
        )
    return values
