"""Verdicts on models whose quality is known."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom, norm, t as student
from sklearn.metrics import roc_auc_score

from bayesnorm.metrics import prediction_rejection_ratio
from bayesnorm.report import ClassificationTest, advice, leak_words, verdicts
from bayesnorm.report.honesty import honesty
from bayesnorm.report.skill import standard_errors_from_zero

from .conftest import classification_test, regression_test

NO_BETTER = "Error bars that differ by row are no better than one constant error bar."


def answers(report):
    return {verdict.topic: verdict for verdict in verdicts(report)}


def levels(report):
    return [verdict.grade for verdict in verdicts(report)]


def test_honest_informed_models(make_report, make_regression, make_classification):
    report = make_report(make_classification())
    assert levels(report) == ["good", "good", "good"]
    assert f"{int(report.test.right.sum())} of 150" in answers(report)["honesty"].detail
    report = make_report(make_regression())
    assert levels(report) == ["good", "good", "good"]
    result = answers(report)
    assert f"{int(report.test.inside.sum())} of 150" in result["honesty"].detail
    share = report.test.scores()["model"].normalised_crps
    assert f"recover {share:.0f} % of the possible gain over one constant error bar" in result["usefulness"].headline
    assert advice(verdicts(report))[0] == "good"


def test_the_sentence_on_intervals_that_hold_as_promised(make_report, make_regression):
    test = make_regression(rows=100)
    lower = np.where(np.arange(100) < 91, test.y - 1, test.y + 1)  # 91 of 100 hold
    report = make_report(dataclasses.replace(test, lower=lower, upper=lower + 2))
    assert (
        answers(report)["honesty"].headline == "90 % intervals contain 91 % of the 100 held-out rows, as they should."
    )


@pytest.mark.parametrize(
    ("make", "rows", "scale", "level", "words"),
    [
        (regression_test, 400, 0.4, "poor", "too narrow"),
        (regression_test, 400, 2.5, "fair", "wider than needed"),
        (regression_test, 12, 1.0, "fair", "12 rows are too few to tell"),
        (classification_test, 500, 4.0, "poor", "are too high"),
        (classification_test, 500, 0.3, "fair", "lower than they could be"),
    ],
)
def test_promises_that_do_not_hold(make, rows, scale, level, words):
    verdict = honesty(make(rows, scale))
    assert verdict.grade == level
    assert words in verdict.headline


def test_a_little_too_sure_is_no_scandal(make_report, make_regression):
    rows = 10_000
    test = make_regression(rows=rows)
    lower = np.where(np.arange(rows) < 8800, test.y - 1, test.y + 1)  # 88 %, and chance alone is within 0.6 points
    report = make_report(dataclasses.replace(test, lower=lower, upper=lower + 2))
    assert answers(report)["honesty"].grade == "fair"
    assert "slightly too few" in answers(report)["honesty"].headline
    assert "they are a little too narrow" in advice(verdicts(report))[1]


def test_uncertainty_that_points_the_wrong_way(make_report, make_regression):
    test = make_regression()
    report = make_report(dataclasses.replace(test, std=1 / test.std))
    assert report.test.scores()["model"].normalised_crps < 0
    assert answers(report)["usefulness"].headline == NO_BETTER
    assert "but they do not tell easy rows from hard ones" in advice(verdicts(report))[1]


def test_predictions_worth_nothing(make_report, make_regression):
    test = make_regression()
    shuffled = np.random.default_rng(0).permutation(test.y)
    report = make_report(dataclasses.replace(test, y=shuffled))
    assert answers(report)["prediction"].grade == "poor"
    assert "no better than always answering the average" in answers(report)["prediction"].headline
    assert advice(verdicts(report)) == (
        "poor",
        "Do not rely on this model: it does not predict better than always answering the average.",
    )


def test_a_classifier_without_mistakes_cannot_show_that_it_finds_them(make_report, make_classification):
    test = make_classification()
    report = make_report(dataclasses.replace(test, y=test.label))
    assert answers(report)["usefulness"].grade == "fair"
    assert "this cannot be tested" in answers(report)["usefulness"].headline


def test_a_classifier_that_always_names_the_most_common_class(make_report):
    y = np.array([0] * 70 + [1] * 30)
    probs = np.tile([0.7, 0.3], (100, 1))
    uncertainty = np.random.default_rng(0).random(100)
    test = ClassificationTest(y, probs, uncertainty, None, ("a", "b"), np.array([0.7, 0.3]))
    result = answers(make_report(test))
    assert result["prediction"].grade == "poor"
    assert result["honesty"].grade == "good"  # 70 % sure and 70 % right


def test_the_order_of_mistakes_is_twice_auroc_less_one():
    generator = np.random.default_rng(0)
    uncertainty, wrong = generator.random(200), generator.random(200) < 0.2
    ratio = float(prediction_rejection_ratio(uncertainty, wrong.astype(float)))
    assert ratio == pytest.approx(2 * roc_auc_score(wrong, uncertainty) - 1)


def test_random_uncertainty_is_seldom_called_useful(make_report, make_classification):
    good = 0
    for seed in range(60):
        test = make_classification(seed=seed)
        uncertainty = np.random.default_rng(seed).random(len(test))
        good += answers(make_report(dataclasses.replace(test, entropy=uncertainty)))["usefulness"].grade == "good"
    assert good <= binom.ppf(0.999, 60, 0.023)  # two standard errors to one side


@pytest.mark.parametrize(("rows", "level"), [(1, 0.9), (62, 0.9), (1000, 0.5), (40_000, 0.95)])
def test_the_range_of_chance_is_scipys(make_report, make_regression, rows, level):
    report = make_report(dataclasses.replace(make_regression(rows=rows), level=level))
    least, most = binom.interval(0.95, rows, level)
    assert f"would contain between {least:,.0f} and {most:,.0f} of them" in answers(report)["honesty"].detail


def test_standard_errors_from_zero_of_next_to_nothing():
    for differences, expected in (([1.0], 0.0), ([0.0, 0.0], 0.0), ([2.0, 2.0], np.inf), ([-2.0, -2.0], -np.inf)):
        assert standard_errors_from_zero(np.array(differences)) == expected


@pytest.mark.parametrize("rows", [2, 3, 5, 20, 1000])
@pytest.mark.parametrize("ratio", [-3.0, 0.5, 2.0, 10.0])
def test_standard_errors_from_zero_are_students(rows, ratio):
    spread = np.linspace(-1, 1, rows)
    differences = spread + ratio * spread.std(ddof=1) / np.sqrt(rows)
    expected = np.sign(ratio) * norm.isf(student.sf(abs(ratio), rows - 1))
    for unit in (1.0, 1e180, 1e-180):
        assert standard_errors_from_zero(unit * differences) == pytest.approx(expected, rel=1e-9)


def test_three_rows_prove_little(make_report, make_regression):
    """Three errors that happen to suit their bars are more than two standard errors better than one bar for all."""
    test = make_regression(rows=3)
    narrow, same = test.std, np.full(3, 3 * test.std.max())
    report = make_report(dataclasses.replace(test, y=test.mean + narrow * [0.3, -0.6, 1.1], constant_std=same[0]))
    gain = report.test.constant_crps_points() - report.test.crps_points()
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(3)
    assert report.test.scores()["model"].normalised_crps > 50
    result = answers(report)["usefulness"]
    assert result.grade == "fair"
    assert "which may be chance" in result.headline


def test_columns_that_give_the_target_away_stand_above_all(make_report, make_regression, monkeypatch):
    pytest.importorskip("jinja2", reason="needs jinja2: pip install jinja2")
    from bayesnorm.report import page

    monkeypatch.setattr(page, "pictures", lambda *_: [])  # which take long
    report = make_report(make_regression(), leaks={"<b>": "is y in other units"})
    head = page.render(report).split('<div class="cards">')[0]
    assert "Check the column &lt;b&gt; first: it is y in other units. If it is computed from price" in head
    assert 'class="advice fair"' in head
    assert "You can rely" not in head
    many = leak_words(dict.fromkeys("abcde", "is y"), "y")
    assert many.startswith("Check the columns a, b, c and 2 others first: each of them is y.")
    mixed = leak_words({"a": "is y", "b": "alone predicts y"}, "y")
    assert mixed.startswith("Check the columns a and b first: each of them reveals y.")


def test_few_rows_are_a_reason_of_their_own(make_report, make_regression, make_classification):
    test = make_regression(rows=6)
    test = dataclasses.replace(test, mean=0.9 * test.train_mean + 0.1 * test.y)
    result = answers(make_report(test))["prediction"]
    assert (result.grade, result.word) == ("fair", "Unclear")
    assert (
        result.headline == "6 held-out rows are too few to tell whether it is better than always answering the average."
    )
    assert result.next_step == "First collect more rows with a known price <i>."
    assert "6 held-out rows are too few to tell whether it predicts better" in advice(verdicts(make_report(test)))[1]
    test = make_classification(rows=6)
    right = test.majority == test.y
    probs = np.tile(test.class_shares, (6, 1))
    probs[int((~right).argmax())] = [0.34, 0.33, 0.33]  # one row is a little better than the class frequencies
    result = answers(make_report(dataclasses.replace(test, probs=probs)))["prediction"]
    assert (result.grade, "6 held-out rows are too few to tell whether" in result.headline) == ("fair", True)


def test_a_class_that_is_never_found_is_said(make_report):
    y = np.array([0] * 60 + [1] * 55 + [2] * 5)
    probs = np.eye(3)[np.where(y == 2, 0, y)] * 0.97 + 0.01
    test = ClassificationTest(y, probs, np.linspace(0, 1, 120), None, ("a", "b", "rare"), np.array([0.5, 0.4, 0.1]))
    report = make_report(test)
    result = answers(report)["prediction"]
    assert result.grade == "fair"
    assert result.headline.endswith("It finds no row of “rare” (0 of 5).")
    assert result.next_step == "Collect more rows of “rare”, or add columns that separate them from the other rows."
    assert "it finds no row of “rare”" in advice(verdicts(report))[1]


def test_every_verdict_says_what_to_do_next(make_report, make_regression):
    report = make_report(make_regression())
    steps = [verdict.next_step for verdict in verdicts(report)]
    worst = [report.rows.numbers[at] for at in np.argsort(-report.test.std)[:5]]
    assert steps[:2] == ["Nothing is needed.", "Nothing is needed."]
    rows = ", ".join(map(str, worst[:4]))
    assert steps[2] == f"Check rows {rows} and {worst[4]} first: they are the most uncertain."
