"""Build the report of a run, and the summary on the command line, from a model and its held-out rows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import VARIANCE_FLOOR, constant_variance
from ..words import format_count, format_number, format_percent
from .baselines import fit_baselines
from .held_out import LEVEL, HeldOutPredictions
from .measured_influence import measure_influence
from .options import METHOD_DESCRIPTIONS, Task, UncertaintyMethod
from .run_folder import json_value
from .training_table import TrainingTable

if TYPE_CHECKING:
    from ..report import Provenance, Report
    from ..tabular import column_types

# Largest and smallest number of rows whose uncertainty is explained, and the number of cells that limits it.
MOST_EXPLAINED, LEAST_EXPLAINED, MOST_CELLS = 50, 5, 1000


# Errors of the latest rows are larger if they exceed those of cross-validation by this share and this many standard
# errors.
LEAST_SHIFT, CLEAR_SHIFT = 0.1, 2.0


@dataclass(frozen=True)
class RunReport:
    """The contents of a report, and its summary on the command line.

    Args:
        content: The contents of the HTML page.
        scores: Scores of the model on held-out rows, by name.
        chosen: The settings that cross-validation chose, by name.
        summary: The lines that the command line prints, by name.
    """

    content: Report
    scores: dict[str, float | None]
    chosen: dict[str, Any]
    summary: dict[str, str]


def make_report(
    model: Any,
    table: TrainingTable,
    train: NDArray[np.int64],
    predictions: HeldOutPredictions,
    *,
    file: str,
    target: str,
    provenance: Provenance,
) -> RunReport:
    """Return the report of a model, and its summary.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        table: The table.
        train: Numbers of the training rows.
        predictions: Predictions of rows that the model was not trained on.
        file: Name of the table's file.
        target: Name of the target.
        provenance: Versions, hardware, date, command and seconds.
    """
    from ..report import HeldOutRows, Report, Table, advice, leak_words, more_rows_words, verdicts
    from ..tabular import dates

    inputs = table.inputs.apply(
        lambda column: dates.days(column.to_numpy()) if table.kinds[column.name] == "date" else column
    )
    columns = tuple(
        _column(name, kind, inputs[name].iloc[train].dropna().to_numpy(), int(inputs[name].isna().sum()))
        for name, kind in table.kinds.items()
    )
    choice, chosen = _choice(model)
    test, rows = predictions.rows, predictions.frame
    report = Report(
        table=Table(
            file=file,
            rows=len(table.y),
            train_rows=len(train),
            validation_rows=0,
            columns=columns,
            target=_column(target, "category" if table.task is Task.classification else "number", table.y[train]),
            cross_validated=predictions.cross_validated,
        ),
        rows=HeldOutRows(
            names=tuple(inputs.columns),
            values=[[_cell(value) for value in row] for row in inputs.iloc[test].itertuples(index=False, name=None)],
            numbers=[int(number) for number in inputs.index[test]],
            reasons=rows["reason"].tolist(),
        ),
        test=_test(model, table, train, predictions),
        choice=choice,
        provenance=provenance,
        method=_method_words(model),
        warnings=table.warnings,
        leaks=table.leaks,
        reasons=_reasons(model, table.inputs.iloc[test], rows),
    )
    unit = 1.0 if table.task is Task.classification else float(np.var(table.y[train]))
    baselines = fit_baselines(model, table.inputs, table.y, table.task, train, test)
    shift = None if table.time is None else _shift(model, report.test)
    influence = measure_influence(model, table.inputs.iloc[test], table.y[test], table.task, target, dict(table.kinds))
    curve = _curve(model, report.test, unit)
    report = replace(report, curve=curve, baselines=baselines, shift=shift, influence=influence)
    all_scores = asdict(report.test.scores()["model"])
    scores = {name: None if value is None or math.isnan(value) else value for name, value in all_scores.items()}
    first = {"possible leak": leak_words(table.leaks, target)} if table.leaks else {}
    summary = first | _summary(table, train, predictions, scores, provenance.seconds or 0.0)
    answers = verdicts(report)
    summary |= {
        verdict.question: f"{verdict.word}. {verdict.headline} Next: {verdict.next_step}" for verdict in answers
    }
    if report.curve is not None:
        summary["Would more rows help?"] = more_rows_words(report)
    if not table.leaks:
        summary["overall"] = advice(answers)[1]
    return RunReport(report, scores, chosen, summary)


def _column(name: str, kind: column_types.Kind, values: NDArray[Any], missing: int = 0) -> Any:
    """Return the report's description of a column, from its values in the training rows."""
    from ..report import Column

    if kind == "category":
        return Column(name, "category", categories=tuple(str(value) for value in np.unique(values)), missing=missing)
    assert kind in ("number", "date")
    if not len(values):
        return Column(name, kind, missing=missing)
    return Column(name, kind, float(values.min()), float(np.median(values)), float(values.max()), missing=missing)


def _test(model: Any, table: TrainingTable, train: NDArray[np.int64], predictions: HeldOutPredictions) -> Any:
    """Return predictions and targets of the held-out rows, with the data for baseline scores."""
    from ..report import ClassificationTest, RegressionTest

    test, predictive, rows, y = predictions.rows, predictions.predictive, predictions.frame, table.y
    unusual = None if predictions.cross_validated else rows["unusual"].to_numpy()
    if table.task is Task.classification:
        numbers = np.searchsorted(model.classes_, y)
        names = [str(label) for label in model.classes_]
        return ClassificationTest.from_predictive(
            predictive, numbers[test], classes=names, train_y=numbers[train], unusual=unusual
        )
    out_of_fold = model.selection_.out_of_fold
    floor = VARIANCE_FLOOR * float(np.var(y[train]))
    constant = constant_variance(out_of_fold.predictive.mean, out_of_fold.target.reshape(-1, 1), floor=floor)
    result = RegressionTest.from_predictive(
        predictive,
        y[test].reshape(-1, 1),
        train_y=y[train],
        constant_variance=float(constant),
        level=LEVEL,
        # The report tests the same calibrated intervals that `bayesnorm predict` writes.
        interval=(rows["lower"], rows["upper"]),
        unusual=unusual,
    )
    assert predictions.pit is not None
    return replace(result, pit=predictions.pit(result.pit[:, None])[:, 0])


def _method_words(model: Any) -> str:
    """Return one or two sentences about the method and the networks of a model."""
    members, hidden = len(getattr(model.posterior_, "members", (None,))), model.selection_.chosen.hidden
    networks = (
        "One network"
        if members == 1
        else format_count(members, "network") + ", each trained on a different part of the rows"
    )
    layers = f"hidden layers of {', '.join(map(str, hidden))} units"
    return f"{METHOD_DESCRIPTIONS[UncertaintyMethod(model.method)]}. {networks}, with {layers}."


def _curve(model: Any, test: Any, variance: float) -> Any:
    """Return the learning curve; None if no network was trained on fewer rows.

    Args:
        model: A fitted estimator.
        test: Its predictions for the report's rows.
        variance: Variance of the training targets, the unit of the stored errors; 1 for classes.
    """
    from ..report import LearningCurve, RegressionTest
    from ..tabular import EXPONENT

    parts, scores = model.selection_.uncertainty, test.scores()
    if parts is None or len(parts.rows) < 2:
        return None
    errors, share = tuple(variance * error for error in parts.errors), min(max(parts.share, 0.0), 1.0)
    if isinstance(test, RegressionTest):
        error, guess = (scores[name].rmse ** 2 for name in ("model", "training_mean"))
        return LearningCurve(parts.rows, errors, error, share, EXPONENT, guess, "RMSE")
    error, guess = (scores[name].brier for name in ("model", "class_shares"))
    return LearningCurve(parts.rows, errors, error, share, EXPONENT, guess, "Brier")


def _shift(model: Any, test: Any) -> Any:
    """Return how much larger the errors of the latest rows are than those of cross-validation; None if not clearly.

    Args:
        model: A fitted estimator.
        test: Its predictions for the latest rows.
    """
    from ..report import ErrorShift, RegressionTest

    held_out = model.selection_.out_of_fold
    if isinstance(test, RegressionTest):
        before = np.square(held_out.predictive.mean.numpy() - held_out.target)[:, 0]
        after, measure, power = np.square(test.y - test.mean), "typical error", 0.5
    else:
        rows = np.arange(len(held_out.target))
        before = -np.log(np.clip(model.proba_of(held_out.predictive)[rows, held_out.target], 1e-300, None))
        after, measure, power = test.nll_points(), "negative log likelihood", 1.0
    spread = math.sqrt(before.var() / len(before) + after.var() / len(after))
    least = (1 + LEAST_SHIFT) ** (1 / power) * before.mean()
    if after.mean() - before.mean() <= CLEAR_SHIFT * spread or after.mean() < least:
        return None
    return ErrorShift(float(before.mean()) ** power, float(after.mean()) ** power, measure)


def _reasons(model: Any, inputs: Any, frame: Any) -> Any:
    """Return which columns cause the uncertainty of the rows with the largest epistemic uncertainty.

    Args:
        model: A fitted estimator.
        inputs: The held-out rows.
        frame: Their predictions, from `tabular.prediction_frame`.
    """
    from ..report import RowReasons, UncertaintyReasons

    part = "mutual_information" if hasattr(model, "classes_") else "epistemic_std"
    most = max(LEAST_EXPLAINED, min(MOST_EXPLAINED, MOST_CELLS // inputs.shape[1]))
    order = np.argsort(-frame[part].to_numpy(), kind="stable")[:most]
    explanation = model.explain_uncertainty(inputs.iloc[order])
    first = explanation.overall()["first"]
    words, shares = explanation.words(2), explanation.shares.to_numpy()
    rows = [
        RowReasons(int(row), float(total), explanation.baseline, tuple(row_shares.tolist()), text)
        for row, total, row_shares, text in zip(order, explanation.total, shares, words, strict=True)
    ]
    return UncertaintyReasons(len(order), first[first > 0].to_dict(), tuple(rows[:LEAST_EXPLAINED]))


def _choice(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the settings that were tried, and the chosen values by name."""
    from ..report import Choice, TriedSetting

    selection = model.selection_
    tried = [setting for setting in selection.settings if np.isfinite(setting.score)]
    words = [
        TriedSetting(
            {
                "numbers": setting.encoding,
                "hidden layers": "-".join(map(str, setting.hidden)),
                "dropout rate": setting.dropout_rate,
                "weight decay": setting.weight_decay,
                "batch size": setting.batch_size,
                "epochs": setting.epochs,
            },
            score=setting.score,
        )
        for setting in tried
    ]
    also: dict[str, Any] = {name: json_value(value) for name, value in selection.noise.items()}
    if selection.effective_batch_size is not None:
        also["effective batch size"] = float(selection.effective_batch_size)
    place = tried.index(selection.chosen) if selection.chosen in tried else 0
    choice = Choice(
        settings=tuple(words),
        chosen=place,
        score={"crps": "mean CRPS", "nll": "mean negative log likelihood"}[selection.score],
        better="lower",
        folds=selection.folds,
        seconds=selection.seconds,
        also=also,
    )
    return choice, {**(dict(words[place].values) if words else {}), **also}


def _summary(
    table: TrainingTable,
    train: NDArray[np.int64],
    predictions: HeldOutPredictions,
    scores: dict[str, Any],
    seconds: float,
) -> dict[str, str]:
    """Return the scores as lines of text, by name."""
    rows = (
        "each held out once in cross-validation"
        if predictions.cross_validated
        else f"{len(predictions.rows):,} held out"
    )
    lines = {"rows": f"{len(train):,} for training, {rows}", "task": str(table.task)}
    if table.left_out:
        lines["left out"] = ", ".join(f"{name} ({reason})" for name, reason in table.left_out.items())
    if table.task is Task.regression:
        share, r2 = scores["normalised_crps"], scores["r2"]
        explained = "" if r2 is None else f", explains {'none' if r2 < 0 else format_percent(r2)} of the variance"
        lines |= {
            "error (RMSE)": format_number(scores["rmse"]) + explained,
            "error with uncertainty (CRPS)": format_number(scores["crps"]),
            "uncertainty skill": "unknown"
            if share is None
            else f"{round(share)} %  (0 % = one constant error bar, 100 % = the ideal error bar for every row)",
            f"{100 * LEVEL:.0f} % intervals": f"contain {100 * scores['coverage']:.0f} % of the held-out targets",
        }
    else:
        lines |= {
            "accuracy": f"{100 * scores['accuracy']:.1f} % of the held-out rows",
            "negative log likelihood": format_number(scores["nll"]),
            "calibration error (ECE)": f"{100 * scores['ece']:.1f} %",
        }
    return {**lines, "time": f"{seconds:.0f} s"}


def _cell(value: Any) -> Any:
    """Return a cell of the table as a JSON value, or None if it is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    return json_value(value)
