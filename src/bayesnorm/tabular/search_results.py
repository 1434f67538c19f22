"""What was chosen for a table, and from what."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..predictive import Predictive
from ..schema import either, listed, mapping, number, one_of, optional, record, whole


@dataclass(frozen=True)
class NetworkSetting:
    """A way of training, scored on held-out rows.

    Args:
        batch_size: M, rows per training step.
        weight_decay: lambda in lambda/2 |W|^2 over weight matrices, beside a loss in nats (classes) or half the squared
            error of standardised targets.
        dropout_rate: Share of units that networks with dropout drop, else None.
        epochs: Number of epochs at the full learning rate that was best.
        point_score: Score of the network without doubt: RMSE in the target's units, or NLL; NaN where it was not looked
            at.
        score: Score with its doubt, at the best noise and effective batch size for it: CRPS in the target's units, or
            NLL.
    """

    batch_size: int
    weight_decay: float
    dropout_rate: float | None
    epochs: int
    point_score: float
    score: float


_SETTING = record(
    batch_size=whole(1),
    weight_decay=number(0),
    dropout_rate=optional(number(0, 1)),
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
    settings=listed(_SETTING, 1),
    chosen=whole(),
)
"""What `Selection.config()` consists of."""


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Predictions for every training row by a network that did not learn from it, at what was chosen.

    Noise and effective batch size, two numbers, were chosen on these rows together.

    Args:
        rows: Row numbers in X, those without weight left out.
        fold: Which fold each row was held out in.
        target: Targets in their own units, (rows, outputs), or class numbers, (rows,).
        weight: Weight of each row, with mean 1; None where all count the same.
        predictive: The predictive distributions, in the order of `rows`.
    """

    rows: NDArray[np.int64]
    fold: NDArray[np.int64]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None
    predictive: Predictive


@dataclass(frozen=True, eq=False)
class Selection:
    """What was chosen, and from what.

    Args:
        score: "crps" or "nll": what was compared, lower is better.
        settings: All settings that were looked at.
        chosen: The setting with the lowest score.
        noise: What the likelihood says of the noise: {"precision": ...} in the target's units, {"scale": ...} on
            predicted noise, or {"temperature": ...}.
        effective_batch_size: M', or None for methods that have none.
        folds: Number of folds; 0 where nothing was left to choose.
        seconds: Time that the whole fit took.
        out_of_fold: Honest predictions for the training rows; None without folds, and in a model read from a file.
    """

    score: str
    settings: tuple[NetworkSetting, ...]
    chosen: NetworkSetting
    noise: dict[str, Any]
    effective_batch_size: float | None
    folds: int
    seconds: float
    out_of_fold: OutOfFold | None = field(default=None, repr=False)

    def table(self) -> pd.DataFrame:
        """Return all settings as a data frame, best first."""
        frame = pd.DataFrame([asdict(setting) for setting in self.settings])
        return frame.sort_values("score", kind="stable", ignore_index=True)

    def config(self) -> dict[str, Any]:
        """Return the selection as plain JSON values, without predictions."""
        fields = {name: getattr(self, name) for name in ("score", "noise", "effective_batch_size", "folds", "seconds")}
        settings = [{name: _without_nan(value) for name, value in asdict(s).items()} for s in self.settings]
        return {**fields, "settings": settings, "chosen": self.settings.index(self.chosen)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Selection:
        """Return the selection that `config()` described."""
        _CONFIG(config, "selection")
        whole(0, len(config["settings"]) - 1)(config["chosen"], "selection.chosen")
        fields = dict(config)
        settings = tuple(
            NetworkSetting(**{name: _with_nan(name, value) for name, value in each.items()})
            for each in fields.pop("settings")
        )
        noise = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.pop("noise").items()}
        return cls(settings=settings, chosen=settings[fields.pop("chosen")], noise=noise, **fields)


def _without_nan(value: Any) -> Any:
    """Return a value with None for NaN, which JSON does not have."""
    return None if value is not None and np.isnan(value) else value


def _with_nan(name: str, value: Any) -> Any:
    """Return a value of `config()` as it was: only scores can have been NaN."""
    return float("nan") if value is None and name in ("point_score", "score") else value
