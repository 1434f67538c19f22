"""Choose a network by cross-validation and build the posterior from the networks of the folds.

1. Every setting is trained on some folds; settings of the same shape are trained as one stack. Its score on held-out
   rows is the CRPS at the best noise level, or the NLL of classes (`trainer.py`, `held_out.py`).
2. Networks of the best setting are trained for all folds, in one or more rounds with different folds. They are the
   members of the model; no network is trained again on all rows, so the tested networks are the ones that predict.
3. Networks trained on fewer rows, and the disagreement of the members, show how much of the held-out error is
   epistemic. The batch-norm samples of every member are scaled to this part, and the rest is noise
   (`search_results.py`, `noise.py`).

A network is never scored on rows that it was trained on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..calibration import select_batch_size
from ..errors import warn
from ..likelihoods import Likelihood
from ..methods import ensemble
from ..network import isolated_torch_randomness
from ..posterior import Posterior, effective_batch_size
from .held_out import HeldOut, Split
from .members import Members
from .networks import Encoded, posterior_for
from .search_plan import SearchPlan, Setting
from .search_results import NetworkSetting, Selection
from .stacked import Stack, in_threads, one_thread
from .targets import NumberTargets
from .trainer import Trainer

ELBO_ROWS = 2_000

# Number of batches per member whose statistics are stored, for sampling and for drift tests.
STATES = 64

# Fraction of the training rows for the smaller networks of the learning curve; a smaller fraction for large tables.
SHARE, MANY_ROWS, SHARE_OF_MANY = 0.5, 20_000, 0.25

LEAST_DECAY = 1e-12  # a prior needs some weight decay; this much does not move the maximum of the bound


@dataclass(frozen=True, eq=False)
class TrainedSetting:
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
        rounds: The rows of the networks of each round. If there is nothing to choose, one round without held-out rows.
        likelihood: The likelihood in standard units, with its noise if that is fixed.
        noise: Whether to choose the noise.
        effective_batch_size: "cross-validated", "elbo", a number, or None for the training batch size.
        interruptible: Whether Ctrl-C keeps the networks of the chosen setting, once there are any.
        folds: Number of folds; 0 if there is nothing to choose.
    """

    trainer: Trainer
    plan: SearchPlan
    rounds: tuple[Split, ...]
    likelihood: Likelihood
    noise: bool
    effective_batch_size: Literal["cross-validated", "elbo"] | float | None
    interruptible: bool
    folds: int

    def fit(self) -> tuple[Posterior, Selection]:
        """Return the posterior, in the units of the targets, and the chosen settings."""
        started, size = time.perf_counter(), self.effective_batch_size
        candidates = self._search() if self.folds else [self._trained_on_all_rows()]
        best = min(candidates, key=lambda candidate: candidate.order)
        rounds, curve = self._members(best) if self.folds else ([self._held_out(best, self.rounds[0])], {})
        posterior, selection = self._calibrated(candidates, best, rounds, curve, None if size == "elbo" else size)
        if size == "elbo" and effective_batch_size(posterior) is not None:
            with one_thread():
                chosen = self._by_elbo(posterior, best.setting)
            posterior, selection = self._calibrated(candidates, best, rounds, curve, chosen)
        return posterior, replace(selection, seconds=time.perf_counter() - started)

    def _calibrated(
        self,
        candidates: Sequence[TrainedSetting],
        best: TrainedSetting,
        rounds: Sequence[HeldOut],
        curve: dict[int, Tensor],
        size: float | Literal["cross-validated"] | None,
    ) -> tuple[Posterior, Selection]:
        """Return the posterior and the selection for an effective batch size, calibrated on held-out rows."""
        likelihood, targets = self.likelihood, self.trainer.targets
        selection = Selection(
            score="crps" if isinstance(targets, NumberTargets) else "nll",
            settings=tuple(candidate.setting for candidate in candidates),
            chosen=best.setting,
            folds=self.folds,
            effective_batch_size=None if isinstance(size, str) else size,
        )
        with one_thread():
            if self.folds:
                members = Members(tuple(rounds), likelihood, self.noise)
                likelihood, selection = members.calibrated(selection, curve, size)
            posterior = self._posterior(rounds, best.setting, likelihood, selection.effective_batch_size)
        noise, plain = _noise_of(targets.in_own_units(likelihood)), _noise_of(likelihood)
        noise |= {name: plain[name] for name in plain if name == "scale"}  # a factor on the predicted noise has no unit
        return posterior, replace(selection, noise=noise)

    def _trained_on_all_rows(self) -> TrainedSetting:
        """Return networks trained on all rows, for a plan with one setting and nothing to choose."""
        setting, epochs = self.plan.settings[0], self.plan.epochs
        with self.trainer.bar(f"training: {epochs} epochs on all rows") as (bar,):
            stack, _ = self.trainer.train([setting], self.rounds[0].train_rows, epochs, progress=bar)
        return TrainedSetting(_scored(setting, epochs, math.nan, math.nan), stack, 0.0)

    def _search(self) -> list[TrainedSetting]:
        """Train all settings on the scouting folds, those of the same shape together, on all cores."""
        plan, split = self.plan, self.rounds[0]
        if len(plan.settings) > 1:
            split = split.first(plan.scouts)
        count, shapes = len(split), _by_shape(plan.settings)
        tried = f"{len(plan.settings)} settings x " if len(plan.settings) > 1 else ""
        label = f"cross-validation: {tried}{count} fold{'s' if count > 1 else ''}"

        def work(task: tuple[list[Setting], Any]) -> list[TrainedSetting]:
            settings, bar = task
            stack, epochs = self.trainer.train(
                settings,
                split.train_rows,
                plan.epochs,
                test_rows=split.test_rows if plan.search else None,
                evaluate_every=plan.evaluate_every,
                progress=bar,
            )
            candidates = []
            for first, setting in zip(range(0, len(stack), count), settings, strict=True):
                networks = stack.take(torch.arange(first, first + count))
                point, scores = HeldOut(self.trainer, setting, networks, split).score()
                scored = _scored(setting, int(epochs[first]), point, self.trainer.targets.in_own_scores(scores))
                candidates.append(TrainedSetting(scored, networks, float(scores.mean())))
            return candidates

        # Isolate torch's generator once, outside the threads, because nested isolation would restore a wrong state.
        with isolated_torch_randomness(self.trainer.seed), self.trainer.bar(label, len(shapes)) as bars:
            parts = in_threads(work, list(zip(shapes, bars, strict=True)), self.trainer.device)
        return [candidate for part in parts for candidate in part]

    def _members(self, best: TrainedSetting) -> tuple[list[HeldOut], dict[int, Tensor]]:
        """Return the members, and the errors of networks trained on fewer rows.

        If the user interrupts an interruptible fit, the members are the networks that chose the setting.
        """
        try:
            rounds = self._trained_rounds(best)
            return rounds, self._curve(best.setting, rounds[0])
        except KeyboardInterrupt:
            if not self.interruptible:
                raise
        networks = f"{len(best.stack)} of {sum(map(len, self.rounds))} networks"
        warn(f"Training was interrupted. The model has {networks}.")
        held = self._held_out(best, self.rounds[0].first(len(best.stack)))
        return [held], {int(min(len(rows) for rows in held.split.train_rows)): self._squared_errors(held)}

    def _trained_rounds(self, best: TrainedSetting) -> list[HeldOut]:
        """Train the best setting on all folds of all rounds, except the scouting folds, which are trained already."""
        first, stack = len(best.stack), best.stack
        lists = [rows for split in self.rounds for rows in split.train_rows][first:]
        if lists:
            # Train for the best number of epochs that the search has chosen. Held-out rows must not stop the training,
            # because they measure how good the members are.
            with self.trainer.bar(f"training: {len(lists)} more network{'s' if len(lists) > 1 else ''}") as (bar,):
                more, _ = self.trainer.train([best.setting], lists, best.setting.epochs, first=first, progress=bar)
            stack = Stack.from_networks([part.network(k) for part in (stack, more) for k in range(len(part))])
        parts = torch.arange(len(stack)).split([len(split) for split in self.rounds])
        return [
            self._held_out(replace(best, stack=stack.take(part)), split)
            for part, split in zip(parts, self.rounds, strict=True)
        ]

    def _held_out(self, candidate: TrainedSetting, split: Split) -> HeldOut:
        return HeldOut(self.trainer, candidate.setting, candidate.stack, split)

    def _curve(self, chosen: NetworkSetting, held: HeldOut) -> dict[int, Tensor]:
        """Return squared errors of single networks on the same held-out rows, by number of training rows."""
        rows = int(min(len(numbers) for numbers in held.split.train_rows))
        split = held.split.first(self.plan.curve)
        whole = replace(held, stack=held.stack.take(torch.arange(len(split))), split=split)
        errors = {rows: self._squared_errors(whole)}
        count = int((SHARE if rows <= MANY_ROWS else SHARE_OF_MANY) * rows)
        if count > 2 * chosen.batch_size:
            generator = _generator(self.trainer.seed)
            orders = [torch.randperm(len(numbers), generator=generator) for numbers in split.train_rows]
            parts = [
                numbers[order[:count].sort().values] for numbers, order in zip(split.train_rows, orders, strict=True)
            ]
            with self.trainer.bar(f"learning curve: {count:,} of {rows:,} rows") as (bar,):
                stack, _ = self.trainer.train(
                    [chosen], parts, chosen.epochs, first=len(parts), progress=bar, screened=split.train_rows
                )
            errors[count] = self._squared_errors(
                replace(whole, stack=stack, split=Split(tuple(parts), split.test_rows))
            )
        return errors

    def _squared_errors(self, held: HeldOut) -> Tensor:
        targets = self.trainer.targets
        return targets.squared_errors(targets.points(held.points()), targets.values[held.rows]).double().mean(1)

    def _posterior(
        self, rounds: Sequence[HeldOut], setting: NetworkSetting, likelihood: Likelihood, size: float | None
    ) -> Posterior:
        """Return the posterior over all members, in the units of the targets."""
        trainer, targets = self.trainer, self.trainer.targets
        members: list[Posterior] = []
        likelihood = targets.in_own_units(likelihood)
        for held in rounds:
            for k, rows in enumerate(held.split.train_rows):
                network = Encoded(trainer.encoder(setting.encoding), *held.stack.network(k))
                wrapped = targets.in_units(network, targets.scales_of(rows))
                x, seed = trainer.x[rows].double(), trainer.seed + len(members)
                members.append(posterior_for(trainer.method, wrapped, x, likelihood, setting.batch_size, STATES, seed))
        posterior: Any = ensemble(members) if len(members) > 1 else members[0]
        return posterior if size is None or effective_batch_size(posterior) is None else posterior.at_batch_size(size)

    def _by_elbo(self, posterior: Any, setting: NetworkSetting) -> float:
        trainer = self.trainer
        rows = torch.randperm(len(trainer.x), generator=_generator(trainer.seed))[:ELBO_ROWS]
        y = trainer.targets.in_own_values(trainer.targets.values[rows])
        first = getattr(posterior, "members", (posterior,))[0]
        decay = max(setting.weight_decay, LEAST_DECAY)
        return select_batch_size(first, (trainer.x[rows].double(), y), weight_decay=decay, seed=trainer.seed).batch_size


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


def _noise_of(likelihood: Likelihood) -> dict[str, Any]:
    config = likelihood.config()
    names = ("precision", "scale", "temperature", "df", "floor")
    return {name: config[name] for name in names if name in config}


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
