"""Choose on validation images, and compare the NLL of other images with that of one constant temperature.

From all test images, n are sampled for validation and the others are scored, several times. A difference is averaged
over the times that an image was scored, and then over images. Its standard error is over images, because all
repetitions share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.posterior import Posterior, effective_batch_size

Chooser = Callable[[Tensor, Tensor], Posterior]
"""Chooses a posterior by validation images, which are given by index, and their labels."""


def folds(images: int, validation: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the indices of validation images and of scored images, `count` times."""
    for seed in range(count):
        order = torch.randperm(images, generator=torch.Generator().manual_seed(seed))
        yield order[:validation], order[validation:]


@dataclass
class Judged:
    """The NLL of images under a choice made on other images.

    Args:
        images: Number of images.
        nll: For every fold, the NLL of each image; NaN for validation images.
        noted: For every fold, the choice.
    """

    images: int
    nll: list[Tensor] = field(default_factory=list)
    noted: list[dict[str, Any]] = field(default_factory=list)

    def add(self, rows: Tensor, nll: Tensor, **noted: Any) -> None:
        """Record the NLL of the scored images of a fold, and the choice."""
        self.nll.append(
            torch.full((self.images,), math.nan, dtype=torch.float64).index_copy(0, rows, nll.double().cpu())
        )
        self.noted.append(noted)

    def summary(self, constant: Judged) -> dict[str, Any]:
        """Return the mean NLL, and its difference from that of a constant temperature."""
        nll = torch.stack(self.nll)
        difference = nll - torch.stack(constant.nll)
        by_image = difference.nanmean(0)
        by_image = by_image[~by_image.isnan()]
        results = {
            "nll": float(nll.nanmean(1).mean()),
            "difference": float(by_image.mean()),
            "standard_error": float(by_image.std()) / math.sqrt(len(by_image)),
            "worst_fold": float(difference.nanmean(1).max()),
        }
        rounded = {name: round(value, 6) for name, value in results.items()}
        return rounded | {name: [noted[name] for noted in self.noted] for name in self.noted[0]}


def judge(choosers: dict[str, Chooser], labels: Tensor, validation: int, count: int) -> dict[str, Judged]:
    """Choose by each method on the same images, and score it on the same other images."""
    results = {name: Judged(len(labels)) for name in choosers}
    for chosen, others in folds(len(labels), validation, count):
        for name, choose in choosers.items():
            posterior = choose(chosen, labels[chosen])
            size = effective_batch_size(posterior)
            temperature = round(float(posterior.likelihood.noise), 3)
            nll = -posterior.predict(others).log_prob(labels[others])
            results[name].add(others, nll, temperature=temperature, batch_size=size)
    return results


def choosers(constant: Posterior, posterior: Posterior) -> dict[str, Chooser]:
    """Return a constant temperature, `calibrate` by default and by the score alone, and a temperature for M = 32."""
    return {
        CONSTANT: lambda x, y: bn.calibrate(constant, x, y),
        CALIBRATE: lambda x, y: bn.calibrate(posterior, x, y, batch_size=True),
        BY_SCORE: lambda x, y: bn.calibrate(posterior, x, y, batch_size=True, evidence=0),
        NOISE_ALONE: lambda x, y: bn.calibrate(posterior, x, y, batch_size=False),
    }


CONSTANT, CALIBRATE, BY_SCORE, NOISE_ALONE = (
    "constant temperature",
    "calibrate",
    "calibrate, evidence=0",
    "calibrate, batch_size=False",
)
