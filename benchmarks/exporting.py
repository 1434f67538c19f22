"""Costs of exported networks in onnxruntime, and how far their predictions differ from those of the posterior.

    python -m benchmarks.exporting [--only costs parity] [--cases NAME ...] [--out results/exporting.json]

The costs are those of a ResNet-20 for images of 32 x 32 pixels, whose weights are random, which does not change the
cost. One plain forward pass, exported to ONNX, is 1. Files and the engines of this package take turns, one thread each,
and a ratio is the median over rounds of the processor times. `bn.export` compares every file with its posterior for 1,
2, 7 and 33 examples; the largest relative difference is stated. The families of torchvision are tried where torchvision
is installed. `--cases` chooses settings and networks; results of the others stay.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.posterior import Posterior
from bayesnorm.tabular import export_table
from experiments.machine import machine
from experiments.networks import CifarResNet, UNet

from .architectures_networks import build

ROUNDS, BATCHES, STATES = 15, (1, 16, 64), 64

# What is sampled of the ResNet-20: the number of its last batch-norm layers (None: all of them) and the engine.
SETTINGS: dict[str, tuple[int | None, bn.MonteCarlo | bn.SigmaPoints]] = {
    "last layer, sigma points": (1, bn.SigmaPoints(rank=8)),
    "last layer, 64 samples": (1, bn.MonteCarlo(64)),
    "last block, 32 samples": (2, bn.MonteCarlo(32)),
    "all layers, 32 samples": (None, bn.MonteCarlo(32)),
}

FAMILIES = (
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "mnasnet0_5",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "shufflenet_v2_x0_5",
    "vgg11_bn",
)


def images(count: int, size: int = 32) -> torch.Tensor:
    """Return random images."""
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def posterior_of(network: nn.Module, layers: int | None, size: int = 32, rows: int = 256) -> Posterior:
    """Return the MCBN posterior of a network."""
    return bn.MCBN(batch_size=16, states=STATES, layers=layers).fit(network, images(rows, size), bn.Categorical())


@torch.no_grad()
def settled(network: nn.Module, size: int) -> nn.Module:
    """Return a random network with the running statistics of images; without them its outputs grow with every layer."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # a plain mean
    network.train()
    for _ in range(3):
        network(images(32, size))
    return network.eval()


def runner(file: str) -> Callable[[torch.Tensor], Any]:
    """Return a function that runs an ONNX file with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x.numpy()})


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of a call, averaged over so many calls that they take 20 ms."""
    calls, start, seconds = 0, time.process_time(), 0.0
    while seconds < 0.02:
        work()
        calls, seconds = calls + 1, time.process_time() - start
    return seconds / calls


def costs(folder: Path, cases: Sequence[str] | None) -> list[dict[str, Any]]:
    """Measure each setting as a file and as an engine, in turns."""
    torch.manual_seed(0)
    network = CifarResNet(20).eval()
    plain = bn.deterministic(network, bn.Categorical())
    bare = bn.export(plain, folder / "plain.onnx", images(33), outputs=("probs",))
    files = {"plain": runner(bare.path)}
    engines: dict[str, Callable[[torch.Tensor], Any]] = {"plain": torch.no_grad()(network)}
    entries: dict[str, dict[str, Any]] = {}
    for name, (layers, engine) in SETTINGS.items():
        if cases is not None and name not in cases:
            continue
        posterior = posterior_of(network, layers)
        written = bn.export(posterior, folder / "net.onnx", images(33), engine=engine)
        files[name] = runner(written.path)
        engines[name] = lambda x, posterior=posterior, engine=engine: posterior.predict(x, engine=engine).probs
        entries[name] = {
            "name": name,
            "difference": written.largest_difference,
            "size": round(written.size / bare.size, 4),
        }
        print(name, written, flush=True)
    for batch in BATCHES:
        x = images(batch)
        seconds: dict[tuple[str, str], list[float]] = {}
        for number in range(-1, ROUNDS):
            for name in files:
                for kind, run in (("onnx", files[name]), ("engine", engines[name])):
                    if number >= 5 and name.startswith("all"):
                        continue
                    taken = cpu_seconds(partial(run, x))
                    if number >= 0:  # the first round warms up
                        seconds.setdefault((name, kind), []).append(taken)
        for name, entry in entries.items():
            for kind in ("onnx", "engine"):
                pairs = zip(seconds[name, kind], seconds["plain", kind], strict=False)
                entry[f"{kind}_{batch}"] = round(statistics.median(part / base for part, base in pairs), 3)
            entry[f"milliseconds_{batch}"] = round(1e3 * statistics.median(seconds[name, "onnx"]), 3)
            print(batch, entry, flush=True)
    return list(entries.values())


def parity(folder: Path, cases: Sequence[str] | None) -> list[dict[str, Any]]:
    """Export other networks, and return the largest difference of each."""
    torch.manual_seed(0)
    entries = []

    def add(name: str, write: Callable[[], Any]) -> None:
        if cases is not None and name not in cases:
            return
        try:
            difference = write().largest_difference
        except bn.BayesNormError as error:
            difference = str(error)
        entries.append({"name": name, "difference": difference})
        print(name, difference, flush=True)

    def last_layer(network: nn.Module, size: int, rows: int = 64) -> Any:
        return bn.export(posterior_of(settled(network, size), 1, size, rows), folder / "net.onnx", images(33, size))

    add("U-Net, pixels", lambda: last_layer(UNet(classes=5), 32))
    for name, encoding in (("plain", "plain"), ("bins", "bins 8"), ("waves", "waves 4")):
        add(f"table, {name} encoding", lambda encoding=encoding: export_table(estimator(encoding), folder / "t.onnx"))
    if _has("torchvision"):
        for family in FAMILIES:
            options = {"init_weights": False, "aux_logits": False} if family == "googlenet" else {}
            make = partial(build, "torchvision", family, num_classes=10, **options)
            add(f"torchvision {family}", lambda make=make: last_layer(make(), 64))
    return entries


def estimator(encoding: str) -> Any:
    """Return a fitted model of a table."""
    import sklearn.datasets

    from bayesnorm.tabular import BayesNormRegressor

    X, y = sklearn.datasets.load_diabetes(return_X_y=True, as_frame=True)
    options: dict[str, Any] = {"hidden": (32,), "weight_decay": 0.01, "members": 3, "max_epochs": 20, "folds": 3}
    return BayesNormRegressor(encoding=encoding, random_state=0, **options).fit(X, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"costs": costs, "parity": parity}
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    parser.add_argument("--cases", nargs="+", help="Settings or networks to measure. [default: all]")
    parser.add_argument("--out", type=Path, default=Path("results/exporting.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", bn.BayesNormWarning)
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    packages = ("onnx", "onnxruntime", "onnxscript", "torchvision")
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            entries = parts[name](Path(folder), options.cases)
        before = {entry["name"]: entry for entry in results.get(name, {}).get("results", ())}
        entries = [*(before | {entry["name"]: entry for entry in entries}).values()]
        versions = {package: importlib.metadata.version(package) for package in packages if _has(package)}
        results[name] = {"machine": machine("cpu"), "versions": versions, "results": entries}
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


if __name__ == "__main__":
    main()
