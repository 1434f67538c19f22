"""ONNX files as served models, and as a model repository for Triton."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx: pip install onnx onnxruntime")
pytest.importorskip("onnx", reason="needs the extra onnx: pip install onnx onnxruntime")
pytest.importorskip("msgspec", reason="needs the extra serve: pip install msgspec uvicorn")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install msgspec uvicorn")

import onnx
from onnx import TensorProto, helper

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.export import write_triton_repository
from bayesnorm.serving import OnnxModel

from ..served import serving_model

FLOAT, TEXT, WHOLE = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64


def write_file(path: Path, nodes: Any, inputs: Any, outputs: Any, metadata: Any = None) -> Path:
    """Write an ONNX file; inputs and outputs are (name, type, shape)."""
    graph = helper.make_graph(nodes, "g", *([helper.make_tensor_value_info(*v) for v in s] for s in (inputs, outputs)))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    helper.set_model_props(model, {} if metadata is None else {"bayesnorm": json.dumps(metadata)})
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    nodes = [helper.make_node("Relu", ["input"], ["kept"]), helper.make_node("Flatten", ["input"], ["flat"])]
    outputs = [("kept", FLOAT, ["n", 2, 3]), ("flat", FLOAT, ["n", 6])]
    return write_file(tmp_path / "net.onnx", nodes, [("input", FLOAT, ["n", 2, 3])], outputs)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Identity", ["colour"], ["text"]),
        helper.make_node("Identity", ["count"], ["same"]),
    ]
    inputs = [("x", FLOAT, ["n", 1]), ("colour", TEXT, ["n"]), ("count", WHOLE, ["n"])]
    outputs = [("twice", FLOAT, ["n", 1]), ("text", TEXT, ["n"]), ("same", WHOLE, ["n"])]
    return write_file(tmp_path / "table.onnx", nodes, inputs, outputs)


def test_a_network_is_served(images: Path):
    data = np.arange(-6.0, 6.0).reshape(2, 2, 3)
    with serving_model(OnnxModel(images)) as server:
        assert server.ask("GET", "/v2/models/net").json["outputs"][1] == {
            "name": "flat",
            "datatype": "FP32",
            "shape": [-1, 6],
        }
        tensor = {"name": "input", "datatype": "FP32", "shape": [2, 2, 3], "data": data.ravel().tolist()}
        outputs = {output["name"]: output for output in server.infer([tensor]).json["outputs"]}
        assert outputs["kept"]["data"] == np.maximum(data, 0).ravel().tolist()
        assert outputs["flat"]["shape"] == [2, 6]
        assert server.ask("POST", "/predict", {"rows": []}).status == 404


def test_a_table_is_served_as_json_and_csv(table: Path):
    rows = [{"x": 1.5, "colour": "red", "count": 3}, {"x": None, "colour": None, "count": 2**53}]
    with serving_model(OnnxModel(table, "mine")) as server:
        assert server.ask("POST", "/predict", {"rows": rows}).json["predictions"] == [
            {"twice": 3.0, "text": "red", "same": 3},
            {"twice": None, "text": "", "same": 2**53},
        ]
        reply = server.ask("POST", "/predict", b"count,colour,x\n3,red,1.5\n", kind="text/csv").body.decode()
        assert list(csv.reader(reply.splitlines())) == [["twice", "text", "same"], ["3.0", "red", "3"]]
        for column, value in (
            ("x", "a"),
            ("x", "inf"),
            ("x", 1e300),
            ("count", 1.5),
            ("count", None),
            ("count", 1e300),
        ):
            reply = server.ask("POST", "/predict", {"rows": [rows[0], rows[0] | {column: value}]})
            assert (reply.status, column in reply.json["error"]) == (400, True), reply.body


def test_an_exported_table_has_dates_and_classes(tmp_path: Path):
    nodes = [helper.make_node("Concat", ["day", "x"], ["probs"], axis=1)]
    double = TensorProto.DOUBLE
    inputs = [("day", double, ["n", 1]), ("x", double, ["n", 1])]
    columns = [{"name": "day", "kind": "date"}, {"name": "x", "kind": "number"}]
    metadata = {"kind": "table", "columns": columns, "classes": ["no", "yes"]}
    path = write_file(tmp_path / "t.onnx", nodes, inputs, [("probs", double, ["n", 2])], metadata)
    with serving_model(OnnxModel(path)) as server:
        days = "1970-01-02T00:00:01.5", "1970-01-01", "1970-01-01T00:00+05:30", ""
        rows = [{"day": day, "x": 2 if day else 1} for day in days]
        assert server.ask("POST", "/predict", {"rows": rows}).json["predictions"] == [
            {"predicted": "no", "p(no)": 86401.5, "p(yes)": 2},
            {"predicted": "yes", "p(no)": 0, "p(yes)": 2},
            {"predicted": "yes", "p(no)": 0, "p(yes)": 2},
            {"predicted": "no", "p(no)": None, "p(yes)": 1},
        ]
        for wrong in ("31.1.2024", 5, "now", "today", "2024-02-30", "2024-01-31+01:00", "2024-01-31 junk"):
            reply = server.ask("POST", "/predict", {"rows": [{"day": wrong, "x": 1}]})
            assert (reply.status, "a date such as" in reply.json["error"]) == (400, True)


def test_damaged_metadata_are_refused(images: Path, tmp_path: Path):
    """Without them, dates of an exported table would be read as numbers."""
    model, table = onnx.load(images), {"kind": "table", "columns": [{"name": "x", "kind": "date"}]}
    texts = ["{", "[1]", "[" * 100_000, '{"a": "\\ud800"}', '{"a": 1, "a": 2}', json.dumps(table)]
    texts += [json.dumps(table | {"classes": classes}) for classes in (3, ["yes", "yes"])]
    for text in texts:
        helper.set_model_props(model, {"bayesnorm": text})
        path = tmp_path / "other.onnx"
        path.write_bytes(model.SerializeToString())
        with pytest.raises(BayesNormError, match="damaged"):
            OnnxModel(path)
    for file in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(BayesNormError, match="cannot be read"):
            OnnxModel(file)


def test_whole_numbers_keep_all_digits(table: Path):
    large = np.array([2**53 + 1])
    model = OnnxModel(table)
    batch = {"x": np.array([0.0]), "colour": np.array(["a"], dtype=object)}
    assert model.predict({**batch, "count": large})["same"] == large
    assert model.predict({**batch, "count": large.astype(object)})["same"] == large
    with pytest.raises(InputError, match="row 1"):
        model.predict({**batch, "count": np.array(["x"], dtype=object)})


def test_files_that_cannot_be_served(tmp_path: Path):
    identity = [helper.make_node("Identity", ["a"], ["b"])]

    def one(shape: list[Any], kind: int) -> Path:
        return write_file(tmp_path / "one.onnx", identity, [("a", kind, shape)], [("b", kind, shape)])

    for shape, kind, message in (
        ([1, 3], FLOAT, "first axis must be the number of rows"),
        (["n", "width"], FLOAT, "sizes that are free"),
        (["n", 3], TensorProto.FLOAT16, "FP16"),
        (["n", 3], TensorProto.COMPLEX64, "that onnxruntime can run"),
    ):
        with pytest.raises(BayesNormError, match=message):
            OnnxModel(one(shape, kind))
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"\x08\x0a" * 20)
    with pytest.raises(BayesNormError, match="not an ONNX file"):
        OnnxModel(damaged)


def test_a_repository_for_triton(table: Path, tmp_path: Path):
    folder = write_triton_repository(table, tmp_path / "models")
    assert (folder / "1" / "model.onnx").read_bytes() == table.read_bytes()
    text = (folder / "config.pbtxt").read_text()
    assert 'name: "table"' in text
    assert 'input { name: "x" data_type: TYPE_FP32 dims: [1] }' in text
    assert 'output { name: "text" data_type: TYPE_STRING dims: [1] reshape { shape: [] } }' in text
    with pytest.raises(BayesNormError, match="cannot be called"):
        write_triton_repository(table, tmp_path, "../x")
