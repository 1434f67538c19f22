"""Count alarms of alibi-detect's drift tests on the images of `python -m experiments shift alarms`.

    .venv-shift/bin/python -m benchmarks.shift_peers [--rows 4 16] [--severities 3 5] [--out results/shift_peers.json]

Runs the Kolmogorov-Smirnov test (one per feature, Bonferroni) and the test by maximum mean discrepancy (100
permutations) at level 0.05. They see the 64 features before the last layer of ResNet-32, with 1,000 training images as
reference. Batches are the first ones of `shift alarms`. Needs the data folder and a separate environment with
benchmarks/shift_requirements.txt.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from alibi_detect.cd import KSDrift, MMDDrift

from experiments.data import load_cifar10, to_network_input
from experiments.machine import machine
from experiments.networks import CifarResNet, load_cifar_resnet
from experiments.shift.alarms import LEVEL, disjoint
from experiments.shift.networks import CLEAN, network_input
from experiments.shift.presets import PRESETS

REFERENCE = 1000
"""Number of training images that are the reference of the tests."""


@torch.no_grad()
def features(network: CifarResNet, x: torch.Tensor) -> np.ndarray:
    """Return the inputs of the last layer, (N, 64)."""
    features_seen: list[torch.Tensor] = []
    hook = network.linear.register_forward_pre_hook(lambda _, inputs: features_seen.append(inputs[0]))
    for part in x.split(250):
        network(part)
    hook.remove()
    return torch.cat(features_seen).numpy()


def tests(reference: np.ndarray) -> dict[str, Any]:
    """Return the tests by name."""
    return {
        "Kolmogorov-Smirnov": KSDrift(reference, p_val=LEVEL),
        "maximum mean discrepancy": MMDDrift(reference, backend="pytorch", p_val=LEVEL, n_permutations=100),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument(
        "--clean", type=int, default=100, help="Largest number of clean batches of each size. [default: 100]"
    )
    parser.add_argument("--severities", type=int, nargs="+", default=[3, 5])
    parser.add_argument(
        "--batches", type=int, default=20, help="Batches of each size, corruption and severity. [default: 20]"
    )
    parser.add_argument("--out", type=Path, default=Path("results/shift_peers.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = load_cifar_resnet(32)
    detectors = tests(features(network, to_network_input(load_cifar10("train", rows=np.arange(REFERENCE))[0])))
    cases = [(CLEAN, 0), *((name, s) for s in options.severities for name in PRESETS["paper"].corruptions)]
    result: dict[str, Any] = {"machine": machine(), "library": f"alibi-detect {_version()}", "rows": []}
    for corruption, severity in cases:
        x = network_input(corruption, severity, "cpu")
        most = options.clean if corruption == CLEAN else options.batches
        batches = {count: disjoint(x, count, most) for count in options.rows}
        for count, parts in batches.items():
            shown = features(network, torch.cat(parts)).reshape(len(parts), count, -1)
            for name, detector in detectors.items():
                alarms = sum(int(detector.predict(part)["data"]["is_drift"]) for part in shown)
                head = {"test": name, "corruption": corruption, "severity": severity, "rows": count}
                result["rows"].append({**head, "batches": len(shown), "alarms": alarms})
                print(result["rows"][-1], flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1))


def _version() -> str:
    import alibi_detect

    return str(alibi_detect.__version__)


if __name__ == "__main__":
    main()
