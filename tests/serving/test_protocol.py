"""The Open Inference Protocol V2, as JSON and binary; rows as JSON and CSV; and refusals that say what to do."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="needs the extra serve: pip install msgspec uvicorn")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install msgspec uvicorn")

from ..served import Doubling, Image, Server, serving_model


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving_model(Doubling(), mib=0.1, rows=50) as running:
        yield running


@pytest.fixture(scope="module")
def images() -> Iterator[Server]:
    with serving_model(Image()) as running:
        yield running


def tensor(name: str, datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


X, T = tensor("x", "FP64", [2], data=[1, 2.5]), tensor("t", "BYTES", [2], data=["a", "b"])


def test_health_metadata_and_pages(server: Server):
    assert server.ask("GET", "/v2/health/live").json == {"live": True}
    for path in ("/v2/health/ready", "/v2/models/doubling/ready", "/v2/models/doubling/versions/1/ready"):
        assert server.ask("GET", path).json == {"ready": True}
    assert server.ask("GET", "/v2").json["extensions"] == ["binary_tensor_data"]
    metadata = server.ask("GET", "/v2/models/doubling").json
    assert metadata["inputs"][1] == {"name": "t", "datatype": "BYTES", "shape": [-1]}
    assert "/predict" in server.ask("GET", "/openapi.json").json["paths"]
    assert b"<h1>doubling</h1>" in server.ask("GET", "/docs").body


def test_json_tensors(server: Server):
    reply = server.infer([X, T], id="7").json
    assert (reply["id"], reply["model_name"]) == ("7", "doubling")
    values = {output["name"]: output["data"] for output in reply["outputs"]}
    assert values == {"twice": [2, 5], "text": ["a", "b"], "unusual": [False, False]}
    nested = server.infer([tensor("x", "INT32", [2, 1], data=[[1], [20]]), T], outputs=[{"name": "unusual"}]).json
    assert nested["outputs"] == [{"name": "unusual", "datatype": "BOOL", "shape": [2], "data": [False, True]}]


def binary_body(x: bytes, texts: bytes, rows: int, **more: Any) -> tuple[bytes, dict[str, str]]:
    inputs = [
        tensor("x", "FP64", [rows], parameters={"binary_data_size": len(x)}),
        tensor("t", "BYTES", [rows], parameters={"binary_data_size": len(texts)}),
    ]
    head = json.dumps({"inputs": inputs, **more}).encode()
    return head + x + texts, {"Inference-Header-Content-Length": str(len(head))}


def as_bytes(texts: list[str]) -> bytes:
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


def test_binary_tensors(server: Server):
    x, texts = np.array([1.5, 11.0]).astype("<f8").tobytes(), as_bytes(["å", ""])
    body, headers = binary_body(x, texts, 2, parameters={"binary_data_output": True})
    reply = server.ask("POST", "/v2/models/doubling/versions/1/infer", body, headers)
    length = int(reply.headers["inference-header-content-length"])
    outputs, rest = json.loads(reply.body[:length])["outputs"], reply.body[length:]
    assert [output["parameters"]["binary_data_size"] for output in outputs] == [16, len(texts), 2]
    assert rest == np.array([3.0, 22.0]).astype("<f8").tobytes() + texts + b"\0\1"
    one = [{"name": "twice", "parameters": {"binary_data": True}}, {"name": "text"}]
    body, headers = binary_body(x, texts, 2, outputs=one)
    reply = server.ask("POST", "/v2/models/doubling/infer", body, headers)
    assert reply.body.endswith(np.array([3.0, 22.0]).astype("<f8").tobytes())
    assert b'"data":["\xc3\xa5",""]' in reply.body


@pytest.mark.parametrize(
    ("x", "texts", "rows"),
    [
        (b"\0" * 15, as_bytes(["a", "b"]), 2),
        (b"\0" * 16, as_bytes(["a"]), 2),
        (b"\0" * 16, b"\xff\xff\xff\xff", 2),
        (b"\0" * 16, as_bytes(["a", "b"]) + b"\1", 2),
        (b"\0" * 16, struct.pack("<I", 1) + b"\xff" + as_bytes(["b"]), 2),
        (np.array([1, np.nan]).tobytes(), as_bytes(["a", "b"]), 2),
    ],
)
def test_wrong_bytes_are_refused(server: Server, x: bytes, texts: bytes, rows: int):
    reply = server.ask("POST", "/v2/models/doubling/infer", *binary_body(x, texts, rows))
    assert reply.status == 400
    assert "Input" in reply.json["error"]


def test_wrong_lengths_of_the_json_are_refused(server: Server):
    body, _ = binary_body(b"\0" * 16, as_bytes(["a", "b"]), 2)
    for length in ("-1", "x", "9" * 30, "٣", "3"):
        headers = {"Inference-Header-Content-Length": length.encode().decode("latin-1")}
        assert server.ask("POST", "/v2/models/doubling/infer", body, headers).status == 400
    assert server.ask("POST", "/v2/models/doubling/infer", body + b"more").status == 400


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [X],
        [X, X, T],
        [X, T, tensor("z", "FP64", [2], data=[1, 2])],
        [tensor("x", "FP64", [3], data=[1, 2, 3]), T],
        [tensor("x", "FP64", [2], data=[1]), T],
        [tensor("x", "FP64", [2], data=["1", "2"]), T],
        [tensor("x", "FP64", [2], data=[[1], [2, 3]]), T],
        [tensor("x", "FP64", [2], data=[1, None]), T],
        [tensor("x", "FP64", [2, 2], data=[1, 2, 3, 4]), T],
        [tensor("x", "FP64", [-2], data=[1, 2]), T],
        [tensor("x", "FP64", [0], data=[]), tensor("t", "BYTES", [0], data=[])],
        [tensor("x", "FP64", [0, 10**30], data=[]), T],
        [tensor("x", "FP64", [2, *[1] * 80], data=[1, 2]), T],
        [tensor("x", "FP99", [2], data=[1, 2]), T],
        [tensor("x", "INT8", [2], data=[1, 300]), T],
        [tensor("x", "FP64", [2], data=[1, 10**400]), T],
        [tensor("x", "FP64", [2]), T],
        [tensor("x", "FP64", [2], data=[1, 2], parameters={"binary_data_size": 16}), T],
        [tensor("x", "FP64", [2], parameters={"binary_data_size": 10**20}), T],
        [tensor("x", "FP64", [2], parameters={"shared_memory_region": "r"}), T],
        ["x"],
        None,
    ],
)
def test_wrong_tensors_are_refused(server: Server, inputs: Any):
    reply = server.infer(inputs)
    assert reply.status == 400, reply.body
    assert "Traceback" not in reply.json["error"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"\xff", b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[NaN]}]}', b"[" * 50000],
)
def test_bad_json_is_refused(server: Server, body: bytes):
    for path in ("/predict", "/v2/models/doubling/infer"):
        assert server.ask("POST", path, body).status == 400


def test_wrong_addresses_and_outputs_are_refused(server: Server):
    assert server.ask("GET", "/nowhere").status == 404
    wrong_method = server.ask("DELETE", "/predict")
    assert (wrong_method.status, wrong_method.headers["allow"]) == (405, "POST")
    assert server.ask("HEAD", "/v2/health/live").status == 200
    assert "doubling" in server.ask("GET", "/v2/models/other/infer").json["error"]
    assert server.ask("GET", "/v2/models/other").status == 404
    assert server.ask("POST", "/predict", b"x", kind="text/html").status == 415
    assert server.ask("POST", "/predict", b"x", {"content-encoding": "gzip"}).status == 415
    assert "twice" in server.infer([X, T], outputs=[{"name": "z"}]).json["error"]
    assert server.infer([X, T], outputs=[{"name": "twice", "parameters": {"classification": 2}}]).status == 400


def test_rows_as_json_and_csv(server: Server):
    rows = [{"x": 1, "t": "a"}, {"x": 2.5, "t": None}]
    reply = server.ask("POST", "/predict", {"rows": rows}).json
    assert reply["predictions"][1] == {"twice": 5.0, "text": None, "unusual": False}
    csv = server.ask("POST", "/predict", b'\xef\xbb\xbft, x\r\n"a,b",1\r\n,2\r\n', kind="text/csv; charset=utf-8")
    assert csv.body == b'twice,text,unusual\n2.0,"a,b",False\n4.0,,False\n'
    both = server.ask("POST", "/predict", {"rows": rows}, {"accept": "text/csv"})
    assert both.headers["content-type"].startswith("text/csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"rows": []}, "no rows"),
        ({"rows": [{"x": 1}]}, "lacks column 't'"),
        ({"rows": [{"x": 1, "t": "a", "z": 2}]}, "unknown column 'z'"),
        ({"rows": [{"x": [1], "t": "a"}]}, "rows[0]"),
        ({"rows": 1}, "rows"),
        ({"row": []}, "row"),
        (b"", "lacks column 'x'"),
        (b"x,t\n1\n", "Row 1 has 1 cells"),
        (b"x,t,x\n", "twice"),
        (b'x,t\n"1,2\n', "not CSV"),
        (b"\xff\xfe", "not CSV"),
        (b"x,t\n", "no rows"),
    ],
)
def test_wrong_rows_are_refused(server: Server, content: Any, message: str):
    kind = "text/csv" if isinstance(content, bytes) else "application/json"
    reply = server.ask("POST", "/predict", content, kind=kind)
    assert reply.status == 400
    assert message in reply.json["error"]


def test_large_requests_are_refused(server: Server):
    assert server.ask("POST", "/predict", {"rows": [{"x": 1, "t": "a"}] * 51}).status == 413
    assert server.ask("POST", "/predict", b" " * 110_000).status == 413


def test_arrays_of_a_network(images: Server):
    data = np.arange(12.0).reshape(2, 2, 3)
    flat, nested = (
        tensor("input", "FP64", [2, 2, 3], data=values) for values in (data.ravel().tolist(), data.tolist())
    )
    for one in (flat, nested):
        assert images.infer([one]).json["outputs"][0]["data"] == [15.0, 51.0]
    wrong = tensor("input", "FP32", [2, 6], data=data.ravel().tolist())
    assert "[rows, 2, 3]" in images.infer([wrong]).json["error"]
    large = tensor("input", "FP64", [1, 2, 3], data=[1e300] * 6)
    assert "too large" in images.infer([large]).json["error"]
    text = tensor("input", "BYTES", [1, 2, 3], data=["a"] * 6)
    assert "text" in images.infer([text]).json["error"]
    assert images.ask("POST", "/predict", {"rows": []}).status == 404
