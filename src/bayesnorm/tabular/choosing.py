"""From training rows to a posterior: choose by cross-validation, train on all rows, fit the method.

1. All folds of all settings are trained as one stack for every batch size. The folds of a setting stop together, where
   their mean held-out loss is lowest, and then cool down (`trainer.py`).
2. Every setting is scored by what its networks, with their doubt, say of held-out rows: CRPS, or NLL for classes, with
   the best noise and the best of the effective batch sizes M, 4 M and 16 M (`held_out.py`).
3. For the best setting `calibrate` finds noise and effective batch size on the same held-out rows, by posteriors
   of the method over the folds' networks. Rows with weights are taken more or less often.
4. A network trained on all rows for as many epochs gets both.

No row counts where its own network learned from it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..arguments import as_number
from ..likelihoods import Likelihood
from ..nets import Rescaled
from ..network import Progress, isolated_torch_randomness
from ..posterior import Posterior, effective_batch_size, resized
from ..selection import calibrate, select_batch_size
from ..stacked import Stack, in_threads
from .held_out import FoldCase, HeldOut, as_often_as_weights_want
from .networks import posterior_for
from .search_plan import SearchPlan
from .search_results import NetworkSetting, Selection
from .targets import NumberTargets
from .trainer import Trainer

CALIBRATION_ROWS = 10_000
ELBO_ROWS = 2_000
# Batches that the normal distributions of "gaussian" and "stochastic" are learned from.
STATES = 256

LEAST_DECAY = 1e-12  # of a prior, which has to have some; it does not move the bound's maximum

EffectiveBatchSize = Literal["score", "elbo"] | float | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A setting with the networks of its folds."""

    setting: NetworkSetting
    stack: Stack
    order: float


@dataclass(frozen=True, eq=False)
class Chooser:
    """How a table's posterior is made.

    Args:
        trainer: The rows, and how networks are trained.
        plan: The settings to look at.
        folds: The row numbers of each fold; empty where nothing is left to choose.
        likelihood: What outputs mean, in standard units, with its noise where that is given.
        noise: Whether the noise is to be chosen.
        effective_batch_size: "score", "elbo", a number, or None for that of training.
        members: How many networks an ensemble has.
        draws: How many draws a prediction takes.
    """

    trainer: Trainer
    plan: SearchPlan
    folds: tuple[Tensor, ...]
    likelihood: Likelihood
    noise: bool
    effective_batch_size: EffectiveBatchSize
    members: int
    draws: int

    def fit(self) -> tuple[Posterior, Selection]:
        """Return the posterior, in the targets' own units, and what was chosen for it."""
        started = time.perf_counter()
        candidates = self._cross_validated() if self.folds else [self._given()]
        with _one_thread():
            posterior, selection = self._chosen(candidates)
        return posterior, replace(selection, seconds=time.perf_counter() - started)

    def _chosen(self, candidates: Sequence[Candidate]) -> tuple[Posterior, Selection]:
        """Take the best of some candidates, with noise, effective batch size and a network trained on all rows."""
        best = min(candidates, key=lambda candidate: candidate.order)
        cases, head_epochs = self._fold_posteriors(best) if self.folds else ([], best.setting.epochs)
        final = self._final(best.setting, head_epochs)
        likelihood, size = self._calibrated(best.setting, cases, final)
        posterior: Any = final.with_likelihood(self.trainer.targets.in_own_units(likelihood))
        posterior = posterior if size is None else resized(posterior, size)
        selection = Selection(
            score="crps" if isinstance(self.trainer.targets, NumberTargets) else "nll",
            settings=tuple(candidate.setting for candidate in candidates),
            chosen=best.setting,
            noise=_noise_of(posterior.likelihood),
            effective_batch_size=size,
            folds=len(self.folds),
            seconds=0.0,
            out_of_fold=self._held_out.predictions(cases, likelihood, size, self._samples) if self.folds else None,
        )
        return posterior, selection

    @property
    def _held_out(self) -> HeldOut:
        return HeldOut(self.trainer, self.folds, self.likelihood, self.noise, self.effective_batch_size)

    def _given(self) -> Candidate:
        """Take the one setting of a plan that leaves nothing open, without a look at it."""
        plan = self.plan
        setting = NetworkSetting(
            plan.batch_sizes[0], plan.weight_decays[0], plan.dropout_rates[0], plan.epochs, math.nan, math.nan
        )
        return Candidate(setting, None, 0.0)  # type: ignore[arg-type]

    def _cross_validated(self) -> list[Candidate]:
        """All settings with the networks of their folds, trained on as many cores as there are."""
        settings = [(decay, rate) for decay in self.plan.weight_decays for rate in self.plan.dropout_rates]
        parts = min(len(settings), max(1, torch.get_num_threads() // len(self.plan.batch_sizes)))
        size = -(-len(settings) // parts)
        tasks = [
            (batch_size, settings[start : start + size])
            for batch_size in self.plan.batch_sizes
            for start in range(0, len(settings), size)
        ]
        label = f"{len(self.folds)} folds, {self.plan.settings} settings"
        # Threads that isolate torch's generator one inside the other must not leave it as the last one found it.
        with isolated_torch_randomness(self.trainer.seed), self.trainer.bar(label, len(tasks)) as bars:
            work = [(task, bar) for task, bar in zip(tasks, bars, strict=True)]
            found = in_threads(lambda one: self._trained(*one[0], one[1]), work, torch.device("cpu"))
        return [candidate for part in found for candidate in part]

    def _trained(
        self, batch_size: int, settings: Sequence[tuple[float, float | None]], progress: Progress | None
    ) -> list[Candidate]:
        held_out = self._held_out
        stack, epochs = self.trainer.train(
            held_out.others, self.folds, self.plan, batch_size, settings, progress=progress
        )
        found = []
        for number, (decay, rate) in enumerate(settings):
            members = torch.arange(number * len(self.folds), (number + 1) * len(self.folds))
            own = stack.take(members)
            point, scores = held_out.scores(own, batch_size)
            score = self.trainer.targets.in_own_scores(scores)
            setting = NetworkSetting(batch_size, decay, rate, int(epochs[members[0]]), point, score)
            found.append(Candidate(setting, own, float(scores.mean())))
        return found

    def _fold_posteriors(self, best: Candidate) -> tuple[list[FoldCase], int]:
        """(posterior in standard units, inputs, held-out rows) of each fold, and the epochs of heads."""
        trainer, setting = self.trainer, best.setting
        rows = self._held_out.others
        members, epochs = self._completed(best.stack, rows, self.folds, setting, None)
        cases = []
        for k, held_out in enumerate(self.folds):
            unit = trainer.targets.scales_of(rows[k])
            networks = [trainer.targets.in_units(network, unit) for network in members[k]]
            cases.append((self._posterior(networks, rows[k], setting), trainer.x[held_out].double(), held_out))
        return cases, epochs

    def _completed(
        self,
        stack: Stack,
        rows: Sequence[Tensor],
        held_out: Sequence[Tensor] | None,
        setting: NetworkSetting,
        head_epochs: int | None,
    ) -> tuple[list[list[nn.Sequential]], int]:
        """Complete the networks of each list of rows, given the first of each: heads for noise, further members."""
        trainer = self.trainer
        stacks = [stack]
        decay = [(setting.weight_decay, setting.dropout_rate)]
        for member in range(1, self.members if trainer.method == "ensemble" else 1):
            other, _ = trainer.train(
                rows,
                None,
                self.plan,
                setting.batch_size,
                decay,
                epochs=setting.epochs,
                first=member * len(rows),
            )
            stacks.append(other)
        found: list[list[nn.Sequential]] = [[] for _ in rows]
        for each in stacks:
            if isinstance(trainer.targets, NumberTargets) and trainer.targets.heteroscedastic:
                networks, head_epochs = trainer.train_heads(
                    each, rows, held_out, self.plan, setting.batch_size, head_epochs
                )
            else:
                networks = [each.network(k) for k in range(len(each))]
            for own, network in zip(found, networks, strict=True):
                own.append(network)
        return found, head_epochs or setting.epochs

    def _final(self, setting: NetworkSetting, head_epochs: int) -> Posterior:
        """Make the posterior of networks trained on all rows, in the targets' own units; its noise is still open."""
        trainer = self.trainer
        everything = torch.arange(len(trainer.x))
        with trainer.bar(f"all rows, {setting.epochs} epochs") as (bar,):
            stack, _ = trainer.train(
                [everything],
                None,
                self.plan,
                setting.batch_size,
                [(setting.weight_decay, setting.dropout_rate)],
                epochs=setting.epochs,
                progress=bar,
            )
        (networks,), _ = self._completed(stack, [everything], None, setting, head_epochs)
        unit = trainer.targets.own_units(trainer.targets.scales_of(everything))
        wrapped = [trainer.targets.in_units(network, unit) for network in networks]
        return self._posterior(wrapped, everything, setting)

    def _posterior(self, networks: list[Rescaled], rows: Tensor, setting: NetworkSetting) -> Posterior:
        # MCBN keeps as many batches as a prediction draws: each is then drawn once, and as their deviations sum to 0,
        # the mean over draws errs in the second order only.
        states = self.draws if self.trainer.method == "mcbn" else max(STATES, self.draws)
        x, seed = self.trainer.x[rows].double(), self.trainer.seed
        return posterior_for(self.trainer.method, networks, x, self.likelihood, setting.batch_size, states, seed)

    def _calibrated(
        self, setting: NetworkSetting, cases: Sequence[FoldCase], final: Any
    ) -> tuple[Likelihood, float | None]:
        """Choose the likelihood, in standard units, and the effective batch size where there is one."""
        trainer, wanted = self.trainer, self.effective_batch_size
        start: Any = cases[0][0] if cases else final.with_likelihood(self.likelihood)
        sized = effective_batch_size(start) is not None
        folds = [(p, *self._representative(x, held_out)) for p, x, held_out in cases]
        if sized and (size := as_number(wanted)) is not None:
            start = resized(start, size)
        by_score = sized and wanted == "score"
        if cases and (self.noise or by_score):
            # Whether evidence should be asked for is known of images only, not of networks with few training rows.
            start = calibrate(
                start,
                folds=folds,
                batch_size=by_score,
                noise=self.noise,
                samples=self._samples,
                evidence=0,
                seed=trainer.seed,
            )
        if sized and wanted == "elbo":
            posterior = final.with_likelihood(trainer.targets.in_own_units(start.likelihood))
            start = resized(start, self._by_elbo(posterior, setting))
            if cases and self.noise:
                start = calibrate(start, folds=folds, batch_size=False, samples=self._samples, seed=trainer.seed)
        return start.likelihood, effective_batch_size(start)

    @property
    def _samples(self) -> int:
        return self.members if self.trainer.method == "ensemble" else self.draws

    def _by_elbo(self, posterior: Any, setting: NetworkSetting) -> float:
        trainer = self.trainer
        chosen = torch.randperm(len(trainer.x), generator=_generator(trainer.seed))[:ELBO_ROWS]
        y = trainer.targets.values[chosen]
        if isinstance(trainer.targets, NumberTargets):
            y = trainer.targets.in_own_values(y)
        rows = trainer.x[chosen].double(), y
        decay = max(setting.weight_decay, LEAST_DECAY)
        return select_batch_size(posterior, rows, weight_decay=decay, seed=trainer.seed).batch_size

    def _representative(self, x: Tensor, held_out: Tensor) -> tuple[Tensor, Tensor]:
        """Held-out inputs and targets to calibrate on: at most so many rows, and each as often as its weight wants."""
        targets, most = self.trainer.targets, max(1, CALIBRATION_ROWS // len(self.folds))
        chosen = torch.arange(len(x))
        if targets.weights is not None or len(x) > most:
            weights = torch.ones(len(x)) if targets.weights is None else targets.weights[held_out]
            chosen = as_often_as_weights_want(weights, most)
        return x[chosen], targets.values[held_out[chosen]]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Torch's operations on one core: on networks as small as these, several wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _noise_of(likelihood: Likelihood) -> dict[str, Any]:
    config = likelihood.config()
    return {name: config[name] for name in ("precision", "scale", "temperature") if name in config}


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
