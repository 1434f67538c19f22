"""Temperatures that depend on uncertainty: log T(x) = a + b z(x), as in `VarianceScaledCategorical`, and variants.

z(x) is the logarithm of the variance of an image's logits over samples, averaged over classes, or another covariate
from samples (`covariates`). It is standardised by the validation images and clipped. The temperature is applied to the
network's own logits, so b = 0 gives one constant temperature. a and b are fitted on validation images, b with the prior
of `calibrate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.calibration import significantly_better
from bayesnorm.calibration.calibrate import EVIDENCE
from bayesnorm.calibration.candidates import SLOPE_SHARE
from bayesnorm.calibration.sampled_outputs import PRIOR
from bayesnorm.likelihoods import LARGEST_DISAGREEMENT, log_logit_variance
from bayesnorm.metrics import auroc, ece, nll
from bayesnorm.predictive import ClassificationPredictive

from .judging import CONSTANT, Judged, folds


@dataclass(frozen=True)
class Form:
    """How a temperature may depend on uncertainty.

    Args:
        least: The smallest z; 0 for a temperature that only rises.
        prior: Prior standard deviation of b.
        evidence: How many standard errors it must be better than a constant temperature.
    """

    least: float
    prior: float
    evidence: float = 0.0


LOGITS = "logits"
"""The covariate of `VarianceScaledCategorical`: the variance of the logits, averaged over classes."""

CALIBRATED, BOTH_WAYS = "rising, guarded", "both ways"

FORMS = {
    CALIBRATED: Form(0.0, PRIOR, SLOPE_SHARE * EVIDENCE),  # what `calibrate` does
    "rising": Form(0.0, PRIOR),
    "rising, no prior": Form(0.0, math.inf),
    BOTH_WAYS: Form(-LARGEST_DISAGREEMENT, PRIOR),
    "both ways, no prior": Form(-LARGEST_DISAGREEMENT, math.inf),
}


@dataclass(frozen=True)
class UncertaintyfulTemperature:
    """log T(x) = a + b z(x).

    Args:
        a, b: The fitted parameters.
        mean, std: Of the validation images' log-variances.
        least: The smallest z.
    """

    a: float
    b: float
    mean: float
    std: float
    least: float

    def log_temperature(self, uncertainty: Tensor) -> Tensor:
        """Return log T(x) of every image."""
        return self.a + self.b * standardised(uncertainty, self.mean, self.std, self.least)

    def nll(self, logits: Tensor, labels: Tensor, uncertainty: Tensor) -> Tensor:
        """Return the NLL of every image."""
        return points(logits, labels, self.log_temperature(uncertainty))

    def predictive(self, logits: Tensor, uncertainty: Tensor) -> ClassificationPredictive:
        """Return the prediction for every image."""
        return bn.Categorical().predictive((logits / self.log_temperature(uncertainty).exp()[:, None])[None])


def covariates(f: Tensor, logits: Tensor) -> dict[str, Tensor]:
    """Return the covariates for a temperature, by name: a logarithm for every image.

    Args:
        f: Logits under samples, (samples, images, classes).
        logits: The network's own, (images, classes), which give the two most likely classes.
    """
    first, second = f.gather(-1, logits.topk(2).indices.expand(len(f), -1, -1)).unbind(-1)
    told = {"margin": (first - second).var(0), "largest logit": first.var(0)}
    told["mutual information"] = bn.Categorical().predictive(f).mutual_information.clamp_min(1e-12)
    return {LOGITS: log_logit_variance(f, f.new_full((len(f),), 1 / len(f)))} | {
        name: v.log() for name, v in told.items()
    }


def standardised(uncertainty: Tensor, mean: float, std: float, least: float) -> Tensor:
    """Return z."""
    return ((uncertainty - mean) / std).clamp(least, LARGEST_DISAGREEMENT)


def points(logits: Tensor, labels: Tensor, log_temperature: Tensor) -> Tensor:
    """Return the NLL of every image with its own temperature."""
    log_probs = torch.log_softmax(logits / log_temperature.exp()[:, None], -1)
    return -log_probs.gather(1, labels[:, None])[:, 0]


def fitted_forms(logits: Tensor, labels: Tensor, uncertainty: Tensor) -> dict[str, UncertaintyfulTemperature]:
    """Fit a constant temperature and every form on validation images.

    Args:
        logits: The network's own, (images, classes).
        labels: Their classes.
        uncertainty: Their log-variances.
    """
    mean, std = float(uncertainty.mean()), float(uncertainty.std())
    (a,) = minimised(lambda p: points(logits, labels, p[0].expand(len(uncertainty))).mean(), [0.0])
    results = {CONSTANT: UncertaintyfulTemperature(a, 0.0, mean, std, 0.0)}
    simple = results[CONSTANT].nll(logits, labels, uncertainty)
    for name, form in FORMS.items():
        z = standardised(uncertainty, mean, std, form.least)
        weight = 1 / (2 * form.prior**2 * len(uncertainty))

        def loss(p: Tensor, z: Tensor = z, weight: float = weight) -> Tensor:
            return points(logits, labels, p[0] + p[1] * z).mean() + weight * p[1].square()

        level, slope = minimised(loss, [a, 0.0])
        fitted = UncertaintyfulTemperature(level, slope, mean, std, form.least)
        proven = fitted.b > 0 and significantly_better(simple, fitted.nll(logits, labels, uncertainty), form.evidence)
        results[name] = fitted if proven else results[CONSTANT]
    return results


def judge_uncertainty(
    logits: Tensor, labels: Tensor, uncertainty: Tensor, validation: int, count: int
) -> dict[str, Judged]:
    """Fit every form on the same validation images, and score it on the same other images."""
    results = {name: Judged(len(labels)) for name in (CONSTANT, *FORMS)}
    for chosen, others in folds(len(labels), validation, count):
        for name, fitted in fitted_forms(logits[chosen], labels[chosen], uncertainty[chosen]).items():
            nll = fitted.nll(logits[others], labels[others], uncertainty[others])
            results[name].add(others, nll, temperature=round(math.exp(fitted.a), 3), slope=round(fitted.b, 4))
    return results


def shifted_scores(
    forms: dict[str, UncertaintyfulTemperature], logits: Tensor, uncertainty: Tensor, labels: Tensor
) -> dict[str, dict[str, float]]:
    """Return NLL, calibration error, and how well confidence ranks errors, of every form."""
    results: dict[str, dict[str, float]] = {"nll": {}, "ece": {}, "errors_auroc": {}}
    wrong = logits.argmax(-1) != labels
    for name, form in forms.items():
        predictive = form.predictive(logits, uncertainty)
        sure = predictive.probs.amax(-1)
        results["nll"][name] = round(float(nll(predictive, labels)), 5)
        results["ece"][name] = round(float(ece(predictive, labels)), 5)
        if 0 < wrong.sum() < len(wrong):
            results["errors_auroc"][name] = round(float(auroc(-sure[~wrong], -sure[wrong])), 5)
    return results


def outside_scores(
    forms: dict[str, UncertaintyfulTemperature], inside: tuple[Tensor, Tensor], outside: tuple[Tensor, Tensor]
) -> dict[str, float]:
    """Return the AUROC of images of another kind by entropy under every form, and by the samples' variance alone.

    Args:
        forms: The temperatures.
        inside, outside: Logits and covariates, of images of both kinds.
    """
    results = {
        name: auroc(*(form.predictive(*moments).entropy for moments in (inside, outside)))
        for name, form in forms.items()
    }
    results["the samples' variance alone"] = auroc(inside[1], outside[1])
    return {name: round(float(value), 5) for name, value in results.items()}


def minimised(loss: Callable[[Tensor], Tensor], start: list[float]) -> list[float]:
    """Return the parameters that minimise a loss."""
    parameters = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    optimiser.step(closure)
    return parameters.detach().tolist()
