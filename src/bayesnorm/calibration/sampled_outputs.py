"""Outputs of posteriors on validation data, sampled once and then scored under any noise.

`fit_variance_scaled_temperature` fits a temperature that increases with the samples' disagreement, if that clearly
helps. Temperature and slope minimise the score plus slope^2 / (2 PRIOR^2 examples). So the slope has the prior
N(0, PRIOR^2), and a small data set cannot produce a large slope by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ..engines import MonteCarlo, require_finite
from ..likelihoods import (
    Categorical,
    Gaussian,
    Likelihood,
    VarianceScaledCategorical,
    log_logit_variance,
    standardised_disagreement,
    with_zero,
)
from ..metrics import mean_over_points, scored_labels
from ..posterior import Posterior, effective_batch_size
from ..predictive import ClassificationPredictive, as_targets, at_least_single
from ..progress import Progress
from .held_out_scores import HeldOutScores, Score, score_points, significantly_better

Case = tuple[Posterior, Any, Any]
"""A posterior with validation data that its network was not trained on: (posterior, x, y)."""

# Up to this count of moments, the search runs on the CPU, because waiting for a GPU at every step takes longer.
FEW_NUMBERS = 2**15


class SampledOutputs(HeldOutScores):
    """Sampled outputs for examples with known targets.

    Args:
        outputs: Outputs of all samples, (samples, rows, *out), one tensor for each fold.
        targets: The targets of each fold.
        likelihood, score_name, weights: As in `HeldOutScores`.
        moments: Mean and variance of the outputs of each fold, if they are enough; `outputs` is then not used.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        targets: Sequence[Any],
        likelihood: Likelihood,
        score_name: Score | None = None,
        weights: Tensor | None = None,
        moments: Sequence[tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        super().__init__(likelihood, score_name, weights)
        self.outputs, self.targets, self.moments = outputs, targets, moments

    @classmethod
    def sample(
        cls, cases: Sequence[Case], likelihood: Likelihood, score_name: Score | None, samples: int, seed: int
    ) -> Self:
        """Sample the outputs of posteriors, or only their moments if the score needs no more.

        Args:
            cases: Posteriors with inputs and targets, one for each fold.
            likelihood, score_name: As in `HeldOutScores`.
            samples: Number of samples.
            seed: Seed of the samples.
        """
        (sampled,) = cls.sample_several([cases], likelihood, score_name, samples, seed)
        sampled.require_finite(cases)
        return sampled

    @classmethod
    def sample_several(
        cls,
        options: Sequence[Sequence[Case]],
        likelihood: Likelihood,
        score_name: Score | None,
        samples: int,
        seed: int,
        progress: Progress | None = None,
    ) -> list[Self]:
        """Do what `sample` does for several options, which have the same folds. It does not check that all is finite.

        The options run together, so what does not depend on the sample is computed once for all of them.
        """
        engine = MonteCarlo(samples)
        by_fold = [
            engine.outputs_of_several([posterior for posterior, _, _ in fold], fold[0][1], seed, progress)
            for fold in zip(*options, strict=True)
        ]
        sampled = []
        for number, cases in enumerate(options):
            outputs, moments = [at_least_single(outputs[number]) for outputs in by_fold], None
            if score_name in (None, "crps") and isinstance(likelihood, Gaussian):
                moments, outputs = [_moments(f) for f in outputs], []
                if sum(mean.numel() for mean, _ in moments) <= FEW_NUMBERS:
                    moments = [(mean.cpu(), variance.cpu()) for mean, variance in moments]
            sampled.append(cls(outputs, [y for _, _, y in cases], likelihood, score_name, None, moments))
        return sampled

    def require_finite(self, cases: Sequence[Case]) -> None:
        """Raise an error if means or variances of outputs are not finite."""
        numbers = self.outputs if self.moments is None else [torch.stack(pair) for pair in self.moments]
        for (posterior, x, _), f, predictive in zip(cases, numbers, self.predictives(self.likelihood), strict=True):
            require_finite(posterior, x, f, predictive)

    def predictives(self, likelihood: Likelihood) -> list[Any]:
        """Return the predictive of each fold under a likelihood."""
        if self.moments is None:
            return [likelihood.predictive(f) for f in self.outputs]
        return [likelihood.gaussian_predictive(mean, variance) for mean, variance in self.moments]

    def points(self, likelihood: Likelihood) -> tuple[Tensor, Tensor | None]:
        """Return the score of every target (0 if missing) under a likelihood, and a mask of those present."""
        parts = [
            score_points(predictive, y, self.score_name)
            for predictive, y in zip(self.predictives(likelihood), self.targets, strict=True)
        ]
        masks = [seen for _, seen in parts if seen is not None]
        return torch.cat([points for points, _ in parts]), torch.cat(masks) if masks else None

    def noise_range(self) -> tuple[Tensor, Tensor]:
        """Return the lower and upper ends of the search for the noise, from the likelihood's range in every fold."""
        outputs = self.outputs if self.moments is None else [mean[None] for mean, _ in self.moments]
        ranges = [self.likelihood.noise_range(f, y) for f, y in zip(outputs, self.targets, strict=True)]
        return torch.stack([low for low, _ in ranges]).amin(0), torch.stack([high for _, high in ranges]).amax(0)

    def noise_objective(self) -> Callable[[Tensor], Tensor]:
        """Return the score for a noise; for a temperature of classes, it is computed from margins, which is faster."""
        if type(self.likelihood) is not Categorical or self.score_name not in (None, "nll"):
            return super().noise_objective()
        margins: list[Tensor] = []
        weights: list[Tensor] = []
        count = 0  # with weights, missing targets count, as in `score`
        for f, y in zip(self.outputs, self.targets, strict=True):
            logits = with_zero(f if f.dim() > 2 else f.unsqueeze(-1))
            predictive = ClassificationPredictive(logits, None, self.likelihood.ignore_index)  # only checks `y`
            target = as_targets(y, f.device)
            seen = scored_labels(predictive, target, None)
            labels = predictive.targets(torch.where(seen, target, torch.zeros_like(target)))
            logits = logits.movedim(2, 0)
            margins.append((logits - logits.gather(0, labels.expand(1, *logits.shape[1:])))[:, :, seen])
            weights.append(self._weighted(torch.ones_like(seen, dtype=torch.float64))[seen])
            count += int(seen.sum()) if self.weights is None else seen.numel()
        weight = torch.cat(weights)
        if not len(weight) or not all(bool(torch.isfinite(margin).all()) for margin in margins):
            return super().noise_objective()
        largest = [margin.amax(0) for margin in margins]
        margins = [margin - most for margin, most in zip(margins, largest, strict=True)]

        def objective(temperature: Tensor) -> Tensor:
            points = map(_negative_log_probs, margins, largest, [1 / temperature] * len(margins))
            return (torch.cat(list(points)).double() * weight).sum() / count

        return objective


def _negative_log_probs(margins: Tensor, largest: Tensor, inverse_temperature: Tensor) -> Tensor:
    """Return -log p(y) of the mixture over samples, (points,).

    Args:
        margins: Logits of all classes minus that of the target, (classes, samples, points), and minus `largest`.
        largest: The largest difference of a logit from that of the target, (samples, points), at least 0.
        inverse_temperature: 1 / temperature.
    """
    scale = inverse_temperature.to(margins)
    costs = (margins * scale).exp_().sum(0).log_() + largest * scale
    return math.log(len(costs)) - torch.logsumexp(-costs, 0)


def _moments(f: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance over samples."""
    mean = f.mean(0)
    return mean, (f - mean).square().mean(0)


def require_scorable(cases: Sequence[Case], likelihood: Likelihood, score: Score | None, seed: int) -> None:
    """Raise an error if predictions cannot be scored with this score or these targets. It runs a few examples per case.

    The outputs of one example are used for all others.
    """
    for posterior, x, y in cases:
        graph = effective_batch_size(posterior) is None  # the network may need all nodes of a graph
        few = posterior.executable.few(x) if graph else x[:2]
        f = at_least_single(MonteCarlo(1).outputs(posterior, few, seed))[:, :1]
        score_points(likelihood.predictive(f.expand(1, len(x), *f.shape[2:])), y, score)


def mean_score(
    posterior: Posterior, x: Any, y: Any, score: Score | None = None, samples: int = 64, seed: int = 0
) -> float:
    """Return the score of a posterior that `calibrate` minimises: the mean over targets that are present."""
    sampled = SampledOutputs.sample([(posterior, x, y)], posterior.likelihood, score, samples, seed)
    return float(sampled.score(posterior.likelihood))


# Prior standard deviation of the slope. Fitted slopes of CIFAR-10 networks are about as large.
PRIOR = 0.1

# Maximum steps of the search for temperature and slope; it needs fewer.
ITERATIONS = 60


def fit_variance_scaled_temperature(scored: SampledOutputs, likelihood: Categorical, evidence: float) -> Categorical:
    """Return a likelihood with an input-dependent temperature, or the given one unless that is significantly better.

    Args:
        scored: Outputs of the posterior at its final effective batch size.
        likelihood: The likelihood with the best constant temperature.
        evidence: By how many standard errors of the difference per example it must be better.
    """
    scaled = _fitted(scored, likelihood)
    if scaled is None:
        return likelihood
    return scaled if significantly_better(scored.by_row(likelihood), scored.by_row(scaled), evidence) else likelihood


@torch.inference_mode(False)
@torch.enable_grad()
def _fitted(scored: SampledOutputs, likelihood: Categorical) -> VarianceScaledCategorical | None:
    """Return temperature and slope with the lowest score; None if samples do not differ or the slope is negative."""
    outputs = [f if f.dim() > 2 else f.unsqueeze(-1) for f in scored.outputs]  # binary classifiers may lack an axis
    log_variances = [log_logit_variance(f, f.new_full((len(f),), 1 / len(f))) for f in outputs]
    joined = torch.cat([values.flatten() for values in log_variances]).double()
    if len(joined) < 2 or not bool(torch.isfinite(joined).all()) or not float(joined.std()) > 0:
        return None
    mean, std = float(joined.mean()), float(joined.std())
    disagreement = [
        standardised_disagreement(values, mean, std)[:, None] for values in log_variances
    ]  # with an axis for classes
    parameters = torch.tensor([math.log(likelihood.temperature), 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        parts = []
        for f, z, y in zip(outputs, disagreement, scored.targets, strict=True):
            level, slope = parameters.to(f)
            log_probs = likelihood.log_probs(f, (level + slope * z).exp())
            parts.append(score_points(ClassificationPredictive(log_probs, None, likelihood.ignore_index), y, None))
        seen = None if parts[0][1] is None else torch.cat([part for _, part in parts if part is not None])
        value = mean_over_points(torch.cat([points for points, _ in parts]), seen).double()
        value = value + parameters[1].square() / (2 * PRIOR**2 * sum(len(points) for points, _ in parts))
        value.backward()
        return value

    optimiser.step(loss)
    level, slope = parameters.tolist()
    low, high = (float(end) for end in likelihood.noise_range(outputs[0], scored.targets[0]))
    if not (slope > 0 and low <= math.exp(level) <= high):
        return None
    return VarianceScaledCategorical(
        math.exp(level), slope=min(slope, 10.0), mean=mean, std=std, ignore_index=likelihood.ignore_index
    )
