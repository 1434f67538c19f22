"""The verdict on honesty looks at the average and at the groups of the picture, and is seldom wrong by chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from bayesnorm.plots import style
from bayesnorm.report import ClassificationTest, RegressionTest
from bayesnorm.report.honesty import honesty
from bayesnorm.report.pictures import pictures
from bayesnorm.report.row_groups import RowGroups
from bayesnorm.shift import holm

from .conftest import classification_test, regression_test

# The average and the groups are each off by chance in at most 5 % of reports.
FALSE_ALARMS = 0.1


def with_coverage(shares: list[float], rows: int = 60) -> RegressionTest:
    """Intervals of 90 % that contain these shares of groups of rows, from the least to the most uncertain group."""
    test = regression_test(rows=rows * len(shares))
    inside = np.concatenate([np.arange(rows) < round(share * rows) for share in shares])
    held = np.empty(len(test), dtype=bool)
    held[np.argsort(test.std, kind="stable")] = inside
    lower = np.where(held, test.y - 1, test.y + 1)
    return replace(test, lower=lower, upper=lower + 2)


def test_honest_on_average_but_not_in_the_most_uncertain_quarter():
    result = honesty(with_coverage([0.95, 0.95, 0.95, 0.6], rows=25))
    assert (result.grade, result.word) == ("fair", "Partly")
    assert result.headline == (
        "On average yes: 90 % intervals contain 87 % of the 100 held-out rows. But in the most uncertain quarter they "
        "contain only 60 %."
    )
    assert (
        "1 of 17 groups of rows, by error bar, by prediction, deviates by more than chance explains." in result.detail
    )
    assert result.clause == "its error bars are too narrow in the most uncertain quarter"
    assert result.next_step.startswith("Expect larger errors than the error bars say in the most uncertain quarter.")


# All 500 rows of a group inside is significant: 0.9**500 is nearly 0. The others make up for it. 10,000 rows of a group
# have a standard error of 0.3 points, so that 1.5 points are significant, but little.
@pytest.mark.parametrize(
    ("shares", "rows", "word", "headline", "detail"),
    [
        ([1.0] + [0.88] * 5, 500, "Partly", "But in the least uncertain sixth they contain 100 %.", "1 of 25 groups"),
        ([0.903] * 5 + [0.885], 10_000, "Yes", "as they should.", "but by no more than 1.5 percentage points."),
        ([0.895] * 6, 10_000, "Yes", "of the 60,000 held-out rows, which is close enough.", "None of the 25 groups"),
        ([1.0] * 5 + [0.75], 100, "Too wide", "In the most uncertain sixth they contain only 75 %.", "groups of rows"),
    ],
)
def test_averages_and_groups_that_are_off(shares, rows, word, headline, detail):
    verdict = honesty(with_coverage(shares, rows=rows))
    assert verdict.word == word
    assert verdict.headline.endswith(headline)
    assert detail in verdict.detail
    assert verdict.clause.endswith("too wide in the least uncertain sixth") == (rows == 500)


def test_rows_of_equal_uncertainty_are_one_group():
    for rows in (1, 2, 40):
        test = replace(regression_test(rows=rows), std=np.ones(rows))
        groups = RowGroups.from_test(test)
        assert len(groups.drawn.count) == 1
        assert groups.drawn_words == ""
        honesty(test)


def test_groups_of_unequal_size_are_named_by_their_rows():
    test = with_coverage([1.0, 0.5], rows=100)
    tied = replace(test, std=np.where(np.argsort(np.argsort(test.std)) < 40, 1.0, 2.0))
    groups = RowGroups.from_test(tied)
    assert {int(number) for number in groups.drawn.count} == {40, 160}
    assert groups.material[0].where == "in the 160 most uncertain rows"


def some_tests() -> list[RegressionTest | ClassificationTest]:
    tests: list[RegressionTest | ClassificationTest] = [with_coverage([1.0, 0.74]), with_coverage([0.9, 0.9])]
    for seed in range(4):
        for size in (0.7, 1.0, 1.3):
            tests += [regression_test(rows=200, scale=size, seed=seed), classification_test(600, 1 / size**3, seed)]
    return tests


def test_verdict_and_picture_say_the_same():
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
    numbers = []
    for test in some_tests():
        regression = isinstance(test, RegressionTest)
        groups = RowGroups.from_test(test)
        drawn = groups.groups[: len(groups.drawn.count)]
        numbers.append(sum(group.off for group in drawn))
        verdict = honesty(test)
        # The picture marks the groups that the verdict counts, which is "Yes" only if none of them is far off.
        assert verdict.detail.endswith(groups.words)
        if verdict.grade == "good":
            assert not any(group.material for group in groups.groups)
        assert marked(groups.drawn) == numbers[-1]
        observed = groups.drawn.coverage if regression else groups.drawn.accuracy
        assert observed.tolist() == [group.observed for group in drawn]
    assert len({*numbers}) > 2  # none, one and several


def marked(plot) -> int:
    """The number of groups that the picture draws in the colour of what is wrong."""
    rival = np.array(style.matplotlib().colors.to_rgba(style.current().rival))
    ax = plot.draw()
    points = [len(line.get_xdata()) for line in ax.lines if line.get_marker() == "D"]
    points += [
        len(dots.get_offsets())
        for dots in ax.collections
        if len(dots.get_offsets()) and len(dots.get_facecolor()) and np.allclose(dots.get_facecolor()[0], rival)
    ]
    return sum(points)


def test_the_captions_have_the_sentence_of_the_verdict(undrawn):
    intervals, classes = with_coverage([1.0, 0.74]), classification_test(600, 2.0)
    for test in (intervals, classes):
        words = RowGroups.from_test(test).drawn_words
        assert [words in picture.caption for picture in pictures(test)].count(True) == 1


def test_some_group_is_off_exactly_where_holm_rejects():
    for seed in range(40):
        groups = RowGroups.from_test(regression_test(rows=200, scale=0.85, seed=seed)).groups
        held, rows, promised = (
            np.array(values)
            for values in zip(*((g.observed * g.rows, g.rows, g.promised) for g in groups), strict=True)
        )
        held = held.round()
        low, high = binom.cdf(held, rows, promised), binom.sf(held - 1, rows, promised)
        adjusted = holm(np.minimum(1, 2 * np.minimum(low, high)))
        assert any(group.off for group in groups) == bool((adjusted < 0.05).any())


@pytest.mark.parametrize("rows", [40, 62, 1000])
def test_honest_error_bars_are_seldom_called_dishonest(rows):
    generator, times = np.random.default_rng(rows), 250
    test = regression_test(rows=rows)
    reach = 1.6448536269514722 * test.std  # of 90 % of a Gaussian
    test = replace(test, lower=test.mean - reach, upper=test.mean + reach)
    grades = [honesty(replace(test, y=test.mean + test.std * generator.normal(size=rows))).grade for _ in range(times)]
    assert times - grades.count("good") <= binom.ppf(0.999, times, FALSE_ALARMS)
    assert grades.count("poor") <= binom.ppf(0.999, times, 0.025)  # one end of a range of 95 %


def test_honest_probabilities_are_seldom_called_dishonest():
    for rows in (40, 600):  # in five and in ten groups
        generator, times = np.random.default_rng(rows), 200
        test = classification_test(rows=rows)
        edges = test.probs.cumsum(1)[:, :-1]
        grades = [honesty(replace(test, y=(generator.random((rows, 1)) > edges).sum(1))).grade for _ in range(times)]
        assert times - grades.count("good") <= binom.ppf(0.999, times, FALSE_ALARMS)


def test_probabilities_that_are_too_high_in_a_group():
    # Half of the rows are 95 % sure and always right, half are 75 % sure and right on 60 %: 85 % against 80 %.
    y = np.arange(400) % 2
    confidence = np.repeat([0.95, 0.75], 200)
    right = np.concatenate([np.ones(200, dtype=bool), np.arange(200) < 130])
    first = np.where(right == (y == 0), confidence, 1 - confidence)
    entropy = np.repeat([0.2, 0.6], 200)
    test = ClassificationTest(y, np.stack([first, 1 - first], 1), entropy, None, ("a", "b"), np.array([0.5, 0.5]))
    result = honesty(test)
    assert (result.grade, result.word) == ("fair", "Partly")
    assert "But where it is about 75 % confident, it is right on only 65 % of 200 rows." in result.headline
    assert result.clause == "its probabilities are too high where it is about 75 % confident"
