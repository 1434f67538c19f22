"""The search of `calibrate`: candidates for the noise and the effective batch size, and how they are scored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesnorm_runtime import Validation

from ..errors import NotFiniteError, warn
from ..likelihoods import Categorical, ClassTargets, Likelihood
from ..posterior import (
    BatchNormPosterior,
    CombinedPosterior,
    DeterministicPosterior,
    EnsemblePosterior,
    effective_batch_size,
)
from ..predictive import as_targets
from ..progress import Progress
from .held_out_scores import Between, Score, significantly_better
from .sampled_outputs import Case, SampledOutputs, fit_variance_scaled_temperature

# Candidates for the effective batch size range from 1 to 4096.
LARGEST_LOG2_BATCH_SIZE = 12

# Samples per candidate while a classifier's effective batch size is searched.
SEARCH_SAMPLES = 16

# Outputs of several candidates are sampled together up to this count of numbers.
LARGE_OUTPUTS = 2**26

# The fraction of the evidence needed for an input-dependent temperature, which is a single candidate.
SLOPE_SHARE = 0.5

# Differences up to this many nats, or this share of their standard error, are not worth a warning.
NEGLIGIBLE_NLL, NEGLIGIBLE_SHARE = 5e-4, 0.5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A candidate for the posterior's open numbers.

    Args:
        batch_size: The effective batch size; None keeps it.
        noise: The noise; None keeps it.
        score: Its score; lower is better.
        rows: The score of every example, if examples are compared.
        scored: Its sampled outputs, if they are used again.
    """

    batch_size: float | None
    noise: Tensor | None
    score: float
    rows: Tensor | None = None
    scored: SampledOutputs | None = None


@dataclass(frozen=True, eq=False)
class Search:
    """The settings that all candidates of a search share; see `calibrate`."""

    posterior: Any
    samples: int
    score: Score | None
    noise: bool | Between
    refinements: int
    seed: int
    evidence: float
    tell: Progress

    @property
    def guarded(self) -> bool:
        """Whether an effective batch size must be significantly better than temperature scaling."""
        return self.noise is True and isinstance(self.posterior.likelihood, ClassTargets)

    def candidate(self, scored: SampledOutputs, batch_size: float | None, *, fit_noise: bool = True) -> Candidate:
        """Return an effective batch size, None for the present one, with the best noise or the present one."""
        likelihood: Likelihood = self.posterior.likelihood
        if fit_noise and self.noise is not False:
            level, value = scored.best_noise(None if self.noise is True else self.noise, self.refinements)
            likelihood = likelihood.with_noise(level)
        else:
            level, value = None, scored.score(likelihood)
        rows = scored.by_row(likelihood) if self.guarded else None
        return Candidate(batch_size, level, float(value.mean()), rows, scored)

    def at_sizes(
        self,
        cases: Sequence[Case],
        sizes: Sequence[float],
        samples: int | None = None,
        step: tuple[int, int] = (0, 1),
        *,
        required: bool = False,
        keep: bool = False,
    ) -> list[Candidate]:
        """Score effective batch sizes; the score is infinite if outputs are not finite.

        Args:
            cases: The validation data.
            sizes: The effective batch sizes.
            samples: Number of samples; None for all.
            step: The number of this step of the search, and of all steps.
            required: Whether outputs that are not finite are an error.
            keep: Whether candidates keep their sampled outputs, unless these are large.
        """
        options = [resized_cases(cases, size) for size in sizes]
        candidates = []
        for size, option, scored in zip(sizes, options, self.sampled(options, samples, step), strict=True):
            try:
                scored.require_finite(option)
            except NotFiniteError:
                if required:
                    raise
                candidates.append(Candidate(size, None, math.inf))
                continue
            candidate = self.candidate(scored, size)
            if not required and not math.isfinite(candidate.score):
                candidate = dataclasses.replace(candidate, score=math.inf)
            if not keep or self._at_once(option, self.samples) < 2:
                candidate = dataclasses.replace(candidate, scored=None)
            candidates.append(candidate)
        return candidates

    def over_batch_sizes(self, cases: Sequence[Case]) -> list[Candidate]:
        """Return the effective batch sizes of a search, scored with all samples.

        It scores every power of four, then sizes around the best, at factors of two and of the square root of two. For
        classes it does so with a few samples, stops if no size comes near to being significantly better than the
        largest, and scores only the best and the largest with all samples.
        """
        few = min(self.samples, SEARCH_SAMPLES) if isinstance(self.posterior.likelihood, ClassTargets) else self.samples
        logs = [float(power) for power in range(0, LARGEST_LOG2_BATCH_SIZE + 1, 2)]
        tried: dict[float, Candidate] = {}
        for number, width in enumerate((1.0, 0.5, 0.0)):
            tried.update(zip(logs, self.at_sizes(cases, [2**log for log in logs], few, (number, 4)), strict=True))
            best = min(tried, key=lambda log_size: tried[log_size].score)
            if self.guarded and self.evidence and not _promising(tried, self.evidence):
                best = max(tried)
                break
            logs = [log for log in (best - width, best + width) if 0 <= log <= max(tried)]
        if few == self.samples:
            return list(tried.values())
        finalists = {2**log: None for log in (best, max(tried))}
        return self.at_sizes(cases, list(finalists), None, (3, 4), keep=True)

    def chosen(self, candidate: Candidate) -> Any:
        """Return the posterior with the values of a candidate."""
        posterior = self.posterior
        if candidate.noise is not None:
            posterior = posterior.with_likelihood(posterior.likelihood.with_noise(candidate.noise))
        return posterior if candidate.batch_size is None else posterior.at_batch_size(candidate.batch_size)

    def with_slope(self, cases: Sequence[Case], candidate: Candidate) -> Any:
        """Return the posterior with a candidate's values, and an input-dependent temperature if that is better."""
        posterior = self.chosen(candidate)
        if type(posterior.likelihood) is not Categorical:
            return posterior
        size: Any = effective_batch_size(posterior)
        scored = candidate.scored or next(self.sampled([resized_cases(cases, size)]))
        return posterior.with_likelihood(
            fit_variance_scaled_temperature(scored, posterior.likelihood, SLOPE_SHARE * self.evidence)
        )

    def at_own_size(self, cases: Sequence[Case]) -> Any:
        """Return the posterior with the best temperature, and warn if the network alone scores better with its own."""
        scored, network = self.sampled([cases, self.alone(cases)])
        scored.require_finite(cases)
        fitted = scored.with_best_noise(self.refinements)
        likelihood: Any = min(self.posterior.likelihood, fitted, key=lambda option: float(scored.score(option)))
        if type(likelihood) is Categorical and self.evidence:
            likelihood = fit_variance_scaled_temperature(scored, likelihood, SLOPE_SHARE * self.evidence)
        network.outputs = [f[:1] for f in network.outputs]  # all samples are the same
        alone_likelihood = network.with_best_noise(self.refinements)
        _warn_if_worse(scored.by_row(likelihood), network.by_row(alone_likelihood))
        return with_validation(self.posterior.with_likelihood(likelihood), network, alone_likelihood)

    def alone(self, cases: Sequence[Case]) -> list[Case]:
        """Return the validation data with networks that are not sampled."""
        return [(DeterministicPosterior(case.executable, self.posterior.likelihood), *rest) for case, *rest in cases]

    def recorded(self, chosen: Any, cases: Sequence[Case]) -> Any:
        """Return a classifier's posterior with the record of its network on the validation data."""
        if not self.guarded or effective_batch_size(chosen) is None:
            return chosen
        (network,) = self.sampled([self.alone(cases)], 1)
        return with_validation(chosen, network, network.with_best_noise(self.refinements))

    def warn_of_temperature(self, chosen: Any) -> None:
        """Warn if the fitted temperature is the lowest or the highest of the search."""
        if not self.guarded:
            return
        several = self.samples > 1
        low, high = map(float, chosen.likelihood.noise_range(torch.empty(1 + several), None))
        temperature = chosen.likelihood.temperature
        if low * 1.01 < temperature < high / 1.01 or temperature == self.posterior.likelihood.temperature:
            return
        place, meaning = "highest", "these labels look random to the network. Check that x and y belong together"
        if temperature < 1:
            place = "lowest"
            meaning = "sharper probabilities would score still better. Use more validation data"
            meaning += ", or a larger effective batch size" * several
        warn(f"temperature: {temperature:.3g}, the {place} of the search, scored best: {meaning}.")

    def sampled(
        self, options: Sequence[Sequence[Case]], samples: int | None = None, step: tuple[int, int] = (0, 1)
    ) -> Iterator[SampledOutputs]:
        """Yield the sampled outputs of options for the same validation data; as many as fit in memory run together."""
        samples = samples or self.samples
        size = self._at_once(options[0], samples)
        parts = [options[start : start + size] for start in range(0, len(options), size)]
        for number, part in enumerate(parts):
            tell = partial(self._tell, step[0] * len(parts) + number, step[1] * len(parts))
            yield from SampledOutputs.sample_several(
                part, self.posterior.likelihood, self.score, samples, self.seed, tell
            )

    def _tell(self, before: int, steps: int, done: int, total: int) -> None:
        """Report progress within a step of the search; `before` steps are done."""
        self.tell(before * total + done, steps * total)

    def _at_once(self, cases: Sequence[Case], samples: int) -> int:
        """Return for how many options the outputs fit in memory together."""
        numbers = (len(x) * math.prod(posterior.executable.output_shape or ()) for posterior, x, _ in cases)
        return max(1, LARGE_OUTPUTS // max(1, samples * sum(numbers)))


def resized_cases(cases: Sequence[Case], batch_size: float) -> list[Case]:
    return [(posterior.at_batch_size(batch_size), x, y) for posterior, x, y in cases]


def _warn_if_worse(sampled: Tensor, alone: Tensor) -> None:
    """Warn if the scores of examples under samples are worse on average than those of temperature scaling alone."""
    loss = sampled - alone.to(sampled)
    error = float(loss.std()) / math.sqrt(len(loss)) if len(loss) > 1 else 0.0
    if float(loss.mean()) <= max(NEGLIGIBLE_NLL, NEGLIGIBLE_SHARE * error):
        return
    message = (
        f"Temperature scaling alone scores better on these {len(loss):,} validation examples: its NLL is "
        f"{float(alone.mean()):.4f}, with samples it is {float(sampled.mean()):.4f} (difference "
        f"{float(loss.mean()):.4f} ± {error:.4f}). For class probabilities, use "
        "calibrate(deterministic(model, likelihood), x, y), or search the effective batch size with batch_size=True. "
        "Keep this posterior if you need the disagreement of the samples."
    )
    warn(message)


def _promising(tried: Mapping[float, Candidate], evidence: float) -> bool:
    """Return whether the best size is better than the largest by at least half of the evidence."""
    return guarded_choice(list(tried.values()), evidence / 2) is not tried[max(tried)]


def guarded_choice(candidates: Sequence[Candidate], evidence: float) -> Candidate:
    """Return the best candidate if it is significantly better than the one with the least variation, else that one."""
    best = min(candidates, key=lambda candidate: candidate.score)
    calmest = max(candidates, key=lambda candidate: candidate.batch_size or 0.0)
    if best.rows is None or calmest.rows is None:  # candidates without finite outputs have no scores per example
        return best
    return best if significantly_better(calmest.rows, best.rows, evidence) else calmest


def with_validation(posterior: Any, network: SampledOutputs, likelihood: Likelihood) -> Any:
    """Return the posterior with the record of its network on validation data, if each example has one class.

    Args:
        posterior: The posterior, or an ensemble or a combination that contains posteriors over batch statistics.
        network: The outputs of the network without sampling, and the targets.
        likelihood: The likelihood with the temperature that fits these outputs best.
    """
    probs = torch.cat([likelihood.predictive(f).mean for f in network.outputs]).cpu()
    y = torch.cat([as_targets(targets, torch.device("cpu")).reshape(-1) for targets in network.targets])
    if probs.dim() != 2 or y.shape != probs.shape[:1]:
        return posterior
    seen = (y >= 0) & (y < probs.shape[1])  # others are missing targets
    if not bool(seen.any()):
        return posterior
    record = Validation.from_probabilities(probs[seen].double().numpy(), y[seen].numpy(), float(likelihood.noise))
    return _recorded(posterior, record)


def _recorded(posterior: Any, validation: Validation) -> Any:
    if isinstance(posterior, EnsemblePosterior):
        return dataclasses.replace(posterior, members=tuple(_recorded(part, validation) for part in posterior.members))
    if isinstance(posterior, CombinedPosterior):
        return dataclasses.replace(posterior, parts=tuple(_recorded(part, validation) for part in posterior.parts))
    if isinstance(posterior, BatchNormPosterior):
        return dataclasses.replace(posterior, validation=validation)
    return posterior
