"""Build the report of a run, and the summary on the command line, from a model and its held-out rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import VARIANCE_FLOOR, constant_variance
from .judging import LEVEL, Judged
from .report_json import json_value
from .task import Task
from .training_table import TrainingTable
from .uncertainty_method import UncertaintyMethod

if TYPE_CHECKING:
    from ..report import Report
    from ..tabular.column_types import Kind

# Largest and smallest number of rows whose uncertainty is explained, and the number of cells that limits it.
MOST_EXPLAINED, LEAST_EXPLAINED, MOST_CELLS = 50, 5, 1000


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
    loaded: TrainingTable,
    train: NDArray[np.int64],
    judged: Judged,
    *,
    file: str,
    target: str,
    provenance: Mapping[str, Any],
) -> RunReport:
    """Return the report of a model, and its summary.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        loaded: The table.
        train: Numbers of the training rows.
        judged: Predictions of rows that the model was not trained on.
        file: Name of the table's file.
        target: Name of the target.
        provenance: Versions, hardware, date, command and seconds.
    """
    from ..report import HeldOutRows, Provenance, Report, Table, advice, leak_words, more_rows_words, verdicts
    from ..tabular.dates import days

    inputs = loaded.inputs.apply(
        lambda column: days(column.to_numpy()) if loaded.kinds[column.name] == "date" else column
    )
    columns = tuple(
        _column(name, kind, inputs[name].iloc[train].dropna().to_numpy(), int(inputs[name].isna().sum()))
        for name, kind in loaded.kinds.items()
    )
    choice, chosen = _choice(model)
    test, rows = judged.rows, judged.frame
    report = Report(
        table=Table(
            file=file,
            rows=len(loaded.y),
            train_rows=len(train),
            validation_rows=0,
            columns=columns,
            target=_column(target, "category" if loaded.task is Task.classification else "number", loaded.y[train]),
            cross_validated=judged.cross_validated,
        ),
        rows=HeldOutRows(
            names=tuple(inputs.columns),
            values=[[_cell(value) for value in row] for row in inputs.iloc[test].itertuples(index=False, name=None)],
            numbers=[int(number) for number in inputs.index[test]],
            reasons=rows["reason"].tolist(),
        ),
        test=_test(model, loaded, train, judged),
        choice=choice,
        provenance=Provenance(**provenance),
        method=_method_words(model),
        warnings=loaded.warnings,
        leaks=loaded.leaks,
        reasons=_reasons(model, loaded.inputs.iloc[test], rows),
    )
    unit = 1.0 if loaded.task is Task.classification else float(np.var(loaded.y[train]))
    report = replace(report, curve=_curve(model, report.test, unit))
    found = asdict(report.test.scores()["model"])
    scores = {name: None if value is None or math.isnan(value) else value for name, value in found.items()}
    first = {"possible leak": leak_words(loaded.leaks, target)} if loaded.leaks else {}
    summary = first | _summary(loaded, train, judged, scores, float(provenance["seconds"]))
    found_verdicts = verdicts(report)
    summary |= {each.question: f"{each.word}. {each.headline} Next: {each.next_step}" for each in found_verdicts}
    if report.curve is not None:
        summary["Would more rows help?"] = more_rows_words(report)
    if not loaded.leaks:
        summary["overall"] = advice(found_verdicts)[1]
    return RunReport(report, scores, chosen, summary)


def _column(name: str, kind: Kind, seen: NDArray[Any], missing: int = 0) -> Any:
    """Return the report's description of a column, from its values in the training rows."""
    from ..report import Column

    if kind == "category":
        return Column(name, "category", categories=tuple(str(value) for value in np.unique(seen)), missing=missing)
    assert kind in ("number", "date")
    if not len(seen):
        return Column(name, kind, missing=missing)
    return Column(name, kind, float(seen.min()), float(np.median(seen)), float(seen.max()), missing=missing)


def _test(model: Any, loaded: TrainingTable, train: NDArray[np.int64], judged: Judged) -> Any:
    """Return predictions and targets of the held-out rows, with the data for baseline scores."""
    from ..report import ClassificationTest, RegressionTest

    test, predictive, rows, y = judged.rows, judged.predictive, judged.frame, loaded.y
    unusual = None if judged.cross_validated else rows["unusual"].to_numpy()
    if loaded.task is Task.classification:
        numbers = np.searchsorted(model.classes_, y)
        names = [str(label) for label in model.classes_]
        return ClassificationTest.from_predictive(
            predictive, numbers[test], classes=names, train_y=numbers[train], unusual=unusual
        )
    honest = model.selection_.out_of_fold
    floor = VARIANCE_FLOOR * float(np.var(y[train]))
    constant = constant_variance(honest.predictive.mean, honest.target.reshape(-1, 1), floor=floor)
    own = RegressionTest.from_predictive(
        predictive,
        y[test].reshape(-1, 1),
        train_y=y[train],
        constant_variance=float(constant),
        level=LEVEL,
        # The report tests the same calibrated intervals that `bayesnorm predict` writes.
        interval=(rows["lower"], rows["upper"]),
        unusual=unusual,
    )
    assert judged.pit is not None
    return replace(own, pit=judged.pit(own.pit[:, None])[:, 0])


def _method_words(model: Any) -> str:
    """Return one or two sentences about the method and the networks of a model."""
    from ..report.words import count

    members, hidden = len(getattr(model.posterior_, "members", (None,))), model.selection_.chosen.hidden
    networks = (
        "One network" if members == 1 else count(members, "network") + ", each trained on a different part of the rows"
    )
    layers = f"hidden layers of {', '.join(map(str, hidden))} units"
    return f"{UncertaintyMethod(model.method).words}. {networks}, with {layers}."


def _curve(model: Any, test: Any, variance: float) -> Any:
    """Return the learning curve; None if no network was trained on fewer rows.

    Args:
        model: A fitted estimator.
        test: Its predictions for the report's rows.
        variance: Variance of the training targets, the unit of the stored errors; 1 for classes.
    """
    from ..report import LearningCurve, RegressionTest
    from ..tabular.uncertainty_parts import EXPONENT

    parts, scores = model.selection_.uncertainty, test.scores()
    if parts is None or len(parts.rows) < 2:
        return None
    errors, share = tuple(variance * error for error in parts.errors), min(max(parts.share, 0.0), 1.0)
    if isinstance(test, RegressionTest):
        error, guess = (scores[name].rmse ** 2 for name in ("model", "training_mean"))
        return LearningCurve(parts.rows, errors, error, share, EXPONENT, guess, "RMSE")
    error, guess = (scores[name].brier for name in ("model", "class_shares"))
    return LearningCurve(parts.rows, errors, error, share, EXPONENT, guess, "Brier")


def _reasons(model: Any, inputs: Any, frame: Any) -> Any:
    """Return which columns cause the uncertainty of the rows with the largest epistemic uncertainty.

    Args:
        model: A fitted estimator.
        inputs: The held-out rows.
        frame: Their predictions, from `rows_of`.
    """
    from ..report import RowReasons, UncertaintyReasons

    part = "mutual_information" if hasattr(model, "classes_") else "epistemic_std"
    most = max(LEAST_EXPLAINED, min(MOST_EXPLAINED, MOST_CELLS // inputs.shape[1]))
    order = np.argsort(-frame[part].to_numpy(), kind="stable")[:most]
    found = model.explain_uncertainty(inputs.iloc[order])
    first = found.overall()["first"]
    words, shares = found.words(2), found.shares.to_numpy()
    rows = [
        RowReasons(int(at), float(total), found.baseline, tuple(own.tolist()), told)
        for at, total, own, told in zip(order, found.total, shares, words, strict=True)
    ]
    return UncertaintyReasons(len(order), first[first > 0].to_dict(), tuple(rows[:LEAST_EXPLAINED]))


def _choice(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the settings that were tried, and the chosen values by name."""
    from ..report import Choice, TriedSetting

    found = model.selection_
    tried = [setting for setting in found.settings if np.isfinite(setting.score)]
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
    also: dict[str, Any] = {name: json_value(value) for name, value in found.noise.items()}
    if found.effective_batch_size is not None:
        also["effective batch size"] = float(found.effective_batch_size)
    place = tried.index(found.chosen) if found.chosen in tried else 0
    choice = Choice(
        settings=tuple(words),
        chosen=place,
        score={"crps": "mean CRPS", "nll": "mean negative log likelihood"}[found.score],
        better="lower",
        folds=found.folds,
        seconds=found.seconds,
        also=also,
    )
    return choice, {**(dict(words[place].values) if words else {}), **also}


def _summary(
    loaded: TrainingTable, train: NDArray[np.int64], judged: Judged, scores: dict[str, Any], seconds: float
) -> dict[str, str]:
    """Return the scores as lines of text, by name."""
    from ..report.words import number

    rows = "each held out once in cross-validation" if judged.cross_validated else f"{len(judged.rows):,} held out"
    found = {"rows": f"{len(train):,} for training, {rows}", "task": str(loaded.task)}
    if loaded.left_out:
        found["left out"] = ", ".join(f"{name} ({reason})" for name, reason in loaded.left_out.items())
    if loaded.task is Task.regression:
        share = scores["normalised_crps"]
        found |= {
            "error (RMSE)": number(scores["rmse"])
            + ("" if scores["r2"] is None else f", explains {_share(scores['r2'])} of the variance"),
            "error with uncertainty (CRPS)": number(scores["crps"]),
            "uncertainty skill": "unknown"
            if share is None
            else f"{round(share)} %  (0 % = one constant error bar, 100 % = the ideal error bar for every row)",
            f"{100 * LEVEL:.0f} % intervals": f"contain {100 * scores['coverage']:.0f} % of the held-out targets",
        }
    else:
        found |= {
            "accuracy": f"{100 * scores['accuracy']:.1f} % of the held-out rows",
            "negative log likelihood": number(scores["nll"]),
            "calibration error (ECE)": f"{100 * scores['ece']:.1f} %",
        }
    return {**found, "time": f"{seconds:.0f} s"}


def _share(r2: float) -> str:
    """Return the explained share of the variance as text; a negative share is "none"."""
    from ..report.words import percent

    return "none" if r2 < 0 else percent(r2)


def _cell(value: Any) -> Any:
    """Return a cell of the table as a JSON value, or None if it is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    return json_value(value)
