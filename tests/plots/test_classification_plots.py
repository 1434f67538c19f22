"""Reliability, entropy and retention: numbers against plain NumPy, then what is drawn of them."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.metrics import ece
from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.plots import EntropyPlot, ReliabilityDiagram, RetentionPlot


def predictions(seed, sharpness=2.0, rows=300, classes=4):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(3, rows, classes, dtype=torch.float64, generator=generator)
    return ClassificationPredictive((logits + 2 * logits[:1]).log_softmax(-1))


KNOWN, STRANGE = predictions(0), predictions(1, sharpness=0.4)
Y = KNOWN.sample(1, seed=3)[0]
CONFIDENCE, RIGHT = KNOWN.confidence.numpy(), (KNOWN.label == Y).numpy()


def test_reliability_by_counting():
    plot = ReliabilityDiagram.from_predictive(KNOWN, Y, bins=8)
    bins = np.ceil(8 * CONFIDENCE).astype(int) - 1
    filled = sorted(set(bins))
    np.testing.assert_array_equal(plot.count, [(bins == number).sum() for number in filled])
    np.testing.assert_allclose(plot.confidence, [CONFIDENCE[bins == number].mean() for number in filled])
    np.testing.assert_allclose(plot.accuracy, [RIGHT[bins == number].mean() for number in filled])
    assert plot.ece == pytest.approx(float(ece(KNOWN, Y, bins=8)))
    lower, upper = stats.binom.interval(0.95, plot.count, plot.confidence)
    np.testing.assert_allclose(plot.lower, lower / plot.count)
    np.testing.assert_allclose(plot.upper, upper / plot.count)
    assert f"ECE {plot.ece:.3f}" in plot.summary


def test_reliability_is_drawn():
    plot = ReliabilityDiagram.from_predictive(KNOWN, Y)
    ax = plot.draw()
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], plot.count / 300)
    points = [part.get_offsets() for part in ax.collections if hasattr(part, "get_sizes")]
    shown = np.concatenate(points)
    np.testing.assert_allclose(shown[np.argsort(shown[:, 0])].T, (plot.confidence, plot.accuracy))
    written = [text.get_text() for text in ax.texts]
    assert [f"{number:,}" for number in plot.count] == written[: len(plot.count)]


def test_reliability_of_pixels_leaves_void_ones_out():
    log_probs = KNOWN.log_probs.reshape(3, 3, 100, 4).movedim(-1, 2).reshape(3, 3, 4, 10, 10)
    y = Y.reshape(3, 10, 10).clone()
    y[0] = 9
    plot = ReliabilityDiagram.from_predictive(ClassificationPredictive(log_probs), y, ignore_index=9)
    expected = ReliabilityDiagram.from_predictive(ClassificationPredictive(KNOWN.log_probs[:, 100:]), Y[100:])
    np.testing.assert_array_equal(plot.count, expected.count)
    np.testing.assert_allclose(plot.accuracy, expected.accuracy)
    assert plot.count.sum() == 200


def test_entropy_cdf_by_counting():
    plot = EntropyPlot.from_predictives({"known": KNOWN, "strange": STRANGE})
    assert plot.most == pytest.approx(math.log(4))
    for name, predictive in (("known", KNOWN), ("strange", STRANGE)):
        entropy = stats.entropy(predictive.probs.numpy(), axis=1)
        for at, share in zip(plot.entropy[::10], plot.share[name][::10], strict=True):
            assert share == np.mean(entropy <= at)
    inside, outside = (stats.entropy(part.probs.numpy(), axis=1) for part in (KNOWN, STRANGE))
    wins = stats.mannwhitneyu(outside, inside).statistic / (300 * 300)
    assert plot.auroc == {"strange": pytest.approx(wins)}
    lines = {line.get_label(): line for line in plot.draw().get_lines()}
    np.testing.assert_array_equal(lines["strange"].get_ydata(), plot.share["strange"])


def test_entropy_of_one_set_alone():
    plot = EntropyPlot.from_predictives({"known": KNOWN})
    assert plot.summary == ""
    assert len(plot.draw().texts) == 1


def test_retention_by_sorting():
    uncertainty = KNOWN.entropy.numpy()
    plot = RetentionPlot.from_predictive(KNOWN, Y)
    wrong = (~RIGHT)[np.argsort(uncertainty)].astype(float)
    counts = np.arange(1, 301)
    np.testing.assert_allclose(plot.curves["predictive entropy"], wrong.cumsum() / counts)
    np.testing.assert_allclose(plot.oracle, np.sort(wrong).cumsum() / counts)
    np.testing.assert_allclose(plot.retained, counts / 300)
    assert plot.random == pytest.approx(wrong.mean())
    assert plot.unit == "%"
    lines = {line.get_label(): line for line in plot.draw().get_lines()}
    drawn = lines["dropped by predictive entropy"]
    np.testing.assert_allclose(drawn.get_xdata(), 1 - plot.retained[4:])
    np.testing.assert_allclose(drawn.get_ydata(), plot.curves["predictive entropy"][4:])


def test_retention_of_regression():
    std = torch.linspace(0.1, 2, 50, dtype=torch.float64)
    predictive = RegressionPredictive(torch.zeros(1, 50, 1, dtype=torch.float64), std[None, :, None])
    y = std.flip(0) * torch.linspace(-1, 1, 50, dtype=torch.float64)
    plot = RetentionPlot.from_predictive(predictive, y, unit="MW")
    expected = y.abs().numpy().cumsum() / np.arange(1, 51)
    np.testing.assert_allclose(plot.curves["total standard deviation"], expected)
    assert plot.draw().get_ylabel() == "mean absolute error of kept points (MW)"


def test_retention_of_several_kinds_of_uncertainty():
    error = np.array([0.0, 1.0, 2.0, 3.0])
    plot = RetentionPlot.from_arrays({"perfect": error, "none": np.zeros(4), "worst": -error}, error)
    assert plot.ratio == {"perfect": pytest.approx(1), "none": pytest.approx(0), "worst": pytest.approx(-1)}
    np.testing.assert_allclose(plot.curves["none"], [1.5] * 4)
    assert plot.brief == "100 % of the possible error reduction"


def test_few_rows_and_equal_errors():
    one = ClassificationPredictive(KNOWN.log_probs[:, :1])
    for plot in (
        ReliabilityDiagram.from_predictive(one, Y[:1]),
        EntropyPlot.from_predictives({"one": one}),
        RetentionPlot.from_predictive(one, Y[:1]),
    ):
        plot.draw().get_figure().draw_without_rendering()
    equal = RetentionPlot.from_arrays([1.0, 2.0], [0.0, 0.0])
    assert equal.summary == "all errors are equal"
    assert equal.draw().get_ylim() == (0, 1)


def test_bad_arguments():
    with pytest.raises(InputError, match=r"predictive must be .* got a str"):
        ReliabilityDiagram.from_predictive("x", Y)
    with pytest.raises(BayesNormError, match=r"predictives is empty"):
        EntropyPlot.from_predictives({})
    with pytest.raises(InputError, match=r"predictives must all have the same number of classes, got \[3, 4\]"):
        EntropyPlot.from_predictives({"a": KNOWN, "b": predictions(2, classes=3)})
    with pytest.raises(InputError, match=r"predictive must be .* got a int"):
        EntropyPlot.from_predictives({"a": 3})
    with pytest.raises(InputError, match=r"error must not be negative, got -1"):
        RetentionPlot.from_arrays([1, 2], [1, -1])
    with pytest.raises(InputError, match=r"uncertainty and error must have .* got 2 and 3 numbers"):
        RetentionPlot.from_arrays([1, 2], [1, 2, 3])
    with pytest.raises(BayesNormError, match=r"uncertainty is empty"):
        RetentionPlot.from_arrays({}, [1.0])
    with pytest.raises(InputError, match=r"predictive must be .* got a float"):
        RetentionPlot.from_predictive(1.0, [1.0])


def test_a_line_through_few_points():
    """Two at the least, or there would be nothing to see."""
    for count in (2, 3, 5, 8):
        plot = RetentionPlot.from_arrays(np.arange(count), np.arange(count) + 1.0)
        (line,) = (line for line in plot.draw().get_lines() if line.get_label() == "dropped by uncertainty")
        assert len(line.get_xdata()) >= 2
        assert line.get_ydata().max() == pytest.approx(plot.random)


def test_predictions_with_derivatives():
    logits = KNOWN.log_probs.clone().requires_grad_()
    predictive = ClassificationPredictive(logits.log_softmax(2))
    result, expected = ReliabilityDiagram.from_predictive(predictive, Y), ReliabilityDiagram.from_predictive(KNOWN, Y)
    np.testing.assert_allclose(result.confidence, expected.confidence)


def test_numbers_that_would_lie_over_each_other_are_left_out():
    far, near = np.linspace(0.1, 0.9, 9), np.linspace(0.4, 0.5, 9)
    for confidence, shown in ((far, far), (near, near[::3])):
        plot = ReliabilityDiagram(confidence, confidence, np.full(9, 1234), confidence - 0.1, confidence + 0.1, 0.0)
        results = [text.xy[0] for text in plot.draw().texts if text.get_text() == "1,234"]
        np.testing.assert_allclose(results, shown)
