"""An image, its labels, its prediction and its uncertainty."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayesnorm.errors import BayesNormError, InputError
from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive, summarised

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from bayesnorm.plots import SegmentationMaps
from bayesnorm.plots.segmentation_maps import CLASS_COLOURS, RIGHT, VOID, WRONG

LOGITS = torch.randn(4, 2, 3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PREDICTIVE = ClassificationPredictive(LOGITS.log_softmax(2))
Y = PREDICTIVE.sample(1, seed=1)[0]
Y[1, 0, :3] = 7
IMAGE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
MAPS = SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, Y, row=1, classes=("sky", "road", "car"), ignore_index=7)


def test_numbers_are_the_predictives():
    probs = PREDICTIVE.probs[1].numpy()
    np.testing.assert_array_equal(MAPS.prediction, probs.argmax(0))
    np.testing.assert_allclose(MAPS.uncertainty, stats.entropy(probs, axis=0))
    np.testing.assert_array_equal(MAPS.label, np.where(Y[1] == 7, -1, Y[1]))
    np.testing.assert_allclose(MAPS.image, IMAGE / 255)
    scored = MAPS.label >= 0
    np.testing.assert_array_equal(MAPS.wrong, scored & (MAPS.label != MAPS.prediction))
    inside, outside = MAPS.uncertainty[scored & ~MAPS.wrong], MAPS.uncertainty[MAPS.wrong]
    wins = stats.mannwhitneyu(outside, inside).statistic / (len(inside) * len(outside))
    assert f"{outside.mean():.2f} nats at wrong pixels, {inside.mean():.2f} nats at correct ones" in MAPS.summary
    assert f"AUROC {wins:.2f}" in MAPS.summary


def test_uncertainty_of_another_kind():
    maps = SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, row=-1, uncertainty="mutual_information")
    np.testing.assert_allclose(maps.uncertainty, PREDICTIVE.mutual_information[1])
    options = {"row": 1, "uncertainty": "mutual_information", "ignore_index": 7}
    summary = SegmentationMaps.from_predictive(IMAGE, summarised(PREDICTIVE), Y, **options)
    np.testing.assert_allclose(summary.uncertainty, maps.uncertainty)
    np.testing.assert_array_equal(summary.wrong, MAPS.wrong)
    assert maps.label is None
    assert [panel.get_title() for panel in maps.draw().child_axes[:3]] == ["image", "prediction", "mutual information"]


def test_images_of_any_kind():
    for image in (IMAGE, IMAGE / 255, torch.from_numpy(IMAGE).movedim(-1, 0) / 255, IMAGE[..., 0]):
        result = SegmentationMaps.from_predictive(image, PREDICTIVE).image
        expected = IMAGE / 255 if image.shape != (6, 8) else np.repeat(IMAGE[..., :1], 3, -1) / 255
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_panels_show_them_side_by_side():
    axes = Figure().add_subplot()
    assert MAPS.draw(axes) is axes
    image, label, prediction, errors, uncertainty, scale = axes.child_axes
    titles = [panel.get_title() for panel in (image, label, prediction, errors, uncertainty)]
    assert titles == ["image", "label", "prediction", "errors", "predictive entropy"]
    wrong = np.array([to_rgb(RIGHT), to_rgb(WRONG)])[MAPS.wrong.astype(int)]
    np.testing.assert_allclose(errors.images[0].get_array()[1:], wrong[1:])
    np.testing.assert_allclose(errors.images[0].get_array()[0, :3], [to_rgb(VOID)] * 3)
    np.testing.assert_allclose(image.images[0].get_array(), MAPS.image)
    np.testing.assert_allclose(uncertainty.images[0].get_array(), MAPS.uncertainty)
    colours = np.array([to_rgb(colour) for colour in CLASS_COLOURS[:3]] + [to_rgb(VOID)])
    np.testing.assert_allclose(label.images[0].get_array(), colours[MAPS.label])
    np.testing.assert_allclose(prediction.images[0].get_array(), colours[MAPS.prediction])
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["sky", "road", "car", "not labelled", "wrong"]
    assert scale.get_title() == "nats"


def test_a_scale_of_its_own_and_a_picture_without_the_image():
    maps = SegmentationMaps.from_predictive(None, PREDICTIVE, uncertainty="expected_entropy", scale=3.0)
    np.testing.assert_allclose(maps.uncertainty, PREDICTIVE.expected_entropy[0])
    prediction, uncertainty, _ = maps.draw().child_axes
    assert prediction.get_title() == "prediction"
    assert uncertainty.images[0].get_clim() == (0, 3)


def test_one_sure_pixel():
    log_probs = torch.tensor([0.0, -torch.inf]).view(1, 1, 2, 1, 1)
    maps = SegmentationMaps.from_predictive(np.zeros((1, 1, 3)), ClassificationPredictive(log_probs), [[0]])
    assert "all labelled pixels are correct" in maps.summary
    maps.draw().get_figure().draw_without_rendering()


def test_bad_arguments():
    with pytest.raises(InputError, match=r"predictive must be .* got a RegressionPredictive"):
        SegmentationMaps.from_predictive(IMAGE, RegressionPredictive(LOGITS, torch.ones(())))
    with pytest.raises(InputError, match=r"predictive must be .* got a ClassificationPredictive of shape \(2, 3\)"):
        SegmentationMaps.from_predictive(IMAGE, ClassificationPredictive(LOGITS[..., 0, 0].log_softmax(-1)))
    with pytest.raises(InputError, match=r"image must have shape \(6, 8, 3\).* got \(3, 3\)"):
        SegmentationMaps.from_predictive(np.zeros((3, 3)), PREDICTIVE)
    with pytest.raises(InputError, match=r"image must have colours .* got values from -1 to 1"):
        SegmentationMaps.from_predictive(np.linspace(-1, 1, 144).reshape(6, 8, 3), PREDICTIVE)
    with pytest.raises(InputError, match=r"image must be an array .* got str"):
        SegmentationMaps.from_predictive("cat.png", PREDICTIVE)
    with pytest.raises(InputError, match=r"y must have shape \(2, 6, 8\) or \(6, 8\), got \(6, 7\)"):
        SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, np.zeros((6, 7)))
    with pytest.raises(InputError, match=r"y must have classes from 0 to 2, got 0 to 7"):
        SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, Y, row=1)
    with pytest.raises(BayesNormError, match=r"row must be from 0 to 1 for 2 images, got 2"):
        SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, row=2)
    with pytest.raises(BayesNormError, match=r"uncertainty must be .* got 'std'"):
        SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, uncertainty="std")
    with pytest.raises(BayesNormError, match=r"scale must be .* got 0"):
        SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, scale=0)
    with pytest.raises(BayesNormError, match=r"classes must have 3 names, one per class, got 2"):
        SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, classes=("a", "b"))


@pytest.mark.parametrize("void", [7, 255])
def test_labels_in_single_bytes(void):
    labels = np.where(Y == 7, void, Y).astype(np.uint8)
    for y in (labels, torch.from_numpy(labels)):
        result = SegmentationMaps.from_predictive(IMAGE, PREDICTIVE, y, row=1, ignore_index=void)
        np.testing.assert_array_equal(result.label, MAPS.label)
    predictive = ClassificationPredictive(PREDICTIVE.log_probs, None, ignore_index=void)
    np.testing.assert_array_equal(SegmentationMaps.from_predictive(IMAGE, predictive, labels, row=1).label, MAPS.label)
