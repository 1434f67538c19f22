"""Open exported files and read what their metadata say; files of adapted statistics."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .batch_reference import Array, BatchNormLayer, BatchReference
from .class_mix import ClassMoments, Targets
from .comparing import Shift
from .errors import BayesNormError, FileFormatError, InputError, quoted
from .expected_error import Validation

METADATA, ARRAYS = "bayesnorm", "bayesnorm_arrays"
"""The keys of the metadata: JSON, and arrays as an archive of NumPy in base64."""

# Types of ONNX Runtime and of NumPy.
TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}

BATCH_ARRAYS = ("centers", "variance", "widths", "logs", "moments", "shares")
CLASS_ARRAYS = ("counts", "loadings", "rows", "within")
SHIFT_ARRAYS = ("shift", "noise", "strength")

# The statistics of layers are computed if this optional input is true.
ASKED = {"watch_layers": np.array(True)}

# What reading an archive may raise.
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, MemoryError)

# The largest number of bytes of the arrays in a file.
LARGEST = 2**30


class ModelFile:
    """A session of ONNX Runtime with checked inputs, and the metadata of a file.

    Args:
        file: The path of the file, or its bytes.
        threads: Number of threads; None for the default of ONNX Runtime.
        providers: Execution providers.
    """

    def __init__(self, file: str | os.PathLike[str] | bytes, threads: int | None, providers: Sequence[str]) -> None:
        import onnxruntime

        self.name = "The file" if isinstance(file, bytes) else str(file)
        if not isinstance(file, bytes) and not Path(file).is_file():
            raise FileFormatError(f"{file} does not exist. Pass a file that bn.export wrote.")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            content = file if isinstance(file, bytes) else Path(file).read_bytes()
            self._session = onnxruntime.InferenceSession(content, options, providers=list(providers))
        except Exception as error:  # the runtime has exceptions of its own, one for each status
            lines = str(error).strip().splitlines() or [repr(error)]
            raise FileFormatError(f"{self.name} is not an ONNX file that can be run: {lines[0]}") from error
        self.digest = hashlib.sha256(content).hexdigest()
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = 4  # errors become exceptions, so they are not printed too
        entries = (*self._session.get_inputs(), *self._session.get_overridable_initializers())
        self._inputs = {entry.name: entry for entry in entries}
        self._outputs = {entry.name for entry in self._session.get_outputs()}
        properties = self._session.get_modelmeta().custom_metadata_map
        if METADATA not in properties:
            raise FileFormatError(f"{self.name} has no metadata of bayesnorm. Pass a file that bn.export wrote.")
        try:
            metadata = json.loads(properties[METADATA])
        except (ValueError, RecursionError) as error:
            raise self.refusal("the metadata are not JSON") from error
        if not isinstance(metadata, dict):
            raise self.refusal("the metadata are not a JSON object")
        self.metadata: dict[str, Any] = metadata
        self._packed = properties.get(ARRAYS, "")

    def refusal(self, reason: str) -> FileFormatError:
        """Return the error for a file that was changed."""
        return FileFormatError(f"{self.name}: {reason}. The file was changed or is incomplete. Export it again.")

    def require(self, key: str, command: str) -> None:
        """Raise an error if the metadata are of another kind of file."""
        if key not in self.metadata:
            raise FileFormatError(f"{self.name} is another kind of file: its metadata have no {key!r}. Use {command}.")

    def names(self, key: str) -> tuple[str, ...]:
        """Return the names of inputs or outputs that the metadata list."""
        names, present = self.metadata.get(key), self._inputs if key == "inputs" else self._outputs
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise self.refusal(f"the metadata do not list the {key}")
        if missing := [name for name in names if name not in present]:
            raise self.refusal(f"the graph has none of its {key} called {quoted(missing[0])}")
        return tuple(names)

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of these names."""
        try:
            results: list[Array] = self._session.run(list(names), dict(feeds), self._run_options)
        except Exception as error:  # the runtime has exceptions of its own, one for each status
            lines = str(error).strip().splitlines() or [repr(error)]
            raise InputError(f"The network cannot be run on these inputs: {lines[0]}") from error
        return results

    def checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return inputs as arrays of the types that the graph takes, or raise an error."""
        arrays: dict[str, Array] = {}
        for name, value in inputs.items():
            entry = self._inputs[name]
            try:
                array: Array = np.asarray(value, dtype=TYPES.get(entry.type, np.float32))
            except (TypeError, ValueError) as error:
                raise InputError(f"Input {name!r} must be an array of numbers, got {quoted(value)}.") from error
            sizes = [size if isinstance(size, int) else None for size in entry.shape]
            fits = len(sizes) == array.ndim and all(a in (None, b) for a, b in zip(sizes, array.shape, strict=True))
            if not fits or not array.size:
                shape = ", ".join("n" if size is None else str(size) for size in sizes)
                raise InputError(f"Input {name!r} must have the shape ({shape}), got {array.shape}.")
            if array.dtype.kind == "f" and not np.isfinite(array).all() and entry.type == "tensor(float)":
                raise InputError(f"Input {name!r} has NaN or infinite values. Replace them before.")
            arrays[name] = array
        if len({len(array) for array in arrays.values()}) > 1:
            raise InputError("The inputs have different numbers of examples. Pass the same number of each.")
        return arrays

    def type_of(self, name: str) -> str:
        """Return the type of an input; an error if there is none."""
        self.shape(name)
        return str(self._inputs[name].type)

    def shape(self, name: str) -> list[Any]:
        """Return the shape of an input; an error if there is none."""
        if name not in self._inputs:
            raise self.refusal(f"the graph has no input called {quoted(name)}")
        return list(self._inputs[name].shape)

    def has_outputs(self, names: Sequence[str]) -> bool:
        return set(names) <= self._outputs

    def arrays(self) -> dict[str, Array]:
        """Return the arrays in the metadata."""
        try:
            return _read_archive(base64.b64decode(self._packed, validate=True))
        except (*UNREADABLE, binascii.Error) as error:
            raise self.refusal("the arrays in the metadata cannot be read") from error


@dataclass(frozen=True, eq=False)
class WatchedParts:
    """What a file knows of the training data; 2C coordinates of all layers, means first.

    Args:
        batches: How training batches vary.
        classes: The statistics of classes; None unless each example has one class.
        validation: The record of validation data.
        running: The network's own running statistics, (2C,).
        location: The centre of the samples, (2C,).
        points: Deviations of the samples from it in the sampled layers, (samples, 2 C_s).
        sampled: Names of the sampled layers.
        scale: The posterior's variance divided by that of training batches.
    """

    batches: BatchReference
    classes: ClassMoments | None
    validation: Validation | None
    running: Array
    location: Array
    points: Array
    sampled: frozenset[str]
    scale: float

    @classmethod
    def from_file(cls, file: ModelFile) -> WatchedParts:
        """Return the parts of a file, or raise an error if they do not fit together."""
        try:
            parts = cls._read(file)
        except BayesNormError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise file.refusal(f"the description of the training data cannot be used ({error!r})") from error
        return parts

    @classmethod
    def _read(cls, file: ModelFile) -> WatchedParts:
        watch, arrays = file.metadata["watch"], file.arrays()
        layers = tuple(
            BatchNormLayer(str(layer["name"]), int(layer["channels"]), float(layer["eps"])) for layer in watch["layers"]
        )
        channels = sum(layer.channels for layer in layers)
        sizes, counts = [int(size) for size in watch["sizes"]], [int(count) for count in watch["counts"]]
        rows, parts, ascending = int(watch["rows"]), 2 * len(layers), all(a < b for a, b in pairwise(sizes))
        if not layers or len(sizes) != len(counts) or not sizes or not ascending or min(sizes) < 1 or min(counts) < 2:
            raise file.refusal("the sizes of the training batches do not fit together")
        if rows <= sizes[-1] or any(layer.channels < 1 or not layer.eps >= 0 for layer in layers):
            raise file.refusal("the layers or the number of training examples are impossible")
        shapes = {
            "running": (2 * channels,),
            "location": (2 * channels,),
            "batches.centers": (len(sizes), 2 * channels),
            "batches.variance": (2 * channels,),
            "batches.widths": (len(sizes), parts),
            "batches.logs": (len(sizes), parts + 1, 3),
            "batches.moments": (parts + 1, 5),
            "batches.shares": (parts,),
        }
        sampled = frozenset(watch["sampled"])
        in_sampled = sum(layer.channels for layer in layers if layer.name in sampled)
        shapes["points"] = (len(arrays["points"]), 2 * in_sampled)
        is_classifier = bool(watch["is_classifier"])
        if is_classifier:
            classes, combinations = arrays["classes.loadings"].shape
            shapes |= {
                "classes.counts": (classes,),
                "classes.loadings": (classes, combinations),
                "classes.rows": (combinations, 2 * channels),
                "classes.within": (3, channels),
            }
        for name, shape in shapes.items():
            array = arrays[name]
            if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
                raise file.refusal(f"the array {name!r} is not finite numbers of the shape {shape}")
        scale = float(watch["scale"])
        if not (0 < scale < np.inf) or not (arrays["batches.variance"] > 0).all():
            raise file.refusal("the variances of the training batches are not positive")
        reference = {name: arrays[f"batches.{name}"].astype(float) for name in BATCH_ARRAYS}
        moments = ClassMoments(*(arrays[f"classes.{name}"] for name in CLASS_ARRAYS)) if is_classifier else None
        if moments is not None and (not (moments.counts >= 0).all() or not moments.counts.sum() > 0):
            raise file.refusal("the numbers of examples of the classes are impossible")
        validation = None if watch["validation"] is None else _validation(watch["validation"])
        result = cls(
            BatchReference(layers, rows, sizes, counts, **reference),
            moments,
            validation,
            arrays["running"].astype(float),
            arrays["location"].astype(float),
            arrays["points"].astype(float),
            sampled,
            scale,
        )
        result._require_graph(file)
        return result

    def _require_graph(self, file: ModelFile) -> None:
        """Raise an error if inputs or outputs are missing from the graph."""
        for layer in self.batches.layers:
            leading = [len(self.points)] if layer.name in self.sampled else []
            for kind in ("mean", "var"):
                if file.shape(f"{layer.name}.running_{kind}") != [*leading, layer.channels]:
                    raise file.refusal(f"the input of layer {quoted(layer.name)} has another shape")
        width = 2 * sum(layer.channels for layer in self.batches.layers)
        if any(file.shape(f"watch_{name}") != [width] for name in ("center", "expected", "noise", "earlier")):
            raise file.refusal("the inputs that are compared have another shape")
        classes = () if self.classes is None else ("watch_probs", "watch_shift", "watch_share")
        if not file.has_outputs((*self.moment_outputs[0], *self.moment_outputs[1], *classes)):
            raise file.refusal("outputs of layers are missing")

    @property
    def moment_outputs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the outputs with means, and of those with variances."""
        names = [layer.name for layer in self.batches.layers]
        return tuple(f"{name}.input_mean" for name in names), tuple(f"{name}.input_var" for name in names)

    @property
    def eps(self) -> Array:
        """The eps of every channel, (C,)."""
        layers = self.batches.layers
        return np.repeat([layer.eps for layer in layers], [layer.channels for layer in layers])

    def present(self, location: Array) -> dict[str, Array]:
        """Return the controls of a forward pass with these running statistics, (2C,)."""
        return {"watch_center": location, "watch_expected": location, "watch_strength": np.array(0.0), **ASKED}

    def as_in_training(self) -> dict[str, Array]:
        """Return the controls of a forward pass in which every layer normalises by the batch."""
        return self.present(self.running) | {"watch_strength": np.array(1.0)}

    def towards(self, targets: Targets, strength: float) -> dict[str, Array]:
        """Return the controls of a forward pass in which every layer is moved."""
        return {
            "watch_center": self.running,
            "watch_expected": targets.expected,
            "watch_noise": targets.noise,
            "watch_earlier": targets.earlier,
            "watch_weight": np.array(targets.weight),
            "watch_strength": np.array(strength),
            **ASKED,
        }

    def statistics(self, location: Array, widening: Array) -> dict[str, Array]:
        """Return the running statistics of all layers for a posterior that was moved and widened, (2C,) each."""
        layers, channels = self.batches.layers, len(location) // 2
        inside = np.repeat([layer.name in self.sampled for layer in layers], [layer.channels for layer in layers])
        columns = np.concatenate([inside, inside])
        samples = np.tile(location, (len(self.points), 1))
        samples[:, columns] += widening[columns] * self.points
        feeds, start = {}, 0
        for layer in layers:
            part = slice(start, start + layer.channels)
            mean, log_var = samples[:, :channels][:, part], samples[:, channels:][:, part]
            start += layer.channels
            values = mean, np.exp(log_var) - layer.eps
            for kind, value in zip(("mean", "var"), values, strict=True):
                chosen = value if layer.name in self.sampled else value[0]
                feeds[f"{layer.name}.running_{kind}"] = chosen.astype(np.float32)
        return feeds


def _validation(config: Mapping[str, Any]) -> Validation:
    numbers = {name: float(config[name]) for name in ("error", "temperature", "least_confidence", "most_entropy")}
    return Validation(int(config["rows"]), **numbers)


def write_adaptation(path: Path, shift: Shift, decision: str, digest: str) -> None:
    """Write a shift as an archive of NumPy, completely or not at all."""
    arrays = {name: getattr(shift, name) for name in SHIFT_ARRAYS}
    if shift.reference is not None:
        arrays["reference"] = shift.reference
    facts = json.dumps({"kind": "adaptation", "rows": shift.rows, "decision": decision, "model": digest})
    file = io.BytesIO()
    np.savez(file, facts=np.frombuffer(facts.encode(), np.uint8), **arrays)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(file.getvalue())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise FileFormatError(f"{path} cannot be written: {error.strerror or error}.") from error


def read_adaptation(path: Path, batches: BatchReference, digest: str) -> tuple[Shift, str]:
    """Return the shift that `write_adaptation` wrote, and the decision."""
    try:
        arrays = _read_archive(path.read_bytes())
        facts = json.loads(arrays["facts"].tobytes())
        rows, decision, model = int(facts["rows"]), str(facts["decision"]), facts["model"]
        reference = arrays.get("reference")
        shift = Shift(rows, arrays["shift"], arrays["noise"], arrays["strength"], reference)
    except (*UNREADABLE, TypeError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a file of adapted statistics: {error!r}.") from error
    if model != digest:
        raise FileFormatError(f"{path} belongs to another model file. Adapt this one, or open the other.")
    parts, width = len(batches.channels), int(batches.channels.sum())
    expected = {"shift": width, "noise": width, "strength": parts}
    if reference is not None:
        expected["reference"] = width // 2
    for name, size in expected.items():
        array = getattr(shift, name)
        if array.shape != (size,) or array.dtype != np.float64 or not np.isfinite(array).all():
            raise FileFormatError(f"{path}: {name} is not {size} finite numbers. The file was changed.")
    if rows < 1 or (shift.noise < 0).any() or (shift.strength < 0).any() or (shift.strength > 1).any():
        raise FileFormatError(f"{path}: the numbers are impossible. The file was changed.")
    return shift, decision


def _read_archive(content: bytes) -> dict[str, Array]:
    """Return the arrays of an archive; objects, which could contain code, are refused."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
            raise ValueError("the arrays are too large")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
