"""Batches, the queue, time limits, the token, shutdown, logs and metrics."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="needs the extra serve: pip install msgspec uvicorn")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install msgspec uvicorn")

from bayesnorm import serving
from bayesnorm.errors import BayesNormError
from bayesnorm.serving import batching

from ..served import Doubling, Reply, Server, serving_model


def rows(*values: float, text: str = "a") -> dict[str, Any]:
    return {"rows": [{"x": value, "t": text} for value in values]}


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def in_flight(server: Server) -> int:
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("bayesnorm_in_flight "))


def test_waiting_requests_are_predicted_together_and_fail_alone():
    model, texts = Doubling(), ["a"] * 8 + ["fail", "refuse"]
    model.go.clear()
    with serving_model(model) as server, ThreadPoolExecutor(len(texts) + 1) as pool:
        first = pool.submit(server.ask, "POST", "/predict", rows(0))
        assert model.started.acquire(timeout=60)  # the model is busy with it
        answers = [
            pool.submit(server.ask, "POST", "/predict", rows(number, number, text=text))
            for number, text in enumerate(texts)
        ]
        wait_until(lambda: in_flight(server) == 1 + len(texts))
        model.go.set()
        replies: list[Reply] = [answer.result() for answer in answers]
        assert first.result().status == 200
        assert [reply.status for reply in replies] == [200] * 8 + [500, 400]
        for number, reply in enumerate(replies[:8]):
            assert [row["twice"] for row in reply.json["predictions"]] == [2 * number] * 2
        assert "secret" not in replies[8].json["error"]
        assert replies[9].json["error"].startswith("t is refused")
        assert model.batches[:2] == [1, 2 * len(texts)]
        assert in_flight(server) == 0


def test_the_queue_refuses_and_recovers():
    model = Doubling()
    model.go.clear()
    with serving_model(model, queue=3) as server, ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(server.ask, "POST", "/predict", rows(number)) for number in range(3)]
        wait_until(lambda: in_flight(server) == 3)
        refused = [*pool.map(lambda number: server.ask("POST", "/predict", rows(number)), range(37))]
        assert {reply.status for reply in refused} == {429}
        assert refused[0].headers["retry-after"] == "1"
        assert server.ask("GET", "/v2/health/live").status == 200
        model.go.set()
        assert [one.result().json["predictions"][0]["twice"] for one in waiting] == [0, 2, 4]
        assert server.ask("POST", "/predict", rows(1)).status == 200


def test_a_request_has_a_time_limit():
    model = Doubling()
    model.go.clear()
    with serving_model(model, seconds=0.2) as server:
        replies = [server.ask("POST", "/predict", rows(1)) for _ in range(2)]
        assert [reply.status for reply in replies] == [503, 503]
        assert "0.2 seconds" in replies[0].json["error"]
        model.go.set()
        wait_until(lambda: server.ask("POST", "/predict", rows(1)).status == 200)
        assert model.batches.count(1) >= 1
        assert in_flight(server) == 0


def test_large_bodies_are_answered():
    model, text = Doubling(), "a" * (1 << 19)
    with serving_model(model) as server, ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda number: server.ask("POST", "/predict", rows(number, text=text)), range(4)))
    assert [reply.json["predictions"][0]["twice"] for reply in replies] == [0, 2, 4, 6]


def test_open_requests_are_answered_at_shutdown():
    model, replies = Doubling(), list[Reply]()
    model.go.clear()
    with serving_model(model) as server:
        asking = threading.Thread(target=lambda: replies.append(server.ask("POST", "/predict", rows(4))))
        asking.start()
        assert model.started.acquire(timeout=60)
        threading.Timer(0.1, model.go.set).start()
    asking.join(60)
    assert replies[0].json["predictions"][0]["twice"] == 8


def test_the_token_is_needed():
    with serving_model(Doubling(), token="s3cret") as server:
        assert server.ask("GET", "/v2/health/live").status == 200
        for value in (None, "Bearer s3cre", "s3cret", "Bearer \xff"):
            headers = {} if value is None else {"authorization": value}
            for path in ("/metrics", "/v2", "/docs", "/v2/models/other"):
                assert server.ask("GET", path, headers=headers).status == 401
            assert server.ask("POST", "/predict", rows(1), headers).status == 401
        right = {"authorization": "Bearer s3cret"}
        assert server.ask("POST", "/predict", rows(1), right).status == 200


def test_metrics_and_drift(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batching, "WATCHED_ROWS", 30)
    model = Doubling()
    with serving_model(model, rows=100) as server:
        for _ in range(2):
            assert server.ask("POST", "/predict", rows(*range(20))).status == 200
        server.ask("POST", "/predict", b"{")
        wait_until(lambda: "bayesnorm_drift_tests 1" in server.ask("GET", "/metrics").body.decode())
        text = server.ask("GET", "/metrics").body.decode()
    assert model.watched == [40]
    for line in (
        'bayesnorm_requests_total{route="/predict",status="200"} 2',
        'bayesnorm_requests_total{route="/predict",status="400"} 1',
        "bayesnorm_request_seconds_count 3",
        'bayesnorm_batch_rows_bucket{le="16"} 0',
        'bayesnorm_batch_rows_bucket{le="32"} 2',
        "bayesnorm_batch_rows_sum 40",
        "bayesnorm_rows_total 40",
        "bayesnorm_unusual_rows_total 18",
        "bayesnorm_drift_p_value 0.5",
    ):
        assert line in text.splitlines()


def test_logs_are_lines_of_json(capsys: pytest.CaptureFixture[str]):
    with serving_model(Doubling(), log=True) as server:
        server.ask("POST", "/predict", rows(1, text='"\n\x1b'))
        server.ask("POST", "/predict", rows(1, text="fail"))
        server.ask("GET", "/v2/models/\x1bother".replace("\x1b", "%1b"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["status"] for line in lines] == [200, 500, 404]
    assert "secret" in lines[1]["error"]
    assert set(lines[0]) == {"time", "path", "status", "milliseconds"}


def test_a_port_in_use_is_an_error_of_one_line():
    with serving.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BayesNormError, match=f"cannot use port {port} of 127"):
            serving.listen("127.0.0.1", port)
    with pytest.raises(BayesNormError, match="--host"):
        serving.listen("256.0.0.1", 0)
