"""The table of scores, for the model and for simple baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..metrics import ece
from .classification import ClassificationScores, ClassificationTest
from .regression import RegressionScores, RegressionTest
from .words import column_of_numbers, fraction, number, percent

# Number of times that labels are sampled from the probabilities of the model, to compute the ECE by chance.
REPEATS = 100


@dataclass(frozen=True)
class ScoreTable:
    """The table of scores, as texts.

    Args:
        names: Names of the columns: the model first, then the baselines.
        rows: For every score its name, what it means, and one text per column.
        note: Sentences that explain the baselines.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]
    note: str


def score_table(test: RegressionTest | ClassificationTest) -> ScoreTable:
    """Return the table of all scores on the test rows."""
    return _regression(test) if isinstance(test, RegressionTest) else _classification(test)


def _regression(test: RegressionTest) -> ScoreTable:
    scores = list(test.scores().values())
    level = percent(test.level)
    r2 = ["–" if score.r2 != score.r2 else fraction(score.r2, 3) for score in scores]
    shares = [score.normalised_crps for score in scores]
    percents = ["–" if share is None else f"{fraction(share, 1)} %" for share in shares]
    held = [percent(score.coverage, 1) for score in scores]
    skill = "0 % is one constant error bar, 100 % the ideal error bar for every row; higher is better"
    return ScoreTable(
        ("This model", "Constant error bar", "Average"),
        (
            ("RMSE", "typical error, in the units of the target; lower is better", _texts(scores, "rmse")),
            ("R²", "share of the variation explained; 1 is best", tuple(r2)),
            (
                "CRPS",
                "error that counts prediction and error bar together, in the units of the target; lower is better",
                _texts(scores, "crps"),
            ),
            ("Uncertainty skill", skill, tuple(percents)),
            ("PLL", "predictive log likelihood per row, in nats; higher is better", _texts(scores, "pll")),
            (f"{level} coverage", f"share of targets inside their intervals; {level} is ideal", tuple(held)),
        ),
        "Constant error bar: the same predictions, with one error bar for all rows, chosen on validation rows. "
        "Average: the average of the training rows as the answer for every row, with their standard deviation as error "
        "bar. Uncertainty skill is the normalised CRPS.",
    )


def _classification(test: ClassificationTest) -> ScoreTable:
    scores = list(test.scores().values())
    right = [percent(score.accuracy, 1) for score in scores]
    gap = (
        "expected calibration error: mean gap between confidence and accuracy, 0 to 1; lower is better. "
        f"Honest probabilities would score about {number(ece_by_chance(test), 2)} here by chance"
    )
    return ScoreTable(
        ("This model", "Class frequencies"),
        (
            ("Accuracy", "share of rows that are right; higher is better", tuple(right)),
            ("NLL", "negative log likelihood of the true class, in nats; lower is better", _texts(scores, "nll")),
            ("Brier", "squared error of the probabilities, 0 to 2; lower is better", _texts(scores, "brier")),
            ("ECE", gap, _texts(scores, "ece")),
        ),
        "Class frequencies: the shares of the classes in the training rows, as probabilities for every row.",
    )


def _texts(scores: Sequence[RegressionScores | ClassificationScores], name: str) -> tuple[str, ...]:
    """Write one score of all columns, with the decimals that the model needs."""
    values = [getattr(score, name) for score in scores]
    return tuple(column_of_numbers(values, like=values[:1]))


def ece_by_chance(test: ClassificationTest) -> float:
    """Return the mean ECE of the model if labels were sampled from its probabilities."""
    generator = np.random.default_rng(0)
    predictive = test.predictive()
    edges = test.probs.cumsum(1)
    drawn = generator.random((REPEATS, len(test), 1)) * edges[None, :, -1:]
    found = []
    for repeat in drawn:
        labels = torch.from_numpy((repeat > edges).sum(1))
        found.append(float(ece(predictive, labels)))
    return float(np.mean(found))
