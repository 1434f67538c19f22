"""Fit boosted trees and linear models for the folds of a table, and combine them with the networks.

All choices are made on held-out rows: the weights, the form and the size of the noise, and the spread of the members.
The weights have the lowest CRPS or NLL on a grid in which every kind can have the weight 0. On small tables they are
pulled towards equal weights, because few rows decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..calibration import minimise_on_log_scale
from ..likelihoods import HeteroscedasticGaussian
from ..predictive import ClassificationPredictive, RegressionPredictive, gaussian_crps
from .column_checks import ColumnScreen
from .column_types import Numbers
from .held_out import Split
from .linear import fit_logistic, fit_ridge
from .noise import SeenRows, noise_for
from .pool import ERROR_BARS, KINDS, Combination, FoldModels, Pool, network_scale, pooled
from .search_results import KindResult, Selection
from .targets import LabelTargets, NumberTargets, Targets
from .tree_fitting import FoldRows, fit_locations, fit_log_scales, fit_logits

# Steps of the grid of weights, and factors of the noise that are tried with each of them.
STEPS, FACTORS = 10, np.geomspace(0.2, 3.0, 12).tolist()

# The penalty of weights that are not equal, in rows.
PULL = 3.0

# Factors of the disagreement of the kinds.
SPREADS = (1.0, 0.7, 0.4)

# Largest number of rows that choose the weights.
WEIGHT_ROWS = 4_000

# Locations of members are at most this many ranges of the targets beyond their ends.
BEYOND = 0.5

# Errors are at least this share of the standard deviation of the targets, which rounding alone causes.
LEAST_UNIT = 1e-7

# Tables with fewer cells are fitted by one thread.
FEW_CELLS = 500_000

# Range of temperatures.
TEMPERATURES = torch.tensor(0.2, dtype=torch.float64), torch.tensor(20.0, dtype=torch.float64)

# Range of the common factor of all temperatures.
COMMON = torch.tensor(0.4, dtype=torch.float64), torch.tensor(1.5, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class OtherKinds:
    """Models that are no networks, one for each fold, and their predictions for the held-out rows.

    Args:
        trees, linear, tree_scales: The models; no scales for classes or for noise that is the same for all rows.
        points: Predictions of trees and of linear models for held-out rows, each (rows, outputs): in standard units, or
            logits.
        between: Variance between the models of a kind for these rows, each (rows, outputs).
        log_scales: Logarithm of the noise that trees predict, (rows, targets).
    """

    trees: FoldModels
    linear: FoldModels
    tree_scales: FoldModels | None
    points: tuple[Tensor, Tensor]
    between: tuple[Tensor, Tensor]
    log_scales: Tensor | None

    @classmethod
    def fit(
        cls, x: Numbers, targets: Targets, split: Split, screen: ColumnScreen | None, seed: int, *, row_wise: bool
    ) -> OtherKinds:
        """Fit the models.

        Args:
            x: Features of all training rows.
            targets: Their targets.
            split: The rows of each fold.
            screen: Chooses the features that each fold uses; None if all folds use all.
            seed: Seed of the fits.
            row_wise: Whether to fit the noise of each row.
        """
        rows = FoldRows(
            x,
            [part.numpy() for part in split.train_rows],
            [part.numpy() for part in split.test_rows],
            None if screen is None else np.stack([screen.inputs(part) for part in split.train_rows]),
            None if targets.weights is None else targets.weights.numpy(),
            seed,
        )
        # On small tables, threads cost more than they save.
        with threadpool_limits(1 if x.size < FEW_CELLS else None):
            return cls._fitted(rows, targets, row_wise)

    @classmethod
    def _fitted(cls, rows: FoldRows, targets: Targets, row_wise: bool) -> OtherKinds:
        y, order = targets.values.numpy(), np.argsort(rows.held_out)
        fold = np.concatenate([np.full(len(test), number) for number, test in enumerate(rows.test_rows)])[order]
        order = rows.held_out[order]
        chosen, places = torch.from_numpy(fold), torch.arange(len(order))
        models: list[Sequence[Any]]
        if isinstance(targets, LabelTargets):
            models = [fit_logits(rows, y, targets.classes), fit_logistic(rows, y, targets.classes)]
        else:
            models = [fit_locations(rows, y), fit_ridge(rows, y)]
        trees, linear = (FoldModels(tuple(some)) for some in models)
        answers = [kind.predict(rows.x[order]) for kind in (trees, linear)]
        points = [answer[chosen, places] for answer in answers]
        scales, log_scales = None, None
        known_errors = replace(rows, train_rows=[np.intersect1d(train, order) for train in rows.train_rows])
        # If only one fold is held out, no row with an error is left to learn from.
        if row_wise and all(len(train) for train in known_errors.train_rows):
            errors = np.zeros_like(y)
            errors[order] = np.abs(points[0].numpy() - y[order])
            scales = FoldModels(tuple(fit_log_scales(known_errors, errors)))
            log_scales = scales.predict(rows.x[order])[chosen, places]
        between = [answer.var(0, correction=0) for answer in answers]
        return cls(trees, linear, scales, (points[0], points[1]), (between[0], between[1]), log_scales)


def pool_numbers(
    others: OtherKinds, targets: NumberTargets, selection: Selection, fixed: Tensor | None
) -> tuple[Pool, Selection]:
    """Return the pool of a regression, and a selection with its predictions of held-out rows.

    Args:
        others: The other kinds.
        targets: The targets.
        selection: The selection of the networks.
        fixed: The variance of the noise in standard units, if it is fixed.
    """
    held_out: Any = selection.out_of_fold
    networks: RegressionPredictive = held_out.predictive
    mean, std = targets.mean, targets.std
    y = (torch.from_numpy(held_out.target) - mean) / std
    row_weights = None if held_out.weight is None else torch.from_numpy(held_out.weight)
    points = torch.stack([(networks.mean - mean) / std, *others.points])
    inside = torch.stack([networks.epistemic / std.square(), *others.between])
    bars = {name: torch.ones_like(y) for name in [*ERROR_BARS][:1]}
    if others.log_scales is not None and fixed is None:
        logs = (network_scale(networks) / std).log(), others.log_scales
        bars |= {name: (a * logs[0] + b * logs[1]).exp() for name, (a, b) in ERROR_BARS.items() if a or b}
    name, weights, results = _best_of_numbers(points, inside, bars, y, row_weights, std)
    location, between = pooled(points, weights)
    within = torch.tensordot(weights.square(), inside, 1)
    measured = selection.uncertainty
    shrinkage = 1.0 if measured is None else 1 - float(weights[0]) * (1 - measured.shrinkage)
    target = location + shrinkage * (y - location)
    low, high = targets.values.amin(0), targets.values.amax(0)
    combination = Combination(
        weights=tuple(weights.tolist()),
        spread=1.0,
        error_bars=name,
        ceiling=bars[name].amax(0),
        reach=torch.stack([low - BEYOND * (high - low), high + BEYOND * (high - low)]),
        noise=HeteroscedasticGaussian(),
        temperatures=(),
    )
    # Errors can be far smaller than the targets vary, so the noise is searched in their own size.
    unit = (location - y).square().mean(0).sqrt().clamp_min(LEAST_UNIT) if fixed is None else torch.ones_like(std)
    choices = []
    for spread in SPREADS:
        seen = SeenRows(location, within + spread**2 * between, unit * bars[name], target, row_weights)
        choices.append((_least_crps(seen), spread, seen))
    _, spread, seen = min(choices, key=lambda choice: choice[0])
    plain = HeteroscedasticGaussian()
    noise: Any = noise_for(seen, plain) if fixed is None else plain.with_noise(fixed.sqrt())
    combination = replace(combination, spread=spread, noise=noise.with_noise(noise.noise.to(unit) * unit))
    scales = others.tree_scales if ERROR_BARS[name][1] else None
    pool = Pool(combination, others.trees, others.linear, scales, mean, std)
    predictive = targets.in_own_predictive(seen.predictive(noise))
    return pool, replace(
        selection,
        kinds=results,
        error_bars=name,
        out_of_fold=replace(held_out, predictive=predictive),
    )


def pool_classes(
    others: OtherKinds, targets: LabelTargets, selection: Selection, *, fixed: bool
) -> tuple[Pool, Selection]:
    """Return the pool of a classification, and a selection with its predictions of held-out rows.

    Args:
        others: The other kinds.
        targets: The targets.
        selection: The selection of the networks.
        fixed: Whether the temperature of the networks is fixed.
    """
    held_out: Any = selection.out_of_fold
    y = torch.from_numpy(held_out.target)
    row_weights = torch.ones(len(y)) if held_out.weight is None else torch.from_numpy(held_out.weight)
    logits = [held_out.predictive.log_probs, others.points[0][None], others.points[1][None]]
    single = [
        torch.ones((), dtype=torch.float64) if number == 0 else _temperature(part, y, row_weights)
        for number, part in enumerate(logits)
    ]
    right = torch.stack([_true_probs(part, temperature, y) for part, temperature in zip(logits, single, strict=True)])
    grid = _simplex()
    tiny = torch.finfo(torch.float64).tiny

    def nll_of(weights: Tensor, probs: Tensor) -> Tensor:
        return (row_weights * -(weights @ probs).clamp_min(tiny).log()).mean(-1)

    scores = nll_of(grid, right)
    weights = grid[(scores + scores.min() * _pull(grid, len(y))).argmin()]
    common = torch.ones((), dtype=torch.float64)
    if not fixed:

        def objective(factor: Tensor) -> Tensor:
            probs = [_true_probs(part, factor * t, y) for part, t in zip(logits, single, strict=True)]
            return nll_of(weights, torch.stack(probs))

        common, _ = minimise_on_log_scale(objective, *COMMON, grid=9, refinements=8)
    none = torch.empty(0, dtype=torch.float64)
    combination = Combination(
        weights=tuple(weights.tolist()),
        spread=1.0,
        error_bars="",
        ceiling=none,
        reach=none,
        noise=None,
        temperatures=tuple(float(common * temperature) for temperature in single),
    )
    results = tuple(
        KindResult(kind, float(weight), float(nll_of(one, right)))
        for kind, weight, one in zip(KINDS, weights, torch.eye(len(KINDS), dtype=torch.float64), strict=True)
    )
    parts = [part if weight else None for part, weight in zip(logits, combination.weights, strict=True)]
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    pool = Pool(combination, others.trees, others.linear, None, zero, one)
    predictive: ClassificationPredictive = combination.classes(parts)
    return pool, replace(selection, kinds=results, out_of_fold=replace(held_out, predictive=predictive))


def _best_of_numbers(
    points: Tensor, inside: Tensor, bars: dict[str, Tensor], y: Tensor, row_weights: Tensor | None, std: Tensor
) -> tuple[str, Tensor, tuple[KindResult, ...]]:
    """Return the form of the noise and the weights of the lowest CRPS, and the result of each kind."""
    every = slice(None, None, -(-len(y) // WEIGHT_ROWS))
    points, inside, y = points[:, every], inside[:, every], y[every]
    share = (torch.ones(len(y)) if row_weights is None else row_weights[every])[:, None] * (std / std.mean())
    grid = _simplex()
    table = torch.empty(len(bars), len(grid), dtype=torch.float64)
    for number, weights in enumerate(grid):
        location, between = pooled(points, weights)
        variance = torch.tensordot(weights.square(), inside, 1) + between
        for form, scale in enumerate(bars.values()):
            scale = scale[every] / scale[every].square().mean(0).sqrt() * (location - y).square().mean(0).sqrt()
            table[form, number] = min(
                float((share * gaussian_crps(y, location, (factor**2 * scale.square() + variance).sqrt())).mean())
                for factor in FACTORS
            )
    penalised = table + table.min() * _pull(grid, len(y))
    form, number = divmod(int(penalised.argmin()), len(grid))
    alone = [table[:, int(place)].min() for place in grid.argmax(0)]
    results = tuple(
        KindResult(kind, float(weight), float(score * std.mean()))
        for kind, weight, score in zip(KINDS, grid[number], alone, strict=True)
    )
    return list(bars)[form], grid[number], results


def _least_crps(rows: SeenRows) -> float:
    """Return the CRPS of rows at the best factor of the noise, the mean over targets."""
    unit = (rows.mean - rows.target).square().mean(0).sqrt()
    scale = rows.std / rows.std.square().mean(0).sqrt() * unit
    share = 1.0 if rows.weights is None else rows.weights[:, None]
    return min(
        float(
            (
                share * gaussian_crps(rows.target, rows.mean, (factor**2 * scale.square() + rows.uncertainty).sqrt())
            ).mean()
        )
        for factor in FACTORS
    )


def _simplex() -> Tensor:
    """Return all weights of the kinds that are multiples of 1 / `STEPS`, (choices, kinds)."""
    counts = [c for c in itertools.product(range(STEPS + 1), repeat=len(KINDS)) if sum(c) == STEPS]
    return torch.tensor(counts, dtype=torch.float64) / STEPS


def _pull(grid: Tensor, rows: int) -> Tensor:
    """Return the penalty of each choice of weights, relative to the best score."""
    return PULL / rows * (grid - 1 / len(KINDS)).square().sum(1)


def _true_probs(logits: Tensor, temperature: Tensor, y: Tensor) -> Tensor:
    """Return the probability of the true class of each row, the mean over members: (rows,)."""
    log_probs = torch.log_softmax(logits / temperature, -1)
    return log_probs[:, torch.arange(len(y)), y].exp().mean(0)


def _temperature(logits: Tensor, y: Tensor, row_weights: Tensor) -> Tensor:
    """Return the temperature of the lowest NLL."""
    tiny = torch.finfo(torch.float64).tiny

    def objective(temperature: Tensor) -> Tensor:
        return (row_weights * -_true_probs(logits, temperature, y).clamp_min(tiny).log()).mean()

    return minimise_on_log_scale(objective, *TEMPERATURES, grid=21, refinements=12)[0]
