"""Calibrate a posterior: choose its noise level or temperature and its effective batch size on validation data.

Training leaves two numbers open: the noise of the targets (tau in the papers, or a temperature), and how much batch
statistics should vary (the effective batch size M'). Both are chosen by the same score, on examples that the network
was not trained on. For each candidate M', outputs are sampled once, with the same random numbers, and the best noise is
searched over the stored outputs. For `deterministic(model, likelihood)`, which has no epistemic uncertainty, this is
temperature scaling, or one constant noise level.

A classifier keeps its M' by default, because its samples are what the user fitted it for. Classification NLL is
dominated by a few examples, and the M' with the lowest NLL on a few hundred of them is often best only by chance. So if
M' is searched as well, the largest one, at which hardly anything varies, is chosen unless another is better by more
than two standard errors of the difference per example (`evidence`).
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..arguments import require_number, require_seed, require_whole
from ..engines import MonteCarlo
from ..errors import BayesNormWarning, NotFiniteError
from ..likelihoods import Categorical, ClassTargets, Gaussian, Likelihood, VarianceScaledCategorical, require_moderate
from ..posterior import DeterministicPosterior, Posterior, effective_batch_size
from ..progress import Progress, long_progress
from .calibrate_arguments import require_batch_sizes, require_noise, validation_cases
from .held_out_scores import REFINEMENTS, Between, Score, significantly_better
from .sampled_outputs import Case, SampledOutputs, require_scorable
from .validated import with_validation
from .variance_scaled_temperature import fit_variance_scaled_temperature

P = TypeVar("P", bound=Posterior)

# Candidates for the effective batch size range from 1 to 4096.
LARGEST_LOG2_BATCH_SIZE = 12

# Samples per candidate while a classifier's effective batch size is searched.
SEARCH_SAMPLES = 16

# Outputs of several candidates are sampled together up to this count of numbers.
LARGE_OUTPUTS = 2**26

# One standard error would be enough for a single candidate; this is for the best of about ten.
EVIDENCE = 2.0

# The fraction of the evidence needed for an input-dependent temperature, which is a single candidate.
SLOPE_SHARE = 0.5

# Differences up to this many nats, or this share of their standard error, are not worth a warning.
NEGLIGIBLE_NLL, NEGLIGIBLE_SHARE = 5e-4, 0.5


def calibrate(
    posterior: P,
    x: Any = None,
    y: Any = None,
    *,
    folds: Sequence[Case] | None = None,
    batch_size: bool | Sequence[float] | None = None,
    noise: bool | Between = True,
    score: Score | None = None,
    samples: int | None = None,
    evidence: float = EVIDENCE,
    refinements: int = REFINEMENTS,
    seed: int = 0,
) -> P:
    """Return a new posterior whose noise and effective batch size M' score best on validation data.

    For regression it fits the noise level and M', and the result never scores worse on this data than `posterior`.

    For classification it fits the temperature and keeps M', and with it the disagreement of the samples. The
    temperature is the same for all examples, unless one that increases with this disagreement
    (`VarianceScaledCategorical`) is significantly better. If temperature scaling of the network itself scores better on
    this data, a warning gives both scores. With `batch_size=True` M' is searched as well. Plain temperature scaling
    (M' = 4096, which practically switches sampling off) is then chosen unless another M' is significantly better.

    The chosen values are in the posterior's `repr`. If regression selects the smallest or largest candidate (M' = 1 or
    4096), a warning says so.

    Validation data determine the total uncertainty, not its split. If epistemic and aleatoric variance are similar on
    all examples, more noise and a smaller M' give the same score. So do not interpret `epistemic` of a calibrated
    posterior as the part that more data would remove. To estimate that part, train on subsets of the data and compare
    errors.

    Args:
        posterior: Any posterior. If it has no effective batch size, only the noise is fitted.
        x: Validation inputs, not used in training; or inputs with targets, such as a `DataLoader`, a `Dataset` or a
            pair. Of data sets and streams, as many examples are used as fit into 1 GiB.
        y: Their targets. Default: None, those in `x`.
        folds: Cross-validation data instead of x and y: (posterior, x, y) of each fold, whose posterior was fitted
            without these examples. One noise and one M' are chosen for all folds together, and applied to `posterior`,
            which may belong to a network trained on all examples. Default: None.
        batch_size: True searches M' from 1 to 4096. False keeps M' and only fits the noise, as in the MCBN paper. A
            list of numbers is the set of candidates. Default: None, which searches M' for regression and keeps it for
            classification, unless noise=False leaves nothing else to fit.
        noise: True fits the noise, False keeps it. (low, high) is the search range of the variance, scale or
            temperature. Default: True.
        score: The score to minimise: "crps", "pll" (negative log density) or "nll" (for classes). Default: None, "crps"
            for regression and "nll" for classification.
        samples: Samples per candidate. Default: None, as many as for a prediction.
        evidence: For a classifier, by how many standard errors another M' must be better than temperature scaling. An
            input-dependent temperature needs half as many. 0 chooses the M' with the best score, and one temperature
            for all examples. Default: 2.
        refinements: Number of golden-section steps in the search for the noise. 8 are enough to compare networks by
            their scores. Default: 20.
        seed: Seed of the samples. Default: 0.
    """
    noise, sizes = require_noise(noise), require_batch_sizes(batch_size)
    refinements = require_whole("refinements", refinements, 0)
    evidence = require_number("evidence", evidence, least=0)
    cases = validation_cases(posterior, x, y, folds)
    if not isinstance(noise, bool) and isinstance(cases[0][1], Tensor):
        power = 2 if isinstance(posterior.likelihood, Gaussian) else 1
        require_moderate("noise", noise, torch.promote_types(cases[0][1].dtype, torch.float32), power=power)
    MonteCarlo(posterior.default_samples if samples is None else samples)
    if noise is True and sizes in (True, None) and isinstance(posterior.likelihood, VarianceScaledCategorical):
        posterior = posterior.with_likelihood(posterior.likelihood.plain)  # the slope is fitted again below
    samples = posterior.default_samples if samples is None else samples
    require_scorable(cases, posterior.likelihood, score, require_seed(seed))
    size = effective_batch_size(posterior)
    with long_progress("calibrate") as tell:
        search = _Search(posterior, samples, score, noise, refinements, seed, evidence, tell)
        if sizes is None and search.guarded and size is not None:
            chosen = search.at_own_size(_resized_cases(cases, size))
            search.warn_of_temperature(chosen)
            return chosen
        sizes = True if sizes is None else sizes
        if search.guarded and evidence and size is not None and sizes is True:
            chosen = search.with_slope(cases, _guarded(search.over_batch_sizes(cases), evidence))
            search.warn_of_temperature(chosen)
            return search.recorded(chosen, cases)
        candidates: list[_Candidate] = []
        anywhere = isinstance(noise, bool) and isinstance(sizes, bool)
        if anywhere or size is None or sizes is False:
            started = cases if folds is None or size is None else _resized_cases(cases, size)
            (scored,) = search.sampled([started])
            scored.require_finite(started)
            if anywhere:
                candidates.append(search.candidate(scored, None, fit_noise=False))
            if noise is not False:
                candidates.append(search.candidate(scored, None))
        if size is not None and not isinstance(sizes, bool):
            candidates += search.at_sizes(cases, sizes, required=True)
        elif size is not None and sizes:
            candidates += search.over_batch_sizes(cases)
        if not candidates:
            return posterior
        chosen = search.chosen(min(candidates, key=lambda candidate: candidate.score))
    if folds is None:
        search.warn_of_temperature(chosen)
    if sizes is True and folds is None:
        _warn_at_an_end(effective_batch_size(chosen), size)
    return search.recorded(chosen, cases)


@dataclass(frozen=True, eq=False)
class _Candidate:
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
class _Search:
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

    def candidate(self, scored: SampledOutputs, batch_size: float | None, *, fit_noise: bool = True) -> _Candidate:
        """Return an effective batch size, None for the present one, with the best noise or the present one."""
        likelihood: Likelihood = self.posterior.likelihood
        if fit_noise and self.noise is not False:
            level, value = scored.best_noise(None if self.noise is True else self.noise, self.refinements)
            likelihood = likelihood.with_noise(level)
        else:
            level, value = None, scored.score(likelihood)
        rows = scored.by_row(likelihood) if self.guarded else None
        return _Candidate(batch_size, level, float(value.mean()), rows, scored)

    def at_sizes(
        self,
        cases: Sequence[Case],
        sizes: Sequence[float],
        samples: int | None = None,
        step: tuple[int, int] = (0, 1),
        *,
        required: bool = False,
        keep: bool = False,
    ) -> list[_Candidate]:
        """Score effective batch sizes; the score is infinite if outputs are not finite.

        Args:
            cases: The validation data.
            sizes: The effective batch sizes.
            samples: Number of samples; None for all.
            step: The number of this step of the search, and of all steps.
            required: Whether outputs that are not finite are an error.
            keep: Whether candidates keep their sampled outputs, unless these are large.
        """
        options = [_resized_cases(cases, size) for size in sizes]
        candidates = []
        for size, option, scored in zip(sizes, options, self.sampled(options, samples, step), strict=True):
            try:
                scored.require_finite(option)
            except NotFiniteError:
                if required:
                    raise
                candidates.append(_Candidate(size, None, math.inf))
                continue
            candidate = self.candidate(scored, size)
            if not required and not math.isfinite(candidate.score):
                candidate = dataclasses.replace(candidate, score=math.inf)
            if not keep or self._at_once(option, self.samples) < 2:
                candidate = dataclasses.replace(candidate, scored=None)
            candidates.append(candidate)
        return candidates

    def over_batch_sizes(self, cases: Sequence[Case]) -> list[_Candidate]:
        """Return the effective batch sizes of a search, scored with all samples.

        It scores every power of four, then sizes around the best, at factors of two and of the square root of two. For
        classes it does so with a few samples, stops if no size comes near to being significantly better than the
        largest, and scores only the best and the largest with all samples.
        """
        few = min(self.samples, SEARCH_SAMPLES) if isinstance(self.posterior.likelihood, ClassTargets) else self.samples
        logs = [float(power) for power in range(0, LARGEST_LOG2_BATCH_SIZE + 1, 2)]
        tried: dict[float, _Candidate] = {}
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

    def chosen(self, candidate: _Candidate) -> Any:
        """Return the posterior with the values of a candidate."""
        posterior = self.posterior
        if candidate.noise is not None:
            posterior = posterior.with_likelihood(posterior.likelihood.with_noise(candidate.noise))
        return posterior if candidate.batch_size is None else posterior.at_batch_size(candidate.batch_size)

    def with_slope(self, cases: Sequence[Case], candidate: _Candidate) -> Any:
        """Return the posterior with a candidate's values, and an input-dependent temperature if that is better."""
        posterior = self.chosen(candidate)
        if type(posterior.likelihood) is not Categorical:
            return posterior
        size: Any = effective_batch_size(posterior)
        scored = candidate.scored or next(self.sampled([_resized_cases(cases, size)]))
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
        warnings.warn(
            f"temperature: {temperature:.3g}, the {place} of the search, scored best: {meaning}.",
            BayesNormWarning,
            stacklevel=3,
        )

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


def _resized_cases(cases: Sequence[Case], batch_size: float) -> list[Case]:
    return [(posterior.at_batch_size(batch_size), x, y) for posterior, x, y in cases]


def _warn_at_an_end(chosen: float | None, started: float | None) -> None:
    """Warn if the best effective batch size is the smallest or the largest candidate."""
    meanings = {
        1: (
            "smallest",
            "this data needs more uncertainty than batch statistics give, perhaps because the network overfits",
        ),
        2**LARGEST_LOG2_BATCH_SIZE: (
            "largest",
            "sampling batch statistics does not help on this data, and the rest is fitted as noise",
        ),
    }
    if chosen is None or chosen == started or chosen not in meanings:
        return
    place, meaning = meanings[chosen]
    message = (
        f"batch_size: the effective batch size {chosen:g}, the {place} candidate, scored best: {meaning}. Use more "
        "validation data, or pass batch_size=False to keep the batch size."
    )
    warnings.warn(message, BayesNormWarning, stacklevel=3)


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
    warnings.warn(message, BayesNormWarning, stacklevel=4)


def _promising(tried: Mapping[float, _Candidate], evidence: float) -> bool:
    """Return whether the best size is better than the largest by at least half of the evidence."""
    return _guarded(list(tried.values()), evidence / 2) is not tried[max(tried)]


def _guarded(candidates: Sequence[_Candidate], evidence: float) -> _Candidate:
    """Return the best candidate if it is significantly better than the one with the least variation, else that one."""
    best = min(candidates, key=lambda candidate: candidate.score)
    calmest = max(candidates, key=lambda candidate: candidate.batch_size or 0.0)
    if best.rows is None or calmest.rows is None:  # candidates without finite outputs have no scores per example
        return best
    return best if significantly_better(calmest.rows, best.rows, evidence) else calmest
