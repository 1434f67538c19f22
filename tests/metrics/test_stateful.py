"""The torchmetrics layer: batch by batch gives what the score says of the whole set."""

import builtins
import pickle

import numpy as np
import pytest
import torch

from bayesnorm import metrics
from bayesnorm.errors import InputError, MissingExtraError
from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive


def rows(predictive, start, stop):
    if isinstance(predictive, ClassificationPredictive):
        return ClassificationPredictive(
            predictive.log_probs[:, start:stop], predictive.weights, predictive.ignore_index
        )
    return RegressionPredictive(predictive.loc[:, start:stop], predictive.scale[:, start:stop], predictive.weights)


def test_without_torchmetrics_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "torchmetrics":
            raise ModuleNotFoundError("No module named 'torchmetrics'", name="torchmetrics")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(__import__("sys").modules, "bayesnorm.metrics.torchmetrics_class", raising=False)
    with pytest.raises(MissingExtraError, match=r"needs torchmetrics: pip install torchmetrics"):
        metrics.torchmetric(metrics.crps)


def test_regression_scores_in_a_collection(make_regression):
    torchmetrics = pytest.importorskip("torchmetrics")
    predictive, y = make_regression(shape=(30, 2))
    scores = {
        "crps": (metrics.crps, {}),
        "mixture": (metrics.crps, {"form": "mixture"}),
        "pll": (metrics.pll, {}),
        "rmse": (metrics.rmse, {}),
        "mae": (metrics.mae, {}),
        "coverage": (metrics.coverage, {"level": 0.5}),
        "calibration": (metrics.quantile_calibration_error, {}),
    }
    expected = {name: score(predictive, y, **options) for name, (score, options) in scores.items()}
    scores |= {"width": (metrics.width, {"level": 0.5}), "sharpness": (metrics.sharpness, {})}
    expected |= {"width": metrics.width(predictive, 0.5), "sharpness": metrics.sharpness(predictive)}
    collection = torchmetrics.MetricCollection(
        {name: metrics.torchmetric(score, **options) for name, (score, options) in scores.items()}
    )
    for _ in range(2):
        for start, stop in ((0, 7), (7, 8), (8, 30)):
            collection.update(rows(predictive, start, stop), y[start:stop])
        result = collection.compute()
        for name, value in expected.items():
            assert result[name].item() == pytest.approx(value.item(), rel=1e-5), name
        collection.reset()


@pytest.mark.parametrize(("void", "ignored"), [(None, None), (11, 0), (None, 13)])
def test_classification_scores_in_a_collection(make_classification, void, ignored):
    torchmetrics = pytest.importorskip("torchmetrics")
    predictive, y = make_classification(batch=12, pixels=(3, 2))
    predictive = ClassificationPredictive(predictive.log_probs, predictive.weights, ignored)
    if ignored is not None:
        y[2, 0], y[7] = ignored, ignored
    if void is not None:
        y = torch.where(torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.3, void, y)
        y[5] = void
    scores = {f.__name__: f for f in (metrics.nll, metrics.brier, metrics.accuracy, metrics.ece, metrics.mean_iou)}
    collection = torchmetrics.MetricCollection(
        {name: metrics.torchmetric(score, ignore_index=void) for name, score in scores.items()}
    )
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        collection.update(rows(predictive, start, stop), y[start:stop])
    result = pickle.loads(pickle.dumps(collection)).compute()
    for name, score in scores.items():
        assert result[name].item() == pytest.approx(score(predictive, y, ignore_index=void).item(), rel=1e-5), name
    assert collection["accuracy"].higher_is_better
    assert not collection["nll"].higher_is_better


def test_scores_that_agree_on_the_first_batch_are_not_merged(make_gaussian):
    torchmetrics = pytest.importorskip("torchmetrics")
    collection = torchmetrics.MetricCollection(
        {name: metrics.torchmetric(metrics.coverage, level=level) for name, level in (("narrow", 0.5), ("wide", 0.99))}
    )
    predictive = make_gaussian(torch.zeros(2), 1.0)
    collection.update(predictive, [0.0, 0.0])
    collection.update(predictive, [2.0, 2.0])
    assert {name: value.item() for name, value in collection.compute().items()} == {"narrow": 0.5, "wide": 1.0}


def test_forward_gives_the_batch_and_keeps_the_whole(make_classification):
    pytest.importorskip("torchmetrics")
    predictive, y = make_classification(batch=20)
    metric = metrics.torchmetric(metrics.ece, bins=5)
    for start, stop in ((0, 8), (8, 20)):
        part = rows(predictive, start, stop)
        torch.testing.assert_close(metric(part, y[start:stop]), metrics.ece(part, y[start:stop], bins=5))
    torch.testing.assert_close(metric.compute(), metrics.ece(predictive, y, bins=5))


def test_a_score_of_your_own_sees_all_samples(make_classification):
    pytest.importorskip("torchmetrics")
    predictive, y = make_classification(batch=9)

    def mean_information(predictive, y):
        return predictive.mutual_information.mean()

    metric = metrics.torchmetric(mean_information)
    metric.update(rows(predictive, 0, 4), y[:4])
    metric.update(rows(predictive, 4, 9), y[4:])
    torch.testing.assert_close(metric.compute(), predictive.mutual_information.mean())


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_bad_use(make_classification):
    pytest.importorskip("torchmetrics")
    with pytest.raises(InputError, match=r"compute has no predictions yet"):
        metrics.torchmetric(metrics.ece).compute()
    for score in (metrics.ece, metrics.rmse):
        with pytest.raises(InputError, match=r"predictive must be .* got a Tensor"):
            metrics.torchmetric(score).update(torch.ones(3), [1, 1, 1])


def test_missing_targets_and_lists_of_them_for_a_score_of_your_own():
    pytest.importorskip("torchmetrics")
    predictive = RegressionPredictive(torch.zeros(2, 3, 1), torch.ones(1), missing=True)

    def seen(predictive, y):
        return (predictive.crps(y) > 0).sum()

    metric = metrics.torchmetric(seen)
    metric.update(predictive, [[1.0], [float("nan")], [2.0]])
    metric.update(predictive, np.array([[1.0], [3.0], [2.0]])[::-1])
    assert metric.compute() == 5
