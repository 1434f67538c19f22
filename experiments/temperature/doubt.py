"""A temperature that listens to doubt: log T(x) = a + b z(x).

z(x) is the logarithm of the variance of an image's logits under draws, mean over classes, standardised by the
validation images and kept within two of their standard deviations. What is tempered are the network's own logits, so
that b = 0 is one constant temperature. a and b are fitted on validation images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesnorm.selection.calibrate import EVIDENCE

from .judging import CONSTANT, Judged, folds

# Standard deviations that doubt may be away from its mean before it counts as no further.
CLAMP = 2.0

FORMS: dict[str, float] = {"doubt": -CLAMP, "doubt, only rising": 0.0}
"""The least z: a temperature that only rises above that of a mean image has none below 0."""

GUARDED = ", guarded"
"""After the name of a form: b = 0 unless validation images prove it beyond chance."""


@dataclass(frozen=True)
class DoubtfulTemperature:
    """log T(x) = a + b z(x).

    Args:
        a, b: As fitted.
        mean, std: Of the validation images' log-variances.
        least: The least z.
    """

    a: float
    b: float
    mean: float
    std: float
    least: float

    def nll(self, logits: Tensor, labels: Tensor, log_variance: Tensor) -> Tensor:
        """Return the NLL of every image."""
        z = standardised(log_variance, self.mean, self.std, self.least)
        return points(logits, labels, self.a + self.b * z)


def standardised(log_variance: Tensor, mean: float, std: float, least: float) -> Tensor:
    """Return z."""
    return ((log_variance - mean) / std).clamp(least, CLAMP)


def points(logits: Tensor, labels: Tensor, log_temperature: Tensor) -> Tensor:
    """Return the NLL of every image under a temperature of its own."""
    log_probs = torch.log_softmax(logits / log_temperature.exp()[:, None], -1)
    return -log_probs.gather(1, labels[:, None])[:, 0]


def log_variance(f: Tensor) -> Tensor:
    """Return the logarithm of the variance of logits under draws (draws, images, classes), mean over classes."""
    return f.double().var(0).mean(1).log()


def fitted_forms(logits: Tensor, labels: Tensor, doubt: Tensor) -> dict[str, DoubtfulTemperature]:
    """Fit a constant temperature and every form on validation images, each as it is and guarded.

    Args:
        logits: The network's own, (images, classes).
        labels: Their classes.
        doubt: Their log-variances.
    """
    mean, std = float(doubt.mean()), float(doubt.std())
    (a,) = _minimised(lambda p: points(logits, labels, p[0].expand(len(doubt))), [0.0])
    found = {CONSTANT: DoubtfulTemperature(a, 0.0, mean, std, 0.0)}
    simple = found[CONSTANT].nll(logits, labels, doubt)
    for name, least in FORMS.items():
        z = standardised(doubt, mean, std, least)
        both = _minimised(lambda p, z=z: points(logits, labels, p[0] + p[1] * z), [a, 0.0])
        found[name] = DoubtfulTemperature(both[0], both[1], mean, std, least)
        gain = simple - found[name].nll(logits, labels, doubt)
        proven = float(gain.mean()) > EVIDENCE * float(gain.std()) / math.sqrt(len(gain))
        found[name + GUARDED] = found[name if proven else CONSTANT]
    return found


def judge_doubt(logits: Tensor, labels: Tensor, doubt: Tensor, validation: int, count: int) -> dict[str, Judged]:
    """Fit every form on the same validation images, and judge it by the same others."""
    names = [CONSTANT, *FORMS, *(name + GUARDED for name in FORMS)]
    found = {name: Judged(len(labels)) for name in names}
    for chosen, others in folds(len(labels), validation, count):
        for name, fitted in fitted_forms(logits[chosen], labels[chosen], doubt[chosen]).items():
            nll = fitted.nll(logits[others], labels[others], doubt[others])
            found[name].add(others, nll, temperature=round(math.exp(fitted.a), 3), slope=round(fitted.b, 4))
    return found


def _minimised(nll: Callable[..., Tensor], start: list[float]) -> list[float]:
    """Return the parameters at which the mean NLL is least."""
    parameters = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = nll(parameters).mean()
        value.backward()
        return value

    optimiser.step(closure)
    return parameters.detach().tolist()
