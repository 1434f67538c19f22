"""Scores of many networks at once, in the target's units, and the noise precision that cross-validation picks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesnorm.metrics import VARIANCE_FLOOR, optimal_crps, optimal_pll
from bayesnorm.predictive.regression import gaussian_crps
from bayesnorm.selection.search import minimise_on_log_scale
from bayesnorm.stacked import StackedRows

LEVEL_95 = 1.959963984540054

AT_ONCE = 2**27
"""Numbers of outputs that are looked at together."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """What E networks say of their rows under draws.

    Args:
        rows: The rows.
        mean, var: Over draws, (E, n), in raw units.
        f: Outputs under each draw, (S, E, n), in raw units; None where only moments were taken.
    """

    rows: StackedRows
    mean: Tensor
    var: Tensor
    f: Tensor | None = None

    @classmethod
    def of(cls, rows: StackedRows, f: Tensor) -> Drawn:
        """Of outputs (S, E, n, 1) in the networks' units."""
        raw = rows.in_raw_units(f).squeeze(-1)
        parts = [torch.var_mean(part.double(), 0, correction=0) for part in raw.split(_at_once(raw), 1)]
        var, mean = (torch.cat(part) for part in zip(*parts, strict=True))
        return cls(rows, mean, var, raw)

    @classmethod
    def of_moments(cls, rows: StackedRows, mean: Tensor, var: Tensor) -> Drawn:
        """Of moments (E, n, 1) in the networks' units."""
        assert rows.scales is not None
        scale = rows.scales.y_std.double()
        return cls(rows, rows.in_raw_units(mean).squeeze(-1).double(), var.squeeze(-1).double() * scale.square())

    @property
    def y(self) -> Tensor:
        """Targets, (E, n)."""
        return self.rows.in_raw_units(self.rows.targets()).squeeze(-1).double()

    @property
    def error(self) -> Tensor:
        return self.y - self.mean

    def constant(self) -> Drawn:
        """The same means, and no doubt but noise."""
        return Drawn(self.rows, self.mean, torch.zeros_like(self.var), self.mean[None])

    def rmse(self) -> Tensor:
        """(E,)."""
        return self.rows.mean(self.error.square()).sqrt()

    def crps(self, precision: Tensor) -> Tensor:
        """Mean CRPS of a Gaussian with the moments, and noise of this precision (E,) in it: (E,)."""
        return self.rows.mean(gaussian_crps(self.y, self.mean, (self.var + 1 / precision[:, None]).sqrt()))

    def pll(self, precision: Tensor) -> Tensor:
        """Mean log likelihood of the mixture of draws, (E,)."""
        assert self.f is not None
        size = _at_once(self.f)
        parts = zip(self.f.split(size, 1), self.y.split(size), precision.split(size), strict=True)
        return self.rows.mean(torch.cat([_mixture(f.double(), y, p[:, None]) for f, y, p in parts]))

    def coverage(self, precision: Tensor) -> Tensor:
        """Share of rows in central 95 % intervals of the Gaussian, (E,)."""
        std = (self.var + 1 / precision[:, None]).sqrt()
        return self.rows.mean((self.error.abs() <= LEVEL_95 * std).double())

    def optimal_crps(self) -> Tensor:
        return self.rows.mean(optimal_crps(self.error))

    def optimal_pll(self) -> Tensor:
        return self.rows.mean(optimal_pll(self.error, floor=VARIANCE_FLOOR))


def _at_once(f: Tensor) -> int:
    """Networks whose outputs (S, E, n) are looked at in double precision together."""
    return max(1, AT_ONCE // (f.shape[0] * f.shape[2]))


def _mixture(f: Tensor, y: Tensor, precision: Tensor) -> Tensor:
    size = torch.log(torch.as_tensor(float(len(f)), dtype=f.dtype, device=f.device))
    exponents = torch.logsumexp(-0.5 * precision * (y - f).square(), 0)
    return exponents - size + 0.5 * torch.log(precision / (2 * torch.pi))


def best_precision(
    score: Callable[[Tensor], Tensor], between: tuple[float, float], splits: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """The precision of every split that makes the mean of `score` over its folds least, and that mean: (splits,) each.

    Args:
        score: One number for each fold's network, of one precision for each; lower is better.
        between: Where to look.
        splits: How many splits the networks are of, each with as many folds.
        like: Gives the device.
    """
    low, high = (like.new_full((splits,), end, dtype=torch.float64) for end in between)

    def objective(precision: Tensor) -> Tensor:
        values = score(precision)
        return values.view(splits, -1).mean(1)

    return minimise_on_log_scale(objective, low, high)


def each_fold(per_split: Tensor, networks: int) -> Tensor:
    """One value for each split, repeated for its networks."""
    return per_split.repeat_interleave(networks // len(per_split))


@dataclass(frozen=True, eq=False)
class Noise:
    """Precisions that cross-validation chose for every split, (splits,) each; without draws, none by the likelihood.

    Args:
        crps, pll: By CRPS, and by the likelihood of the mixture.
        constant_crps, constant_pll: The same for constant uncertainty about the same means.
        cv_crps: The CRPS that was reached.
    """

    crps: Tensor
    pll: Tensor | None
    constant_crps: Tensor
    constant_pll: Tensor | None
    cv_crps: Tensor

    @classmethod
    def chosen(cls, drawn: Drawn, between: tuple[float, float], splits: int) -> Noise:
        """By predictions for rows that the networks were not trained on."""
        count, constant = len(drawn.mean), drawn.constant()

        def search(score: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
            return best_precision(lambda p: score(each_fold(p, count)), between, splits, drawn.mean)

        precision, reached = search(drawn.crps)
        return cls(
            crps=precision,
            pll=None if drawn.f is None else search(lambda p: -drawn.pll(p))[0],
            constant_crps=search(constant.crps)[0],
            constant_pll=None if drawn.f is None else search(lambda p: -constant.pll(p))[0],
            cv_crps=reached,
        )


def scores(drawn: Drawn, noise: Noise) -> dict[str, Tensor]:
    """Test scores of networks, (E,) each, with the precisions of their splits.

    `pll` and `normalised_pll` use the precision chosen by CRPS, as the paper does; `pll_own` and `normalised_pll_own`
    one chosen by the likelihood, for the method and for constant uncertainty alike.
    """
    count, constant = len(drawn.mean), drawn.constant()
    by_crps, constant_crps = (each_fold(p, count) for p in (noise.crps, noise.constant_crps))
    crps, level, best = drawn.crps(by_crps), constant.crps(constant_crps), drawn.optimal_crps()
    found = {
        "rmse": drawn.rmse(),
        "crps": crps,
        "normalised_crps": _percent(crps, level, best),
        "coverage_95": drawn.coverage(by_crps),
        "precision": by_crps,
        "cv_crps": each_fold(noise.cv_crps, count),
    }
    if drawn.f is not None and noise.pll is not None and noise.constant_pll is not None:
        best = drawn.optimal_pll()
        pll, own = drawn.pll(by_crps), drawn.pll(each_fold(noise.pll, count))
        found |= {
            "pll": pll,
            "normalised_pll": _percent(pll, constant.pll(constant_crps), best),
            "pll_own": own,
            "normalised_pll_own": _percent(own, constant.pll(each_fold(noise.constant_pll, count)), best),
        }
    return found


def _percent(score: Tensor, constant: Tensor, optimal: Tensor) -> Tensor:
    return 100 * (score - constant) / (optimal - constant)
