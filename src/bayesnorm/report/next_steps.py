"""What to do next: for better predictions, with error bars that are not honest, and which rows to check first.

"Collect more rows" is never the advice if a shift over time or a better model explains the error.
"""

from __future__ import annotations

import numpy as np

from ..words import capitalise, format_count, format_number, join_list
from .classification import ClassificationTest
from .contents import Baseline, Report
from .gains import CLEAR, standard_errors_from_zero
from .page_plots import LearningCurve
from .regression import Array, RegressionTest
from .verdict import FEW, MOST_NAMED, Verdict

# Rows that a sentence names at most: those to be checked first, and those where the model is least certain.
MOST_CHECKED, MOST_UNCERTAIN = 5, 3

# If more than this share of the held-out rows is unusual, that is the main problem.
MOST_UNUSUAL = 0.5

# A simple model is better only if its score is lower by more than this share.
LEAST_BETTER = 0.03

# From this AUC, the probabilities of a class rank its rows well enough for another threshold.
USEFUL_AUC = 0.7

NOTHING = "Nothing is needed."


def better_baseline(report: Report) -> tuple[Baseline, float, float] | None:
    """Return the best of the simple models that are clearly better on the same rows, its error and the model's.

    Errors are CRPS or NLL, the scores that count predictions and uncertainty together. If a column reveals the target,
    no comparison means anything.
    """
    if report.leaks:
        return None
    test = report.test
    best: tuple[Baseline, float, float] | None = None
    for baseline in report.baselines:
        ours, theirs = _errors(test, baseline)
        better = float(theirs.mean()) < (1 - LEAST_BETTER) * float(ours.mean())
        if (
            better
            and standard_errors_from_zero(ours - theirs) > CLEAR
            and (best is None or float(theirs.mean()) < best[1])
        ):
            best = (baseline, float(theirs.mean()), float(ours.mean()))
    return best


def _errors(test: RegressionTest | ClassificationTest, baseline: Baseline) -> tuple[Array, Array]:
    """Return the errors of every row, of the model and of a simple model."""
    if isinstance(test, ClassificationTest):
        return test.nll_points(), test.nll_points(baseline.predictions)
    return test.crps_points(), test.crps_points_of(baseline.predictions, baseline.std or 0.0)


def other_cause(report: Report) -> str:
    """Say what explains the error better than the number of rows; "" if nothing does."""
    if report.shift is not None:
        shift = report.shift
        return (
            f"The held-out rows are the latest, and their {shift.measure} is {format_number(shift.after, 3)}. In "
            f"cross-validation on the earlier rows it is {format_number(shift.before, 3)}. So the data changed over "
            "time."
        )
    if (better := better_baseline(report)) is not None:
        baseline, theirs, ours = better
        score = "negative log likelihood" if isinstance(report.test, ClassificationTest) else "CRPS"
        return (
            f"{capitalise(baseline.name)} is better on the same rows: its {score} is {format_number(theirs, 3)}, that "
            f"of this model {format_number(ours, 3)}."
        )
    return ""


def _cause_step(report: Report) -> str:
    """Say what to do about the other cause of the error."""
    if report.shift is not None:
        return "Fit again when new rows come in. More rows of the past would not help."
    return "Use that model where you need only predictions. More rows are not the first thing to try."


def prediction_step(verdict: Verdict, report: Report) -> str:
    """Say how to get better predictions."""
    test, target = report.test, report.table.target.name
    cause = other_cause(report)
    curve = report.curve
    if isinstance(test, ClassificationTest) and (missed := test.never_found()):
        return _missed_step(test, list(missed), cause)
    if verdict.grade == "good":
        if cause:
            return f"{NOTHING} But note: {cause}"
        if curve is None or not curve.helps:
            return NOTHING
        return f"{NOTHING} But {twice_words(curve)}."
    if len(test) < FEW:
        return f"First collect more rows with a known {target}."
    if cause:
        return f"{cause} {_cause_step(report)}"
    if curve is not None:
        if curve.helps:
            return (
                f"Collect more rows. {capitalise(twice_words(curve))}. Columns that are related to {target} may also "
                "help."
            )
        return f"Add columns that are related to {target}. More rows like these would hardly help."
    if verdict.grade == "poor":
        return f"Add columns that are related to {target}. More rows may also help."
    return f"Add columns that are related to {target}, or collect more rows."


def _missed_step(test: ClassificationTest, missed: list[str], cause: str) -> str:
    """Say what to do about classes of which no row is predicted correctly."""
    ranked = [name for name in missed if (test.auc_of(name) or 0.0) >= USEFUL_AUC]
    if ranked:
        name = ranked[0]
        return (
            f"Use p({name}) rather than the predicted class: it ranks rows of “{name}” with an AUC of "
            f"{test.auc_of(name):.2f}. To find more of these rows, give `bayesnorm predict` the option "
            "--cost, with what a missed row costs."
        )
    if cause:
        return cause
    names = [f"“{name}”" for name in missed]
    if len(names) > MOST_NAMED:
        names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more classes"]
    return f"Collect more rows of {join_list(names)}, or add columns that separate them from the other rows."


def honesty_step(verdict: Verdict, report: Report) -> str:
    """Say how far to trust error bars or probabilities, and how to check them."""
    test, target = report.test, report.table.target.name
    if verdict.grade == "good":
        return NOTHING
    if verdict.grade == "poor" and test.unusual is not None and test.unusual.mean() > MOST_UNUSUAL:
        return (
            f"{int(test.unusual.sum()):,} of {format_count(len(test), 'held-out row')} are unusual compared with the "
            "training rows, which no model can foresee. Fit again when new rows come in, and do not trust rows that "
            "`bayesnorm predict` marks as unusual."
        )
    if verdict.grade == "poor":
        regression = isinstance(test, RegressionTest)
        named = "error bars" if regression else "probabilities"
        if report.shift is not None:
            return f"Do not use its {named}. {other_cause(report)} {_cause_step(report)}"
        if regression and "--conformal" not in report.provenance.command:
            return (
                f"Do not use its {named}. Fit again with --conformal: its intervals have guaranteed coverage if new "
                "rows are like the training rows."
            )
        return f"Do not use its {named}. Check whether the held-out rows are like the training rows."
    return f"Check it on {FEW} or more rows with a known {target}."


def usefulness_step(verdict: Verdict, report: Report) -> str:
    """Say which rows to check first, or why the uncertainty does not show it."""
    classes = isinstance(report.test, ClassificationTest)
    if verdict.grade == "good":
        rows = _numbers(report, report.test.uncertainty, MOST_CHECKED)
        return f"Check rows {join_list(rows)} first: they are the most uncertain."
    if len(report.test) < FEW:
        return f"Collect more rows: {format_count(len(report.test), 'held-out row')} cannot show it."
    if verdict.grade == "poor":
        by = "uncertainty" if classes else "error bars"
        return f"Do not sort rows by their {by}. Columns that separate easy rows from hard ones might help."
    if verdict.short == "A little":
        return f"Use the {'uncertainty' if classes else 'error bars'} of single rows only as a rough guide."
    return "Treat all predictions as about equally uncertain until you have more data."


def more_rows_words(report: Report) -> str:
    """Say whether more rows would help this kind of model, from what was measured; "" without a learning curve."""
    curve = report.curve
    if curve is None:
        return ""
    first, last = (format_number(curve.shown(error), 3) for error in (curve.errors[0], curve.errors[-1]))
    measured = (
        f"Single networks had a {_error_words(curve)} of {first} with {curve.rows[0]:,} training rows, and of {last} "
        f"with {curve.rows[-1]:,}."
    )
    if cause := other_cause(report):
        return f"{measured} {cause} {_cause_step(report)}"
    if not curve.helps:
        return f"{measured} So more rows like these would hardly help this kind of model. Other columns might help."
    part = report.test.epistemic_std if isinstance(report.test, RegressionTest) else report.test.mutual_information
    rows = _numbers(report, report.test.uncertainty if part is None else part, MOST_UNCERTAIN)
    four = format_number(curve.at(4), 2)
    return (
        f"{measured} {capitalise(twice_words(curve))}, and four times as many to about {four}. The model is least "
        f"certain about rows similar to {join_list(rows)}."
    )


def twice_words(curve: LearningCurve) -> str:
    """Begin a sentence about twice as many rows."""
    now, then = (format_number(curve.at(times), 2) for times in (1, 2))
    if now == then:
        now, then = (format_number(curve.at(times), 3) for times in (1, 2))
    return (
        f"if this trend continues, twice as many rows like these would lower the {_error_words(curve)} from {now} to "
        f"about {then}"
    )


def _error_words(curve: LearningCurve) -> str:
    return "typical error" if curve.measure == "RMSE" else "squared error (Brier)"


def _numbers(report: Report, uncertainty: Array, most: int) -> list[str]:
    """Return the numbers of the most uncertain test rows as text."""
    order = np.argsort(-uncertainty, kind="stable")[:most]
    return [str(report.rows.numbers[at]) for at in order]
