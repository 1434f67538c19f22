"""Measure one network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.posterior import BatchNormPosterior

from ..data import DataNotFoundError, load_cifar10, load_svhn, to_network_input
from ..shift.corruptions import CORRUPTIONS, Images, corrupt
from .judging import CONSTANT, Judged, choosers, judge
from .networks import fitted, remembered, trained_network
from .uncertainty import (
    BOTH_WAYS,
    CALIBRATED,
    LOGITS,
    covariates,
    fitted_forms,
    judge_uncertainty,
    outside_scores,
    shifted_scores,
)

TRAINING_IMAGES = 5000
"""This many first training images are used to fit posteriors."""

CHOOSING = 1000
"""Settings are chosen on this many first test images and scored on corrupted ones."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        images: Number of test images for `calibrate`, and for a temperature that depends on uncertainty.
        validation: Number of validation images among them, for each of the two.
        layers: Number of last layers that are sampled, for each of the two; None for all.
        samples: Samples for the uncertainty; `calibrate` has its own.
        corruptions: Corruptions of the scored images; the clean first 1,000 images choose the temperature.
        severities: Their severities.
        corrupted: Number of corrupted images, after the first 1,000.
        folds: How often validation images are sampled.
    """

    images: tuple[int, int]
    validation: tuple[tuple[int, ...], tuple[int, ...]]
    layers: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    samples: int
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    corrupted: int
    folds: int = 10


class Size(StrEnum):
    """How much to measure."""

    quick = "quick"
    cpu = "cpu"
    paper = "paper"


class Part(StrEnum):
    """What to measure."""

    calibrate = "calibrate"
    uncertainty = "uncertainty"


_VALIDATION = ((500, 1000), (200, 500, 1000, 5000))
_ALL = tuple(CORRUPTIONS)

PRESETS = {
    Size.quick: Preset((500, 500), ((200,), (200,)), ((1,), (1,)), 16, ("contrast",), (3,), 100),
    Size.cpu: Preset((2000, 10_000), _VALIDATION, ((3,), (3,)), 24, _ALL, (3,), 100),
    Size.paper: Preset((10_000, 10_000), _VALIDATION, ((3, None), (1, 3, 6, None)), 64, _ALL, (3, 5), 1000),
}


@dataclass(frozen=True, eq=False)
class TestImages:
    """The first test images, as bytes and as network input."""

    pixels: Images
    x: Tensor
    labels: Tensor

    @classmethod
    def first(cls, most: int, device: str) -> Self:
        """Return so many of them, or all that are available."""
        pixels, labels = load_cifar10("test")
        return cls(pixels[:most], to_network_input(pixels[:most]).to(device), torch.as_tensor(labels[:most]))


def measure(
    part: Part, name: str, weights: Path | None, preset: Preset, device: str, keep: Path | None = None
) -> dict[str, list[Row]]:
    """Return rows for `calibrate`, or for temperatures that depend on uncertainty, also on corrupted images."""
    network = trained_network(name, weights).to(device)
    posterior = fitted(network, to_network_input(load_cifar10("train", TRAINING_IMAGES)[0]).to(device), keep)
    if part is Part.calibrate:
        return {"rows": _judge_calibrate(posterior, TestImages.first(preset.images[0], device), preset, keep)}
    return _judge_uncertainty(posterior, TestImages.first(preset.images[1], device), preset, keep)


def _judge_calibrate(posterior: BatchNormPosterior, images: TestImages, preset: Preset, keep: Path | None) -> list[Row]:
    rows = []
    for layers, drawn in _at_layers(posterior, preset.layers[0]):
        asked = remembered(drawn, images.x, keep)
        for validation in preset.validation[0]:
            judged = judge(choosers(*asked), images.labels, validation, preset.folds)
            rows += _rows(judged, layers, validation, len(images.labels))
    return rows


def _judge_uncertainty(
    posterior: BatchNormPosterior, images: TestImages, preset: Preset, keep: Path | None
) -> dict[str, list[Row]]:
    results: dict[str, list[Row]] = {"rows": [], "corrupted": [], "outside": []}
    labels, first = images.labels, min(CHOOSING, len(images.labels) - preset.corrupted)
    later = slice(first, first + preset.corrupted)
    shifted = [
        ({"corruption": corruption, "severity": severity}, corrupt(images.pixels[later], corruption, severity))
        for corruption in preset.corruptions
        for severity in preset.severities
    ]
    strange = _svhn(preset.corrupted)
    for layers, drawn in _at_layers(posterior, preset.layers[1]):

        def ask(pixels: Images, drawn: BatchNormPosterior = drawn) -> tuple[Tensor, dict[str, Tensor]]:
            return _uncertainty(drawn, to_network_input(pixels).to(images.x.device), preset.samples, keep)

        logits, doubts = _uncertainty(drawn, images.x, preset.samples, keep)
        for name, uncertainty in doubts.items():
            for validation in preset.validation[1]:
                if validation < len(labels):
                    judged = judge_uncertainty(logits, labels, uncertainty, validation, preset.folds)
                    rows = _rows(judged, layers, validation, len(labels))
                    # For other covariates, only what `calibrate` does and what it does not allow.
                    shown = [row for row in rows if name == LOGITS or row["method"] in (CALIBRATED, BOTH_WAYS)]
                    results["rows"] += [row | {"listens_to": name} for row in shown]
        forms = fitted_forms(logits[:first], labels[:first], doubts[LOGITS][:first])
        inside = logits[later], doubts[LOGITS][later]
        for head, pixels in shifted:
            familiar, told = ask(pixels)
            z = round(float(told[LOGITS].mean() - forms[CONSTANT].mean) / forms[CONSTANT].std, 3)
            results["corrupted"].append(
                head | {"layers": layers, "mean_z": z} | shifted_scores(forms, familiar, told[LOGITS], labels[later])
            )
        if strange is not None:
            familiar, told = ask(strange)
            scores = outside_scores(forms, inside, (familiar, told[LOGITS]))
            results["outside"].append({"of": "svhn", "layers": layers} | scores)
    return results


def _svhn(count: int) -> Images | None:
    """Return SVHN images, or print that there are none."""
    try:
        return load_svhn(count)[0]
    except DataNotFoundError as error:
        print(f"svhn: left out, {error}")
        return None


def _at_layers(
    posterior: BatchNormPosterior, counts: tuple[int | None, ...]
) -> Iterator[tuple[int | None, BatchNormPosterior]]:
    for count in counts:
        yield count, posterior if count is None else posterior.at_layers(count)


def _uncertainty(
    posterior: BatchNormPosterior, x: Tensor, samples: int, keep: Path | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the network's own logits in double precision, and covariates of every image from samples, by name."""
    point, drawn = remembered(posterior, x, keep)
    rows = torch.arange(len(x))
    logits, f = point.executable.point(rows), bn.MonteCarlo(samples).outputs(drawn, rows)
    told = covariates(f.double(), logits.double())
    return logits.double().cpu(), {name: values.cpu() for name, values in told.items()}


def _rows(judged: dict[str, Judged], layers: int | None, validation: int, images: int) -> list[Row]:
    head = {"images": images, "layers": layers, "validation": validation}
    return [head | {"method": name} | result.summary(judged[CONSTANT]) for name, result in judged.items()]
