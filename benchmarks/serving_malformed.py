"""Malformed requests for the load test of the server, each made from a right one by a seed."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Callable
from typing import Any

from .serving_client import HOST, REPLY_SECONDS, LostReply, ask_once, post

# The time limit of the server under attack; slow clients take longer.
SLOW_SECONDS = 1.5

INFER = "/v2/models/run/infer"

# Statuses that are refusals of a client, and those that say that a body came too slowly.
REFUSED, TOO_SLOW = range(400, 500), 503


def row_of(request: bytes) -> dict[str, float]:
    """Return the row of a request."""
    return json.loads(request.partition(b"\r\n\r\n")[2])["rows"][0]


def bad_json(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return JSON with a byte changed, removed or added."""
    body = bytearray(json.dumps({"rows": [row]}).encode())
    at = chance.randrange(len(body))
    body[at : at + chance.randrange(1, 4)] = bytes(chance.choices(b'{}[],:"\\\x00\xff\xc3', k=chance.randrange(1, 5)))
    return post("/predict", bytes(body))


def bad_value(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return a row with a value that is no number."""
    values = [
        "NaN",
        "Infinity",
        "-1e999",
        "1e400",
        "1" * 5000,
        '"text"',
        "[1]",
        '{"a": 1}',
        '"\\ud800"',
        "true",
        '"\\u0000"',
    ]
    name = chance.choice(list(row))
    parts = ", ".join(
        f"{json.dumps(key)}: {chance.choice(values) if key == name else value}" for key, value in row.items()
    )
    return post("/predict", f'{{"rows": [{{{parts}}}]}}'.encode())


def bad_columns(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return rows whose columns are missing, unknown, twice, or differ between rows."""
    name, other = chance.choice(list(row)), dict(row)
    del other[name]
    unknown = row | {chance.choice(["x", "", "\x1b[31m", "é" * 3000, "target"]): 1}
    twice = json.dumps({"rows": [row]})[:-3] + f", {json.dumps(name)}: 1, {json.dumps(name)}: []}}]}}"
    texts = [json.dumps({"rows": rows}) for rows in ([other], [unknown], [row, other], [[1, 2]], [None], {}, None, [])]
    return post("/predict", chance.choice([*texts, twice]).encode())


def deep_json(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return JSON that is nested deeply, or one very long list."""
    depth = chance.choice([200, 5000, 100_000])
    opening = chance.choice(['{"rows":' + "[" * depth, '{"a":' * depth, "[" * depth + "]" * depth])
    tensor = {"name": next(iter(row)), "shape": [1], "datatype": "FP64"}
    nested = json.dumps({"inputs": [tensor | {"data": 0}]}).replace('"data": 0', f'"data": {"[" * depth}{"]" * depth}')
    return post(*chance.choice([("/predict", opening.encode()), (INFER, nested.encode()), (INFER, opening.encode())]))


def tensors(row: dict[str, Any], chance: random.Random, **changes: Any) -> list[dict[str, Any]]:
    """Return the tensors of a row as JSON, one of them changed."""
    inputs = [{"name": key, "shape": [1], "datatype": "FP64", "data": [value]} for key, value in row.items()]
    chance.choice(inputs).update(changes)
    return inputs


def bad_tensor(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return tensors with a wrong name, shape, datatype, data or parameter."""
    change = chance.choice(
        [
            {"shape": chance.choice([[], [2], [0], [-1], [1, 2], [2**62], [1] * 100, "1", [1.5], None, [10**30]])},
            {"datatype": chance.choice(["FP16", "FP99", "", None, 7, "BYTES", "INT8", "BOOL"])},
            {"data": chance.choice([[], [None], ["1"], [[1]], [[[1]], 2], 5, {}, [1, 2], [1e308 * 10], [True]])},
            {"name": chance.choice(["", "x", None, "\ud83d\ude00" * 2000])},
            {
                "parameters": chance.choice(
                    [{"binary_data_size": 8}, {"binary_data_size": -1}, {"shared_memory_region": "r"}, 3]
                )
            },
        ]
    )
    inputs = tensors(row, chance, **change)
    outputs = chance.choice(
        [None, [], [{"name": "no"}], [{"name": "mean"}], [{"name": "mean", "parameters": {"classification": 1}}], 4]
    )
    extra = {} if chance.random() < 0.6 else {"outputs": outputs}
    return post(INFER, json.dumps({"inputs": inputs[: chance.randrange(1, 12)], **extra}).encode())


def bad_binary(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return binary tensors that are truncated, too long, NaN, or whose lengths are wrong."""
    text = chance.random() < 0.3
    datatype = "BYTES" if text else "FP64"
    parts = [struct.pack("<I", 3) + b"1.5" if text else struct.pack("<d", float(value)) for value in row.values()]
    inputs = [
        {"name": name, "shape": [1], "datatype": datatype, "parameters": {"binary_data_size": len(part)}}
        for name, part in zip(row, parts, strict=True)
    ]
    kind = chance.randrange(6)
    if kind == 0:
        parts[-1] = parts[-1][: chance.randrange(len(parts[-1]))]
    elif kind == 1:
        parts.append(bytes(chance.randrange(1, 100)))
    elif kind == 2:
        parts[chance.randrange(len(parts))] = struct.pack("<I", 2**32 - 1) if text else struct.pack("<d", float("nan"))
    elif kind == 3:
        chance.choice(inputs)["parameters"]["binary_data_size"] = chance.choice([0, -8, 2**63, "8", 7, True, None])
    elif kind == 4:
        chance.choice(inputs)["shape"] = [chance.choice([2, 2**31, 2**62])]
    head = json.dumps({"inputs": inputs}).encode()
    length = str(len(head)) if kind != 5 else chance.choice(["-1", "0", "1e3", "9" * 30, "", str(len(head) - 1), "²"])
    return post(INFER, head + b"".join(parts), {"inference-header-content-length": length})


def bad_csv(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return CSV with a wrong encoding, header, number of cells, or quotes."""
    header, cells = ",".join(row), ",".join(map(str, row.values()))
    texts = [
        f"{header}\n{cells},1\n",
        f"{cells}\n",
        f"{header},{header}\n",
        f'{header}\n"{cells}\n',
        f"{header}\n",
        "",
        f"{header}\n{'x,' * (len(row) - 1)}x\n",
        f"{header}\n{cells}\n{cells[:5]}\n",
        f"{header}\n\x00{cells}\n",
        f"{header}\n{'9' * 200_000},{cells.partition(',')[2]}\n",
        f"{header.upper()}\n{cells}\n",
    ]
    encoding = chance.choice(["utf-8", "utf-8", "utf-16", "utf-32"])
    kind = chance.choice(["text/csv", "text/csv; charset=utf-16", "TEXT/CSV"])
    return post("/predict", chance.choice(texts).encode(encoding), {"content-type": kind})


def bad_head(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return a request whose first line or headers are wrong or huge."""
    body = json.dumps({"rows": [row]}).encode()
    lengths = ["-1", "x", "1e3", f"{len(body)}, 3", str(2**70), ""]
    types = ["", "image/png", "application/json; charset=utf-16", "é"]
    addresses = ["/predict?%00", "/%2e%2e/etc/passwd", "/v2/models/%ff/infer", "//predict", "/predict/"]
    return chance.choice(
        [
            post("/predict", body, {"x": "a" * chance.choice([20_000, 80_000, 1_000_000])}),
            post("/predict", body, {f"x{number}": "a" * 100 for number in range(chance.choice([50, 2000]))}),
            post("/predict", body, {"content-length": chance.choice(lengths)}),
            post("/predict", body, {"transfer-encoding": chance.choice(["chunked", "gzip", "chunked, chunked"])}),
            post("/predict", body, {"content-encoding": chance.choice(["gzip", "br", "identity, gzip"])}),
            post("/predict", body, {"content-type": chance.choice(types)}),
            post("/predict", body, {"expect": "100-continue", "upgrade": "h2c", "connection": "upgrade"}),
            post(f"/{'a' * chance.choice([10, 100_000])}", body),
            post(chance.choice(addresses), body),
            post(chance.choice(["/v2/models/other/infer", "/metrics", "/v2/health/live"]), body),
            b"POST /predict HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\r\n" * 1000,
            f"BREW /predict HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode(), b"POST /predict HTTP/9.9\r\n\r\n",
            post("/predict", body).replace(b"\r\n", b"\n"), post("/predict", body).replace(b"host: ", b"host : "),
            post("/predict", body, {"host": "a b\x01"}), post("/predict", body, {"x": "a\x00b"}),
        ]
    )  # fmt: skip


def large(row: dict[str, Any], chance: random.Random) -> bytes:
    """Return a request with too many rows or bytes."""
    rows = f'{{"rows": [{", ".join([json.dumps(row)] * 2001)}]}}'.encode()
    return post("/predict", chance.choice([rows, b" " * (17 << 20), b'{"rows": "' + b"a" * (17 << 20) + b'"}']))


KINDS: dict[str, tuple[Callable[[dict[str, Any], random.Random], bytes], int]] = {
    kind.__name__: (kind, weight)
    for kind, weight in (
        (bad_json, 20), (bad_value, 15), (bad_columns, 15), (deep_json, 6), (bad_tensor, 20), (bad_binary, 20),
        (bad_csv, 15), (bad_head, 25), (large, 1),
    )
}  # fmt: skip


async def slow(port: int, request: bytes) -> str:
    """Send the start of a request and then nothing; return the outcome."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(request[:-20])
        await writer.drain()
        async with asyncio.timeout(REPLY_SECONDS):
            line = (await reader.readline()).split()
        writer.close()
        return line[1].decode() if line else "closed"
    except (OSError, TimeoutError) as error:
        return type(error).__name__


async def disconnect(port: int, request: bytes, chance: random.Random) -> str:
    """Send a part of a request and close the connection."""
    _, writer = await asyncio.open_connection(HOST, port)
    writer.write(request[: chance.randrange(len(request) + 1)])
    await writer.drain()
    writer.transport.abort()
    return "closed by the client"


async def attack(port: int, requests: range, right: bytes) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Send malformed requests over up to 32 connections at a time.

    Args:
        port: The port of a server with a model called "run", whose columns are numbers.
        requests: The seeds of the requests, one each.
        right: A right request with one row, which is changed.

    Returns:
        The number of each outcome for each kind of request, and a line for each fault of the server.
    """
    row, outcomes, faults = row_of(right), dict[str, dict[str, int]](), list[str]()
    places = asyncio.Semaphore(32)

    async def one(seed: int) -> None:
        chance = random.Random(seed)
        async with places:
            special = chance.random()
            if special < 0.03:
                kind, outcome = "slow body", await slow(port, right)
                is_fault = outcome != str(TOO_SLOW)
            elif special < 0.08:
                kind, outcome = "client leaves", await disconnect(port, right, chance)
                is_fault = False
            else:
                kind = chance.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
                outcome, is_fault = await answer(port, KINDS[kind][0](row, chance))
        counts = outcomes.setdefault(kind, {})
        counts[outcome] = counts.get(outcome, 0) + 1
        if is_fault:
            faults.append(f"seed {seed}: {kind}: {outcome}")

    await asyncio.gather(*(one(seed) for seed in requests))
    return {kind: dict(sorted(counts.items())) for kind, counts in sorted(outcomes.items())}, faults


async def answer(port: int, request: bytes) -> tuple[str, bool]:
    """Send a request; return its outcome, and whether that is a fault of the server.

    Some changes leave a request right, so status 200 is no fault. A server of HTTP may close the connection of a
    request whose head it cannot read, and it waits for a body that is shorter than promised.
    """
    try:
        reply = await ask_once(port, request)
    except LostReply as error:
        return str(error), "Timeout" in str(error)
    is_problem = reply.status in REFUSED or reply.status in (200, TOO_SLOW)
    return str(reply.status), not is_problem or b"Traceback" in reply.body
