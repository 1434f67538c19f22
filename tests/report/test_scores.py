"""A report's scores against the package's own metrics, and against scikit-learn."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, r2_score

from bayesnorm import metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive
from bayesnorm.report import ClassificationTest, RegressionTest


@pytest.fixture
def predictive():
    generator = torch.Generator().manual_seed(3)
    loc = torch.randn(8, 60, 1, generator=generator, dtype=torch.float64)
    scale = 0.2 + torch.rand(8, 60, 1, generator=generator, dtype=torch.float64)
    return RegressionPredictive(loc, scale), torch.randn(60, 1, generator=generator, dtype=torch.float64)


def test_regression_scores_are_the_metrics(predictive):
    predictive, y = predictive
    train_y = np.array([1.0, 2.0, 6.0])
    test = RegressionTest.from_predictive(predictive, y, train_y=train_y, constant_variance=0.7, level=0.8)
    scores = test.scores()
    model = scores["model"]
    assert model.rmse == pytest.approx(float(metrics.rmse(predictive, y)))
    assert model.r2 == pytest.approx(r2_score(y.ravel(), predictive.mean.ravel()))
    assert model.crps == pytest.approx(float(metrics.crps(predictive, y)))
    assert model.normalised_crps == pytest.approx(float(metrics.normalised_crps(predictive, y, 0.7)))
    assert model.pll == pytest.approx(float(metrics.pll(predictive, y)))
    assert model.coverage == pytest.approx(float(metrics.coverage(predictive, y, 0.8)))
    constant = metrics.constant_uncertainty(predictive, 0.7)
    guess = RegressionPredictive(torch.full((1, 60, 1), 3.0).double(), torch.tensor(train_y.std()))
    for name, other in (("one_error_bar", constant), ("training_mean", guess)):
        assert scores[name].rmse == pytest.approx(float(metrics.rmse(other, y)))
        assert scores[name].crps == pytest.approx(float(metrics.crps(other, y)))
        assert scores[name].pll == pytest.approx(float(metrics.pll(other, y)))
        assert scores[name].coverage == pytest.approx(float(metrics.coverage(other, y, 0.8)))
    assert scores["one_error_bar"].normalised_crps == 0
    assert scores["training_mean"].normalised_crps is None
    np.testing.assert_allclose(test.epistemic_std**2 + test.aleatoric_std**2, test.std**2)


def test_no_room_between_constant_and_perfect_uncertainty():
    loc = torch.zeros(1, 4, 1, dtype=torch.float64)
    best = 1 / np.log(2)  # of errors that are all 1, for which the optimum is the same everywhere
    predictive = RegressionPredictive(loc, torch.tensor(best**0.5))
    test = RegressionTest.from_predictive(predictive, torch.ones(4, 1), train_y=[0.0, 2.0], constant_variance=best)
    assert test.scores()["model"].normalised_crps is None


def test_classification_scores_are_the_metrics_and_scikit_learns():
    generator = torch.Generator().manual_seed(4)
    log_probs = torch.log_softmax(2 * torch.randn(5, 80, 3, generator=generator, dtype=torch.float64), 2)
    predictive = ClassificationPredictive(log_probs)
    y = torch.randint(3, (80,), generator=generator)
    test = ClassificationTest.from_predictive(predictive, y, classes=["a", "b", "c"], train_y=[0, 0, 1, 2])
    model, guess = test.scores().values()
    probs = predictive.probs.numpy()
    assert model.accuracy == pytest.approx(accuracy_score(y, probs.argmax(1)))
    assert model.nll == pytest.approx(log_loss(y, probs, labels=[0, 1, 2]))
    assert model.brier == pytest.approx(brier_score_loss(y.numpy(), probs, labels=[0, 1, 2], scale_by_half=False))
    assert model.ece == pytest.approx(float(metrics.ece(predictive, y)))
    assert guess.accuracy == pytest.approx(float((y == 0).double().mean()))
    assert guess.nll == pytest.approx(log_loss(y, np.tile([0.5, 0.25, 0.25], (80, 1)), labels=[0, 1, 2]))
    assert test.majority == 0


def test_rows_without_a_class_are_told():
    log_probs = torch.full((2, 4, 2), 0.5).log()
    predictive = ClassificationPredictive(log_probs, ignore_index=-100)
    with pytest.raises(InputError, match="y has 1 labels of 4 that stand for no class"):
        ClassificationTest.from_predictive(predictive, [0, 1, -100, 1], classes=["a", "b"], train_y=[0, 1])


def test_a_class_that_training_never_saw_costs_the_guess_much_but_not_everything(make_classification):
    test = dataclasses.replace(make_classification(), class_shares=np.array([0.5, 0.5, 0.0]))
    assert 0.5 < test.scores()["class_shares"].nll < 20


def test_chance_makes_an_honest_model_score_the_ece_that_is_said(make_classification):
    # Labels of the test come from its probabilities, so that its own ECE is one more draw of what is averaged.
    tests = [make_classification(rows=400, seed=seed) for seed in range(12)]
    result = np.array([test.scores()["model"].ece for test in tests])
    expected = np.array([test.ece_by_chance() for test in tests])
    error = (result - expected).std(ddof=1) / len(tests) ** 0.5
    assert abs((result - expected).mean()) < 3.5 * error
    assert expected.max() < 0.06


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"std": np.ones(3)}, r"std must have shape \(150,\) .* got shape \(3,\)"),
        ({"mean": np.full(150, np.nan)}, "mean must have .* with 150 of these"),
        ({"unusual": np.zeros(150)}, "unusual must be bool"),
        ({"level": 1.0}, "level must be .*1.0"),
        ({"constant_std": 0.0}, "constant_std must be .*0"),
        ({"lower": np.full(150, 1e9)}, "lower"),
        ({"y": np.zeros(0)}, "y is empty"),
    ],
)
def test_what_is_no_regression_test(make_regression, change, match):
    with pytest.raises(InputError, match=match):
        dataclasses.replace(make_regression(), **change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"probs": np.ones((150, 3))}, "probs must have .*add up to 1"),
        ({"probs": np.ones((150, 2)) / 2}, "probs"),
        ({"y": np.full(150, 3)}, "0 to 2"),
        ({"y": np.full(150, 0.5)}, "0 to 2"),
        ({"entropy": np.zeros(7)}, "entropy"),
        ({"class_shares": np.ones(2)}, "class_shares"),
    ],
)
def test_what_is_no_classification_test(make_classification, change, match):
    with pytest.raises(InputError, match=match):
        dataclasses.replace(make_classification(), **change)


def test_several_outputs_per_row_are_refused():
    predictive = RegressionPredictive(torch.zeros(2, 5, 3), torch.ones(()))
    with pytest.raises(InputError, match="one output per row"):
        RegressionTest.from_predictive(predictive, torch.zeros(5, 3), train_y=[0.0, 1.0], constant_variance=1.0)
