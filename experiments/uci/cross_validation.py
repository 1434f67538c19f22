"""Cross-validate one batch size or dropout rate: all splits, folds and weight decays in one stack."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesnorm.methods import MCBN, MCDropout
from bayesnorm.tabular.stacked import HalfSquaredError, Stack, StackedRows, train_stacked

from ..networks import paper_dropout_mlp, paper_mlp
from ..stacked_networks import choose_block, fit_stacked, network_means, own_targets
from .folds import Data, Fold
from .presets import Preset

POINT, DRAWN = "point", "drawn"
"""Whose RMSE chooses hyper-parameters: the network's own (BN, DO), or its mean over samples (MCBN, MCDropout)."""


@dataclass(frozen=True)
class Trial:
    """The settings of one unit of the benchmark.

    Args:
        preset: How much to try.
        data: The rows.
        family: "bn" or "dropout".
        value: The batch size, or the dropout rate.
        device: Device for training.
    """

    preset: Preset
    data: Data
    family: str
    value: float
    device: str

    @property
    def batch_size(self) -> int:
        return int(self.value) if self.family == "bn" else self.preset.dropout_batch_size

    def network(self, seed: int) -> nn.Sequential:
        """Return a network with new weights."""
        hidden = (self.data.width, self.data.width)
        if self.family == "bn":
            return paper_mlp(self.data.inputs, hidden=hidden, seed=seed)
        return paper_dropout_mlp(self.data.inputs, self.value, hidden=hidden, seed=seed)

    def stack(self, seeds: list[int]) -> Stack:
        """Return new networks; those with the same seed start with the same weights."""
        different = list(dict.fromkeys(seeds))
        made = Stack.from_networks([self.network(seed) for seed in different]).to(self.device)
        return made.take(torch.tensor([different.index(seed) for seed in seeds]))

    @property
    def method(self) -> MCBN | MCDropout:
        """Return the published method of the family."""
        if self.family == "bn":
            return MCBN(self.batch_size, states=self.preset.samples, center="batch")
        return MCDropout()


@dataclass(frozen=True, eq=False)
class Chosen:
    """The choice of cross-validation for every split by one criterion.

    Args:
        cv_rmse, weight_decay, epochs: Of each split.
        stack: The networks of its folds at the chosen weight decay and epoch, split by split.
    """

    cv_rmse: list[float]
    weight_decay: list[float]
    epochs: list[int]
    stack: Stack


@dataclass(frozen=True, eq=False)
class Validated:
    """The result of cross-validation of one trial.

    Args:
        chosen: By criterion.
        train, held: Rows of the chosen networks: of the folds of every split.
        network_steps, seconds: Its cost.
    """

    chosen: dict[str, Chosen]
    train: StackedRows
    held: StackedRows
    network_steps: int
    seconds: float


def cross_validate(trial: Trial) -> Validated:
    """Train every fold at every weight decay, folds in lockstep, and keep the best epoch by each criterion."""
    preset, folds = trial.preset, trial.data.validated
    decays = preset.weight_decays
    every = [fold for _ in decays for fold in folds]
    seeds = [preset.fold_seed + i % preset.folds for i in range(len(every))]
    train = trial.data.train_rows(every)
    held = trial.data.held_rows(every, train)
    stack = trial.stack(seeds)
    placed_train, placed_held = (rows.to(stack.device, stack.dtype) for rows in (train, held))

    def evaluate(now: Stack, members: Tensor) -> dict[str, Tensor]:
        own_train, own_held = placed_train.take(members), placed_held.take(members)
        with quick_products():
            drawn = fit_stacked(trial.method, now, own_train)
            mean, _ = drawn.moments(own_held, preset.samples)
            alone = drawn.executable.point(own_held)
        return {POINT: rmse(alone, own_held), DRAWN: rmse(mean, own_held)}

    with quick_products(trial.data.width > 64):  # the kernel of wide networks is for them only
        history = train_stacked(
            stack,
            placed_train,
            epochs=preset.epochs,
            batch_size=trial.batch_size,
            weight_decay=[decay for decay in decays for _ in folds],
            evaluate=evaluate,
            evaluate_every=preset.evaluate_every,
            patience=preset.patience,
            groups=[i // preset.folds for i in range(len(every))],
            loss=HalfSquaredError(),
            seeds=seeds,
            choose_block=choose_block,
        )
    chosen = {}
    for name, states in history.selected.items():
        best = _best(states.scores, states.epochs, len(decays), len(trial.data.splits), preset.folds)
        members = torch.cat([_members(decay, split, trial) for split, (decay, _) in enumerate(best)])
        chosen[name] = Chosen(
            cv_rmse=[rmse for _, rmse in best],
            weight_decay=[decays[decay] for decay, _ in best],
            epochs=[int(states.epochs[_members(decay, split, trial)[0]]) for split, (decay, _) in enumerate(best)],
            stack=states.stack.take(members),
        )
    fold_rows = trial.data.train_rows(folds)
    return Validated(chosen, fold_rows, trial.data.held_rows(folds, fold_rows), history.network_steps, history.seconds)


def rmse(f: Tensor, rows: StackedRows) -> Tensor:
    """Return the root mean squared error of each network's outputs (E, n, 1), in the target's units."""
    return network_means((own_targets(rows) - f).square(), rows.mask.unsqueeze(-1)).sqrt()


def _best(
    scores: list[tuple[int, Tensor]], epochs: Tensor, decays: int, splits: int, folds: int
) -> list[tuple[int, float]]:
    """Return for each split the index of the weight decay with the lowest mean score of its folds."""
    by_epoch = {epoch: values.view(decays, splits, folds).mean(2) for epoch, values in scores}
    at = epochs.view(decays, splits, folds)[:, :, 0]
    results = []
    for split in range(splits):
        reached = [float(by_epoch[int(at[decay, split])][decay, split]) for decay in range(decays)]
        least = min(range(decays), key=lambda decay: (math.isnan(reached[decay]), reached[decay]))
        results.append((least, reached[least]))
    return results


def _members(decay: int, split: int, trial: Trial) -> Tensor:
    folds = trial.preset.folds
    first = (decay * len(trial.data.splits) + split) * folds
    return torch.arange(first, first + folds)


def retrain(
    trial: Trial, folds: list[Fold], seeds: list[int], weight_decay: list[float], epochs: list[int]
) -> tuple[Stack, StackedRows, int]:
    """Return networks trained for their own numbers of epochs, their rows, and the number of steps."""
    rows = trial.data.train_rows(folds)
    stack = trial.stack(seeds)
    with quick_products(trial.data.width > 64):
        history = train_stacked(
            stack,
            rows.to(stack.device, stack.dtype),
            epochs=epochs,
            batch_size=trial.batch_size,
            weight_decay=weight_decay,
            loss=HalfSquaredError(),
            seeds=seeds,
            choose_block=choose_block,
        )
    return stack, rows, history.network_steps


@contextlib.contextmanager
def quick_products(allowed: bool = True) -> Iterator[None]:
    """Use products on a GPU's tensor cores with factors rounded to 10 bits, "high" precision in torch."""
    before = torch.get_float32_matmul_precision()
    try:
        if allowed:
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def settings_for(preset: Preset, data: Data, family: str) -> list[float]:
    """Return the batch sizes or dropout rates to try on a set.

    Batches as large as a fold's training rows are left out: all would be equal, and MCBN without uncertainty.
    """
    if family == "bn":
        return [float(size) for size in preset.batch_sizes if size < data.fewest]
    return [rate for rate in preset.rates if math.isfinite(rate)]
