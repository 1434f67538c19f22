"""The results of cross-validation: the settings that were tried and chosen, and the held-out predictions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..predictive import Predictive
from ..schema import anything, either, listed, mapping, number, one_of, optional, record, text, whole
from .conformal import ConformalScores
from .search_plan import Setting
from .uncertainty_parts import UncertaintyParts


@dataclass(frozen=True)
class NetworkSetting(Setting):
    """A setting with its score on held-out rows.

    Args:
        encoding, hidden, dropout_rate, weight_decay, batch_size: See `Setting`.
        epochs: The best number of epochs.
        point_score: Score of single networks without noise: RMSE in the units of the target, or NLL; NaN if it was not
            computed.
        score: Score of single networks at the best noise: CRPS in the units of the target, or NLL.
    """

    epochs: int
    point_score: float
    score: float


_SETTING = record(
    encoding=text,
    hidden=listed(whole(1, 2**16), 1, 64),
    dropout_rate=number(0, 1),
    weight_decay=number(0),
    batch_size=whole(1),
    epochs=whole(),
    point_score=optional(number()),
    score=optional(number()),
)
_CONFIG = record(
    score=one_of("crps", "nll"),
    noise=mapping(either(list, listed(number()), number())),
    effective_batch_size=optional(number(above=0)),
    folds=whole(),
    seconds=number(0),
    uncertainty=anything,  # `UncertaintyParts` checks it
    settings=listed(_SETTING, 1),
    chosen=whole(),
)
"""The structure of `Selection.config()`."""


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Cross-validated predictions of the training rows, with the uncertainty of the whole model.

    No member predicts a row that it was trained on. The noise (a factor, a floor and heavy tails) was chosen on these
    rows.

    Args:
        rows: Row numbers in X, without rows of weight 0.
        fold: The fold in which each row was held out.
        target: Targets in their own units, (rows, outputs), or class numbers, (rows,).
        weight: Weight of each row, with mean 1; None for equal weights.
        predictive: The predictive distributions, in the order of `rows`.
    """

    rows: NDArray[np.int64]
    fold: NDArray[np.int64]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None
    predictive: Predictive


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of cross-validation.

    Args:
        score: The score that was compared, "crps" or "nll"; lower is better.
        settings: All settings that were tried.
        chosen: The setting with the lowest score.
        noise: The noise of the likelihood: {"precision": ...} in the units of the target, {"scale": ...} on the
            predicted noise (with a "floor" in the units of the target, and "df" of heavy tails), or
            {"temperature": ...}.
        effective_batch_size: The effective batch size M'; None for methods without one.
        folds: Number of folds; 0 without cross-validation.
        seconds: Duration of the whole fit.
        uncertainty: How much of the held-out error is epistemic, and how it falls with more rows; None without folds.
        conformal: The conformal scores of each target; empty for classes, and in files saved with `conformal=False`.
        out_of_fold: Cross-validated predictions of the training rows; None without folds, and in a loaded model.
    """

    score: str
    settings: tuple[NetworkSetting, ...]
    chosen: NetworkSetting
    noise: dict[str, Any]
    effective_batch_size: float | None
    folds: int
    seconds: float
    uncertainty: UncertaintyParts | None = None
    conformal: tuple[ConformalScores, ...] = field(default=(), repr=False)
    out_of_fold: OutOfFold | None = field(default=None, repr=False)

    def table(self) -> pd.DataFrame:
        """Return all settings with their scores as a data frame, best first."""
        frame = pd.DataFrame([asdict(setting) for setting in self.settings])
        return frame.sort_values("score", kind="stable", ignore_index=True)

    def config(self) -> dict[str, Any]:
        """Return the selection as JSON values, without predictions."""
        fields = {name: getattr(self, name) for name in ("score", "noise", "effective_batch_size", "folds", "seconds")}
        settings = [{name: _as_json(value) for name, value in asdict(s).items()} for s in self.settings]
        uncertainty = None if self.uncertainty is None else self.uncertainty.config()
        return {**fields, "uncertainty": uncertainty, "settings": settings, "chosen": self.settings.index(self.chosen)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Selection:
        """Return the selection from the JSON values of `config()`."""
        _CONFIG(config, "selection")
        whole(0, len(config["settings"]) - 1)(config["chosen"], "selection.chosen")
        fields = dict(config)
        settings = tuple(
            NetworkSetting(**{name: _with_nan(name, value) for name, value in each.items()})
            for each in fields.pop("settings")
        )
        noise = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.pop("noise").items()}
        uncertainty = fields.pop("uncertainty")
        parts = None if uncertainty is None else UncertaintyParts.from_config(uncertainty)
        return cls(settings=settings, chosen=settings[fields.pop("chosen")], noise=noise, uncertainty=parts, **fields)


def _as_json(value: Any) -> Any:
    """Return a JSON value: None for NaN, and lists for tuples."""
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and np.isnan(value) else value


def _with_nan(name: str, value: Any) -> Any:
    """Return the original of a value of `config()`; only scores can be NaN."""
    if isinstance(value, list):
        return tuple(value)
    return float("nan") if value is None and name in ("point_score", "score") else value
