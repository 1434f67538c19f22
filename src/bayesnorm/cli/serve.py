"""`bayesnorm serve`: predict over HTTP, with a run of `bayesnorm fit`, an ONNX file, or a network and its posterior."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
import typer

from ..errors import BayesNormError
from ..files import read_at_most
from .ending import UsageError
from .file_columns import convert_columns, formats_in_training
from .networks import Model, PosteriorFile, Shape, Weights, load_posterior
from .options import option
from .predictions import join_targets
from .printing import note
from .run_folder import MODEL, read_runs, unchanged
from .table_source import pandas, plain_cells

if TYPE_CHECKING:
    from ..serving import Batch, Model as ServedModel

# Default of --level.
LEVEL = 0.9

TOKEN = "BAYESNORM_TOKEN"
"""The environment variable with the token."""

# Bytes of the longest file with a token.
LONGEST_TOKEN = 4096


def serve(
    run: Annotated[
        Path | None, typer.Argument(help="Folder that `bayesnorm fit --out` created, or an ONNX file.")
    ] = None,
    model: Model = None,
    weights: Weights = None,
    posterior: PosteriorFile = None,
    shape: Shape = None,
    name: Annotated[
        str | None, option("NAME", "Name of the model in addresses.", "the name of the folder, file or function")
    ] = None,
    level: Annotated[
        float | None,
        option("P", "Probability that the interval from lower to upper contains the target.", "0.9; an ONNX file's"),
    ] = None,
    samples: Annotated[int | None, option("N", "Samples of a prediction; with --model.", "64", min=1)] = None,
    host: Annotated[str, option("ADDRESS", "Address that accepts connections; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, option("PORT", "Port of this address; 0 for a free one.", min=0, max=65535)] = 8000,
    queue: Annotated[int, option("N", "Requests that may wait; further ones get status 429.", min=1)] = 256,
    time_limit: Annotated[float, option("SECONDS", "Time after which a request fails.", min=0.001)] = 30,
    max_body: Annotated[float, option("MIB", "Largest body of a request.", min=0.001)] = 16,
    max_rows: Annotated[
        int, option("N", "Largest number of rows of a request, and about how many are predicted together.", min=1)
    ] = 2000,
    token_file: Annotated[
        Path | None, option("FILE", f"File with the token that clients must send; or set {TOKEN}.", "no token")
    ] = None,
    log: Annotated[bool, typer.Option(help="Log each request as a line of JSON to standard error.")] = True,
) -> None:
    """Predict over HTTP: rows of a table as JSON or CSV, and the Open Inference Protocol V2.

    Clients of KServe and Triton work unchanged, also with binary tensors.
    /docs lists the addresses, and /metrics shows latency, uncertainty and drift.
    Ctrl-C or SIGTERM ends the server after open requests are answered.

    \b
    Examples:
      bayesnorm serve run
      bayesnorm serve net.onnx
      bayesnorm serve --model package.module:make --weights w.safetensors
                      --posterior net.bayesnorm --shape 3,32,32
    """
    chosen_level = LEVEL if level is None else level
    if not 0 < chosen_level < 1:
        raise UsageError(f"--level must be a number between 0 and 1, got {chosen_level:g}.")
    if (run is None) == (model is None):
        raise UsageError("Pass either a run, an ONNX file or --model, for example: bayesnorm serve run.")
    from ..serving import NetworkModel, OnnxModel, Settings, listen, serve as run_server

    token = _token(token_file)
    served: ServedModel
    if run is None:
        loaded, sizes = load_posterior(str(model), weights, posterior, shape)
        served = NetworkModel(loaded, sizes, name or str(model).rpartition(":")[2], chosen_level, samples)
    elif run.suffix == ".onnx":
        if level is not None:
            raise UsageError(f"--level: the intervals are part of {run}. Export it again with another level.")
        served = OnnxModel(run, name)
    else:
        served = TableModel.from_folder(run, name, chosen_level)
    settings = Settings(queue=queue, seconds=time_limit, mib=max_body, rows=max_rows, token=token, log=log)
    with listen(host, port) as listener:
        if token is None and not _is_local(listener.getsockname()[0]):
            note(f"warning: anyone who can reach {host} can ask this server. Set {TOKEN}, or use --host 127.0.0.1.")
        shown = f"[{host}]" if ":" in host else host
        note(f"Serving {served.name} at http://{shown}:{listener.getsockname()[1]}/docs")
        run_server(served, listener, settings)


@dataclass(frozen=True, eq=False)
class TableModel:
    """A run as the server needs it: its columns are inputs, and the columns of `bayesnorm predict` are outputs.

    Args:
        name: The name in addresses.
        inputs, outputs: The columns.
        runs: The estimator and the `run.json` of each target.
        level: Probability of the intervals.
        monitor: The monitor of the network's inputs; None if the network has no batch statistics.
    """

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    runs: Mapping[str, tuple[Any, Mapping[str, Any]]]
    level: float
    monitor: Any

    is_table = True

    @classmethod
    def from_folder(cls, folder: Path, name: str | None, level: float) -> TableModel:
        """Return the model of the folder of a run."""
        from ..serving import Tensor, datatype_of
        from ..shift import DriftMonitor
        from ..tabular import load

        runs = {
            str(facts.get("target")): (load(unchanged(part, facts, MODEL)), facts) for part, facts in read_runs(folder)
        }
        kinds = {column["name"]: column["kind"] for _, facts in runs.values() for column in facts["columns"]}
        inputs = tuple(Tensor(column, "FP64" if kind == "number" else "BYTES") for column, kind in kinds.items())
        try:
            monitor = DriftMonitor(next(iter(runs.values()))[0].posterior_)
        except BayesNormError:
            monitor = None
        model = cls(name or folder.resolve().name, inputs, (), runs, level, monitor)
        # The prediction of an empty row shows the names and the datatypes of all outputs.
        empty = {tensor.name: np.array([None], dtype=object) for tensor in inputs}
        outputs = tuple(Tensor(column, datatype_of(array)) for column, array in model.predict(empty).items())
        return cls(model.name, inputs, outputs, runs, level, monitor)

    def predict(self, batch: Batch) -> Batch:
        """Return the columns of `bayesnorm predict`, unrounded."""
        from ..tabular import prediction_frame

        frames = {}
        for target, (model, values) in self._values(batch).items():
            predictive, uncertainty = model.predict_with_uncertainty(values)
            frames[target] = prediction_frame(model, values, predictive, uncertainty, self.level)
        frame = join_targets(frames).drop(columns="row")
        return {column: _array(frame[column]) for column in frame}

    def watch(self, batch: Batch) -> dict[str, float]:
        """Test rows for drift, each column and the network."""
        from ..serving import monitor_numbers

        model, values = next(iter(self._values(batch).values()))
        drift = model.drift(values)
        numbers = {"columns": float(len(drift.moved)), "p_value": drift.p_value}
        if self.monitor is None:
            return numbers
        features = model.preprocessing_.network_inputs(model.preprocessing_.transform(values))
        return {**monitor_numbers(self.monitor, torch.from_numpy(features).float().double()), **numbers}

    def _values(self, batch: Batch) -> dict[str, tuple[Any, Any]]:
        """Return the estimator of each target, and rows read in the same way as in its training."""
        cells = {name: _cells(array) if array.dtype == object else array for name, array in batch.items()}
        frame = pandas().DataFrame(cells)
        frame.index = range(1, len(frame) + 1)
        values = {}
        for target, (model, facts) in self.runs.items():
            formats = formats_in_training(facts)
            values[target] = model, convert_columns(frame[list(formats)], "the request", formats)[0]
        return values


def _cells(column: Any) -> list[Any]:
    """Return cells of a request as cells of a file; truth values become text, so that they are no numbers."""
    return plain_cells([str(cell) if isinstance(cell, bool) else cell for cell in column], {})


def _array(column: Any) -> Any:
    """Return a column of predictions as an array; text as objects."""
    return column.to_numpy() if column.dtype.kind in "biuf" else column.astype(str).to_numpy(dtype=object)


def _token(file: Path | None) -> str | None:
    """Return the token of a file or of the environment; None if there is none."""
    token = os.environ.get(TOKEN)
    if file is not None:
        try:
            token = read_at_most(file, LONGEST_TOKEN).decode().strip()
        except (OSError, ValueError) as error:
            raise UsageError(f"--token-file: {file} cannot be read ({error}). Pass a file with one line.") from None
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise UsageError(f"The token must be printable ASCII without blanks around it. Change {TOKEN} or --token-file.")
    return token


def _is_local(address: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
