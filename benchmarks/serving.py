"""Load test of `bayesnorm serve`, over loopback, bounded in requests and time.

    python -m benchmarks.serving [--only throughput flood memory kills malformed] [--out results/serving.json]

A table of scikit-learn (diabetes, 442 rows) is fitted with `bayesnorm fit --fast`, and the run is served. Every reply
is compared with the prediction of its own row, which a process without a server makes.

- throughput: 64 connections against one, in turns; requests per second, p50, p99 and CPU time per request.
- flood: 2,000 requests in flight; the queue refuses with status 429, and the server lives.
- memory: the resident memory of the server over 100,000 requests.
- kills: the server is killed (SIGKILL) and started again under load; clients see right replies or lost connections.
- malformed: 2,000 malformed requests (benchmarks/serving_malformed.py); no fault of the server, no traceback.

Ends with an error if one of them fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from experiments.machine import machine

from . import serving_malformed
from .serving_client import Reply, Server, ask_all, ask_once, get, post

CONNECTIONS, FLOOD, KILLS = 64, 2000, 5

# Growth of memory from the second quarter of the requests to the last that is due to the allocator.
ALLOWED_MIB = 10.0

# A reply is right if it differs from the expected mean by less than this; the rows' means differ by more.
TOLERANCE = 1e-6


class Rows:
    """The requests of the test, one row each, and the replies that they should get.

    Args:
        folder: The folder of the run.
        table: The CSV file with its rows.
    """

    def __init__(self, folder: Path, table: Path) -> None:
        import pandas

        from bayesnorm.cli.serve import TableModel

        model = TableModel.from_folder(folder, None, 0.9)
        names = [tensor.name for tensor in model.inputs]
        frame = pandas.read_csv(table)[names].drop_duplicates()
        self.means = model.predict({name: frame[name].to_numpy() for name in names})["mean"]
        close = np.diff(np.sort(self.means)) < 10 * TOLERANCE * np.abs(self.means).max()
        assert close.mean() < 0.01, "The rows' predictions must differ, or a mixed-up reply would look right."
        rows = frame.to_dict("records")
        self.requests = [post("/predict", json.dumps({"rows": [row]}).encode()) for row in rows]

    def request(self, number: int) -> bytes:
        """Return a request by its number."""
        return self.requests[number % len(self.requests)]

    def is_right(self, number: int, reply: Reply) -> bool:
        """Return whether a reply has the prediction of the request with this number, and of no other row."""
        rows = json.loads(reply.body)["predictions"]
        expected = self.means[number % len(self.means)]
        return len(rows) == 1 and abs(rows[0]["mean"] - expected) <= TOLERANCE * np.abs(self.means).max()


def throughput(server: Server, rows: Rows, scale: float) -> dict[str, Any]:
    """Ask over one connection and over many, in turns."""
    asyncio.run(ask_all(server.port, CONNECTIONS, 10 * CONNECTIONS, rows.request, rows.is_right))  # warms up
    results: dict[str, Any] = {}
    rounds: dict[int, list[dict[str, float]]] = {1: [], CONNECTIONS: []}
    wrong = 0
    for _ in range(5):
        for connections, requests in ((1, int(200 * scale)), (CONNECTIONS, int(3200 * scale))):
            batches = metric(server, "bayesnorm_batch_rows_count")
            cpu, start = server.cpu_seconds(), time.perf_counter()
            seconds, outcomes = asyncio.run(ask_all(server.port, connections, requests, rows.request, rows.is_right))
            elapsed = time.perf_counter() - start
            wrong += requests - outcomes.get("right", 0)
            p50, p99 = np.quantile(seconds, (0.5, 0.99)) * 1e3
            rounds[connections].append(
                {
                    "requests_per_second": requests / elapsed,
                    "p50_ms": p50,
                    "p99_ms": p99,
                    "rows_together": requests / (metric(server, "bayesnorm_batch_rows_count") - batches),
                    "server_cpu_ms": 1e3 * (server.cpu_seconds() - cpu) / requests,
                }
            )
    for connections, parts in rounds.items():
        medians = {name: round(statistics.median(part[name] for part in parts), 3) for name in parts[0]}
        results[f"{connections}_connections"] = medians
    one, many = (results[f"{count}_connections"]["requests_per_second"] for count in (1, CONNECTIONS))
    return results | {"ratio": round(many / one, 2), "wrong_or_lost": wrong, "passed": wrong == 0 and many >= 3 * one}


def flood(server: Server, rows: Rows, scale: float) -> dict[str, Any]:
    """Send many requests at once; ask whether the server lives, during it and after it."""
    count = int(FLOOD * scale)

    async def run() -> tuple[dict[str, int], list[float], float]:
        start = time.perf_counter()
        asking = asyncio.create_task(ask_all(server.port, count, count, rows.request, rows.is_right))
        await asyncio.sleep(0.2)
        alive = (await ask_once(server.port, get("/v2/health/live"))).status
        health_seconds = time.perf_counter() - start - 0.2
        seconds, outcomes = await asking
        _, after = await ask_all(server.port, 1, 1, rows.request, rows.is_right)
        return outcomes | {"live": alive, "right_afterwards": after.get("right", 0)}, seconds, health_seconds

    outcomes, seconds, health_seconds = asyncio.run(run())
    answered = outcomes.get("right", 0) + outcomes.get("429", 0)
    passed = answered == count and outcomes.get("429", 0) > 0 and outcomes["live"] == 200
    return outcomes | {
        "in_flight": count,
        "p99_of_answered_ms": round(1e3 * float(np.quantile(seconds, 0.99)), 1),
        "health_reply_ms": round(1e3 * health_seconds, 1),
        "passed": passed and outcomes["right_afterwards"] == 1,
    }


def memory(server: Server, rows: Rows, scale: float) -> dict[str, Any]:
    """Measure the memory of the server over many requests."""
    parts, requests = 20, int(5000 * scale)
    resident, wrong, start = list[float](), 0, time.perf_counter()
    for _ in range(parts):
        _, outcomes = asyncio.run(ask_all(server.port, CONNECTIONS, requests, rows.request, rows.is_right))
        wrong += requests - outcomes.get("right", 0)
        resident.append(round(server.resident_mib(), 1))
    quarter = parts // 4
    before, after = (statistics.median(part) for part in (resident[quarter : 2 * quarter], resident[-quarter:]))
    tests = metric(server, "bayesnorm_drift_tests")
    return {
        "requests": parts * requests,
        "seconds": round(time.perf_counter() - start, 1),
        "resident_mib": resident,
        "growth_mib": round(after - before, 1),
        "drift_tests": tests,
        "wrong_or_lost": wrong,
        "passed": wrong == 0 and after - before <= ALLOWED_MIB,
    }


def metric(server: Server, name: str) -> float:
    """Return a number of `/metrics`."""
    text = asyncio.run(ask_once(server.port, get("/metrics"))).body.decode()
    values = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(values[0]) if values else 0.0


def kills(server: Server, rows: Rows, scale: float) -> dict[str, Any]:
    """Kill the server under load and start it again, several times."""
    total, starts = dict[str, int](), list[float]()
    for _ in range(max(1, int(KILLS * scale))):
        stopped = threading.Event()

        def ask(stopped: threading.Event = stopped) -> None:
            while not stopped.is_set():
                _, outcomes = asyncio.run(ask_all(server.port, 32, 320, rows.request, rows.is_right))
                for outcome, count in outcomes.items():
                    total[outcome] = total.get(outcome, 0) + count

        client = threading.Thread(target=ask)
        client.start()
        time.sleep(1)
        server.kill()
        start = time.perf_counter()
        server.start()
        starts.append(time.perf_counter() - start)
        time.sleep(1)
        stopped.set()
        client.join()
    clean = set(total) <= {"right", "lost"} and total.get("right", 0) > 0 and total.get("lost", 0) > 0
    return total | {"kills": len(starts), "seconds_to_start": round(statistics.median(starts), 1), "passed": clean}


def malformed(server: Server, rows: Rows, scale: float) -> dict[str, Any]:
    """Send malformed requests, then an ordinary one."""
    before = server.resident_mib()
    outcomes, faults = asyncio.run(serving_malformed.attack(server.port, range(int(2000 * scale)), rows.requests[0]))
    _, after = asyncio.run(ask_all(server.port, 1, 10, rows.request, rows.is_right))
    tracebacks = server.log_text().count("Traceback")
    for fault in faults[:20]:
        print("  ", fault)
    return {
        "requests": int(2000 * scale),
        "outcomes": outcomes,
        "faults": len(faults),
        "tracebacks": tracebacks,
        "resident_mib_before_and_after": [round(before, 1), round(server.resident_mib(), 1)],
        "right_afterwards": after.get("right", 0),
        "passed": not faults and not tracebacks and after.get("right") == 10,
    }


PARTS: dict[str, Callable[[Server, Rows, float], dict[str, Any]]] = {
    part.__name__: part for part in (throughput, flood, memory, kills, malformed)
}


@contextmanager
def fitted_run(folder: Path | None) -> Iterator[Path]:
    """Yield a folder with `run` and `table.csv`, fitted unless it exists."""
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        if not (place / "run").exists():
            place.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "bayesnorm"]
            table = str(place / "table.csv")
            subprocess.run([*command, "data", "csv", "sklearn:diabetes", "--out", table], check=True)
            fit = [*command, "fit", table, "--target", "target", "--out", str(place / "run"), "--fast"]
            subprocess.run(fit, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="Parts to run. [default: all]"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="Fraction of the requests to send. [default: 1]")
    parser.add_argument("--folder", type=Path, help="Keep the fitted run here. [default: a temporary folder]")
    parser.add_argument("--out", type=Path, default=Path("results/serving.json"))
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    results["machine"] = machine() | {
        "command": "python -m benchmarks.serving" + ("" if options.scale == 1 else f" --scale {options.scale:g}")
    }
    with fitted_run(options.folder) as place:
        rows = Rows(place / "run", place / "table.csv")
        for name in options.only:
            log = place / f"{name}.log"
            log.unlink(missing_ok=True)
            limit = str(serving_malformed.SLOW_SECONDS) if name == "malformed" else "30"
            server = Server([str(place / "run"), "--time-limit", limit], log)
            server.start()
            try:
                results[name] = PARTS[name](server, rows, options.scale)
            finally:
                status = server.stop()
            results[name] |= {"exit_status": status, "load_average": round(os.getloadavg()[0], 1)}
            print(name, json.dumps(results[name]), flush=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    failed = [name for name in options.only if not results[name]["passed"]]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
