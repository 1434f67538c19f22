"""Every sentence of the verdicts is printed only where it is true: reports whose truth is known, checked from arrays.

For each sentence, an independent computation says whether it is true of a report. No report may print a sentence that
is false of it, at least one prints it, and for at least one it would be false.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from bayesnorm.report import (
    Baseline,
    ErrorShift,
    LearningCurve,
    RegressionTest,
    Report,
    advice,
    class_skill,
    gains,
    honesty,
    leak_words,
    more_rows_words,
    next_steps,
    row_groups,
    skill,
    verdict,
    verdicts,
)
from bayesnorm.report.row_groups import RowGroups, row_labels

from .conftest import classification_test, regression_test, report_of
from .test_advice import rare, small_gain
from .test_groups import with_coverage

Claim = Callable[[Report], bool]
GENERATOR = np.random.default_rng(0)


def trained(errors: tuple[float, float], share: float = 0.5, error: float = 1.5, guess: float = 100.0) -> LearningCurve:
    return LearningCurve((280, 560), errors, error, share, 0.75, guess, "RMSE")


def with_town(test: Any, town: np.ndarray, **changes: Any) -> Report:
    """A report in which the third column is a town."""
    report = report_of(test, **changes)
    values = [(*row[:2], str(name)) for row, name in zip(report.rows.values, town, strict=True)]
    return replace(report, rows=replace(report.rows, values=values))


def card_rides() -> RegressionTest:
    """Intervals of 90 % hold, but those of 50 % contain a third of the targets."""
    test = with_coverage([0.9] * 4)
    away = np.where(np.arange(len(test)) % 3 == 0, 0.2, 0.4)
    return replace(test, pit=0.5 + away * np.where(np.arange(len(test)) % 2, 1, -1))


def off_in(where: np.ndarray, rows: int, share: float = 0.6) -> RegressionTest:
    """Intervals of 90 % that contain only a share of the rows of one group."""
    test = regression_test(rows=rows)
    limits = np.where(where, share, 0.94)
    order = np.argsort(GENERATOR.random(rows))
    inside = np.empty(rows, bool)
    for part in (where, ~where):
        rows_of_part = order[part[order]]
        inside[rows_of_part] = np.arange(len(rows_of_part)) < round(float(limits[part][0]) * len(rows_of_part))
    lower = np.where(inside, test.y - 1, test.y + 1)
    return replace(test, lower=lower, upper=lower + 2)


def slightly_informed() -> RegressionTest:
    """Error bars of 0.8 and 1.2 that are right, with a CRPS about 1 % lower than that of a constant one."""
    test = regression_test(rows=20_000, noisy=False)
    std = np.where(np.arange(20_000) % 2, 0.8, 1.2)
    y = test.mean + std * np.random.default_rng(1).normal(size=20_000)
    reach = 1.6448536269514722 * std
    return replace(test, y=y, std=std, lower=test.mean - reach, upper=test.mean + reach, constant_std=1.02)


@functools.cache
def all_reports() -> tuple[Report, ...]:
    honest, classes = regression_test(), classification_test()
    large, long = regression_test(rows=400), classification_test(900)
    town = np.where(np.arange(400) % 4 == 0, "Oss", "Ede")
    highest = np.argsort(np.argsort(large.mean)) >= 400 - 66
    guess = np.tile(classes.class_shares, (150, 1))
    poor = replace(honest, y=GENERATOR.permutation(honest.y))
    unsure = np.tile(classes.entropy.mean(), 150) + GENERATOR.random(150)
    sharp = classes.probs**12 / (classes.probs**12).sum(1, keepdims=True)
    spill = np.where(rare(0).y == 1, 0.45, 0.02)
    missed = replace(rare(0), probs=np.stack([1 - spill, spill], 1))
    shift = ErrorShift(1.0, 2.5, "typical error")
    better = Baseline("a linear model", honest.y + 0.01, 0.02)
    worse = Baseline("boosted trees", np.zeros(150), 10.0)
    tests = [
        honest, small_gain(0.12), small_gain(0.4), poor, large, regression_test(rows=12), regression_test(rows=6),
        regression_test(rows=400, scale=0.4), regression_test(rows=400, scale=2.5), with_coverage([0.895] * 6, 10_000),
        with_coverage([0.875] * 4, 2_000), with_coverage([1.0] + [0.88] * 5, 500), with_coverage([0.95] * 3 + [0.6]),
        card_rides(), off_in(highest, 400), regression_test(noisy=False), replace(honest, std=1 / honest.std),
        replace(regression_test(rows=3), y=regression_test(rows=3).mean + 0.1), replace(honest, unusual=None),
        classes, long, rare(40), rare(25), rare(0), missed, classification_test(500, 4.0),
        classification_test(500, 0.3),
        classification_test(rows=6), classification_test(rows=1), replace(classes, y=GENERATOR.permutation(classes.y)),
        replace(classes, y=classes.label), replace(classes, entropy=unsure), replace(classes, entropy=-classes.entropy),
        replace(classes, probs=sharp), replace(classes, probs=guess),
    ]  # fmt: skip
    middle = np.isin(np.argsort(np.argsort(large.mean)) // 67, [2])
    tests += [with_coverage([1.0, 0.68], 31), with_coverage([0.68, 1.0], 31), off_in(middle, 400), slightly_informed()]
    narrow = regression_test(scale=0.4)
    unusual = replace(narrow, unusual=np.arange(150) < 120)
    return (
        *(report_of(test) for test in tests),
        with_town(off_in(town == "Oss", 400, 0.72), town),
        with_town(large, town),
        report_of(honest, leaks={"age": "is price", "town": "alone predicts price"}, baselines=(better,)),
        report_of(poor, baselines=(better, worse)), report_of(poor, shift=shift), report_of(honest, shift=shift),
        report_of(honest, baselines=(better,)), report_of(honest, baselines=(worse,)),
        report_of(small_gain(0.4), shift=ErrorShift(1.0, 2.5, "typical error")),
        report_of(narrow), report_of(narrow, shift=shift), report_of(unusual), report_of(classification_test(500, 4.0)),
        report_of(poor, curve=trained((2.5, 1.6))), report_of(poor, curve=trained((2.5, 2.4), 0.02)),
        report_of(honest, curve=trained((2.5, 1.6))), report_of(poor, curve=trained((2.5, 1.6)), shift=shift),
        report_of(small_gain(0.12), curve=trained((2.5, 1.6))), report_of(small_gain(0.12), baselines=(Baseline(
            "a linear model", small_gain(0.12).y + 0.01, 0.02),), curve=trained((2.5, 1.6))),
    )  # fmt: skip


def printed(report: Report) -> str:
    """All sentences of the verdicts."""
    answers = verdicts(report)
    texts = [text for verdict in answers for text in (verdict.headline, verdict.detail, f"Next: {verdict.next_step}")]
    if report.leaks:
        texts.append(f"Leaks: {leak_words(report.leaks, 'price')}")
    groups = RowGroups.from_test(report.test, row_labels(report))
    texts += [f"Picture: {groups.drawn.title}. {groups.drawn_words}"]
    return "\n".join([*texts, f"Advice: {advice(answers)[1]}", f"More rows: {more_rows_words(report)}"])


def is_number(report: Report) -> bool:
    return isinstance(report.test, RegressionTest)


def left(report: Report) -> float:
    """The RMSE as a share of that of the training average; the NLL as a share of that of the class shares."""
    test = report.test
    if isinstance(test, RegressionTest):
        return float(np.sqrt(np.mean((test.y - test.mean) ** 2) / np.mean((test.y - test.train_mean) ** 2)))
    shares = np.tile(test.class_shares, (len(test), 1))
    labels = range(len(test.classes))
    return float(log_loss(test.y, test.probs, labels=labels) / log_loss(test.y, shares, labels=labels))


def t_ratio(report: Report) -> float:
    """The gain over the baseline in standard errors."""
    test = report.test
    if isinstance(test, RegressionTest):
        gain = (test.y - test.train_mean) ** 2 - (test.y - test.mean) ** 2
    else:
        rows = np.arange(len(test))
        gain = np.log(test.probs[rows, test.y].clip(1e-300)) - np.log(test.class_shares[test.y])
    return float(gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain)))) if np.ptp(gain) > 0 else 0.0


def auc(report: Report) -> float:
    test = report.test
    if len(np.unique(test.y)) < 2:
        return float("nan")
    if len(test.classes) == 2:
        return float(roc_auc_score(test.y, test.probs[:, 1]))
    counts = np.bincount(test.y, minlength=len(test.classes))
    parts = [roc_auc_score(test.y == k, test.probs[:, k]) for k in np.flatnonzero(counts)]
    return float(np.average(parts, weights=counts[counts > 0]))


def share(report: Report) -> float:
    """The share that holds minus the promised share."""
    test = report.test
    if isinstance(test, RegressionTest):
        return float(((test.lower <= test.y) & (test.y <= test.upper)).mean()) - test.level
    return float((test.probs.argmax(1) == test.y).mean() - test.probs.max(1).mean())


def at_half(report: Report) -> float:
    return float((np.abs(report.test.pit - 0.5) <= 0.25).mean()) - 0.5 if is_number(report) else 0.0


def town_gap(report: Report, name: str) -> float:
    rows = np.array([row[2] == name for row in report.rows.values])
    return float(report.test.inside[rows].mean()) - 0.9 if is_number(report) and rows.any() else 0.0


def crps_gain(report: Report) -> float:
    """How much lower the CRPS is than with one constant error bar, by scipy's normal distribution."""
    from scipy.stats import norm

    test = report.test
    if not is_number(report):
        return 0.0

    def score(std: Any) -> float:
        z = (test.y - test.mean) / std
        return float(np.mean(std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))))

    return 1 - score(test.std) / score(np.full(len(test), test.constant_std))


def ranking(report: Report) -> float:
    """2 AUROC - 1 of the entropy for wrong answers; NaN if all or none are wrong."""
    wrong = report.test.probs.argmax(1) != report.test.y
    if wrong.all() or not wrong.any():
        return float("nan")
    return float(2 * roc_auc_score(wrong, report.test.entropy) - 1)


def never(report: Report, name: str) -> bool:
    test = report.test
    if is_number(report) or name not in test.classes:
        return False
    true = test.y == test.classes.index(name)
    return bool(true.any() and not (test.probs.argmax(1)[true] == test.y[true]).any())


def baseline_error(report: Report) -> tuple[float, float]:
    """The mean absolute error of the model, and the lowest of the baselines, which orders them as the CRPS here."""
    test = report.test
    errors = [float(np.abs(test.y - one.predictions).mean()) for one in report.baselines]
    return float(np.abs(test.y - test.mean).mean()) if is_number(report) else 0.0, min(errors, default=np.inf)


def causes(report: Report) -> bool:
    """Whether a shift or a better model explains the error."""
    ours, theirs = baseline_error(report)
    return report.shift is not None or theirs < 0.97 * ours


def worst_sixth(report: Report, by: str) -> float:
    test = report.test
    if not is_number(report) or len(test) < 150:
        return 0.0
    groups = np.array_split(np.argsort(getattr(test, by), kind="stable"), min(6, len(test) // 25))
    return float(test.inside[groups[-1]].mean()) - 0.9


SENTENCES: dict[str, Claim] = {
    # Does it predict well?
    r"Its typical error is \d+ % smaller than that of always answering the average\.(?! This)": lambda r: (
        is_number(r) and left(r) ** 2 <= 0.5
    ),
    "This is a moderate gain": lambda r: 0.7 < left(r) <= 0.9 and t_ratio(r) > 2,
    "This is a small gain": lambda r: 0.9 < left(r) < 1 and t_ratio(r) > 2,
    "It is no better than always answering the average": lambda r: is_number(r) and left(r) >= 1,
    "too few to tell whether it is better": lambda r: len(r.test) < 30 and t_ratio(r) < 3,
    "Its AUC is": lambda r: not is_number(r) and not np.isnan(auc(r)),
    r"negative log likelihood is (?:under )?\d+ % lower than": lambda r: not is_number(r) and left(r) < 1,
    "negative log likelihood is not lower than": lambda r: not is_number(r) and left(r) >= 1 - 1e-9,
    "So it ranks rows, but its probabilities are of no use": lambda r: (
        not is_number(r) and auc(r) > 0.6 and t_ratio(r) < 2.1
    ),
    "It finds no row of “fraud”": lambda r: never(r, "fraud"),
    "rows of “fraud”, which is rare": lambda r: "fraud" in getattr(r.test, "classes", ()) and not never(r, "fraud"),
    "Do not rely on this model": lambda r: t_ratio(r) < 2.1,
    "You can rely on this model": lambda r: left(r) < 0.9 and abs(share(r)) < 0.08 and t_ratio(r) > 2,
    # Are its error bars, or its probabilities, honest?
    "far too few": lambda r: is_number(r) and share(r) < -0.03,
    "slightly too few": lambda r: is_number(r) and -0.03 <= share(r) < -0.02,
    "more than promised": lambda r: share(r) > 0.02,
    "which is close enough": lambda r: 0 < abs(share(r)) <= 0.02,
    "as they should": lambda r: is_number(r) and abs(at_half(r)) < 0.15 and abs(share(r)) < 0.1,
    "as it should be": lambda r: not is_number(r) and abs(share(r)) < 0.2,
    "too narrow around the prediction": lambda r: at_half(r) < -0.1,
    "in the most uncertain (?:quarter|sixth) they contain only": lambda r: worst_sixth(r, "std") < -0.05,
    "in the least uncertain sixth they contain 100 %": lambda r: len(r.test) == 3000 and share(r) < 0.05,
    "in the sixth with the largest predictions they contain only": lambda r: worst_sixth(r, "mean") < -0.05,
    "where town is “Oss” they contain only": lambda r: town_gap(r, "Oss") < -0.05,
    "far fewer": lambda r: not is_number(r) and share(r) < -0.03,
    "lower than they could be": lambda r: not is_number(r) and share(r) > 0.02,
    "rows? (?:is|are) too few to tell": lambda r: len(r.test) < 30,
    "Do not trust this model’s uncertainty": lambda r: share(r) < -0.03 or at_half(r) < -0.1,
    "unusual compared with the training rows, which no model": lambda r: (
        r.test.unusual is not None and r.test.unusual.mean() > 0.5
    ),
    "Fit again with --conformal": lambda r: is_number(r) and (share(r) < -0.03 or at_half(r) < -0.1),
    # Do its error bars tell easy rows from hard ones?
    r"recover (?:only )?\d+ % of the possible gain(?!.*chance)": lambda r: crps_gain(r) > 0,
    "no better than one constant error bar": lambda r: crps_gain(r) <= 1e-9,
    "rank rows from easy to hard. But their width is wrong": lambda r: (
        is_number(r) and np.corrcoef(r.test.std, np.abs(r.test.y - r.test.mean))[0, 1] > 0
    ),
    r"Ranking rows by uncertainty achieves (?:only )?\d+ %": lambda r: not is_number(r) and ranking(r) > 0,
    "finds mistakes no better than a random order": lambda r: not is_number(r) and ranking(r) <= 0,
    "No held-out row is wrong": lambda r: not is_number(r) and bool(r.test.right.all()),
    "they tell only a little about which rows are hard": lambda r: 0 < crps_gain(r) < 0.03,
    "only as a rough guide": lambda r: 0 < crps_gain(r) < 0.03,
    # What to do next
    "Collect more rows. If": lambda r: not causes(r) and r.curve is not None and r.curve.errors[0] > r.curve.errors[1],
    "or collect more rows": lambda r: not causes(r) and r.curve is None,
    "First collect more rows": lambda r: len(r.test) < 30,
    "Collect more rows of “fraud”": lambda r: never(r, "fraud") and auc(r) < 0.7,
    r"Use p\(fraud\) rather than the predicted class": lambda r: never(r, "fraud") and auc(r) >= 0.7,
    "A linear model is better on the same rows": lambda r: not r.leaks and baseline_error(r)[1] < baseline_error(r)[0],
    "So the data changed over time": lambda r: r.shift is not None and r.shift.after > r.shift.before,
    "More rows of the past would not help": lambda r: r.shift is not None,
    "Check rows .* first: they are the most uncertain": lambda r: np.ptp(r.test.uncertainty) > 0,
    "all results below are too good to be true": lambda r: bool(r.leaks),
    # Would more rows help?
    "More rows: Single networks had a typical error": lambda r: r.curve is not None,
    "hardly help this kind of model": lambda r: r.curve is not None and r.curve.errors[1] > 0.9 * r.curve.errors[0],
    "if this trend continues|If this trend continues": lambda r: (
        r.curve is not None and r.curve.errors[1] < 0.9 * r.curve.errors[0]
    ),
}


@pytest.mark.parametrize("sentence", list(SENTENCES))
def test_a_sentence_is_printed_only_where_it_is_true(sentence):
    claim, reports = SENTENCES[sentence], all_reports()
    with_it = [report for report in reports if re.search(sentence, _texts()[id(report)])]
    assert with_it, "no report prints it"
    for report in with_it:
        assert claim(report), _texts()[id(report)]
    assert any(not claim(report) for report in reports), "it is true of all reports"


@functools.cache
def _texts() -> dict[int, str]:
    return {id(report): printed(report) for report in all_reports()}


def test_no_report_speaks_of_a_noise_floor():
    for text in _texts().values():
        assert not re.search("noise|No number of rows", text)


MODULES = (class_skill, gains, honesty, next_steps, row_groups, skill, verdict)


def parts_of_sentences() -> list[str]:
    """The longest constant part of every text with several words in the code of the verdicts."""
    parts = []
    for module in MODULES:
        tree = ast.parse(Path(module.__file__).read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inner = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
        for node in ast.walk(tree):
            constants = node.values if isinstance(node, ast.JoinedStr) else [node]
            if id(node) in docs | inner or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            texts = [str(value.value) for value in constants if isinstance(value, ast.Constant)]
            longest = max((piece for text in texts for piece in re.split(r"\{\w+\}", text)), key=len, default="")
            if longest.count(" ") > 3:
                parts.append(longest.strip())
    return parts


def test_some_report_prints_each_sentence():
    everything = "\n".join(_texts().values()).lower()
    assert len(parts_of_sentences()) > 50
    assert not [part for part in parts_of_sentences() if part.lower() not in everything]
