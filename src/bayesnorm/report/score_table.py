"""The table of the model's scores, beside those of guesses that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..metrics import ece
from .classification import ClassificationScores, ClassificationTest
from .regression import RegressionScores, RegressionTest
from .words import column_of_numbers, number, percent

# Number of times that labels are drawn from the model's probabilities, to see what chance makes of the ECE.
REPEATS = 100


@dataclass(frozen=True)
class ScoreTable:
    """The table of scores, as texts.

    Args:
        names: Names of those that are scored, the model first.
        rows: For every score its name, what it means, and one text for each of those names.
        note: A sentence that says who the others are.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]
    note: str


def score_table(test: RegressionTest | ClassificationTest) -> ScoreTable:
    """Make the table of all scores of the test rows."""
    return _regression(test) if isinstance(test, RegressionTest) else _classification(test)


def _regression(test: RegressionTest) -> ScoreTable:
    scores = list(test.scores().values())
    level = percent(test.level)
    r2 = ["–" if score.r2 != score.r2 else f"{round(score.r2, 3) + 0.0:.3f}".replace("-", "−") for score in scores]
    shares = [score.normalised_crps for score in scores]
    percents = ["–" if share is None else f"{share:.1f} %".replace("-", "−") for share in shares]
    held = [percent(score.coverage, 1) for score in scores]
    way = "0 % is one error bar for all rows, 100 % perfect uncertainty; higher is better"
    return ScoreTable(
        ("This model", "One error bar", "Average"),
        (
            ("RMSE", "typical error, in units of the target; lower is better", _texts(scores, "rmse")),
            ("R²", "share of the variation explained; 1 is best", tuple(r2)),
            ("CRPS", "error and uncertainty in one, in units of the target; lower is better", _texts(scores, "crps")),
            ("Normalised CRPS", way, tuple(percents)),
            ("PLL", "log likelihood per row, in nats; higher is better", _texts(scores, "pll")),
            (f"{level} coverage", f"share of targets within their intervals; {level} is right", tuple(held)),
        ),
        "One error bar: the same predictions with one error bar for all rows, found on validation rows. "
        "Average: always the average of the training rows, with their spread as error bar.",
    )


def _classification(test: ClassificationTest) -> ScoreTable:
    scores = list(test.scores().values())
    right = [percent(score.accuracy, 1) for score in scores]
    gap = (
        "mean gap between confidence and accuracy, 0 to 1; lower is better. "
        f"Honest probabilities like the model’s would score about {number(ece_by_chance(test), 2)} here"
    )
    return ScoreTable(
        ("This model", "Guess"),
        (
            ("Accuracy", "share of rows that are right; higher is better", tuple(right)),
            ("NLL", "surprise at the true class, in nats; lower is better", _texts(scores, "nll")),
            ("Brier", "squared distance from the true class, 0 to 2; lower is better", _texts(scores, "brier")),
            ("ECE", gap, _texts(scores, "ece")),
        ),
        "Guess: the classes’ shares in the training rows, as probabilities for every row.",
    )


def _texts(scores: Sequence[RegressionScores | ClassificationScores], name: str) -> tuple[str, ...]:
    """Write one score of all, with as many decimals as the model's needs."""
    values = [getattr(score, name) for score in scores]
    return tuple(column_of_numbers(values, like=values[:1]))


def ece_by_chance(test: ClassificationTest) -> float:
    """Return the mean ECE that the model's probabilities would get if labels really came with them."""
    generator = np.random.default_rng(0)
    predictive = test.predictive()
    edges = test.probs.cumsum(1)
    drawn = generator.random((REPEATS, len(test), 1)) * edges[None, :, -1:]
    found = []
    for repeat in drawn:
        labels = torch.from_numpy((repeat > edges).sum(1))
        found.append(float(ece(predictive, labels)))
    return float(np.mean(found))
