"""A server of HTTP in a thread, for tests."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import uvicorn

from bayesnorm import serving
from bayesnorm.errors import InputError
from bayesnorm.serving.running import configuration

QUIET = serving.Settings(log=False)


@dataclasses.dataclass
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclasses.dataclass
class Server:
    """A running server; `ask` sends one request over a connection of its own."""

    port: int
    name: str

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, kind: str = ""
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            kind = kind or "application/json"
            connection.request(method, path, content, {"content-type": kind, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})

    def infer(self, inputs: Any, **more: Any) -> Reply:
        return self.ask("POST", f"/v2/models/{self.name}/infer", {"inputs": inputs, **more})


@contextlib.contextmanager
def serving_model(model: serving.Model, **settings: Any) -> Iterator[Server]:
    """Serve a model until the block ends."""
    listener = serving.listen("127.0.0.1", 0)
    server = uvicorn.Server(configuration(model, dataclasses.replace(QUIET, **settings)))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield Server(listener.getsockname()[1], model.name)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


class Doubling:
    """A model with numbers and text that needs no training; it records batches, and can wait or fail."""

    name, is_table = "doubling", True
    inputs = (serving.Tensor("x", "FP64"), serving.Tensor("t", "BYTES"))
    outputs = (serving.Tensor("twice", "FP64"), serving.Tensor("text", "BYTES"), serving.Tensor("unusual", "BOOL"))

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.started, self.go = threading.Semaphore(0), threading.Event()
        self.go.set()
        self.watched: list[int] = []

    def predict(self, batch: serving.Batch) -> serving.Batch:
        """Double numbers; "fail" is an error of the program, and "refuse" one of the client."""
        self.started.release()
        assert self.go.wait(60)
        self.batches.append(len(batch["x"]))
        if "fail" in batch["t"].tolist():
            raise RuntimeError("secret")
        if "refuse" in batch["t"].tolist():
            raise InputError("t is refused. Send another text.")
        return {"twice": 2 * batch["x"].astype(float), "text": batch["t"], "unusual": batch["x"].astype(float) > 10}

    def watch(self, batch: serving.Batch) -> dict[str, float]:
        self.watched.append(len(batch["x"]))
        return {"p_value": 0.5}


class Image:
    """A network-like model of small images."""

    name, is_table = "image", False
    inputs = (serving.Tensor("input", "FP32", (2, 3)),)
    outputs = (serving.Tensor("sum", "FP32"),)

    def predict(self, batch: serving.Batch) -> serving.Batch:
        return {"sum": batch["input"].sum((1, 2), dtype=np.float32)}

    def watch(self, batch: serving.Batch) -> dict[str, float]:
        return {}
