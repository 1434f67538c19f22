"""`bayesnorm serve`: runs and networks as served models, and options that cannot be used."""

from __future__ import annotations

import contextlib
import csv
import http.client
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("msgspec", reason="needs the extra serve: pip install msgspec uvicorn")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install msgspec uvicorn")

import bayesnorm as bn
from bayesnorm import serving
from bayesnorm.cli.serve import TableModel
from bayesnorm.errors import InputError

from ..ended_commands import Command
from ..served import serving_model
from .conftest import Fitted

TABLE = list[list[str]]


def table_of(fitted: Fitted) -> tuple[list[str], TABLE]:
    with fitted.data.open(newline="") as file:
        header, *lines = csv.reader(file)
    return header, lines[:9]


def columns_of(fitted: Fitted, model: TableModel) -> serving.Batch:
    header, lines = table_of(fitted)
    cells = [np.array(column, dtype=object) for column in zip(*lines, strict=True)]
    return {tensor.name: cells[header.index(tensor.name)] for tensor in model.inputs}


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_a_run_predicts_as_the_command_does(
    kind: str, request: pytest.FixtureRequest, bayesnorm: Command, tmp_path: Path
):
    fitted = request.getfixturevalue(f"{kind}_run")
    model = TableModel.from_folder(fitted.run, None, 0.9)
    assert model.name == "run"
    outputs = model.predict(columns_of(fitted, model))
    out = tmp_path / "out.csv"
    bayesnorm("predict", fitted.run, fitted.data, "--out", out, "--digits", 17)
    with out.open(newline="") as file:
        rows = [*csv.DictReader(file)][:9]
    assert [tensor.name for tensor in model.outputs] == [name for name in rows[0] if name != "row"]
    for tensor in model.outputs:
        texts = [row[tensor.name] for row in rows]
        if tensor.datatype == "FP64":
            np.testing.assert_allclose(outputs[tensor.name], np.array(texts, float), rtol=1e-9, atol=1e-12)
        else:
            assert [*map(str, outputs[tensor.name])] == texts
    alone = {name: array[3:4] for name, array in columns_of(fitted, model).items()}
    for name, values in model.predict(alone).items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(values[0], outputs[name][3], rtol=1e-9, atol=1e-12)


def test_rows_of_a_run_over_http(regression_run: Fitted):
    model = TableModel.from_folder(regression_run.run, "houses", 0.5)
    header, lines = table_of(regression_run)
    names = [tensor.name for tensor in model.inputs]
    text = io.StringIO()
    csv.writer(text).writerows([names, *([line[header.index(name)] for name in names] for line in lines)])
    number = next(tensor.name for tensor in model.inputs if tensor.datatype == "FP64")
    with serving_model(model) as server:
        reply = server.ask("POST", "/predict", text.getvalue().encode(), {"accept": "application/json"}, "text/csv")
        predictions = reply.json["predictions"]
        assert len(predictions) == len(lines)
        assert all(row["lower"] < row["upper"] for row in predictions)
        for value, words in (("many", "contains numbers in training"), (True, "'True'"), (10**400, "infinite")):
            row: dict[str, Any] = dict.fromkeys(names) | {number: value}
            refused = server.ask("POST", "/predict", {"rows": [dict.fromkeys(names), row]})
            assert refused.status == 400
            assert words in refused.json["error"]
            assert "row 2" in refused.json["error"]
    numbers = model.watch({name: np.repeat(array, 20) for name, array in columns_of(regression_run, model).items()})
    assert numbers.keys() == {"evidence", "alarm", "p_value", "columns"}


def test_a_row_that_cannot_be_read_is_an_error_of_the_input(regression_run: Fitted):
    model = TableModel.from_folder(regression_run.run, None, 0.9)
    columns = dict(columns_of(regression_run, model))
    number = next(tensor.name for tensor in model.inputs if tensor.datatype == "FP64")
    columns[number] = np.array(["x"] * 9, dtype=object)
    with pytest.raises(InputError, match="the request"):
        model.predict(columns)


NETWORK = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
"""


def saved_network(folder: Path) -> tuple[nn.Module, torch.Tensor, Any]:
    """Write a module, weights and a posterior for `--model`; return the network, inputs and the posterior."""
    (folder / "served_network.py").write_text(NETWORK)
    scope: dict[str, Any] = {}
    exec(NETWORK, scope)
    network, x = scope["make"](), torch.randn(64, 2, 3)
    posterior = bn.MCBN(batch_size=8, states=8).fit(network, (x, torch.arange(64) % 3), bn.Categorical())
    posterior.save(folder / "net.bayesnorm")
    torch.save(network.state_dict(), folder / "w.pt")
    return network, x, posterior


def test_a_network_predicts_as_its_posterior(tmp_path: Path):
    _, x, posterior = saved_network(tmp_path)
    model = serving.NetworkModel(posterior, (2, 3), "net", 0.9)
    expected = posterior.predict(x[:5])
    data = {"name": "input", "datatype": "FP32", "shape": [5, 2, 3], "data": x[:5].ravel().tolist()}
    with serving_model(model) as server:
        reply = server.infer([data]).json
    values = {output["name"]: np.reshape(output["data"], output["shape"]) for output in reply["outputs"]}
    np.testing.assert_allclose(values["probs"], expected.probs.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(values["entropy"], expected.entropy.numpy(), rtol=1e-5, atol=1e-6)
    assert model.watch({"input": x.numpy()})["p_value"] > 1e-6


def test_the_command_serves_a_network_until_it_is_asked_to_stop(tmp_path: Path):
    saved_network(tmp_path)
    options = ["--model", "served_network:make", "--weights", "w.pt", "--posterior", "net.bayesnorm", "--shape", "2,3"]
    command = [sys.executable, "-m", "bayesnorm", "serve", *options, "--port", "0", "--name", "net"]
    environment = {**os.environ, "BAYESNORM_TOKEN": "abc"}
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Serving net at http://127.0.0.1:"), line
        connection = http.client.HTTPConnection("127.0.0.1", int(line.split(":")[2].split("/")[0]), timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/v2/models/net", headers={"authorization": "Bearer abc"})
            metadata = json.loads(connection.getresponse().read())
        assert metadata["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 2, 3]}]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_options_that_cannot_be_used_are_refused(
    refuses: Callable[..., str], regression_run: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = regression_run.run
    assert "either" in refuses("serve", code=2)
    assert "either" in refuses("serve", run, "--model", "a:b", code=2)
    assert "--posterior" in refuses("serve", "--model", "a:b", code=2)
    for shape in ("3,x", "3,0", "99999,99999", f"3,{'9' * 5000}", ""):
        assert "--shape" in refuses("serve", "--model", "a:b", "--posterior", "p", "--shape", shape, code=2)
    assert "--level" in refuses("serve", run, "--level", 90, code=2)
    for file in (tmp_path / "none", "/dev/zero"):
        assert "--token-file" in refuses("serve", run, "--token-file", file, code=2)
    assert "is not a run" in refuses("serve", tmp_path)
    monkeypatch.setenv("BAYESNORM_TOKEN", "")
    assert "ASCII" in refuses("serve", run, code=2)
    monkeypatch.delenv("BAYESNORM_TOKEN")
    with serving.listen("127.0.0.1", 0) as taken:
        assert "--port" in refuses("serve", run, "--port", taken.getsockname()[1])
