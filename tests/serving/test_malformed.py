"""Malformed requests of the load test, a part of them."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="needs the extra serve: pip install msgspec uvicorn")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install msgspec uvicorn")

from bayesnorm import serving
from benchmarks import serving_malformed
from benchmarks.serving_client import ask_once, get, post

from ..served import serving_model


def json_body(content: Any) -> bytes:
    return json.dumps(content).encode()


class Numbers:
    """A table of numbers that needs no training."""

    name, is_table = "run", True
    inputs = (serving.Tensor("x", "FP64"), serving.Tensor("y", "FP64"))
    outputs = (serving.Tensor("mean", "FP64"),)

    def predict(self, batch: serving.Batch) -> serving.Batch:
        return {"mean": np.zeros(len(batch["x"]))}

    def watch(self, batch: serving.Batch) -> dict[str, float]:
        return {}


def test_malformed_requests_are_refused_without_a_fault(capsys: pytest.CaptureFixture[str]):
    right: dict[str, Any] = {"rows": [{"x": 1.5, "y": -2.0}]}
    with serving_model(Numbers(), seconds=0.1, log=True) as server:
        request = post("/predict", json_body(right))
        outcomes, faults = asyncio.run(serving_malformed.attack(server.port, range(400), request))
        assert faults == []
        assert server.ask("POST", "/predict", right).status == 200
    assert len(outcomes) == len(serving_malformed.KINDS) + 2
    assert sum(sum(counts.values()) for counts in outcomes.values()) == 400
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_is_seen():
    class Broken(Numbers):
        def predict(self, batch: serving.Batch) -> serving.Batch:
            raise RuntimeError

    with serving_model(Broken(), seconds=0.1) as server:
        request = post("/predict", json_body({"rows": [{"x": 1.5, "y": -2.0}]}))
        assert asyncio.run(serving_malformed.answer(server.port, request)) == ("500", True)
        assert asyncio.run(ask_once(server.port, get("/predict/"))).status == 404


def test_replies_are_not_delayed():
    with serving.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
