"""Measure size, time and remaining uncertainty of pruned networks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import bayesnorm as bn
from bayesnorm.compression import prediction_seconds
from bayesnorm.metrics import auroc
from bayesnorm.posterior import BatchNormPosterior
from bayesnorm.tabular.stacked import one_thread

from ..evidence import show_progress
from ..image_networks.asking import Asked, load_asked, uncertainty_scores
from ..networks import load_cifar_resnet
from ..pieces import measured_once
from .fine_tuning import Whole, scored_ways
from .presets import INT8, LABELS, OUTSIDE, SOFTMAX, TEACHER, WHOLE, Preset, Way

TIMED = 64


def measure(
    preset: Preset, device: str, stored: Path, criteria: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the fine-tuning settings, the best first, and rows: the original network, then each criterion and
    fraction.

    Each result is stored in a file.
    """
    plan = preset.plan
    pixels, labels = (part.to(device) for part in plan.load("train"))
    asked = load_asked(plan, [OUTSIDE], preset.asked, device)
    model = load_cifar_resnet(preset.depth).to(device)
    networks = Whole(model, plan, preset.states, pixels, labels)
    x = networks.x
    ways = scored_ways(networks, preset, stored)
    best: dict[str, Way] = {}
    for row in ways:
        way_facts = Way(**{field.name: row[field.name] for field in fields(Way)})
        best.setdefault(way_facts.tuned_by, way_facts)

    def whole() -> list[dict[str, Any]]:
        way_facts = {"share": 1.0, "epochs": 0, "tuned": ""}
        small = quantised(model, x[: preset.images or 1000])
        times = seconds([copy.deepcopy(model).cpu(), small], asked.x[:TIMED])
        return [
            _scored(networks.posterior(model), asked, preset)
            | way_facts
            | {"criterion": WHOLE, "bytes": 1.0, "time": 1.0},
            _as_softmax(model, asked) | way_facts | {"criterion": SOFTMAX, "bytes": 1.0, "time": 1.0},
            _as_softmax(small, asked)
            | way_facts
            | {"criterion": INT8, "bytes": _bytes(small) / _bytes(model), "time": times[1] / times[0]},
        ]

    @lru_cache(maxsize=1)
    def pruned(criterion: Any, share: float) -> tuple[nn.Module, dict[str, Any]]:
        small = networks.pruned(share, criterion)
        report = small.report(asked.x[:TIMED])
        assert report.before is not None
        assert report.after is not None
        times = seconds([copy.deepcopy(network).cpu() for network in (model, small.network)], asked.x[:TIMED])
        return small.network, {
            "criterion": criterion,
            "share": report.after.multiply_adds / report.before.multiply_adds,
            "bytes": report.bytes_after / report.bytes_before,
            "time": times[1] / times[0],
        }

    def smaller(criterion: Any, share: float, way: Way | None) -> list[dict[str, Any]]:
        network, told = pruned(criterion, share)
        way_facts = {"epochs": preset.epochs if way else 0, "tuned": way.tuned_by if way else ""}
        if way is not None:
            network = networks.fine_tuned(copy.deepcopy(network), way)
        return [_scored(networks.posterior(network), asked, preset) | told | way_facts]

    cases: dict[tuple[str, float, Way | None], Callable[[], list[dict[str, Any]]]] = {(WHOLE, 1.0, None): whole}
    for case in product(criteria, preset.shares, (None, *(best[who] for who in (LABELS, TEACHER) if who in best))):
        cases[case] = partial(smaller, *case)
    rows: list[dict[str, Any]] = []
    for (criterion, share, way), find in cases.items():
        tuned = f", {way.tuned_by}" if way else ""
        show_progress(f"ResNet-{preset.depth}: {criterion}, {share:g} of the multiply-adds{tuned}")
        settings = {"preset": preset.told, "criterion": criterion, "share": share, "way": way and asdict(way)}
        name = f"{criterion}_{share:g}{tuned}".replace(", ", "_").replace(" ", "_")
        rows += measured_once(stored / f"{name}.json", settings, find)
    show_progress("")
    return ways, rows


def quantised(network: nn.Module, x: Tensor) -> nn.Module:
    """Return a network with 8-bit weights and activations for a CPU, with batch norm folded into convolutions.

    Args:
        network: The network.
        x: Training images, which determine the ranges of activations.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will move these tools to another package
        engine, rows = torch.backends.quantized.engine, x.cpu()
        watched = prepare_fx(copy.deepcopy(network).cpu().eval(), get_default_qconfig_mapping(engine), (rows[:1],))
        with torch.no_grad():
            watched(rows)
        return convert_fx(watched)


def seconds(networks: Sequence[nn.Module], x: Tensor) -> list[float]:
    """Return the time of each network's prediction on one CPU core."""
    with one_thread():
        return prediction_seconds(networks, x.cpu())


def _bytes(network: nn.Module) -> int:
    """Return the bytes of all tensors; a quantised layer has weight and bias in one entry."""
    total = 0
    for value in network.state_dict().values():
        for tensor in value if isinstance(value, tuple) else (value,):
            total += tensor.nbytes if isinstance(tensor, Tensor) else 0
    return total


def _scored(posterior: BatchNormPosterior, asked: Asked, preset: Preset) -> dict[str, Any]:
    """Return scores of MCBN's predictions."""
    return _scores(partial(posterior.predict, engine=bn.MonteCarlo(preset.states)), asked)


@torch.no_grad()
def _as_softmax(network: nn.Module, asked: Asked) -> dict[str, Any]:
    """Return scores of a network's softmax predictions."""
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))

    def predict(x: Tensor) -> Any:
        logits = torch.cat([network(part.to(device)) for part in x.split(500)])
        return bn.Categorical().predictive(logits[None].to(x.device))

    return _scores(predict, asked)


def _scores(predict: Any, asked: Asked) -> dict[str, Any]:
    scores, inside = uncertainty_scores(predict, asked), predict(asked.x)
    wrong = inside.label != asked.y
    return {
        "error": 1 - scores["accuracy"],
        "nll": scores["nll"],
        "ece": scores["ece"],
        "auroc of errors": float(auroc(inside.entropy[~wrong], inside.entropy[wrong])),
        f"auroc of {OUTSIDE}": scores["outside"][OUTSIDE]["entropy"]["auroc"],
    }
