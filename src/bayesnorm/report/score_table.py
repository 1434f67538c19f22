"""The table of the model's scores, beside those of guesses that need no model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from ..metrics import ece
from .classification import ClassificationTest
from .regression import RegressionTest
from .words import column_of_numbers, number, percent

REPEATS = 100
"""Number of times that labels are drawn from the model's probabilities, to see what chance makes of the ECE."""


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
    everyone = list(test.scores().values())
    level = percent(test.level)
    shares = [score.normalised_crps for score in everyone]
    return ScoreTable(
        ("This model", "One error bar", "Average"),
        (
            (
                "RMSE",
                "typical error, in units of the target; lower is better",
                _texts(score.rmse for score in everyone),
            ),
            (
                "R²",
                "share of the variation explained; 1 is best",
                tuple("–" if score.r2 != score.r2 else f"{score.r2:.3f}".replace("-", "−") for score in everyone),
            ),
            (
                "CRPS",
                "error and doubt in one, in units of the target; lower is better",
                _texts(score.crps for score in everyone),
            ),
            (
                "Normalised CRPS",
                "0 % is one error bar for all rows, 100 % perfect doubt; higher is better",
                tuple("–" if share is None else f"{share:.1f} %".replace("-", "−") for share in shares),
            ),
            (
                "PLL",
                "log likelihood per row, in nats; higher is better",
                _texts(score.pll for score in everyone),
            ),
            (
                f"{level} coverage",
                f"share of targets within their intervals; {level} is right",
                tuple(percent(score.coverage, 1) for score in everyone),
            ),
        ),
        "One error bar: the same predictions with one error bar for all rows, found on validation rows. "
        "Average: always the average of the training rows, with their spread as error bar.",
    )


def _classification(test: ClassificationTest) -> ScoreTable:
    everyone = list(test.scores().values())
    return ScoreTable(
        ("This model", "Guess"),
        (
            (
                "Accuracy",
                "share of rows that are right; higher is better",
                tuple(percent(score.accuracy, 1) for score in everyone),
            ),
            (
                "NLL",
                "surprise at the true class, in nats; lower is better",
                _texts(score.nll for score in everyone),
            ),
            (
                "Brier",
                "squared distance from the true class, 0 to 2; lower is better",
                _texts(score.brier for score in everyone),
            ),
            (
                "ECE",
                "mean gap between confidence and accuracy, 0 to 1; lower is better. "
                f"Honest probabilities like the model’s would score about {number(ece_by_chance(test), 2)} here",
                _texts(score.ece for score in everyone),
            ),
        ),
        "Guess: the classes’ shares in the training rows, as probabilities for every row.",
    )


def _texts(values: Iterable[float]) -> tuple[str, ...]:
    """Write the scores of all, with as many decimals as the model's needs."""
    given = list(values)
    return tuple(column_of_numbers(given, like=given[:1]))


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
