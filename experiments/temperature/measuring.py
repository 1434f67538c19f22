"""What is measured of one network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.data import load_cifar10, to_network_input
from bayesnorm.posterior import BatchNormPosterior

from ..shift.corruptions import CORRUPTIONS, Images, corrupt
from .doubt import fitted_forms, judge_doubt, log_variance
from .judging import CONSTANT, Judged, choosers, judge
from .networks import fitted, remembered, trained_network

TRAINING_IMAGES = 5000
"""The first so many are what posteriors are fitted on."""

CHOOSING = 1000
"""The first so many test images choose what corrupted ones judge."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        images: How many test images choose and judge `calibrate`, and how many a temperature that listens to doubt.
        validation: How many of them choose; other numbers for the two.
        layers: How many of the last layers are drawn, for the two; None for all.
        draws: Draws of which the doubt is taken; `calibrate` has its own.
        corruptions: Corruptions of images that judge such a temperature; the first 1,000 images, clean, choose it.
        severities: Their severities.
        corrupted: How many images are corrupted, those after the first 1,000.
        folds: How often validation images are drawn.
    """

    images: tuple[int, int]
    validation: tuple[tuple[int, ...], tuple[int, ...]]
    layers: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    draws: int
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    corrupted: int
    folds: int = 10


class Size(StrEnum):
    """How much is measured."""

    quick = "quick"
    cpu = "cpu"
    paper = "paper"


class Part(StrEnum):
    """What is measured."""

    calibrate = "calibrate"
    doubt = "doubt"


_VALIDATION = ((500, 1000), (200, 500, 1000, 5000))
_ALL = tuple(CORRUPTIONS)

PRESETS = {
    Size.quick: Preset((500, 500), ((200,), (200,)), ((1,), (1,)), 16, ("contrast",), (3,), 100),
    Size.cpu: Preset((2000, 10_000), _VALIDATION, ((3,), (3,)), 24, _ALL, (3,), 100),
    Size.paper: Preset((10_000, 10_000), _VALIDATION, ((3, None), (1, 3, 6, None)), 64, _ALL, (3, 5), 1000),
}


@dataclass(frozen=True, eq=False)
class TestImages:
    """The first test images, as bytes and as networks take them."""

    pixels: Images
    x: Tensor
    labels: Tensor

    @classmethod
    def first(cls, most: int, device: str) -> Self:
        """Return so many, or all that there are."""
        pixels, labels = load_cifar10("test")
        return cls(pixels[:most], to_network_input(pixels[:most]).to(device), torch.as_tensor(labels[:most]))


def measure(
    part: Part, name: str, weights: Path | None, preset: Preset, device: str, keep: Path | None = None
) -> dict[str, list[Row]]:
    """Return rows of `calibrate`, or of temperatures that listen to doubt and of these on corrupted images."""
    network = trained_network(name, weights).to(device)
    posterior = fitted(network, to_network_input(load_cifar10("train", TRAINING_IMAGES)[0]).to(device), keep)
    if part is Part.calibrate:
        return {"rows": _judge_calibrate(posterior, TestImages.first(preset.images[0], device), preset, keep)}
    return _judge_doubt(posterior, TestImages.first(preset.images[1], device), preset, keep)


def _judge_calibrate(posterior: BatchNormPosterior, images: TestImages, preset: Preset, keep: Path | None) -> list[Row]:
    rows = []
    for layers, drawn in _at_layers(posterior, preset.layers[0]):
        asked = remembered(drawn, images.x, keep)
        for validation in preset.validation[0]:
            judged = judge(choosers(*asked), images.labels, validation, preset.folds)
            rows += _rows(judged, layers, validation, len(images.labels))
    return rows


def _judge_doubt(
    posterior: BatchNormPosterior, images: TestImages, preset: Preset, keep: Path | None
) -> dict[str, list[Row]]:
    rows, labels, listening = [], images.labels, []
    first = min(CHOOSING, len(labels) - preset.corrupted)
    later = slice(first, first + preset.corrupted)
    for layers, drawn in _at_layers(posterior, preset.layers[1]):
        logits, doubt = _doubt(drawn, images.x, preset.draws, keep)
        for validation in preset.validation[1]:
            if validation < len(labels):
                judged = judge_doubt(logits, labels, doubt, validation, preset.folds)
                rows += _rows(judged, layers, validation, len(labels))
        listening.append((layers, drawn, fitted_forms(logits[:first], labels[:first], doubt[:first])))
    corrupted = []
    for corruption in preset.corruptions:
        for severity in preset.severities:
            x = to_network_input(corrupt(images.pixels[later], corruption, severity)).to(images.x.device)
            for layers, drawn, forms in listening:
                logits, doubt = _doubt(drawn, x, preset.draws, keep)
                nll = {
                    name: round(float(form.nll(logits, labels[later], doubt).mean()), 5) for name, form in forms.items()
                }
                z = (doubt.mean() - forms[CONSTANT].mean) / forms[CONSTANT].std
                head = {"corruption": corruption, "severity": severity, "layers": layers}
                corrupted.append(head | {"mean_z": round(float(z), 3), "nll": nll})
    return {"rows": rows, "corrupted": corrupted}


def _at_layers(
    posterior: BatchNormPosterior, counts: tuple[int | None, ...]
) -> Iterator[tuple[int | None, BatchNormPosterior]]:
    for count in counts:
        yield count, posterior if count is None else posterior.at_layers(count)


def _doubt(posterior: BatchNormPosterior, x: Tensor, draws: int, keep: Path | None) -> tuple[Tensor, Tensor]:
    """Return the network's own logits in double precision, and the log-variances under draws."""
    point, drawn = remembered(posterior, x, keep)
    rows = torch.arange(len(x))
    f = bn.MonteCarlo(draws).outputs(drawn, rows)
    return point.executable.point(rows).double().cpu(), log_variance(f.double(), f.new_full((draws,), 1 / draws)).cpu()


def _rows(judged: dict[str, Judged], layers: int | None, validation: int, images: int) -> list[Row]:
    head = {"images": images, "layers": layers, "validation": validation}
    return [head | {"method": name} | found.summary(judged[CONSTANT]) for name, found in judged.items()]
