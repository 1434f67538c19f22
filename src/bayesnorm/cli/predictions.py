"""Predictions for rows of a table, as columns."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .tables import pandas

# Digits of a prediction's uncertainty that are written, and those that say all there is to a number.
DIGITS, ALL_DIGITS = 4, 17


def predict_rows(model: Any, inputs: Any, level: float) -> Any:
    """Return predictions for a table, as `rows_of` has them."""
    predictive, uncertainty = model.predict_with_uncertainty(inputs)
    return rows_of(model, inputs, predictive, uncertainty, level)


def rows_of(model: Any, inputs: Any, predictive: Any, uncertainty: Any, level: float, levels: Any = None) -> Any:
    """Return a data frame with the prediction of each row.

    Regression: `mean`, `std`, `lower`, `upper`, `epistemic_std`, `aleatoric_std`; classification: `predicted`, a column
    `p(...)` for each class, `entropy`, `mutual_information`. Both: `row`, its number in the file, `unlike`, whether it
    is unlike the rows of training, and `why`.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        inputs: Data frame of numbers and text, with its rows numbered as in their file.
        predictive, uncertainty: What `model.predict_with_uncertainty` said of them.
        level: Probability of the interval from `lower` to `upper`.
        levels: What makes intervals; None for the model's own way, in which an end may be infinite where they come with
            a guarantee.
    """
    pd = pandas()
    found: dict[str, Any] = {"row": np.asarray(inputs.index)}
    if hasattr(model, "classes_"):
        probs = model.proba_of(predictive)
        found["predicted"] = model.classes_[probs.argmax(1)]
        for number, label in enumerate(model.classes_):
            found[f"p({label})"] = probs[:, number]
    else:
        found |= {"mean": predictive.mean[:, 0].numpy(), "std": predictive.std[:, 0].numpy()}
        if model.conformal and levels is None:
            found["lower"], found["upper"] = model.predict_interval(inputs, level)
        else:
            lower, upper = (model.interval_of if levels is None else levels.interval)(predictive, level)
            found |= {"lower": lower[:, 0].numpy(), "upper": upper[:, 0].numpy()}
    for name in uncertainty.columns.drop("unseen_columns"):
        found[name] = uncertainty[name].to_numpy()
    return pd.DataFrame(found)


def without_end(frame: Any) -> int:
    """Count the rows of `rows_of` whose interval has no lower or no upper end."""
    return int(np.isinf(frame[["lower", "upper"]].to_numpy()).any(1).sum()) if "lower" in frame else 0


def no_end_words(endless: int, rows: int, level: float) -> str:
    """Say that intervals with a guarantee have no end, and what would give them one."""
    return (
        f"{endless:,} of {rows:,} intervals have no end: so few training rows guarantee no {100 * level:g} %; a lower "
        "--level would have one, or more rows."
    )


def reasons_in(why: Iterable[str]) -> Counter[str]:
    """Count the reasons why rows are unlike those of training, from their `why`."""
    return Counter(part for told in why if told for part in told.split("; "))


def readable(frame: Any, digits: int) -> Any:
    """Return predictions of `rows_of` without digits that mean nothing.

    Numbers keep the decimals of the first digits of their row's `std`, and never less than whole numbers;
    probabilities, and what is made of them, so many decimals.

    Args:
        frame: What `rows_of` returned.
        digits: Number of digits; `ALL_DIGITS` leaves all of them.
    """
    if digits == ALL_DIGITS:
        return frame
    if "std" in frame:
        std = frame["std"].to_numpy()
        with np.errstate(divide="ignore"):
            places = digits - 1 - np.floor(np.log10(np.where(std > 0, std, 1.0)))
    else:
        places = np.full(len(frame), float(digits))
    # Beyond that a factor is no whole number of its own, nor has any double so many digits.
    factor = 10.0 ** np.clip(places, 0, 22)
    numbers = [name for name in frame if frame[name].dtype.kind == "f"]
    with np.errstate(over="ignore"):
        rounded = {name: np.round(frame[name].to_numpy(np.float64) * factor) / factor + 0.0 for name in numbers}
    kept = {name: np.where(np.isfinite(own), own, frame[name]) for name, own in rounded.items()}
    return frame.assign(**kept)


def with_columns(frame: Any, before: Any, after: Any) -> Any:
    """Return predictions with columns of the table beside them; a name that both have is marked in the table's.

    Args:
        frame: Predictions, whose first column is `row`.
        before: Columns that stand before them, such as ids.
        after: Columns that stand after them.
    """
    taken = {*frame.columns}
    named = []
    for given in (before, after):
        names = {}
        for name in given.columns:
            names[name] = next(each for each in _marked(name) if each not in taken)
            taken.add(names[name])
        named.append(given.rename(columns=names).reset_index(drop=True))
    rest = frame.reset_index(drop=True)
    return pandas().concat([rest[["row"]], named[0], rest.drop(columns="row"), named[1]], axis=1)


def _marked(name: str) -> Iterator[str]:
    """Give a name, and then names that say that it is the table's."""
    yield name
    for number in itertools.count(1):
        yield f"{name} (table{'' if number == 1 else f' {number}'})"


def side_by_side(targets: Mapping[str, Any]) -> Any:
    """Return predictions of several targets in one data frame, with one verdict on each row.

    Args:
        targets: What `rows_of` said of the same rows, by target.
    """
    frames = list(targets.values())
    if len(frames) == 1:
        return frames[0]
    found = {"row": frames[0]["row"]}
    for target, frame in targets.items():
        found |= {f"{target} {name}": frame[name] for name in frame.columns.drop(["row", "unusual", "reason"])}
    # Training rows are the same but for those without one of the targets.
    why = np.select([frame["reason"].to_numpy(object) != "" for frame in frames], [frame["reason"] for frame in frames], "")
    return pandas().DataFrame({**found, "unusual": why != "", "reason": why})
