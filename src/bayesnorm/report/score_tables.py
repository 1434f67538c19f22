"""The table of scores: the model beside simple baselines on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..words import capitalise, format_column, format_decimals, format_number, format_percent, join_list, truncate
from .classification import ClassificationScores, ClassificationTest
from .contents import Report
from .regression import RegressionScores, RegressionTest

# Most characters of the name of a class.
LONGEST = 30


def score_table(report: Report) -> ScoreTable:
    """Return the table of scores of a report."""
    test = report.test
    return _regression_table(report, test) if isinstance(test, RegressionTest) else _classification_table(report, test)


class ScoreTable(NamedTuple):
    """The table of scores, as texts.

    Args:
        names: Names of the columns: the model first, then the baselines.
        rows: For every score its name, what it means, and one text per column.
        note: Sentences that explain the baselines.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, str, Sequence[str]], ...]
    note: str


def _regression_table(report: Report, test: RegressionTest) -> ScoreTable:
    others = [test.scores_of(baseline.predictions, baseline.std or 0.0) for baseline in report.baselines]
    scores, level = [*test.scores().values(), *others], format_percent(test.level)
    both = "error that counts prediction and error bar together, in the units of the target; lower is better"
    skill = "0 % is one constant error bar, 100 % the ideal error bar for every row; higher is better"
    r2 = ["–" if score.r2 != score.r2 else format_decimals(score.r2, 3) for score in scores]
    shares = [score.normalised_crps for score in scores]
    percents = ["–" if share is None else f"{format_decimals(share, 1)} %" for share in shares]
    coverage = [format_percent(score.coverage, 1) for score in scores]
    return ScoreTable(
        ("This model", "Constant error bar", "Average", *_names(report)),
        (
            ("RMSE", "typical error, in the units of the target; lower is better", _texts(scores, "rmse")),
            ("R²", "share of the variation explained; 1 is best", r2),
            ("CRPS", both, _texts(scores, "crps")),
            ("Uncertainty skill", skill, percents),
            ("PLL", "predictive log likelihood per row, in nats; higher is better", _texts(scores, "pll")),
            (f"{level} coverage", f"share of targets inside their intervals; {level} is ideal", coverage),
        ),
        "Constant error bar: the same predictions, with one error bar for all rows, chosen on validation rows. "
        "Average: the average of the training rows as the answer for every row, with their standard deviation as error "
        f"bar. Uncertainty skill is the normalised CRPS.{_note(report)}",
    )


def _classification_table(report: Report, test: ClassificationTest) -> ScoreTable:
    others = [test.scores_of(baseline.predictions) for baseline in report.baselines]
    scores = [*test.scores().values(), *others]
    right = [format_percent(score.accuracy, 1) for score in scores]
    gap = (
        "expected calibration error: mean gap between confidence and accuracy, 0 to 1; lower is better. "
        f"Honest probabilities would score about {format_number(test.ece_by_chance(), 2)} here by chance"
    )
    return ScoreTable(
        ("This model", "Class frequencies", *_names(report)),
        (
            ("Accuracy", "share of rows that are right; higher is better", right),
            ("NLL", "negative log likelihood of the true class, in nats; lower is better", _texts(scores, "nll")),
            ("AUC", _auc_meaning(test, "area under the ROC curve; 0.5 is chance, 1 is best"), _texts(scores, "auc")),
            (
                "Average precision",
                _auc_meaning(test, "area under the precision-recall curve; 1 is best"),
                _texts(scores, "precision"),
            ),
            ("Brier", "squared error of the probabilities, 0 to 2; lower is better", _texts(scores, "brier")),
            ("ECE", gap, _texts(scores, "ece")),
        ),
        "Class frequencies: the shares of the classes in the training rows, as probabilities for every row."
        f"{_note(report)}",
    )


def _names(report: Report) -> list[str]:
    """Return the names of simple models as heads of columns."""
    return [capitalise(baseline.name.removeprefix("a ")) for baseline in report.baselines]


def _note(report: Report) -> str:
    """Say how the simple models were made."""
    if not report.baselines:
        return ""
    return (
        f" {join_list(_names(report))}: simple models of scikit-learn with default settings, trained on the same rows"
        + (", with one error bar for all rows." if isinstance(report.test, RegressionTest) else ".")
    )


def _auc_meaning(test: ClassificationTest, meaning: str) -> str:
    """Say which classes a score of the ranking is about."""
    if len(test.classes) == 2:
        return f"for “{truncate(test.classes[int(test.class_shares.argmin())], LONGEST)}”: {meaning}"
    return f"mean over the classes: {meaning}"


def _texts(scores: Sequence[RegressionScores | ClassificationScores], name: str) -> list[str]:
    """Write one score of all columns, with the decimals that the model needs."""
    values = [getattr(score, name) for score in scores]
    return ["–"] * len(values) if None in values else format_column(values, like=values[:1])
