"""Choose the noise and the effective batch size of a posterior on validation data.

Two numbers are left open when a network is trained: how noisy the targets are (the papers' tau, or a temperature), and
how far batch statistics should be let fluctuate (the effective batch size M'). Both are found here by the same score,
on rows that the network was not trained on: outputs are drawn once per candidate M', all from the same samples of the
fluctuations, and for each the best noise is searched over the stored outputs. A network without any uncertainty of its own is
`deterministic(model, likelihood)`: for it, this is softmax with temperature, or constant uncertainty.

Of classes, single rows tell little: the M' with the least NLL on some hundred rows is often one that fits their chance,
and then loses to the temperature alone on others. So the largest M', at which hardly anything fluctuates, is taken
unless another is better by more than two standard errors of the rows' differences (`evidence`).
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..arguments import as_number, require_number, require_positive, require_seed, require_whole
from ..engines import MonteCarlo
from ..errors import BayesNormError, BayesNormWarning, NotFiniteError
from ..likelihoods import Categorical, Gaussian, Likelihood, VarianceScaledCategorical
from ..likelihoods.classes import ClassTargets
from ..likelihoods.real_targets import FixedScale
from ..likelihoods.scales import require_moderate
from ..network import Executable
from ..posterior import Posterior, effective_batch_size, resized
from .listening import better_beyond_chance, listening
from .scored_outputs import REFINEMENTS, Between, Case, Score, ScoredOutputs, require_scorable

P = TypeVar("P", bound=Posterior)

# Effective batch sizes from 1 to 4096 are looked at.
LARGEST_LOG2_BATCH_SIZE = 12

# One standard error would do for a size that was named beforehand; this is for the best of some ten.
EVIDENCE = 2.0

# Share of the evidence that is enough for a temperature that rises with uncertainty: one form, named beforehand.
SLOPE_SHARE = 0.5


def calibrate(
    posterior: P,
    x: Any = None,
    y: Any = None,
    *,
    folds: Sequence[Case] | None = None,
    batch_size: bool | Sequence[float] = True,
    noise: bool | Between = True,
    score: Score | None = None,
    samples: int | None = None,
    groups: Sequence[int] | Tensor | None = None,
    evidence: float = EVIDENCE,
    refinements: int = REFINEMENTS,
    seed: int = 0,
) -> P:
    """Return a new posterior whose noise and effective batch size score best on validation data.

    Never worse on that data, at the same samples, than the posterior it started from, unless you say where to look. What
    was chosen is in the posterior's `repr`. An effective batch size at the end of those that are looked at, 1 or 4096,
    comes with a warning, unless it is a classifier's temperature alone, or was chosen by folds.

    Validation rows tell how large uncertainty should be, not what it is made of: a score sees the sum of epistemic and
    aleatoric variance, and where both are about the same in all rows, more noise and a smaller M' are the same to it.
    So do not read `epistemic` of a calibrated posterior as what more data would take away; train on parts of the rows
    for that, and see how far errors fall with more of them.

    Of classes, where both numbers are open, uncertainty has to prove itself: the temperature alone is chosen (at M' = 4096)
    unless another M' is better beyond the rows' chance; and that temperature is the same for all rows unless one that
    rises with uncertainty (`VarianceScaledCategorical`) is.

    Args:
        posterior: Any posterior; one without an effective batch size only gets its noise chosen.
        x: Validation inputs, not used in training.
        y: Their targets.
        folds: Instead of x and y, cross-validation: (posterior, x, y) of each fold, the posterior fitted without those
            rows. One noise and one batch size are chosen for all folds together, every row counting once, and given to
            `posterior`, which may then be that of a network trained on all rows.
        batch_size: False leaves the effective batch size alone (the MCBN paper's way: noise only); several numbers are
            the only ones that are looked at, and the best of them is taken.
        noise: False leaves the noise alone; (low, high) says where to look for it: a variance, scale or temperature.
        score: What to minimise: "crps" (default for regression), "pll" (negative log density) or "nll" (the same for
            classes, their default).
        samples: Samples per candidate; None takes what a prediction takes.
        groups: For a posterior over stacked networks, a number for each network: those with the same number, such as
            the folds of one data set, get one noise and one batch size between them, every network counting the same.
            The likelihood is one with a noise for each network, `Gaussian(precision=[...], axis=0, missing=True)`.
        evidence: For a classifier, by how many standard errors of the rows' differences uncertainty has to be better than a
            temperature alone, half as many for a temperature that rises with it; 0 takes the M' that scores best, and
            one temperature for all rows.
        refinements: Golden-section steps in the search for the noise; 8 are enough to compare networks by their scores.
        seed: Same seed, same choice.
    """
    noise, sizes = require_noise(noise), _batch_sizes(batch_size)
    refinements = require_whole("refinements", refinements, 0)
    evidence = require_number("evidence", evidence, least=0)
    cases = _cases(posterior, x, y, folds)
    if not isinstance(noise, bool) and isinstance(cases[0][1], Tensor):
        power = 2 if isinstance(posterior.likelihood, Gaussian) else 1
        require_moderate("noise", noise, torch.promote_types(cases[0][1].dtype, torch.float32), power=power)
    MonteCarlo(posterior.default_samples if samples is None else samples)
    if noise is True and sizes is True and isinstance(posterior.likelihood, VarianceScaledCategorical):
        posterior = posterior.with_likelihood(posterior.likelihood.plain)  # whether it should listen is asked anew
    search = _Search(posterior, samples, score, noise, refinements, require_seed(seed), _groups(groups))
    search.require_groups()
    require_scorable(cases, posterior.likelihood, score, seed)
    size = effective_batch_size(posterior)
    found: list[_Candidate] = []
    anywhere = isinstance(noise, bool) and isinstance(sizes, bool)
    if anywhere or size is None or sizes is False:
        started = cases if folds is None or size is None else [(resized(p, size), *rest) for p, *rest in cases]
        if anywhere:
            found.append(search.as_it_stands(started))
        if noise is not False:
            found.append(search.with_best_noise(started, None))
    if size is not None and not isinstance(sizes, bool):
        found += [search.at(cases, torch.full(search.shape, given, dtype=torch.float64)) for given in sizes]
    elif size is not None and sizes:
        looked = _over_batch_sizes(lambda log_size: search.tried_at(cases, 2**log_size), search.shape)
        if search.guarded and evidence:
            return search.listening(cases, _guarded([*found, *looked], evidence), evidence)
        found += looked
    if not found:
        return posterior
    chosen = search.chosen(found)
    if sizes is True and folds is None and groups is None:
        _warn_at_an_end(effective_batch_size(chosen), size)
    return chosen


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A way to set the posterior's open numbers, or one for each group of stacked networks.

    Args:
        batch_size: The effective batch size; None leaves it.
        noise: The noise; None leaves it.
        score: How good it is, lower is better.
        rows: The score of every row, where they are compared.
    """

    batch_size: Tensor | None
    noise: Tensor | None
    score: Tensor
    rows: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Search:
    """What all candidates of a search share; see `calibrate`."""

    posterior: Any
    samples: int | None
    score: Score | None
    noise: bool | Between
    refinements: int
    seed: int
    groups: Tensor | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is chosen: one number, or one for each group."""
        return () if self.groups is None else (int(self.groups.max()) + 1,)

    @property
    def guarded(self) -> bool:
        """Whether an effective batch size has to be better beyond chance than a temperature alone."""
        return self.noise is True and self.groups is None and isinstance(self.posterior.likelihood, ClassTargets)

    def require_groups(self) -> None:
        """Refuse groups of what is no stack, or whose noise cannot be another for each."""
        if self.groups is None:
            return
        if isinstance(self.posterior.executable, Executable):
            raise BayesNormError(
                f"groups: {len(self.groups)} were given for one network; they are for the networks of a stack."
            )
        likelihood = self.posterior.likelihood
        if self.noise is not False and not (isinstance(likelihood, FixedScale) and likelihood.noise.dim()):
            raise BayesNormError(
                "likelihood must be one with a noise for each network, such as Gaussian(precision=[1.0, 1.0], "
                f"axis=0, missing=True) for two, got {likelihood}."
            )

    def as_it_stands(self, cases: Sequence[Case]) -> _Candidate:
        """Score the noise and the batch sizes that the cases have."""
        scored, likelihood = self._scored(cases), self.posterior.likelihood
        return _Candidate(None, None, scored.score(likelihood).double(), self._rows(scored, likelihood))

    def with_best_noise(self, cases: Sequence[Case], batch_size: Tensor | None) -> _Candidate:
        """Find the best noise for the batch sizes that the cases have."""
        between = None if isinstance(self.noise, bool) else self.noise
        scored = self._scored(cases)
        level, value = scored.best_noise(between, self.refinements)
        rows = self._rows(scored, scored.with_noise(level))
        return _Candidate(batch_size, level, value if self.groups is not None else value.mean(), rows)

    def at(self, cases: Sequence[Case], batch_size: Tensor) -> _Candidate:
        """Look at other effective batch sizes."""
        resized_cases = [(resized(case, self._spread(batch_size)), *rest) for case, *rest in cases]
        if self.noise is not False:
            return self.with_best_noise(resized_cases, batch_size)
        return dataclasses.replace(self.as_it_stands(resized_cases), batch_size=batch_size)

    def tried_at(self, cases: Sequence[Case], batch_size: Tensor) -> _Candidate:
        """Look at effective batch sizes that nobody asked for: one so small that outputs are not finite is no good."""
        try:
            found = self.at(cases, batch_size)
        except NotFiniteError:
            return _Candidate(batch_size, None, torch.full(self.shape, math.inf, dtype=torch.float64))
        return dataclasses.replace(found, score=found.score.nan_to_num(math.inf, math.inf))

    def chosen(self, candidates: Sequence[_Candidate]) -> Any:
        """Give the posterior what the best candidate has, group by group."""
        best = torch.stack([candidate.score.cpu() for candidate in candidates]).argmin(0)
        found = self.posterior
        noise = self._taken([candidate.noise for candidate in candidates], best, found.likelihood.noise)
        size: Any = self._taken([candidate.batch_size for candidate in candidates], best, effective_batch_size(found))
        if noise is not None:
            found = found.with_likelihood(found.likelihood.with_noise(noise))
        return found if size is None else resized(found, float(size) if self.groups is None else size)

    def listening(self, cases: Sequence[Case], candidate: _Candidate, evidence: float) -> Any:
        """Give the posterior what a candidate has, and a temperature that listens to uncertainty where that is proven."""
        found = self.chosen([candidate])
        if type(found.likelihood) is not Categorical:
            return found
        size: Any = effective_batch_size(found)
        sized = [(resized(case, size), *rest) for case, *rest in cases]
        return found.with_likelihood(listening(self._scored(sized), found.likelihood, SLOPE_SHARE * evidence))

    def _taken(self, values: Sequence[Tensor | None], best: Tensor, start: Any) -> Tensor | None:
        """The best candidate's number, or for each network that of its group's best; None where all is to stay.

        Args:
            values: One for each candidate; None leaves what the posterior started from.
            best: Number of the best candidate, or of each group's.
            start: What the networks of a stack started from, (E,).
        """
        if self.groups is None:
            return values[int(best)]
        if all(values[number] is None for number in best.tolist()):
            return None
        each = [start.expand(len(self.groups)) if value is None else value.cpu()[self.groups] for value in values]
        return torch.stack([value.double() for value in each]).gather(0, best[self.groups][None])[0]

    def _rows(self, scored: ScoredOutputs, likelihood: Likelihood) -> Tensor | None:
        return scored.by_row(likelihood) if self.guarded else None

    def _spread(self, sizes: Tensor) -> Any:
        return float(sizes) if self.groups is None else sizes[self.groups]

    def _scored(self, cases: Sequence[Case]) -> ScoredOutputs:
        samples = self.posterior.default_samples if self.samples is None else self.samples
        return ScoredOutputs(cases, self.posterior.likelihood, self.score, samples, self.seed, self.groups)


def _over_batch_sizes(look: Callable[[Tensor], _Candidate], shape: tuple[int, ...]) -> list[_Candidate]:
    """Look at every power of four; then, in steps of two and of the root of two, about the best so far."""
    looked: list[tuple[Tensor, _Candidate]] = []
    for power in range(0, LARGEST_LOG2_BATCH_SIZE + 1, 2):
        log_size = torch.full(shape, float(power), dtype=torch.float64)
        looked.append((log_size, look(log_size)))
    for step in (1.0, 0.5):
        scores = torch.stack([candidate.score.cpu() for _, candidate in looked])
        best = torch.stack([log_size for log_size, _ in looked]).gather(0, scores.argmin(0)[None])[0]
        for log_size in (best - step, best + step):
            inside = (log_size >= 0) & (log_size <= LARGEST_LOG2_BATCH_SIZE)
            if bool(inside.any()):
                found = look(log_size.clamp(0, LARGEST_LOG2_BATCH_SIZE))
                looked.append((log_size.clamp(0, LARGEST_LOG2_BATCH_SIZE), found))
    return [candidate for _, candidate in looked]


def _warn_at_an_end(chosen: float | Tensor | None, started: float | Tensor | None) -> None:
    """Warn where the best effective batch size is the least or the largest that was looked at."""
    if chosen is None or isinstance(chosen, Tensor) or chosen == started:
        return
    if chosen == 2**LARGEST_LOG2_BATCH_SIZE:
        place, wanted = "largest", "next to no uncertainty from batch statistics, and what is left of it is noise"
    elif chosen == 1:
        place, wanted = (
            "least",
            "more uncertainty than batch statistics give: the network may know its own rows too well",
        )
    else:
        return
    message = (
        f"batch_size: {chosen:g} scored best, the {place} that is looked at: these rows want {wanted}. More of them, "
        "or batch_size=False, would work."
    )
    warnings.warn(message, BayesNormWarning, stacklevel=3)


def _guarded(candidates: Sequence[_Candidate], evidence: float) -> _Candidate:
    """Return the best candidate where it is better beyond chance than the one that fluctuates least, else that one."""
    best = min(candidates, key=lambda candidate: float(candidate.score))
    calmest = max(
        candidates, key=lambda candidate: 0.0 if candidate.batch_size is None else float(candidate.batch_size)
    )
    if best.rows is None or calmest.rows is None:  # of those without finite outputs there are no rows
        return best
    return best if better_beyond_chance(calmest.rows, best.rows, evidence) else calmest


def require_noise(noise: Any) -> bool | Between:
    """Return whether, or between which ends, a noise is looked for; refuse what says neither."""
    if isinstance(noise, bool):
        return noise
    ends = [as_number(end) for end in noise] if isinstance(noise, tuple | list) else []
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and 0 < ends[0] < ends[1] < math.inf:
        return ends[0], ends[1]
    raise BayesNormError(f"noise must be True, False or (low, high), two positive numbers, got {noise!r}.")


def _batch_sizes(batch_size: Any) -> bool | list[float]:
    if isinstance(batch_size, bool):
        return batch_size
    several = isinstance(batch_size, Iterable) and not isinstance(batch_size, str)
    sizes = [require_positive("batch_size", size) for size in batch_size] if several else []
    if not sizes:
        raise BayesNormError(
            f"batch_size must be True, False or several numbers, such as [16, 32, 64], got {batch_size!r}."
        )
    return sizes


def _groups(groups: Sequence[int] | Tensor | None) -> Tensor | None:
    if groups is None:
        return None
    try:
        found = torch.as_tensor(groups if isinstance(groups, Tensor) else [*groups]).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise BayesNormError(f"groups must be a whole number for each network, got {groups!r}.") from error
    if found.dim() != 1 or found.is_floating_point() or len(found) == 0:
        raise BayesNormError(f"groups must be a whole number for each network, got {groups!r}.")
    return found.unique(return_inverse=True)[1]


def _cases(posterior: Posterior, x: Any, y: Any, folds: Sequence[Case] | None) -> list[Case]:
    if not isinstance(posterior, Posterior):
        raise BayesNormError(
            "posterior must be deterministic(model, likelihood), or what a method's fit gives, got "
            f"{type(posterior).__name__}."
        )
    if (folds is None) == (x is None or y is None):
        raise BayesNormError(
            "x, y, folds: validation rows are needed once; x and y, or folds=[(posterior, x, y), ...], would work."
        )
    if folds is None:
        return [(posterior, posterior.executable.input(x), y)]
    if not isinstance(folds, Iterable):
        raise BayesNormError(f"folds must be [(posterior, x, y), ...], got {type(folds).__name__}.")
    cases = []
    for number, fold in enumerate(folds):
        if not isinstance(fold, tuple | list) or len(fold) != 3 or not isinstance(fold[0], Posterior):
            raise BayesNormError(f"folds: entry {number} is {type(fold).__name__}; (posterior, x, y) would work.")
        if (effective_batch_size(fold[0]) is None) != (effective_batch_size(posterior) is None):
            raise BayesNormError(f"folds: entry {number} is another kind of posterior than the one to calibrate.")
        cases.append((fold[0], fold[0].executable.input(fold[1]), fold[2]))
    if not cases:
        raise BayesNormError("folds: is empty; one (posterior, x, y) per fold would work.")
    return cases
