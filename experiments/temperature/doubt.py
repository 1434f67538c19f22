"""A temperature that listens to doubt: log T(x) = a + b z(x), as `DoubtfulCategorical` has it, and other forms of it.

z(x) is the logarithm of the variance of an image's logits under draws, mean over classes, standardised by the
validation images and kept within limits. What is tempered here are the network's own logits, so that b = 0 is one
constant temperature. a and b are fitted on validation images, b with the prior that `calibrate` has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesnorm.likelihoods.doubtful_categorical import MOST, log_variance as log_variance
from bayesnorm.selection.calibrate import EVIDENCE, SLOPE_SHARE
from bayesnorm.selection.listening import PRIOR, better_beyond_chance

from .judging import CONSTANT, Judged, folds


@dataclass(frozen=True)
class Form:
    """How a temperature may listen.

    Args:
        least: The least z; 0 for a temperature that only rises.
        prior: Standard deviation of b beforehand.
        evidence: How many standard errors it has to be better by than a constant temperature.
    """

    least: float
    prior: float
    evidence: float = 0.0


FORMS = {
    "rising, guarded": Form(0.0, PRIOR, SLOPE_SHARE * EVIDENCE),  # what `calibrate` does
    "rising": Form(0.0, PRIOR),
    "rising, no prior": Form(0.0, math.inf),
    "both ways": Form(-MOST, PRIOR),
    "both ways, no prior": Form(-MOST, math.inf),
}


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

    def nll(self, logits: Tensor, labels: Tensor, doubt: Tensor) -> Tensor:
        """Return the NLL of every image."""
        return points(logits, labels, self.a + self.b * standardised(doubt, self.mean, self.std, self.least))


def standardised(doubt: Tensor, mean: float, std: float, least: float) -> Tensor:
    """Return z."""
    return ((doubt - mean) / std).clamp(least, MOST)


def points(logits: Tensor, labels: Tensor, log_temperature: Tensor) -> Tensor:
    """Return the NLL of every image under a temperature of its own."""
    log_probs = torch.log_softmax(logits / log_temperature.exp()[:, None], -1)
    return -log_probs.gather(1, labels[:, None])[:, 0]


def fitted_forms(logits: Tensor, labels: Tensor, doubt: Tensor) -> dict[str, DoubtfulTemperature]:
    """Fit a constant temperature and every form on validation images.

    Args:
        logits: The network's own, (images, classes).
        labels: Their classes.
        doubt: Their log-variances.
    """
    mean, std = float(doubt.mean()), float(doubt.std())
    (a,) = _minimised(lambda p: points(logits, labels, p[0].expand(len(doubt))).mean(), [0.0])
    found = {CONSTANT: DoubtfulTemperature(a, 0.0, mean, std, 0.0)}
    simple = found[CONSTANT].nll(logits, labels, doubt)
    for name, form in FORMS.items():
        z = standardised(doubt, mean, std, form.least)
        weight = 1 / (2 * form.prior**2 * len(doubt))

        def loss(p: Tensor, z: Tensor = z, weight: float = weight) -> Tensor:
            return points(logits, labels, p[0] + p[1] * z).mean() + weight * p[1].square()

        level, slope = _minimised(loss, [a, 0.0])
        fitted = DoubtfulTemperature(level, slope, mean, std, form.least)
        proven = fitted.b > 0 and better_beyond_chance(simple, fitted.nll(logits, labels, doubt), form.evidence)
        found[name] = fitted if proven else found[CONSTANT]
    return found


def judge_doubt(logits: Tensor, labels: Tensor, doubt: Tensor, validation: int, count: int) -> dict[str, Judged]:
    """Fit every form on the same validation images, and judge it by the same others."""
    found = {name: Judged(len(labels)) for name in (CONSTANT, *FORMS)}
    for chosen, others in folds(len(labels), validation, count):
        for name, fitted in fitted_forms(logits[chosen], labels[chosen], doubt[chosen]).items():
            nll = fitted.nll(logits[others], labels[others], doubt[others])
            found[name].add(others, nll, temperature=round(math.exp(fitted.a), 3), slope=round(fitted.b, 4))
    return found


def _minimised(loss: Callable[[Tensor], Tensor], start: list[float]) -> list[float]:
    """Return the parameters at which a loss is least."""
    parameters = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    optimiser.step(closure)
    return parameters.detach().tolist()
