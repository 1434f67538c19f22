"""The sentence on the whole model agrees with the three answers, and small gains are called small."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bayesnorm.report import ClassificationTest, RegressionTest, Verdict, advice
from bayesnorm.report.honesty import honesty
from bayesnorm.report.skill import prediction, usefulness

from .conftest import classification_test, regression_test
from .test_groups import with_coverage

TOPICS = ("prediction", "honesty", "usefulness")
GRADES = ("good", "fair", "poor")
SHARES = np.array([0.6, 0.4])


def three(test: RegressionTest | ClassificationTest) -> tuple[Verdict, ...]:
    return prediction(test), honesty(test), usefulness(test)


def small_gain(share: float, rows: int = 400) -> RegressionTest:
    """A mean that explains a share of the targets' variance."""
    generator = np.random.default_rng(0)
    mean = np.sqrt(share) * generator.normal(size=rows)
    test = regression_test(rows=rows, noisy=False)
    y = mean + np.sqrt(1 - share) * generator.normal(size=rows)
    return replace(test, mean=mean, y=y, train_mean=float(y.mean()))


def some_tests() -> list[RegressionTest | ClassificationTest]:
    honest, sorted_classes = regression_test(), classification_test()
    generator = np.random.default_rng(0)
    shuffled = np.tile(sorted_classes.entropy.mean(), 150) + generator.random(150)
    return [
        honest,
        small_gain(0.12),
        small_gain(0.4),
        replace(honest, y=generator.permutation(honest.y)),
        with_coverage([1.0, 0.74]),
        regression_test(rows=400, scale=0.4),
        regression_test(rows=400, scale=2.5),
        regression_test(rows=12),
        replace(honest, std=1 / honest.std),
        regression_test(noisy=False),
        sorted_classes,
        replace(sorted_classes, y=generator.permutation(sorted_classes.y)),
        classification_test(500, 4.0),
        classification_test(500, 0.3),
        classification_test(rows=6),
        classification_test(rows=1),
        replace(sorted_classes, entropy=shuffled),
        replace(sorted_classes, entropy=-sorted_classes.entropy),
        replace(
            sorted_classes, entropy=sorted_classes.entropy * 0 + generator.random(150) - 0.25 * sorted_classes.right
        ),
        replace(sorted_classes, y=np.where(generator.random(150) < 0.45, sorted_classes.y, sorted_classes.majority)),
    ]


@pytest.fixture(scope="module")
def all_verdicts() -> dict[tuple[type, str, str], list[Verdict]]:
    """Real verdicts by task, topic and grade."""
    verdicts: dict[tuple[type, str, str], list[Verdict]] = {}
    for test in some_tests():
        for verdict in three(test):
            verdicts.setdefault((type(test), verdict.topic, verdict.grade), []).append(verdict)
    return verdicts


@pytest.mark.parametrize("task", [RegressionTest, ClassificationTest])
@pytest.mark.parametrize("grades", [*product(GRADES, repeat=3)], ids="-".join)
def test_all_combinations_of_grades(all_verdicts, task, grades):
    choices = [all_verdicts[task, topic, grade] for topic, grade in zip(TOPICS, grades, strict=True)]
    for trio in product(*choices):
        grade, sentence = advice(trio)
        predicts, honest, _ = trio
        assert grade == expected_grade(grades)
        assert sentence.startswith("You can rely on this model") == (grade == "good")
        assert sentence.startswith("Do not") == (grade == "poor")
        assert sentence.endswith(".")
        assert ".." not in sentence
        if predicts.grade == "poor":
            assert sentence == f"Do not rely on this model: {predicts.clause}."
            continue
        # Every answer is in it, and only answers that are given.
        said = sentence.lower().replace(" or whether ", " too few to tell whether ")
        if task is RegressionTest:
            said = said.replace("they ", "its error bars ")
        for verdict in trio:
            assert verdict.clause.lower().split("too few")[-1] in said
        assert ("it predicts well" in said) == (predicts.grade == "good")
        assert ("are honest" in said.split("whether")[0]) == (honest.grade == "good")
        if "good" in grades and "fair" in grades and honest.grade != "poor":
            assert ", but " in sentence


def expected_grade(grades: tuple[str, ...]) -> str:
    if "poor" in grades[:2]:
        return "poor"
    return "good" if grades == ("good", "good", "good") else "fair"


def test_questions_and_answers_are_plain(all_verdicts):
    questions = {verdict.question for verdicts in all_verdicts.values() for verdict in verdicts}
    assert questions == {
        "Does it predict well?",
        "Are its error bars honest?",
        "Do its error bars tell easy rows from hard ones?",
        "Are its probabilities honest?",
        "Does its uncertainty tell right answers from wrong ones?",
    }
    for verdicts in all_verdicts.values():
        for verdict in verdicts:
            assert (verdict.word == "Yes") == (verdict.grade == "good")
            assert (verdict.word == "No") == (verdict.grade == "poor")


def test_a_small_gain_of_the_predictions_is_called_small():
    test = small_gain(0.12)  # errors are 6 % smaller, and 400 rows are enough to be sure of that
    result = three(test)
    left = test.scores()["model"].rmse / test.scores()["training_mean"].rmse
    assert 0.9 < left < 1
    assert (result[0].grade, result[0].word) == ("fair", "A little")
    assert result[0].headline.endswith("This is a small gain.")
    moderate = prediction(small_gain(0.4))
    assert (moderate.grade, moderate.word) == ("fair", "Partly")
    assert moderate.headline.endswith("This is a moderate gain.")
    # Probabilities of 0.63 and 0.57 in place of 0.6 are a little better than the class frequencies, beyond chance.
    y = np.repeat([0, 1], [600, 400])
    first = np.where(np.arange(1000) % 10 < 4 + 4 * (y == 0), 0.63, 0.57)
    classes = prediction(ClassificationTest(y, np.stack([first, 1 - first], 1), 1 - first, None, ("a", "b"), SHARES))
    assert (classes.grade, classes.word) == ("fair", "A little")
    assert "than that of the class frequencies. This is a small gain." in classes.headline
    assert "it predicts only a little better than always answering the average" in advice(result)[1].lower()


def test_a_small_gain_of_the_error_bars_is_called_small():
    # Error bars between 0.8 and 1.2 that are right: with many rows significant, but a CRPS about 1 % lower.
    generator, rows = np.random.default_rng(1), 20_000
    std = np.where(np.arange(rows) % 2, 0.8, 1.2)
    mean = 10 * generator.normal(size=rows)
    test = replace(
        regression_test(rows=rows, noisy=False), mean=mean, y=mean + std * generator.normal(size=rows), std=std
    )
    reach = 1.6448536269514722 * std
    test = replace(test, lower=mean - reach, upper=mean + reach, constant_std=1.02)
    result = three(test)
    gain = 1 - test.crps_points().mean() / test.constant_crps_points().mean()
    assert 0 < gain < 0.03
    assert (result[2].grade, result[2].word) == ("fair", "A little")
    assert "recover only" in result[2].headline
    assert result[2].scale.start > result[2].scale.place
    grade, sentence = advice(result)
    assert grade == "fair"
    assert sentence.endswith("but they tell only a little about which rows are hard.")


def test_a_crps_gain_of_two_percent_is_small_even_if_little_more_is_possible():
    # Errors of nearly one size leave little to gain, so that 2 % are a large share of the possible gain.
    rows = 1000
    test = regression_test(rows=rows, noisy=False)
    sign = np.where(np.arange(rows) % 2, 1.0, -1.0)
    size = np.where(np.arange(rows) % 4 < 2, 0.8, 1.2)
    best = size / np.sqrt(np.log(2))
    test = replace(test, y=test.mean + sign * size, std=best, constant_std=float(best.mean()))
    gain = 1 - test.crps_points().mean() / test.constant_crps_points().mean()
    assert gain < 0.03
    assert test.scores()["model"].normalised_crps > 90
    assert three(test)[2].grade == "fair"


def test_error_bars_of_the_wrong_width_may_still_rank_rows():
    result = three(regression_test(rows=400, scale=2.5))[2]
    assert (result.grade, result.word) == ("fair", "Partly")
    assert result.headline.startswith(
        "Error bars that differ by row rank rows from easy to hard. But their width is wrong"
    )


def rare(hits: int) -> ClassificationTest:
    """960 rows of one class, and 40 of another, of which some are all_verdicts."""
    y = np.repeat([0, 1], [960, 40])
    label = np.where(np.arange(1000) < 960 + 40 - hits, 0, 1)
    probs = np.where(np.eye(2)[label] > 0, 0.97, 0.03)
    entropy = np.linspace(0, 0.5, 1000)
    return ClassificationTest(y, probs, entropy, None, ("ok", "fraud"), np.array([0.96, 0.04]))


def test_a_rare_class():
    for hits, word, said in (
        (40, "Yes", "It finds 40 of 40 rows of “fraud”, which is rare."),
        (25, "Yes", "It finds 25 of 40 rows of “fraud”, which is rare."),
        (0, "No", "It finds no row of “fraud” (0 of 40)."),
    ):
        result = prediction(rare(hits))
        assert result.word == word
        assert "always answering “ok” is right on 96 %" in result.detail
        assert result.headline.endswith(said)


def test_probabilities_of_a_rare_class_are_judged_although_no_answer_is_this_class():
    # Rows of “fraud” have 45 %, others 2 %: every answer is “ok”, but the probabilities tell the classes apart.
    test = rare(0)
    fraud = np.where(test.y == 1, 0.45, 0.02)
    result = prediction(replace(test, probs=np.stack([1 - fraud, fraud], 1)))
    assert (result.grade, result.word) == ("fair", "Partly")
    # Mean NLL: -0.04 ln 0.45 - 0.96 ln 0.98 = 0.0513, against -0.04 ln 0.04 - 0.96 ln 0.96 = 0.168.
    assert result.headline == (
        "Its AUC is 1 (0.5 is chance, 1 is perfect). Its negative log likelihood is 69 % lower than that of the class "
        "frequencies. It finds no row of “fraud” (0 of 40)."
    )


def test_an_oil_spill_model_with_an_auc_of_nine_tenths_is_no_guess():
    """4 % of the rows are spills. No answer is right more often than “no”, but the probabilities tell them apart."""
    generator = np.random.default_rng(0)
    y = (np.arange(1000) % 25 == 0).astype(int)
    log_odds = np.log(0.04 / 0.96) + 1.8 * (generator.normal(size=1000) + 1.8 * y) - 1.8**2 / 2
    spill = 1 / (1 + np.exp(-log_odds))
    probs = np.stack([1 - spill, spill], 1)
    test = ClassificationTest(y, probs, np.minimum(spill, 1 - spill), None, ("no", "spill"), np.array([0.96, 0.04]))
    assert 0.87 < test.scores()["model"].auc < 0.93
    grade, sentence = advice(three(test))
    assert grade != "poor"
    assert not sentence.startswith("Do not")
