"""An estimator as one module of torch, from the columns of a table to predictions: what a file of ONNX contains.

Numbers are doubles, NaN if missing. Categories are numbers, which `category_number` gives: their place, -1 for another
category, -2 for a missing one. Dates are seconds since 1970 as doubles, NaN if missing. Columns become features in
double precision, as `encoded_columns.py` does it, and the networks run in single precision. Only the common mean of the
targets is added in double precision, because large numbers would lose their digits otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..engines import MonteCarlo
from ..errors import BayesNormError
from ..export import MixtureInterval, as_module, read_outputs
from ..predictive import NormalNoise, RegressionPredictive
from ..words import DAY
from .encoded_columns import LARGEST, LINEAR, WEEKDAYS, CategoricalColumn, DateColumn, NumericColumn
from .intervals import LEVELS, WIDEST
from .model_file import posterior_from, posterior_parts
from .pool_module import as_pool_module
from .preprocessing import Preprocessing, TableColumn

# The names of outputs, and those that `as_module` gives them.
REGRESSION = {
    "mean": "predictive_mean",
    "std": "predictive_std",
    "lower": "lower",
    "upper": "upper",
    "epistemic_std": "epistemic_std",
    "aleatoric_std": "aleatoric_std",
}
CLASSES = {"probs": "probs", "entropy": "entropy", "mutual_information": "mutual_information"}

ANOTHER, MISSING = -1, -2
"""The numbers of categories without a feature of their own, and of missing ones."""

# The first day of a calendar whose years begin in March, in days before 1970, and the days of its periods: 400 years,
# 100 years, 4 years and one year.
MARCH_DAYS, CENTURIES, CENTURY, LEAP, YEAR = 719_468, 146_097, 36_524, 1_460, 365

Encode = Callable[[Tensor], list[Tensor]]


class TableModule(nn.Module):
    """The predictions of an estimator for the columns of a table.

    Args:
        estimator: A fitted estimator with one target.
        level: The probability of the intervals.
    """

    def __init__(self, estimator: Any, level: float) -> None:
        super().__init__()
        preprocessing: Preprocessing = estimator.preprocessing_
        self.is_classifier = hasattr(estimator, "classes_")
        self._encode = [_encoder(column) for column in preprocessing.columns]
        used = range(len(preprocessing.mean)) if preprocessing.used is None else preprocessing.used
        self._used = None if preprocessing.used is None else list(used)
        self.register_buffer("feature_mean", torch.from_numpy(preprocessing.mean.copy()))
        self.register_buffer("feature_std", torch.from_numpy(preprocessing.std.copy()))
        names, own_level = CLASSES if self.is_classifier else REGRESSION, 0.95
        shift = 0.0
        tensors, config = posterior_parts(estimator.posterior_)
        if not self.is_classifier:
            if estimator.n_outputs_ > 1 or estimator.conformal:
                what = "several targets" if estimator.n_outputs_ > 1 else "conformal intervals"
                raise BayesNormError(
                    f"An estimator with {what} cannot be exported. Fit one with a single target and conformal=False."
                )
            if estimator.interval_levels_ is not None:
                level = float(np.interp(level, LEVELS, estimator.interval_levels_.levels[0]))
            own_level = float(np.clip(level, 1e-9, WIDEST))
            means = [tensor for name, tensor in tensors.items() if name.endswith("network.y_mean")]
            shift = float(torch.stack([mean[0] for mean in means]).mean())
            for mean in means:
                mean[0] -= shift
        self._shift = shift
        single = posterior_from(tensors, config, estimator.method, estimator.selection_.chosen).to("cpu", torch.float32)
        example = torch.randn(4, preprocessing.inputs, generator=torch.Generator().manual_seed(0))
        self.body = as_module(
            single,
            example,
            engine=MonteCarlo(estimator._samples),
            seed=estimator.seed_,
            outputs=list(names.values()),
            level=own_level,
        )
        self.names, self._inner = tuple(names), names
        self._pool, self._likelihood = None, single.likelihood
        if estimator.pool_ is not None:
            self._pool = as_pool_module(estimator.pool_, shift)
            noise = estimator.pool_.combination.noise
            self._interval = MixtureInterval(own_level, NormalNoise() if noise is None else noise.family)

    def features(self, columns: Sequence[Tensor]) -> Tensor:
        """Return the inputs of the networks."""
        parts = [part for encode, column in zip(self._encode, columns, strict=True) for part in encode(column)]
        features = torch.stack(parts, 1) if parts else torch.zeros_like(columns[0], dtype=torch.float64)[:, None]
        features = (features - self.feature_mean) / self.feature_std
        if self._used is not None:
            features = features[:, self._used] if self._used else torch.zeros_like(features[:, :1])
        return features

    def forward(self, *columns: Tensor) -> dict[str, Tensor]:
        """Return the predictions by name: numbers of each row, or probabilities (rows, classes)."""
        features = self.features(columns)
        if self._pool is None:
            values = self.body(features.float())
        else:

            def networks() -> Any:
                return self._likelihood.predictive(self.body.outputs(features.float()))

            predictive: Any = self._pool.predictive(networks, features)
            if not self.is_classifier:
                single = predictive.loc.float(), predictive.scale.float()
                predictive = RegressionPredictive(*single, noise=predictive.noise)
            values = read_outputs(predictive, tuple(self._inner.values()), lambda _: self._interval)
        results = {}
        for name, inner in self._inner.items():
            value = values[inner].double()
            value = value if self.is_classifier else value[:, 0]
            results[name] = value + self._shift if name in ("mean", "lower", "upper") else value
        return results

    feature_mean: Tensor
    feature_std: Tensor


def category_numbers(column: CategoricalColumn) -> dict[str, int]:
    """Return the numbers of the categories of a column; "" is a missing one, and all others have number `ANOTHER`."""
    return {"": MISSING, **{category: place for place, category in enumerate(column.categories)}}


def _encoder(column: TableColumn) -> Encode:
    """Return a function from the values of a column to its features."""
    if isinstance(column, NumericColumn):
        return lambda values: _number_features(column, values)
    if isinstance(column, CategoricalColumn):
        return lambda values: _category_features(column, values)
    return lambda values: _date_features(column, values)


def _number_features(column: NumericColumn, values: Tensor) -> list[Tensor]:
    absent = values.isnan()
    features = []
    if column.centre is not None and column.scale > 0:
        numbers = torch.where(absent, column.centre, values).clamp(-LARGEST, LARGEST)
        z = (numbers - column.centre) / column.scale
        over = (z.abs() - LINEAR).clamp(0, LARGEST)
        features.append(z.clamp(-LINEAR, LINEAR) + z.sign() * (1 + over).log())
    return features + [absent.double()] * (len(column.features) - len(features))


def _category_features(column: CategoricalColumn, numbers: Tensor) -> list[Tensor]:
    if not column.features:
        return []
    wanted = [*range(len(column.categories)), *[ANOTHER] * bool(column.rare), *[MISSING] * column.missing]
    return [(numbers == number).double() for number in wanted]


def _date_features(column: DateColumn, seconds: Tensor) -> list[Tensor]:
    absent = seconds.isnan()
    present = (~absent).double()
    seconds = torch.where(absent, 0.0, seconds)
    days = (seconds / DAY).floor()
    features = _number_features(column.trend, torch.where(absent, torch.nan, seconds / DAY))
    parts = []
    if column.year:
        before, length = _place_in_year(days)
        parts += _circle((before + seconds / DAY - days) / length)
    if column.day:
        parts += _circle(seconds / DAY - days)
    if column.weekdays is not None:
        weekday = days - (days / 7).floor() * 7
        numbers = {name: number for number, name in enumerate(column.weekdays.categories)}
        codes = torch.full_like(days, ANOTHER)
        for number, name in enumerate(WEEKDAYS):
            codes = torch.where(weekday == number, float(numbers.get(name, ANOTHER)), codes)
        parts += _category_features(column.weekdays, codes)
    return features + [part * present for part in parts]


def _place_in_year(days: Tensor) -> tuple[Tensor, Tensor]:
    """Return for days since 1970 how many days of their year are before them, and how many days the year has."""
    shifted = days + MARCH_DAYS
    period = (shifted / CENTURIES).floor()
    rest = shifted - period * CENTURIES
    leap_days = (rest / LEAP).floor() - (rest / CENTURY).floor() + (rest / (CENTURIES - 1)).floor()
    year_of_period = ((rest - leap_days) / YEAR).floor()
    begun = YEAR * year_of_period + (year_of_period / 4).floor() - (year_of_period / 100).floor()
    since_march = rest - begun
    # January and February, days 306 and later, belong to the next calendar year.
    late = since_march >= 306
    year = period * 400 + year_of_period + late.double()
    is_leap = (_divides(year, 4) & ~_divides(year, 100)) | _divides(year, 400)
    before = torch.where(late, since_march - 306, since_march + 59 + is_leap.double())
    return before, YEAR + is_leap.double()


def _divides(year: Tensor, divisor: int) -> Tensor:
    return year == (year / divisor).floor() * divisor


def _circle(place: Tensor) -> list[Tensor]:
    """Return the sine and cosine of positions from 0 to 1 on a circle."""
    angle = (2 * np.pi * place).float()  # runtimes have no trigonometry in double precision
    return [angle.sin().double(), angle.cos().double()]
