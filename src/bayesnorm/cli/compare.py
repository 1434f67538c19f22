"""`bayesnorm compare`: compare the scores of runs, row by row where they were tested on the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typer import Argument

from ..errors import BayesNormError, FileFormatError, quoted
from ..words import format_count, format_number, format_percent
from .ending import UsageError
from .options import AsJson, Task
from .printing import show_json, show_pairs
from .run_folder import CONTENTS, read_json, read_runs, unchanged
from .stored_report import report_from_values

if TYPE_CHECKING:
    from ..report import Report

# Number of standard errors from which a difference is called significant.
CLEAR = 2.0

# Fewest common rows for a comparison row by row.
LEAST_ROWS = 10

# Names of the scores, in the order in which they are printed.
SCORES = {
    Task.regression: {"crps": "CRPS", "rmse": "RMSE", "pll": "PLL", "coverage": "interval coverage"},
    Task.classification: {"nll": "NLL", "auc": "AUC", "brier": "Brier", "accuracy": "accuracy", "ece": "ECE"},
}


def compare(
    first: Annotated[Path, Argument(help="Folder of a run.", metavar="RUN1")],
    second: Annotated[Path, Argument(help="Folder of another run with the same target.", metavar="RUN2")],
    as_json: AsJson = False,
) -> None:
    """Compare two runs that predict the same target.

    If both were tested on rows of the same file, the rows that they share are
    compared one by one: the command says which run is better on them, and
    whether the difference may be chance. The score is the CRPS, or for classes
    the negative log likelihood; lower is better.

    \b
    Examples:
      bayesnorm compare run1 run2
      bayesnorm compare with_deposit without_deposit --json
    """
    runs = [(folder, *_read(folder)) for folder in (first, second)]
    (_, facts, one), (_, other_facts, other) = runs
    for name in ("target", "task"):
        if facts[name] != other_facts[name]:
            raise UsageError(
                f"RUN2: {second} predicts {quoted(other_facts['target'])} ({other_facts['task']}), but {first} "
                f"predicts {quoted(facts['target'])} ({facts['task']}). Compare runs with the same target."
            )
    scores = SCORES[Task(facts["task"])]
    table = {str(folder): {name: _scores(report).get(name) for name in scores} for folder, _, report in runs}
    same_file = facts["data"]["sha256"] == other_facts["data"]["sha256"]
    result = _paired(one, other) if same_file else None
    if as_json:
        show_json({"target": facts["target"], "scores": table, "common_rows": result})
        return
    width = max(map(len, table))
    pairs = {"target": str(facts["target"])}
    for name, words in scores.items():
        values = [f"{folder.ljust(width)} {format_number(values[name])}" for folder, values in table.items()]
        pairs[words] = "   ".join(values)
    print_words = _words(str(first), str(second), next(iter(scores.values())), result, same_file)
    show_pairs({**pairs, "Which is better?": print_words})


def _read(folder: Path) -> tuple[Mapping[str, Any], Report]:
    """Return the facts and the report of a run with one target."""
    runs = read_runs(folder)
    if len(runs) > 1:
        raise BayesNormError(
            f"RUN: {folder} has {len(runs)} targets. Compare the folders of one target, such as {runs[0][0]}."
        )
    (run, facts), *_ = runs
    try:
        return facts, report_from_values(read_json(unchanged(run, facts, CONTENTS)))
    except FileFormatError:
        raise
    except Exception as error:  # values of any kind can be in any place
        raise FileFormatError(
            f"RUN: the numbers in {run / CONTENTS} are damaged ({error!r}). Run `bayesnorm fit` again."
        ) from error


def _scores(report: Report) -> dict[str, float | None]:
    """Return the scores of the model on its own held-out rows."""
    values = asdict(report.test.scores()["model"])
    return {name: None if value is None or math.isnan(value) else value for name, value in values.items()}


def _errors(report: Report) -> NDArray[np.float64]:
    """Return the error of every row that counts prediction and uncertainty together."""
    from ..report import RegressionTest

    test = report.test
    return test.crps_points() if isinstance(test, RegressionTest) else test.nll_points()


def _paired(one: Report, other: Report) -> dict[str, float] | None:
    """Return the errors on the rows that both runs were tested on; None if these are too few."""
    numbers, others = (np.asarray(report.rows.numbers) for report in (one, other))
    common, first, second = np.intersect1d(numbers, others, return_indices=True)
    if len(common) < LEAST_ROWS:
        return None
    ours, theirs = _errors(one)[first], _errors(other)[second]
    error = float((theirs - ours).std(ddof=1)) / math.sqrt(len(common))
    return {
        "rows": len(common),
        "first": float(ours.mean()),
        "second": float(theirs.mean()),
        "difference": float((theirs - ours).mean()),
        "standard_error": error,
    }


def _words(first: str, second: str, score: str, result: Mapping[str, float] | None, same_file: bool) -> str:
    """Say which run is better on the rows that both were tested on."""
    if result is None:
        why = "share too few held-out rows" if same_file else "were trained on different files"
        return (
            f"The two runs {why}, so their scores cannot be compared row by row. Fit both on the same file with the "
            "same --seed."
        )
    difference, error = result["difference"], result["standard_error"]
    rows = format_count(int(result["rows"]), "held-out row")
    if abs(difference) <= CLEAR * error or difference == 0:
        return (
            f"On the same {rows}, the difference may be chance: the {score} is {format_number(result['first'])} for "
            f"{first} and {format_number(result['second'])} for {second}."
        )
    better, worse = ("first", "second") if difference > 0 else ("second", "first")
    names = {"first": first, "second": second}
    share = format_percent(abs(difference) / abs(result[worse])) if result[worse] > 0 else "much"
    return (
        f"{names[better]} is better. On the same {rows}, its {score} is {format_number(result[better])}, which is "
        f"{share} lower than that of {names[worse]} ({format_number(result[worse])}). The difference is "
        f"{format_number(abs(difference), 2)} ± {format_number(error, 2)} (one standard error)."
    )
