"""The results of cross-validation: the settings that were tried and chosen, and the parts of the uncertainty.

`UncertaintyParts` splits the error on new rows into epistemic uncertainty and noise. Held-out scores depend only on the
sum of both, so they cannot determine the shares. Two measurements can:

- **Fewer rows.** Networks of the same setting trained on half of the rows have a larger error on the same held-out
  rows. The part of the squared error that more rows could remove (the excess) is assumed to fall as n^-g. The excess
  at n rows is then the difference of the errors at n / 2 and n rows, divided by 2^g - 1. g is fixed at 3/4: a model
  with a fixed number of parameters has g = 1, and networks that learn finer detail from more rows have a smaller g.
  Estimating g from a third number of rows was too noisy to help.
- **Other rows.** Members trained on other rows disagree on rows that neither of them saw. This disagreement is part of
  the excess of one network; the mean over members has almost none of it.

The epistemic variance of the model must equal the rest of the excess. The disagreement of the members provides part of
it. The samples of batch statistics are scaled to provide the remainder, and the rest of the error is noise. All numbers
are mean squared errors in units of the targets' variance (for classes, of probabilities).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor

from ..schema import either, later, listed, mapping, number, one_of, optional, record, text, whole, with_tuples
from .intervals import ConformalScores, OutOfFold
from .search_plan import Setting

# The excess falls as the number of rows to the power of -EXPONENT.
EXPONENT = 0.75

# Squared errors are clipped at this multiple of their median, so that a few outliers do not dominate.
FAR = 100.0

# Bounds of the effective batch size, relative to the training batch size.
SMALLEST, LARGEST = 1 / 64, 4096.0

_PARTS = record(
    rows=listed(whole(1), 1),
    errors=listed(number(0), 1),
    disagreement=number(0),
    excess=number(0),
    members=whole(1),
    asked=whole(1),
)


@dataclass(frozen=True)
class UncertaintyParts:
    """The parts of the uncertainty, estimated by cross-validation; see the module's docstring.

    Args:
        rows: Numbers of training rows, in ascending order.
        errors: Mean squared error of one network on held-out rows, for each number of rows.
        disagreement: Variance of members around their mean, on rows that none of them saw.
        excess: The part of the last error that more rows could remove.
        members: Number of networks in the model.
        asked: Number of members that predict each held-out row.
    """

    rows: tuple[int, ...]
    errors: tuple[float, ...]
    disagreement: float
    excess: float
    members: int
    asked: int

    @classmethod
    def estimate(
        cls, curve: dict[int, Tensor], disagreement: float, members: int, asked: int, *, bounded: bool = False
    ) -> Self:
        """Estimate the parts from squared errors of single networks on the same held-out rows.

        Args:
            curve: The squared errors, by number of training rows.
            disagreement, members, asked: See the class.
            bounded: Whether errors are bounded, as for probabilities, so that no clipping is needed.
        """
        rows = tuple(sorted(curve))
        bound = torch.tensor(torch.inf, dtype=torch.float64)
        if not bounded:
            bound = FAR * curve[rows[-1]].double().median().clamp_min(torch.finfo(torch.float64).tiny)
        errors = tuple(float(torch.minimum(curve[n].double(), bound).mean()) for n in rows)
        disagreement = min(disagreement, errors[-1])
        return cls(rows, errors, disagreement, max(_excess(rows, errors), disagreement), members, asked)

    @property
    def noise(self) -> float:
        """The part of the error that no number of rows could remove."""
        return max(self.errors[-1] - self.excess, 0.0)

    @property
    def error(self) -> float:
        """Mean squared error of the model on new rows; averaging over members removes most of their disagreement."""
        return self.errors[-1] - self.between

    @property
    def model_excess(self) -> float:
        """The part of the model's error that more rows could remove."""
        return max(self.excess - self.between, 0.0)

    @property
    def share(self) -> float:
        """The fraction of the model's squared error that more rows could remove."""
        return self.model_excess / self.error if self.error > 0 else 0.0

    @property
    def between(self) -> float:
        """Variance between the members of the model on new rows."""
        return self.disagreement * (1 - 1 / self.members)

    @property
    def left_to_samples(self) -> float:
        """Variance that samples of batch statistics must add to the variance between members."""
        return max(self.model_excess - self.between, 0.0)

    @property
    def shrinkage(self) -> float:
        """The error of the model divided by the error of the one member that predicts a held-out row.

        The factor is for errors, not for squared errors. It is 1 if two members predict each held-out row: more
        members gain little then, and on small tables, which have two, the model's error equals that of their mean.
        """
        if self.asked > 1:
            return 1.0
        error, better = self.errors[-1], self.error
        return math.sqrt(better / error) if 0 < better < error else 1.0

    def batch_size(self, training: int, variance: float) -> float:
        """Return the effective batch size at which the samples have the variance `left_to_samples`.

        Args:
            training: The training batch size.
            variance: Variance of the samples at the training batch size.
        """
        factor = variance / self.left_to_samples if self.left_to_samples > 0 else LARGEST
        return training * min(max(factor, SMALLEST), LARGEST)


def _excess(rows: tuple[int, ...], errors: tuple[float, ...]) -> float:
    """Return the part of the last error that more rows could remove."""
    if len(errors) < 2 or errors[-2] <= errors[-1]:
        return 0.0
    return min((errors[-2] - errors[-1]) / ((rows[-1] / rows[-2]) ** EXPONENT - 1), errors[-1])


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
_KIND = record(kind=text, weight=number(0, 1), score=number())
_CONFIG = record(
    score=one_of("crps", "nll"),
    noise=mapping(either(list, listed(number()), number())),
    effective_batch_size=optional(number(above=0)),
    folds=whole(),
    seconds=number(0),
    uncertainty=optional(_PARTS),
    settings=listed(_SETTING, 1),
    chosen=whole(),
    kinds=later(listed(_KIND)),
    error_bars=later(text),
)
"""The structure of `Selection.config()`."""


@dataclass(frozen=True)
class KindResult:
    """One kind of members of a model.

    Args:
        kind: "networks", "trees" or "linear".
        weight: Its weight in the model's predictions, from 0 to 1.
        score: Its score alone on held-out rows, at its best noise: CRPS in the units of the target, or NLL.
    """

    kind: str
    weight: float
    score: float


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of cross-validation.

    Args:
        score: The score that was compared, "crps" or "nll"; lower is better.
        settings: All settings that were tried.
        chosen: The setting with the lowest score.
        folds: Number of folds; 0 without cross-validation.
        effective_batch_size: The effective batch size M'; None for methods without one.
        noise: The noise of the likelihood: {"precision": ...} in the units of the target, {"scale": ...} on the
            predicted noise (with a "floor" in the units of the target, and "df" of heavy tails), or
            {"temperature": ...}.
        seconds: Duration of the whole fit.
        uncertainty: How much of the held-out error is epistemic, and how it falls with more rows; None without folds.
        kinds: The kinds of members with their weights and scores; empty if all members are networks.
        error_bars: Where the noise of a row comes from: "the same for all rows", "from the networks", "from the trees"
            or "from networks and trees". The one with the lowest CRPS on held-out rows is used. "" for classes, and if
            all members are networks.
        conformal: The conformal scores of each target; empty for classes, and in files saved with `conformal=False`.
        out_of_fold: Cross-validated predictions of the training rows; None without folds, and in a loaded model.
    """

    score: str
    settings: tuple[NetworkSetting, ...]
    chosen: NetworkSetting
    folds: int
    effective_batch_size: float | None
    noise: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    uncertainty: UncertaintyParts | None = None
    kinds: tuple[KindResult, ...] = ()
    error_bars: str = ""
    conformal: tuple[ConformalScores, ...] = field(default=(), repr=False)
    out_of_fold: OutOfFold | None = field(default=None, repr=False)

    def table(self) -> pd.DataFrame:
        """Return all settings with their scores as a data frame, best first."""
        frame = pd.DataFrame([asdict(setting) for setting in self.settings])
        return frame.sort_values("score", kind="stable", ignore_index=True)

    def config(self) -> dict[str, Any]:
        """Return the selection as JSON values, without predictions."""
        names = ("score", "noise", "effective_batch_size", "folds", "seconds", "error_bars")
        fields = {name: getattr(self, name) for name in names} | {"kinds": [asdict(kind) for kind in self.kinds]}
        settings = [
            {name: None if value != value else value for name, value in asdict(s).items()} for s in self.settings
        ]  # NaN is not a JSON value
        parts = None if self.uncertainty is None else asdict(self.uncertainty)
        return {**fields, "uncertainty": parts, "settings": settings, "chosen": self.settings.index(self.chosen)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the selection from the JSON values of `config()`."""
        _CONFIG(config, "selection")
        whole(0, len(config["settings"]) - 1)(config["chosen"], "selection.chosen")
        records: list[dict[str, Any]] = [with_tuples(fields) for fields in config["settings"]]
        for fields in records:
            fields |= {name: math.nan for name in ("score", "point_score") if fields[name] is None}
        settings = tuple(NetworkSetting(**fields) for fields in records)
        parts = config["uncertainty"] and UncertaintyParts(**with_tuples(config["uncertainty"]))
        noise, chosen = with_tuples(config["noise"]), settings[config["chosen"]]
        kinds = tuple(KindResult(**fields) for fields in config.get("kinds", ()))
        return cls(
            **config | {"settings": settings, "chosen": chosen, "noise": noise, "uncertainty": parts, "kinds": kinds}
        )
