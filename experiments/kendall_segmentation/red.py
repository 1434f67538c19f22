"""Predict the red channel of every pixel from the green one, and score both parts of the uncertainty."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesnorm.engines import MonteCarlo
from bayesnorm.metrics import aurc, retention_curve
from bayesnorm.posterior import Posterior

from ..segmentation.pixels import AT_ONCE, DECILES, KEPT

PARTS = ("epistemic", "aleatoric", "both")
LEVELS = [number / 20 for number in range(1, 20)]


def ask_red(posterior: Posterior, x: Tensor, y: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return absolute errors, and the epistemic and aleatoric variance of every pixel, each (N, height, width)."""
    parts = []
    for frames, red in zip(x.split(AT_ONCE), y.split(AT_ONCE), strict=True):
        said = posterior.predict(frames, MonteCarlo(samples), keep="summary")
        parts.append(((said.mean - red).abs(), said.epistemic, said.aleatoric))
    error, epistemic, aleatoric = (torch.cat(part)[:, 0] for part in zip(*parts, strict=True))
    return error, epistemic, aleatoric


def red_scores(error: Tensor, epistemic: Tensor, aleatoric: Tensor) -> dict[str, Any]:
    """Return scores of predictions and of each part of the uncertainty; the range of a channel is 1."""
    variances = dict(zip(PARTS, (epistemic, aleatoric, epistemic + aleatoric), strict=True))
    flat = error.flatten().double()
    return {
        "mean absolute error": float(flat.mean()),
        "errors of frames": error.flatten(1).double().mean(1).tolist(),
        "parts": {name: _of_part(variance.double(), flat) for name, variance in variances.items()},
    }


def _of_part(variance: Tensor, error: Tensor) -> dict[str, Any]:
    deviation = variance.sqrt()
    uncertainty = deviation.flatten()
    curve = retention_curve(uncertainty, error)
    # For a Laplace distribution with this standard deviation, a fraction p of targets is within -log(1 - p) times its
    # scale.
    scale = uncertainty.clamp_min(1e-9) / math.sqrt(2)
    return {
        "mean": float(uncertainty.mean()),
        "mean of frames": deviation.flatten(1).mean(1).tolist(),
        "area under error of kept": float(aurc(uncertainty, error)),
        "error of kept": [float(curve.error[max(0, round(share * len(error)) - 1)]) for share in KEPT],
        "error of deciles": [float(part.mean()) for part in error[uncertainty.argsort()].tensor_split(DECILES)],
        "covered": [float((error <= -math.log1p(-level) * scale).double().mean()) for level in LEVELS],
    }
