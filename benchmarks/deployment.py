"""Latency, throughput, memory and size of a file for each way of deploying.

    python -m benchmarks.deployment [--only NAME ...] [--out results/deployment.json]

The network is a ResNet-20 for images of 32 x 32 pixels with MCBN over its last batch-norm layer and 64 samples; its
weights are random, which does not change the cost. The table is diabetes of scikit-learn, fitted with `bayesnorm fit
--fast`. Every way runs in a new process with one thread: it loads the model, predicts one example 200 times in turn and
then batches of 64. Servers are asked by one connection and by 64 connections with one example each. Throughput is the
best of five repetitions, and latency their lowest median, because other processes disturb only upwards. If the results
exist, the better numbers of both commands are kept. The processor time of an example is stated too, which depends less
on other processes; that of servers is without their clients.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .serving_client import Server, ask_all, ask_once, get, post

# What a way needs is imported in its own function, because it counts as memory.
ROOT = Path(__file__).parent.parent
BATCH, SINGLES, REPEATS, SAMPLES, CONNECTIONS = 64, 200, 5, 64, 64
SHAPE = (3, 32, 32)

Predict = Callable[[Any], Any]


def make() -> Any:
    """Return the network; `bayesnorm serve` calls it too."""
    from experiments.networks import CifarResNet

    return CifarResNet(20).eval()


def prepare_network(folder: Path) -> None:
    """Write the posterior and the exported files."""
    import torch

    import bayesnorm as bn

    network, x = make(), torch.randn(256, *SHAPE, generator=torch.Generator().manual_seed(0))
    posterior = bn.MCBN(batch_size=32, layers=1).fit(network, x, bn.Categorical())
    posterior.save(folder / "net.bayesnorm")
    torch.save(network.state_dict(), folder / "weights.pt")
    for name in ("net.onnx", "net.pt2"):
        bn.export(posterior, folder / name, x[:33], samples=SAMPLES)
    bn.export(bn.deterministic(network, bn.Categorical()), folder / "plain.onnx", x[:33])


def eager(folder: Path) -> Predict:
    import torch

    import bayesnorm as bn

    posterior = bn.load(folder / "net.bayesnorm", make())
    return lambda x: posterior.predict(torch.from_numpy(x), samples=SAMPLES).probs


def plain_torch(folder: Path) -> Predict:
    import torch

    network = make()

    @torch.no_grad()
    def predict(x: Any) -> Any:
        return network(torch.from_numpy(x)).softmax(1)

    return predict


def program(folder: Path) -> Predict:
    import torch

    module = torch.export.load(folder / "net.pt2").module()

    @torch.no_grad()
    def predict(x: Any) -> Any:
        return module(torch.from_numpy(x))

    return predict


def onnx_file(folder: Path, name: str = "net.onnx") -> Predict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
    argument = session.get_inputs()[0].name
    return lambda x: session.run(None, {argument: x})


def plain_onnx(folder: Path) -> Predict:
    return onnx_file(folder, "plain.onnx")


def table_estimator(folder: Path) -> Predict:
    import pandas

    from bayesnorm.tabular import load

    estimator = load(folder / "run" / "model.bayesnorm")
    frame = pandas.read_csv(folder / "table.csv").drop(columns="target")
    return lambda x: estimator.predict_interval(frame.iloc[: len(x)])


# For each way in one process: the model, how it predicts, what it reads, and the function that loads it.
PROCESSES: dict[str, tuple[str, str, tuple[str, ...], Callable[[Path], Predict]]] = {
    "plain_torch": ("network", "PyTorch, no uncertainty", ("weights.pt",), plain_torch),
    "plain_onnx": ("network", "onnxruntime, no uncertainty", ("plain.onnx",), plain_onnx),
    "eager": ("network", "`posterior.predict`", ("weights.pt", "net.bayesnorm"), eager),
    "program": ("network", "`net.pt2` in PyTorch", ("net.pt2",), program),
    "onnx_file": ("network", "`net.onnx` in onnxruntime", ("net.onnx",), onnx_file),
    "table_estimator": ("table", "`estimator.predict_interval`", ("run/model.bayesnorm",), table_estimator),
}

# For each server: the model, how it is called, what it reads, and the arguments of `bayesnorm serve`.
SERVERS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "serve_network": (
        "network",
        "`bayesnorm serve --model`",
        ("weights.pt", "net.bayesnorm"),
        (
            "--model",
            "benchmarks.deployment:make",
            "--posterior",
            "net.bayesnorm",
            "--shape",
            "3,32,32",
            "--name",
            "net",
        ),
    ),
    "serve_onnx": ("network", "`bayesnorm serve net.onnx`", ("net.onnx",), ("net.onnx",)),
    "serve_table": ("table", "`bayesnorm serve run`", ("run/model.bayesnorm",), ("run",)),
}


def measure_process(name: str, folder: Path) -> dict[str, float]:
    """Measure a way in this process."""
    started = time.perf_counter()
    predict = PROCESSES[name][3](folder)
    chance = np.random.default_rng(0)
    one, many = (chance.normal(size=(rows, *SHAPE)).astype(np.float32) for rows in (1, BATCH))
    predict(one)
    load_seconds = time.perf_counter() - started
    predict(many)
    medians, rates, cpu = [], [], []
    for _ in range(REPEATS):
        seconds = [timed(predict, one) for _ in range(SINGLES // REPEATS)]
        medians.append(statistics.median(seconds))
        rates.append(BATCH / min(timed(predict, many) for _ in range(5)))
        cpu.append(min(timed(predict, many, time.process_time) for _ in range(5)) / BATCH)
    resident = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]
    return {
        "load_seconds": load_seconds,
        "latency_ms": 1e3 * min(medians),
        "per_second": max(rates),
        "cpu_ms": 1e3 * min(cpu),
        "resident_mib": float(resident) / 1024,
    }


def timed(predict: Predict, x: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a prediction."""
    start = clock()
    predict(x)
    return clock() - start


def measure_server(name: str, folder: Path) -> dict[str, float]:
    """Measure a server, by one connection and by many."""
    server = Server(SERVERS[name][3], folder / f"{name}.log")
    started = time.perf_counter()
    server.start()
    load_seconds = time.perf_counter() - started
    try:
        request = table_request(folder) if SERVERS[name][0] == "table" else image_request(server)
        medians, rates, cpu = [], [], []
        for _ in range(REPEATS):
            for connections, requests in ((1, SINGLES // REPEATS), (CONNECTIONS, 20 * CONNECTIONS)):
                start, before = time.perf_counter(), server.cpu_seconds()
                seconds, outcomes = asyncio.run(ask_all(server.port, connections, requests, request, lambda *_: True))
                if outcomes != {"right": requests}:
                    raise RuntimeError(f"{name}: {outcomes}")
                if connections == 1:
                    medians.append(statistics.median(seconds))
                else:
                    rates.append(requests / (time.perf_counter() - start))
                    cpu.append((server.cpu_seconds() - before) / requests)
        resident = server.resident_mib()
    finally:
        server.stop()
    return {
        "load_seconds": load_seconds,
        "latency_ms": 1e3 * min(medians),
        "per_second": max(rates),
        "cpu_ms": 1e3 * min(cpu),
        "resident_mib": resident,
    }


def table_request(folder: Path) -> Callable[[int], bytes]:
    """Return what makes requests with one row."""
    from .serving import Rows

    return Rows(folder / "run", folder / "table.csv").request


def image_request(server: Server) -> Callable[[int], bytes]:
    """Return what makes requests with one image as a binary tensor."""
    (tensor,) = json.loads(asyncio.run(ask_once(server.port, get("/v2/models/net"))).body)["inputs"]
    images = np.random.default_rng(0).normal(size=(CONNECTIONS, *SHAPE)).astype("<f4")
    tensor |= {"shape": [1, *SHAPE], "parameters": {"binary_data_size": images[0].nbytes}}
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    return lambda number: post("/v2/models/net/infer", head + images[number % len(images)].tobytes(), headers)


def better(before: dict[str, Any] | None, now: dict[str, float]) -> dict[str, float]:
    """Return the smaller times and the larger throughput of an earlier command and of this one."""
    times = ("load_seconds", "latency_ms", "cpu_ms")
    if before is None:
        return {}
    smaller = {name: min(before.get(name, now[name]), now[name]) for name in times}
    return smaller | {"per_second": max(before["per_second"], now["per_second"])}


def in_child(name: str, folder: Path) -> dict[str, float]:
    """Return the numbers of a way in one process, from a new one."""
    command = [sys.executable, "-m", "benchmarks.deployment", "--child", name, "--folder", str(folder)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*PROCESSES, *SERVERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="Ways to measure. [default: all]")
    parser.add_argument("--folder", type=Path, help="Keep models here. [default: a temporary folder]")
    parser.add_argument("--child", choices=list(PROCESSES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("results/deployment.json"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.child:
        print(json.dumps(measure_process(options.child, options.folder)))
        return
    from experiments.machine import machine

    from .serving import fitted_run

    out = options.out.resolve()
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"ways": {}}
    results["machine"] = machine() | {"command": "python -m benchmarks.deployment"}
    with fitted_run(options.folder) as folder:
        if not (folder / "plain.onnx").exists():
            prepare_network(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        os.chdir(folder)
        results |= {
            "onnxruntime": importlib.metadata.version("onnxruntime"),
            "load_average": min(results.get("load_average", math.inf), round(os.getloadavg()[0], 1)),
        }
        for name in options.only:
            model, words, files, _ = (PROCESSES | SERVERS)[name]
            numbers = in_child(name, folder) if name in PROCESSES else measure_server(name, folder)
            size = sum((folder / file).stat().st_size for file in files) / 1e6
            rounded = {key: float(f"{value:.3g}") for key, value in {**numbers, "megabytes": size}.items()}
            results["ways"][name] = {
                "model": model,
                "way": words,
                **rounded,
                **better(results["ways"].get(name), rounded),
            }
            print(name, rounded, flush=True)
            out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
