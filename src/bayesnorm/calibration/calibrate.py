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

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..arguments import as_number, require_number, require_positive, require_seed, require_whole
from ..engines import MonteCarlo
from ..errors import BayesNormError, warn
from ..likelihoods import Gaussian, VarianceScaledCategorical, require_moderate
from ..posterior import (
    Posterior,
    effective_batch_size,
)
from ..progress import long_progress
from .candidates import LARGEST_LOG2_BATCH_SIZE, Candidate, Search, guarded_choice, resized_cases
from .held_out_scores import REFINEMENTS, Between, Score
from .sampled_outputs import Case, require_scorable

P = TypeVar("P", bound=Posterior)

# One standard error would be enough for a single candidate; this is for the best of about ten.
EVIDENCE = 2.0


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
        search = Search(posterior, samples, score, noise, refinements, seed, evidence, tell)
        if sizes is None and search.guarded and size is not None:
            chosen = search.at_own_size(resized_cases(cases, size))
            search.warn_of_temperature(chosen)
            return chosen
        sizes = True if sizes is None else sizes
        if search.guarded and evidence and size is not None and sizes is True:
            chosen = search.with_slope(cases, guarded_choice(search.over_batch_sizes(cases), evidence))
            search.warn_of_temperature(chosen)
            return search.recorded(chosen, cases)
        candidates: list[Candidate] = []
        anywhere = isinstance(noise, bool) and isinstance(sizes, bool)
        if anywhere or size is None or sizes is False:
            started = cases if folds is None or size is None else resized_cases(cases, size)
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
    warn(message)


def require_noise(noise: Any) -> bool | Between:
    """Return whether, or in which range, the noise is fitted; raise an error for anything else."""
    if isinstance(noise, bool):
        return noise
    ends = [as_number(end) for end in noise] if isinstance(noise, tuple | list) else []
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and 0 < ends[0] < ends[1] < math.inf:
        return ends[0], ends[1]
    raise BayesNormError(f"noise must be True, False or (low, high), two positive numbers, got {noise!r}.")


def require_batch_sizes(batch_size: Any) -> bool | list[float] | None:
    """Return where to search M': everywhere (True), nowhere (False), these sizes, or by default (None)."""
    if batch_size is None or isinstance(batch_size, bool):
        return batch_size
    several = isinstance(batch_size, Iterable) and not isinstance(batch_size, str)
    sizes = [require_positive("batch_size", size) for size in batch_size] if several else []
    if not sizes:
        raise BayesNormError(
            f"batch_size must be True, False or several numbers, such as [16, 32, 64], got {batch_size!r}."
        )
    return sizes


def validation_cases(posterior: Posterior, x: Any, y: Any, folds: Sequence[Case] | None) -> list[Case]:
    """Return the validation data as (posterior, x, y), one for each fold."""
    if not isinstance(posterior, Posterior):
        raise BayesNormError(
            "posterior must be the result of a method's fit, or deterministic(model, likelihood), got "
            f"{type(posterior).__name__}."
        )
    if (folds is None) == (x is None):
        raise BayesNormError(
            "calibrate needs validation data exactly once. Pass x and y, or folds=[(posterior, x, y), ...]."
        )
    if folds is None:
        return [(posterior, *posterior.executable.labelled(x, y))]
    if not isinstance(folds, Iterable):
        raise BayesNormError(f"folds must be [(posterior, x, y), ...], got {type(folds).__name__}.")
    cases = []
    for number, fold in enumerate(folds):
        if not isinstance(fold, tuple | list) or len(fold) != 3 or not isinstance(fold[0], Posterior):
            raise BayesNormError(f"folds[{number}] must be (posterior, x, y), got {type(fold).__name__}.")
        if (effective_batch_size(fold[0]) is None) != (effective_batch_size(posterior) is None):
            raise BayesNormError(f"folds[{number}] has another kind of posterior than the one to calibrate.")
        cases.append((fold[0], *fold[0].executable.labelled(fold[1], fold[2], f"folds[{number}]")))
    if not cases:
        raise BayesNormError("folds is empty. Pass one (posterior, x, y) per fold.")
    return cases
