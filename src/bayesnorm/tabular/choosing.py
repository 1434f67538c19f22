"""Choose a network by cross-validation and build the posterior from the networks of the folds.

1. Every setting is trained on some folds; settings of the same shape are trained as one stack. Its score on held-out
   rows is the CRPS at the best noise level, or the NLL of classes (`trainer.py`, `held_out.py`).
2. Networks of the best setting are trained for all folds, in one or more rounds with different folds. They are the
   members of the model; no network is trained again on all rows, so the tested networks are the ones that predict.
3. Networks trained on fewer rows, and the disagreement of the members, show how much of the held-out error is
   epistemic. The batch-norm samples of every member are scaled to this part, and the rest is noise
   (`uncertainty_parts.py`, `noise.py`).

A network is never scored on rows that it was trained on.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..arguments import as_number
from ..calibration import select_batch_size
from ..errors import BayesNormWarning
from ..likelihoods import Likelihood
from ..methods import ensemble
from ..network import isolated_torch_randomness
from ..posterior import Posterior, effective_batch_size
from .encodings import Encoded
from .held_out import Folds, HeldOut, others
from .members import CalibratedMembers, Members
from .networks import posterior_for
from .search_plan import SearchPlan, Setting
from .search_results import NetworkSetting, Selection
from .stacked import Stack, in_threads, one_thread
from .targets import NumberTargets
from .trainer import Trainer

ELBO_ROWS = 2_000

# Number of batches per member whose statistics are stored, for sampling and for drift tests.
STATES = 64

# Number of samples per member for predicting its held-out rows.
DRAWS = 16

# Fraction of the training rows for the smaller networks of the learning curve; a smaller fraction for large tables.
SHARE, MANY_ROWS, SHARE_OF_MANY = 0.5, 20_000, 0.25

# Largest number of folds of the learning curve, by the number of training rows.
CURVE_FOLDS = ((2_000, 10), (MANY_ROWS, 2), (math.inf, 1))

LEAST_DECAY = 1e-12  # a prior needs some weight decay; this much does not move the maximum of the bound

EffectiveBatchSize = Literal["cross-validated", "elbo"] | float | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A setting with its score, and its networks for the scouting folds."""

    setting: NetworkSetting
    stack: Stack
    order: float


@dataclass(frozen=True, eq=False)
class Chooser:
    """Fits the posterior of a table.

    Args:
        trainer: The rows, and how networks are trained.
        plan: The settings to compare.
        rounds: The folds of each round; empty if there is nothing to choose.
        members: Number of networks of the model, at most one for each fold of each round.
        likelihood: The likelihood in standard units, with its noise if that is fixed.
        noise: Whether to choose the noise.
        effective_batch_size: "cross-validated", "elbo", a number, or None for the training batch size.
        interruptible: Whether Ctrl-C keeps the networks of the chosen setting, once there are any.
    """

    trainer: Trainer
    plan: SearchPlan
    rounds: tuple[Folds, ...]
    members: int
    likelihood: Likelihood
    noise: bool
    effective_batch_size: EffectiveBatchSize
    interruptible: bool = False

    def fit(self) -> tuple[Posterior, Selection]:
        """Return the posterior, in the units of the targets, and the chosen settings."""
        started = time.perf_counter()
        posterior, selection = self._chosen() if self.rounds else self._fit_fixed()
        return posterior, replace(selection, seconds=time.perf_counter() - started)

    def _chosen(self) -> tuple[Posterior, Selection]:
        """Choose a setting, train its members, and calibrate their uncertainty on held-out rows."""
        candidates = self._search()
        best = min(candidates, key=lambda candidate: candidate.order)
        rounds, curve = self._members(best)
        members = Members(self.trainer, self.likelihood, self.noise, _training(best.setting), tuple(rounds))
        with one_thread():
            judged = members.judged(curve, self._wanted_size)
            posterior = self._posterior(rounds, best.setting, judged.likelihood, judged.batch_size)
            if self.effective_batch_size == "elbo" and judged.batch_size is not None:
                size = self._by_elbo(posterior, best.setting)
                judged = members.judged(curve, size)
                posterior = self._posterior(rounds, best.setting, judged.likelihood, size)
        return posterior, self._selection(candidates, best, judged)

    def _fit_fixed(self) -> tuple[Posterior, Selection]:
        """Train on all rows, for a plan with one setting and nothing to choose."""
        setting, everything = self.plan.settings[0], torch.arange(len(self.trainer.x))
        count = self.members
        with self.trainer.bar(f"training: {self.plan.epochs} epochs on all rows") as (bar,):
            stack, _ = self.trainer.train(
                [setting], [everything] * count, None, self.plan, epochs=self.plan.epochs, progress=bar
            )
        chosen = _scored(setting, self.plan.epochs, math.nan, math.nan)
        held = HeldOut(self.trainer, self.likelihood, setting, stack, [everything] * count, [everything] * count, DRAWS)
        size = as_number(self.effective_batch_size)
        with one_thread():
            posterior = self._posterior([held], chosen, self.likelihood, size)
            if self.effective_batch_size == "elbo" and effective_batch_size(posterior) is not None:
                size = self._by_elbo(posterior, chosen)
                posterior = posterior.at_batch_size(size)
        judged = CalibratedMembers(self.likelihood, size, None, None)
        candidate = Candidate(chosen, stack, 0.0)
        return posterior, self._selection([candidate], candidate, judged)

    @property
    def _wanted_size(self) -> float | Literal["cross-validated"] | None:
        """The effective batch size of the members: a number, "cross-validated", or None for the training batch size."""
        size = self.effective_batch_size
        if size == "cross-validated":
            return "cross-validated"
        return None if size == "elbo" else as_number(size)

    def _search(self) -> list[Candidate]:
        """Train all settings on the scouting folds, those of the same shape together, on all cores."""
        folds, plan = self.rounds[0], self.plan
        count = self._count(0) if len(plan.settings) == 1 else min(plan.scouts, self._count(0))
        train_rows, test_rows = others(folds)[:count], folds[:count]
        shapes = _by_shape(plan.settings)
        tried = f"{len(plan.settings)} settings x " if len(plan.settings) > 1 else ""
        label = f"cross-validation: {tried}{count} fold{'s' if count > 1 else ''}"

        def work(task: tuple[list[Setting], Any]) -> list[Candidate]:
            settings, bar = task
            stack, epochs = self.trainer.train(settings, train_rows, test_rows, plan, progress=bar)
            candidates = []
            for first, setting in zip(range(0, len(stack), count), settings, strict=True):
                networks = stack.take(torch.arange(first, first + count))
                held = HeldOut(self.trainer, self.likelihood, setting, networks, train_rows, test_rows, DRAWS)
                point, scores = held.score()
                scored = _scored(setting, int(epochs[first]), point, self.trainer.targets.in_own_scores(scores))
                candidates.append(Candidate(scored, networks, float(scores.mean())))
            return candidates

        # Isolate torch's generator once, outside the threads, because nested isolation would restore a wrong state.
        with isolated_torch_randomness(self.trainer.seed), self.trainer.bar(label, len(shapes)) as bars:
            tasks = list(zip(shapes, bars, strict=True))
            parts = in_threads(work, tasks, self.trainer.device)
        return [candidate for part in parts for candidate in part]

    def _count(self, number: int) -> int:
        """Return the number of folds of a round that have a member."""
        folds = len(self.rounds[number])
        return max(0, min(folds, self.members - number * folds))

    def _members(self, best: Candidate) -> tuple[list[HeldOut], dict[int, Tensor]]:
        """Return the members, and the errors of networks trained on fewer rows.

        If the user interrupts an interruptible fit, the members are the networks that chose the setting.
        """
        try:
            rounds = self._trained_rounds(best)
            return rounds, self._curve(best.setting, rounds[0])
        except KeyboardInterrupt:
            if not self.interruptible:
                raise
        told = f"Training was interrupted. The model has {len(best.stack)} of {self.members} networks."
        warnings.warn(told, BayesNormWarning, stacklevel=2)
        held = self._held_out(_training(best.setting), best.stack, self.rounds[0])
        return [held], {int(min(len(rows) for rows in held.train_rows)): self._squared_errors(held)}

    def _trained_rounds(self, best: Candidate) -> list[HeldOut]:
        """Train the best setting on all folds of all rounds, except the scouting folds, which are trained already."""
        setting, first = _training(best.setting), len(best.stack)
        lists = [rows for number, folds in enumerate(self.rounds) for rows in others(folds)[: self._count(number)]][
            first:
        ]
        stack = best.stack
        if lists:
            # Train for the best number of epochs found before. Held-out rows must not stop the training, because they
            # measure how good the members are.
            with self.trainer.bar(f"training: {len(lists)} more network{'s' if len(lists) > 1 else ''}") as (bar,):
                more, _ = self.trainer.train(
                    [setting], lists, None, self.plan, epochs=best.setting.epochs, first=first, progress=bar
                )
            stack = Stack.from_networks([part.network(k) for part in (stack, more) for k in range(len(part))])
        parts = torch.arange(len(stack)).split(len(self.rounds[0]))
        return [
            self._held_out(setting, stack.take(part), folds) for part, folds in zip(parts, self.rounds, strict=False)
        ]

    def _held_out(self, setting: Setting, stack: Stack, folds: Folds) -> HeldOut:
        """Return the networks of the first folds, each with its held-out rows."""
        count = len(stack)
        return HeldOut(self.trainer, self.likelihood, setting, stack, others(folds)[:count], folds[:count], DRAWS)

    def _curve(self, chosen: NetworkSetting, held: HeldOut) -> dict[int, Tensor]:
        """Return squared errors of single networks on the same held-out rows, by number of training rows."""
        rows = int(min(len(own) for own in held.train_rows))
        some = slice(next(folds for most, folds in CURVE_FOLDS if rows <= most))
        train_rows, test_rows = list(held.train_rows)[some], list(held.test_rows)[some]
        whole = replace(
            held, stack=held.stack.take(torch.arange(len(test_rows))), train_rows=train_rows, test_rows=test_rows
        )
        found = {rows: self._squared_errors(whole)}
        count = int((SHARE if rows <= MANY_ROWS else SHARE_OF_MANY) * rows)
        if count > 2 * held.setting.batch_size:
            generator = _generator(self.trainer.seed)
            parts = [own[torch.randperm(len(own), generator=generator)[:count].sort().values] for own in train_rows]
            with self.trainer.bar(f"learning curve: {count:,} of {rows:,} rows") as (bar,):
                stack, _ = self.trainer.train(
                    [held.setting], parts, None, self.plan, epochs=chosen.epochs, first=len(parts), progress=bar
                )
            found[count] = self._squared_errors(replace(whole, stack=stack, train_rows=parts))
        return found

    def _squared_errors(self, held: HeldOut) -> Tensor:
        targets = self.trainer.targets
        return targets.squared_errors(targets.points(held.points()), targets.values[held.rows]).double().mean(1)

    def _posterior(
        self, rounds: Sequence[HeldOut], setting: NetworkSetting, likelihood: Likelihood, size: float | None
    ) -> Posterior:
        """Return the posterior over all members, in the units of the targets."""
        trainer = self.trainer
        found: list[Posterior] = []
        own = trainer.targets.in_own_units(likelihood)
        for held in rounds:
            for k, rows in enumerate(held.train_rows):
                network = Encoded(trainer.encoder(setting.encoding), *held.stack.network(k))
                unit = trainer.targets.own_units(trainer.targets.scales_of(rows))
                wrapped = trainer.targets.in_units(network, unit)
                x = trainer.x[rows].double()
                found.append(
                    posterior_for(
                        trainer.method, wrapped, x, own, setting.batch_size, STATES, trainer.seed + len(found)
                    )
                )
        posterior: Any = ensemble(found) if len(found) > 1 else found[0]
        return posterior if size is None or effective_batch_size(posterior) is None else posterior.at_batch_size(size)

    def _selection(self, candidates: Sequence[Candidate], best: Candidate, judged: CalibratedMembers) -> Selection:
        noise, plain = (
            _noise_of(own) for own in (self.trainer.targets.in_own_units(judged.likelihood), judged.likelihood)
        )
        noise |= {name: plain[name] for name in plain if name == "scale"}  # a factor on the predicted noise has no unit
        return Selection(
            score="crps" if isinstance(self.trainer.targets, NumberTargets) else "nll",
            settings=tuple(candidate.setting for candidate in candidates),
            chosen=best.setting,
            noise=noise,
            effective_batch_size=judged.batch_size,
            folds=len(self.rounds[0]) if self.rounds else 0,
            seconds=0.0,
            uncertainty=judged.uncertainty,
            conformal=judged.conformal,
            out_of_fold=judged.out_of_fold,
        )

    def _by_elbo(self, posterior: Any, setting: NetworkSetting) -> float:
        trainer = self.trainer
        chosen = torch.randperm(len(trainer.x), generator=_generator(trainer.seed))[:ELBO_ROWS]
        y = trainer.targets.values[chosen]
        if isinstance(trainer.targets, NumberTargets):
            y = trainer.targets.in_own_values(y)
        first = getattr(posterior, "members", (posterior,))[0]
        decay = max(setting.weight_decay, LEAST_DECAY)
        rows = trainer.x[chosen].double(), y
        return select_batch_size(first, rows, weight_decay=decay, seed=trainer.seed).batch_size


def _by_shape(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Return groups of settings that can be trained as one stack."""
    shapes: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in settings:
        key = setting.encoding, setting.hidden, setting.batch_size, setting.dropout_rate > 0
        shapes.setdefault(key, []).append(setting)
    # Start with the largest group, so that no core waits for it at the end.
    return sorted(shapes.values(), key=lambda same: -len(same) * sum(same[0].hidden))


def _scored(setting: Setting, epochs: int, point: float, score: float) -> NetworkSetting:
    return NetworkSetting(**asdict(setting), epochs=epochs, point_score=point, score=score)


def _training(scored: NetworkSetting) -> Setting:
    """Return the setting without its scores."""
    return Setting(**{field.name: getattr(scored, field.name) for field in fields(Setting)})


def _noise_of(likelihood: Likelihood) -> dict[str, Any]:
    config = likelihood.config()
    names = ("precision", "scale", "temperature", "df", "floor")
    return {name: config[name] for name in names if name in config}


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
