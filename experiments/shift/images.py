"""Measure error, NLL and calibration on CIFAR-10-C, for unchanged networks and for networks adapted to new images."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.errors import BayesNormWarning
from bayesnorm.metrics import accuracy, ece, nll
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import ClassificationPredictive

from .blending import BlendedNetwork
from .networks import CLEAN, TARGETS, fitted, network_input, test_images
from .presets import Preset

SCORES = ("error", "nll", "ece")
SOFTMAX, TEMPERATURE, MCBN, PREDICTION_TIME, BLEND, ADAPT = (
    "softmax",
    "softmax, temperature",
    "MCBN, temperature",
    "prediction-time batch norm",
    "blend",
    "adapt",
)
ALL_CLASSES, ONE_CLASS = "all classes", "one class"
# Targets of one class only are measured on clean images and at this severity.
ONE_CLASS_SEVERITY = 3

Row = dict[str, Any]
"""One measurement, by the names of `COLUMNS`."""

COLUMNS = ("network", "corruption", "severity", "method", "rows", "pseudo_count", "of", "samples", *SCORES)
"""rows is n, pseudo_count the blend's N; of: targets of all classes or of one; samples: how many samples of n rows."""


def measure_images(preset: Preset, depth: int, corruption: str, device: str, folder: Path) -> list[Row]:
    """Score all methods on one corruption, or on clean images, at all severities; one row for each mean over samples.

    Targets are sampled from the first 1,000 test images, and the other images are scored.
    """
    prepared = fitted(depth, device, folder)
    labels = torch.as_tensor(test_images()[1])
    y = labels[TARGETS : TARGETS + preset.scored].to(device)
    blended = BlendedNetwork(prepared.network)
    rows: list[Row] = []
    for severity in (0,) if corruption == CLEAN else preset.severities:
        images = network_input(corruption, severity, device)
        x = images[TARGETS : TARGETS + preset.scored]

        def note(method: str, scores: np.ndarray, severity: int = severity, **more: Any) -> None:
            head = {"network": f"ResNet-{depth}", "corruption": corruption, "severity": severity, "method": method}
            named = zip(SCORES, (round(float(score), 5) for score in scores), strict=True)
            rows.append(
                {**head, "rows": 0, "pseudo_count": None, "of": ALL_CLASSES, "samples": 1, **more, **dict(named)}
            )

        def of_network(network: torch.nn.Module, x: Tensor = x) -> ClassificationPredictive:
            with torch.no_grad():
                return prepared.likelihood.predictive(network(x)[None])

        def of_posterior(posterior: Posterior, x: Tensor = x) -> ClassificationPredictive:
            predictive = posterior.predict(x, bn.MonteCarlo(preset.samples))
            assert isinstance(predictive, ClassificationPredictive)
            return predictive

        with torch.no_grad():
            plain = bn.Categorical().predictive(prepared.network(x)[None])
        note(SOFTMAX, scores_of(plain, y))
        note(TEMPERATURE, scores_of(of_network(prepared.network), y))
        note(MCBN, scores_of(of_posterior(prepared.posterior), y))
        for count, kind, targets in _targets(preset, labels):
            if kind == ONE_CLASS and severity not in (0, ONE_CLASS_SEVERITY):
                continue
            sums: dict[tuple[str, int | None], list[np.ndarray]] = {}
            for chosen in targets:
                new = images[chosen.to(device)]
                for pseudo_count in (0, *preset.pseudo_counts):
                    network = blended.take(new, pseudo_count)
                    key = (BLEND, pseudo_count) if pseudo_count else (PREDICTION_TIME, None)
                    sums.setdefault(key, []).append(scores_of(of_network(network), y))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", BayesNormWarning)  # of single images
                    adapted = bn.adapt(prepared.posterior, new)
                sums.setdefault((ADAPT, None), []).append(scores_of(of_posterior(adapted), y))
            for (method, pseudo), scores in sums.items():
                note(method, np.mean(scores, 0), rows=count, pseudo_count=pseudo, of=kind, samples=len(scores))
    return rows


def scores_of(predictive: ClassificationPredictive, y: Tensor) -> np.ndarray:
    """Return error, NLL and expected calibration error."""
    return np.array([1 - float(accuracy(predictive, y)), float(nll(predictive, y)), float(ece(predictive, y))])


def _targets(preset: Preset, labels: Tensor) -> Iterator[tuple[int, str, list[Tensor]]]:
    """Return n, whether targets are of all classes or of one, and the image indices of every sample of n."""
    for count, samples in preset.samples_of_rows:
        generators = (torch.Generator().manual_seed(1000 * count + draw) for draw in range(samples))
        yield count, ALL_CLASSES, [torch.randperm(TARGETS, generator=generator)[:count] for generator in generators]
    for count in preset.one_class_rows:
        members = [(labels[:TARGETS] == label).nonzero().squeeze(1) for label in (0, 3, 8)]
        # If a class has fewer images than n, all of them are used.
        yield count, ONE_CLASS, [which[:count] for which in members]


def mean_scores(rows: list[Row], /, **chosen: Any) -> np.ndarray:
    """Return the mean score of all rows with these entries; NaN if there is none."""
    fitting = [row for row in rows if all(row[name] == value for name, value in chosen.items())]
    if not fitting:
        return np.full(len(SCORES), np.nan)
    return np.mean([[row[score] for score in SCORES] for row in fitting], 0)


def corrupted(rows: list[Row]) -> list[Row]:
    """Return the measurements on corrupted images."""
    return [row for row in rows if row["corruption"] != CLEAN]


def best_blend(rows: list[Row], score: str, /, **chosen: Any) -> tuple[int, float]:
    """Return the N with the lowest mean score on the scored images themselves, and that score."""
    counts = sorted({row["pseudo_count"] for row in rows if row["method"] == BLEND})
    place = SCORES.index(score)
    candidates = [(mean_scores(rows, method=BLEND, pseudo_count=count, **chosen)[place], count) for count in counts]
    value, count = min(pair for pair in candidates if not np.isnan(pair[0]))
    return count, float(value)
