"""Whether more rows would help: from the learning curve, and said only where it bears that out."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from bayesnorm.errors import InputError
from bayesnorm.report import LearningCurve, more_rows_words, render, verdicts
from bayesnorm.report.page import SUM_ALONE, uncertainty_words

from .conftest import classification_test, regression_test, report_of


def curve(share: float, error: float = 9.0, guess: float = 100.0, measure="RMSE") -> LearningCurve:
    return LearningCurve((200, 400), (1.5 * error, 1.1 * error), error, share, 0.75, guess, measure)


def test_what_twice_the_rows_bring():
    result = curve(0.5)
    assert result.at(1) == pytest.approx(3.0)
    assert result.at(2) == pytest.approx(math.sqrt(4.5 + 4.5 * 2**-0.75))
    assert result.at(1e12) == pytest.approx(math.sqrt(4.5), rel=1e-4)
    assert result.shown(result.floor) == pytest.approx(math.sqrt(4.5))
    brier = curve(0.5, 0.2, 0.6, "Brier")
    assert brier.at(2) == pytest.approx(0.1 + 0.1 * 2**-0.75)


def test_where_more_rows_help():
    report = report_of(regression_test(), curve=curve(0.5))
    words = more_rows_words(report)
    assert words.startswith(
        "Single networks had a typical error of 3.67 with 200 training rows, and of 3.15 with 400. If this trend "
        "continues, twice as many rows like these would lower the typical error from 3 to about 2.7, and four times as "
        "many to about 2.5."
    )
    assert "noise" not in words  # what no number of rows removes, another kind of model may
    # The rows to have more of are those with the largest epistemic part.
    order = np.argsort(-report.test.epistemic_std)[:3]
    named = [report.rows.numbers[at] for at in order]
    assert words.endswith(f"certain about rows similar to {named[0]}, {named[1]} and {named[2]}.")
    assert SUM_ALONE not in uncertainty_words(report)


def test_where_more_rows_hardly_help_or_nothing_else_does():
    def words(result):
        return more_rows_words(report_of(regression_test(), curve=result))

    measured = "Single networks had a typical error of 3.67 with 200 training rows, and of 3.15 with 400."
    little = f"{measured} So more rows like these would hardly help this kind of model. Other columns might help."
    assert words(curve(0.05)) == little
    # Networks overfit less with more rows, but there is nothing to be learned.
    assert words(curve(0.2, error=120.0)).endswith("would hardly help this kind of model. Other columns might help.")


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_next_step_agrees(share):
    poor = replace(regression_test(), mean=np.zeros(150))
    steps = {verdict.topic: verdict.next_step for verdict in verdicts(report_of(poor, curve=curve(share)))}
    if share > 0.1:
        assert steps["prediction"].startswith(
            "Collect more rows. If this trend continues, twice as many rows like these would lower the typical"
        )
    else:
        assert (
            steps["prediction"] == "Add columns that are related to price <i>. More rows like these would hardly help."
        )
    good = {verdict.topic: verdict.next_step for verdict in verdicts(report_of(regression_test(), curve=curve(share)))}
    more = (
        " But if this trend continues, twice as many rows like these would lower the typical error from 3 to about 2.7."
        if share > 0.1
        else ""
    )
    assert good["prediction"] == f"Nothing is needed.{more}"


@pytest.mark.parametrize("make", [regression_test, classification_test])
def test_the_page_shows_it_where_there_is_one(monkeypatch, make):
    monkeypatch.setattr("bayesnorm.report.page.pictures", lambda *_: ())  # those of other sections take long
    result = curve(0.5) if make is regression_test else curve(0.5, 0.2, 0.6, "Brier")
    page = render(report_of(make(), curve=result))
    assert "Would more rows help?" in page
    assert "More rows would lower the error" in page
    assert ("typical error" if make is regression_test else "squared error (Brier)") in page
    without = render(report_of(make()))
    assert "ould more rows help" not in without.replace("whether more rows would help", "")
    assert 'href="#more"' not in without


def test_it_is_kept_with_a_run():
    from bayesnorm.cli.run_folder import json_value
    from bayesnorm.cli.stored_report import report_from_values

    report = report_of(regression_test(), curve=curve(0.5))
    values = json.loads(json.dumps(json_value(report)))
    assert report_from_values(values).curve == report.curve
    del values["curve"]  # as in runs of earlier versions
    assert report_from_values(values).curve is None


def test_refuses():
    for changes, named in (
        ({"rows": (400,), "errors": (1.0,)}, "rows"),
        ({"rows": (400, 200)}, "rows"),
        ({"errors": (1.0,)}, "rows"),
        ({"share": 1.5}, "share"),
        ({"share": math.nan}, "share"),
    ):
        with pytest.raises(InputError, match=f"^{named} must be "):
            replace(curve(0.5), **changes)
