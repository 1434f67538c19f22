"""Columns of predictions for decisions: quantiles, sets of classes with guaranteed coverage, and classes by cost.

**Sets of classes** are split conformal (Sadinle, Lei and Wasserman, 2019): a class is in the set of a row if its
probability is at least that of the true class in all but a share of the held-out rows. No network saw these rows. So if
new rows come from the same distribution, the set contains the true class with at least the requested probability, on
average over rows. After cross-validation of a small table the guarantee is approximate.

**Costs**: the predicted class has the lowest expected cost, if a row of class c that is predicted as another class
costs w(c). That is the class with the largest w(c) p(c).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import quoted
from ..words import format_number, format_percent, join_list
from .ending import UsageError
from .options import Task
from .run_folder import CONTENTS, read_json, unchanged

# Names of the costs of two classes: the positive class is the one that is rarer in training.
NEGATIVE, POSITIVE = "false-negative", "false-positive"

# Between the names in a set of classes.
SEPARATOR = " | "


@dataclass(frozen=True)
class Decisions:
    """What is added to the predictions of one target.

    Args:
        quantiles: Probabilities of the quantiles to add.
        weights: The cost of missing each class, in the order of the classes; None without costs.
        least: Smallest probability of a class in a set; None without sets.
    """

    quantiles: tuple[float, ...] = ()
    weights: tuple[float, ...] | None = None
    least: float | None = None

    def add(self, frame: Any, model: Any, inputs: Any, predictive: Any) -> None:
        """Add the columns to predictions.

        Args:
            frame: The predictions, from `tabular.prediction_frame`.
            model: The fitted estimator.
            inputs: The rows.
            predictive: Their predictive distributions.
        """
        for number, probability in enumerate(self.quantiles):
            place = frame.columns.get_loc("upper") + 1 + number
            frame.insert(place, f"q{probability:g}", _quantile(model, inputs, predictive, probability))
        if self.weights is None and self.least is None:
            return
        names = [str(label) for label in model.classes_]
        probs = frame[[f"p({name})" for name in names]].to_numpy()
        if self.weights is not None:
            frame["predicted"] = model.classes_[(probs * self.weights).argmax(1)]
        if self.least is not None:
            member = (probs >= self.least) | (probs == probs.max(1, keepdims=True))
            sets = [SEPARATOR.join(name for name, inside in zip(names, row, strict=True) if inside) for row in member]
            frame.insert(frame.columns.get_loc("predicted") + 1, "set", sets)


def _quantile(model: Any, inputs: Any, predictive: Any, probability: float) -> NDArray[np.float64]:
    """Return a quantile of every row: an end of the interval whose tail has this probability."""
    level = max(abs(2 * probability - 1), 1e-9)
    if model.conformal:
        lower, upper = model.predict_interval(inputs, level)
    else:
        lower, upper = (end[:, 0].numpy() for end in model.interval_of(predictive, level))
    return np.asarray(lower if probability < 0.5 else upper)


def read_quantiles(text: str | None) -> tuple[float, ...]:
    """Return the probabilities of an option such as 0.05,0.5,0.95."""
    if text is None:
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (math.nan,)
    if not all(0 < value < 1 for value in values):
        raise UsageError(f"--quantiles must be numbers between 0 and 1, such as 0.05,0.5,0.95, got {quoted(text)}.")
    return tuple(dict.fromkeys(values))


def read_costs(texts: Sequence[str] | None) -> dict[str, float]:
    """Return the costs of options such as false-negative=10."""
    costs = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            costs[name] = float(value)
        except ValueError:
            costs[name] = math.nan
        if not name or not 0 < costs[name] < math.inf:
            raise UsageError(f"--cost must be NAME=NUMBER with a positive number, got {quoted(text)}.")
    return costs


def decisions_for(
    runs: Sequence[tuple[Path, Mapping[str, Any]]],
    level: float,
    quantiles: tuple[float, ...],
    costs: Mapping[str, float],
    sets: bool,
) -> list[Decisions]:
    """Return what is added for each target, or raise an error for options that no target can use.

    Args:
        runs: The folder and the facts of each target.
        level: Probability that a set contains the true class.
        quantiles: Probabilities of quantiles.
        costs: Costs by name: of a class, "false-negative" or "false-positive".
        sets: Whether to add sets of classes.
    """
    classes = [facts["task"] == Task.classification for _, facts in runs]
    if quantiles and all(classes):
        raise UsageError("--quantiles needs a target of numbers, but this run predicts classes. Leave it out.")
    for option, given_option in (("--cost", bool(costs)), ("--sets", sets)):
        if given_option and not any(classes):
            raise UsageError(f"{option} needs a target of classes, but this run predicts numbers. Leave it out.")
    decisions = []
    for (folder, facts), is_class in zip(runs, classes, strict=True):
        if not is_class:
            decisions.append(Decisions(quantiles))
            continue
        test = read_json(unchanged(folder, facts, CONTENTS))["test"] if costs or sets else {}
        decisions.append(
            Decisions(
                weights=_weights(costs, test) if costs else None,
                least=least_probability(np.array(test["probs"]), np.array(test["y"]), level) if sets else None,
            )
        )
    return decisions


def least_probability(probs: NDArray[np.float64], y: NDArray[np.int64], level: float) -> float:
    """Return the smallest probability of a class in a set, from held-out rows and their true classes.

    Args:
        probs: Class probabilities (N, C).
        y: Class numbers (N,).
        level: Probability that a set contains the true class.
    """
    true = np.sort(probs[np.arange(len(y)), y])
    outside = math.floor((len(true) + 1) * (1 - level) + 1e-9)  # rows that may be outside their set
    return float(true[outside - 1]) if outside >= 1 else 0.0


def _weights(costs: Mapping[str, float], test: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the cost of missing each class; 1 for classes without a cost."""
    names = [str(name) for name in test["classes"]]
    aliases = {name: name for name in names}
    if len(names) == 2:
        positive = int(np.argmin(test["class_shares"]))
        aliases |= {NEGATIVE: names[positive], POSITIVE: names[1 - positive]}
    wrong = [name for name in costs if name not in aliases]
    if wrong:
        two = f", {NEGATIVE} or {POSITIVE}" if len(names) == 2 else ""
        raise UsageError(f"--cost: {quoted(wrong[0])} is no class. Use {', '.join(names[:20])}{two}.")
    weights = dict.fromkeys(names, 1.0) | {aliases[name]: cost for name, cost in costs.items()}
    return tuple(weights[name] for name in names)


def decision_words(decisions: Sequence[Decisions], runs: Sequence[tuple[Path, Mapping[str, Any]]]) -> list[str]:
    """Return sentences about the decisions: from which probability on a class is predicted."""
    lines = []
    for decision, (_, facts) in zip(decisions, runs, strict=True):
        if decision.weights is None:
            continue
        names, weights = [str(name) for name in facts["classes"]], decision.weights
        if len(names) == 2:
            costly = int(np.argmax(weights))
            least = weights[1 - costly] / sum(weights)
            lines.append(
                f"“{names[costly]}” is predicted from a probability of {format_percent(least, 1)} on (--cost)."
            )
        else:
            parts = [f"{name} {format_number(cost)}" for name, cost in zip(names, weights, strict=True) if cost != 1]
            lines.append(
                f"The class with the lowest expected cost is predicted (--cost: {join_list(parts)}; others 1)."
            )
    return lines
