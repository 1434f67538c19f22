"""Write a posterior as one file that predicts by itself, and compare the file's predictions with the posterior's."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesnorm_runtime import ARRAYS, METADATA as METADATA

from ..arguments import require_seed
from ..engines import Engine, PassEngine
from ..errors import BayesNormError, load_package
from ..network import exported
from ..posterior import Posterior
from ..predictive import require_level
from ..words import ShortRepr
from ..writing import require_writable, write_bytes
from .branching import compute_if_asked
from .module import SampledModule, as_module, chosen_engine, example_inputs, tensors_of_inputs
from .outputs import REFERENCES, largest_error, read_outputs
from .watching import packed, require_same_statistics, watching

# Numbers of examples for which a file is compared with its posterior.
BATCHES = (1, 2, 7, 33)

# The largest relative difference that is allowed.
TOLERANCE = 1e-4

# The largest size of a file: that of a message of protobuf.
LARGEST_FILE = 2**31 - 1

ONNX_ADVICE = "Exporting to ONNX needs onnx, onnxscript and onnxruntime: pip install onnx onnxscript onnxruntime."

Arrays = dict[str, Any]
"""NumPy arrays by name."""

Predict = Callable[[Sequence[Any]], Arrays]
"""A function of input arrays, in order."""


@dataclass(frozen=True, eq=False, repr=False)
class ExportedFile(ShortRepr):
    """What was written.

    Args:
        path: The file.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        samples: Number of forward passes whose results are mixed.
        engine: How the posterior was propagated.
        largest_difference: The largest relative difference from the posterior's predictions.
        size: Bytes of the file.
    """

    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    samples: int
    engine: str
    largest_difference: float
    size: int


@dataclass(frozen=True, eq=False)
class FileContents:
    """What a file contains.

    Args:
        program: The program of `torch.export`.
        inputs: Names of the network's inputs.
        outputs: Names of all outputs.
        optional: Default values of further inputs, by name.
        arrays: Arrays for the metadata, as text.
    """

    program: Any
    inputs: Sequence[str]
    outputs: Sequence[str]
    optional: Mapping[str, Tensor]
    arrays: str | None


def export(
    posterior: Posterior,
    path: str | os.PathLike[str],
    example: Any = None,
    *,
    samples: int | None = None,
    engine: Engine | None = None,
    seed: int = 0,
    outputs: Sequence[str] | None = None,
    level: float = 0.95,
    group: int | None = None,
    watch: bool = False,
) -> ExportedFile:
    """Write a posterior as a file that predicts with uncertainty, without this package and without training data.

    The file has one graph, from inputs to named outputs, for any number of examples; see `as_module`, which describes
    the arguments and defaults. The file is run on 1, 2, 7 and 33 examples before it is written. If a prediction differs
    from the posterior's by more than 1e-4, relative to the largest value of that output, nothing is written.

    Args:
        posterior: The posterior.
        path: The file: ".onnx" for ONNX, ".pt2" for `torch.export`.
        example: Some inputs, as for `predict`; more than one, so that different examples are compared. Default: None,
            training examples that the posterior keeps in memory.
        samples, engine, seed, outputs, level, group: See `as_module`.
        watch: Whether the file also returns the statistics of its batch-norm layers and takes other running statistics,
            so that `bayesnorm_runtime.Network` can test for drift and adapt. Default: False.
    """
    target, kind = Path(path), os.path.splitext(path)[1]
    if kind not in (".onnx", ".pt2"):
        raise BayesNormError(f'path: {target.name} must end with ".onnx" or ".pt2", which says what is written.')
    if watch and kind != ".onnx":
        raise BayesNormError(
            f"watch=True needs an ONNX file, but path is {target.name}. Use a name that ends with .onnx."
        )
    require_writable(target)
    seed, level = require_seed(seed), require_level(level)
    if kind == ".onnx":
        load_package("onnx", ONNX_ADVICE)
        load_package("onnxscript", ONNX_ADVICE)
        load_package("onnxruntime", ONNX_ADVICE)
    posterior = _in_supported_precision(posterior, kind)
    x, chosen = example_inputs(posterior, example), chosen_engine(posterior, engine, samples)
    names = list(posterior.executable.form.argument_names(x))
    watched = watching(posterior, x, chosen, seed, outputs, level, group) if watch else None
    module = (
        as_module(posterior, x, engine=chosen, seed=seed, outputs=outputs, level=level, group=group)
        if watched is None
        else watched.module.predictions
    )
    description = {
        "version": 1,
        "posterior": posterior.kind,
        "method": getattr(posterior, "method", None),
        "likelihood": posterior.likelihood.config(),
        "engine": repr(chosen),
        "seed": seed,
        "samples": module.samples,
        "level": level,
        "inputs": list(names),
        "outputs": list(module.names),
    }
    rows, whole = tensors_of_inputs(x[torch.arange(3) % len(x)]), module if watched is None else watched.module
    optional = {} if watched is None else watched.optional
    if watched is not None:
        description["watch"] = watched.description
    convert = _onnx_file if kind == ".onnx" else _program_file
    program = exported(whole, rows, type(posterior.model), fixed=tuple(optional.values()))
    packed_arrays = None if watched is None else packed(watched.arrays)
    contents = FileContents(program, names, whole.names, optional, packed_arrays)
    content, predict = convert(contents, description, None)
    difference, where = _checked(posterior, chosen, module, x, seed, predict)
    if not difference <= TOLERANCE:
        raise BayesNormError(
            f"The exported file gives another {where} than the posterior: the relative difference is {difference:.1e}, "
            f"and at most {TOLERANCE:g} is allowed. Nothing was written. Does the forward depend on the other examples "
            "of a batch? If not, leave that output out with outputs=, or use another engine."
        )
    description |= {"largest_difference": difference, "compared_batches": list(BATCHES), "torch": torch.__version__}
    content, _ = convert(contents, description, content)
    if watched is not None:
        require_same_statistics(posterior, x, watched, content)
    if len(content) > LARGEST_FILE:
        raise BayesNormError(f"path: the file would have {len(content):,} bytes, more than ONNX allows in one file.")
    write_bytes(target, content)
    return ExportedFile(str(target), tuple(names), module.names, module.samples, repr(chosen), difference, len(content))


def _in_supported_precision(posterior: Posterior, kind: str) -> Posterior:
    """Return the posterior on the CPU, and for ONNX in single precision."""
    dtype = posterior.executable.dtype
    if dtype.itemsize < 4:
        raise BayesNormError(
            f"The network's weights are {dtype}, which cannot be exported. Use posterior.to(torch.float32)."
        )
    single = kind == ".onnx" and dtype != torch.float32
    if posterior.executable.device.type == "cpu" and not single:
        return posterior
    return posterior.to("cpu", torch.float32 if single else None)


def _checked(
    posterior: Posterior, engine: PassEngine, module: SampledModule, x: Any, seed: int, predict: Predict
) -> tuple[float, str]:
    """Return the largest difference of a file's predictions from the posterior's, and the output that has it."""
    worst, name = 0.0, ""
    for rows in BATCHES:
        inputs = varied(x, rows)
        predictive = engine.predict(posterior, inputs, seed)
        expected = read_outputs(
            predictive, (*module.chosen, *REFERENCES), lambda _: lambda part: part.interval(module.level)
        )
        values = predict([tensor.numpy() for tensor in tensors_of_inputs(inputs)])
        error, output = largest_error(values, {key: value.numpy() for key, value in expected.items()})
        if not error <= worst:
            worst, name = error, output
    return worst, name


def varied(x: Any, rows: int) -> Any:
    """Return this number of examples: those of `x`, and if there are fewer, noisy copies of them."""
    chosen = x[torch.arange(rows) % len(x)]
    generator = torch.Generator().manual_seed(0)

    def noisy(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() or rows <= len(x):
            return tensor
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)
        changed = tensor + 0.1 * tensor.std() * noise
        return torch.cat([tensor[: len(x)], changed[len(x) :]])

    return noisy(chosen) if isinstance(chosen, Tensor) else chosen.map(noisy)


def _onnx_file(contents: FileContents, description: Mapping[str, Any], earlier: bytes | None) -> tuple[bytes, Predict]:
    """Return an ONNX file, and the function that runs it.

    Args:
        contents: What the file contains.
        description: The metadata.
        earlier: The file without the final metadata, if it was made before.
    """
    import onnx
    import onnxruntime

    inputs, outputs = contents.inputs, description["outputs"]
    if earlier is None:
        model = convert_to_onnx(contents.program, [*inputs, *contents.optional], contents.outputs)
        for name, value in contents.optional.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(value.cpu().numpy(), name))
        if contents.optional:
            compute_if_asked(model, [name for name in contents.outputs if name not in outputs])
    else:
        model = onnx.load_model_from_string(earlier)
    del model.metadata_props[:]
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph):
        del part.metadata_props[:]  # lines of code and paths of this machine
        part.ClearField("doc_string")
    arrays = {} if contents.arrays is None else {ARRAYS: contents.arrays}
    onnx.helper.set_model_props(model, {METADATA: json.dumps(description), **arrays})
    content = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def predict(arrays: Sequence[Any]) -> Arrays:
        return dict(zip(outputs, session.run(outputs, dict(zip(inputs, arrays, strict=True))), strict=True))

    return content, predict


def convert_to_onnx(program: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Return the ONNX model of a program."""
    with _quiet():
        try:
            result: Any = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[f"bayesnorm_input_{place}" for place in range(len(inputs))],
                output_names=[f"bayesnorm_output_{place}" for place in range(len(outputs))],
                verbose=False,
                external_data=False,
            )
        except Exception as error:  # converters fail in many ways
            lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
            raise BayesNormError(
                f"The network cannot be converted to ONNX: {lines[-1].strip()} Use a path that ends with .pt2."
            ) from error
    model = result.model_proto
    _rename(model.graph, inputs, outputs)
    return model


def _rename(graph: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give inputs and outputs their names, and other names to values inside that are called the same."""
    names = {value.name: name for value, name in zip((*graph.input, *graph.output), (*inputs, *outputs), strict=True)}
    inner = {name: f"inner_{name}" for name in (*inputs, *outputs)}

    def renamed(name: str) -> str:
        return names.get(name) or inner.get(name, name)

    for node in graph.node:
        node.input[:] = map(renamed, node.input)
        node.output[:] = map(renamed, node.output)
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = renamed(value.name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the converter prints and warns of."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _program_file(
    contents: FileContents, description: Mapping[str, Any], earlier: bytes | None
) -> tuple[bytes, Predict]:
    """Return a file of `torch.export`, and the function that runs it; see `_onnx_file`."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(contents.program, file, extra_files={METADATA: json.dumps(description)})
        file.seek(0)
        loaded = torch.export.load(file).module()

    def predict(arrays: Sequence[Any]) -> Arrays:
        with torch.no_grad():
            results = loaded(*map(torch.from_numpy, arrays))
        return {name: np.asarray(results[name]) for name in contents.outputs}

    return file.getvalue(), predict
