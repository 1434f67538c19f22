"""`python -m experiments shift`: the recipes of its corruptions, of the blend, and what its parts find."""

import json

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn

from experiments.shift import showing, streams
from experiments.shift.blending import BlendedNetwork
from experiments.shift.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from experiments.shift.images import ADAPT, BLEND, MCBN, PREDICTION_TIME, SOFTMAX, TEMPERATURE, best_blend, mean_scores
from experiments.shift.presets import PRESETS
from experiments.shift.streams import (
    BATCH,
    DIRICHLET,
    MIXED,
    NONE,
    ORDERS,
    SORTED,
    STATISTICS,
    stream_batches,
    stream_means,
    stream_order,
    stream_sequence,
    streams_text,
)

# Their parameters do not rise in every step: a short strong kernel follows a long weak one, or corners move less.
NOT_BY_DISTANCE = {"glass_blur", "motion_blur", "elastic_transform"}


@pytest.fixture(scope="module")
def images():
    """Soft blobs of colour with some grain, so that every corruption has something to change."""
    random = np.random.default_rng(0)
    blobs = ndimage.gaussian_filter(random.normal(size=(6, 32, 32, 3)), (0, 2, 2, 0))
    return np.clip(128 + 50 * blobs / blobs.std() + random.normal(0, 4, blobs.shape), 0, 255).astype(np.uint8)


def test_corruptions_keep_the_form_and_repeat(images):
    for name in CORRUPTIONS:
        results = [corrupt(images, name, severity) for severity in SEVERITIES]
        assert all(picture.shape == images.shape and picture.dtype == np.uint8 for picture in results)
        assert (corrupt(images, name, 3) == results[2]).all()
        distances = [np.abs(picture.astype(float) - images).mean() for picture in results]
        assert distances[0] > 0
        if name not in NOT_BY_DISTANCE:
            assert (np.diff(distances) > 0).all()


def test_known_values():
    grey = np.full((2, 32, 32, 3), 51, np.uint8)  # .2
    assert (corrupt(grey, "brightness", 2) == 76).all()  # .3 of 255, cut off
    assert (corrupt(grey * 0, "brightness", 5) == 76).all()
    assert (corrupt(grey * 5, "brightness", 5) == 255).all()
    halves = grey.copy()
    halves[:, :16] = 151
    assert set(np.unique(corrupt(halves, "contrast", 2))) == {76, 126}  # half the distance from 101
    for name in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "contrast", "elastic_transform", "pixelate"):
        assert np.abs(corrupt(grey, name, 5).astype(int) - 51).max() <= 1, name
    colour = np.zeros((1, 32, 32, 3), np.uint8) + np.array([100, 50, 0], np.uint8)
    assert corrupt(colour, "brightness", 1)[0, 0, 0].tolist() == [112, 56, 0]  # the same hue


def test_the_blend_by_hand():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)
    ).eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    x = torch.randn(8, 3, 8, 8)
    blended = BlendedNetwork(network)
    result = blended.take(x, 24)
    with torch.no_grad():
        hidden = network[0](x)
        mean, var = hidden.mean((0, 2, 3)), hidden.var((0, 2, 3), correction=0)
        torch.testing.assert_close(result[1].running_mean, 0.25 * mean)  # 8 of 32, and 24 at mean 0
        torch.testing.assert_close(result[1].running_var, 0.75 + 0.25 * var)
        # With no training rows it is what batch norm does in training.
        torch.testing.assert_close(blended.take(x, 0)(x), network.train()(x))
    network.eval().load_state_dict(before)
    torch.testing.assert_close(blended.take(x, 24)[1].running_mean, 0.25 * mean)  # not of what was taken before


def rows_of_scores():
    rows = []
    for corruption, severity in (("clean", 0), ("fog", 1), ("fog", 3)):
        head = {
            "network": "ResNet-20",
            "corruption": corruption,
            "severity": severity,
            "pseudo_count": None,
            "samples": 1,
        }
        scores = {"error": 0.1 + 0.1 * severity, "nll": 1.0, "ece": 0.05}
        for method in (SOFTMAX, TEMPERATURE, MCBN):
            rows.append({**head, "method": method, "rows": 0, "of": "all classes", **scores})
        for group in ("all classes", "one class"):
            if group == "one class" and severity == 1:
                continue
            for method, pseudo in ((PREDICTION_TIME, None), (BLEND, 16), (BLEND, 64), (ADAPT, None)):
                better = scores | {"error": scores["error"] - 0.01 * (pseudo == 64), "nll": 1 - 0.1 * (pseudo == 16)}
                rows.append({**head, "method": method, "rows": 32, "pseudo_count": pseudo, "of": group, **better})
    return rows


def test_means_and_the_best_blend():
    rows = rows_of_scores()
    assert mean_scores(rows, corruption="fog", method=MCBN)[0] == pytest.approx(0.3)
    assert best_blend(rows, "error", rows=32)[0] == 64
    assert best_blend(rows, "nll", rows=32) == (16, pytest.approx(0.9))
    means = {(row["of"], row["rows"], row["method"]): row for row in showing.image_means(rows)}
    assert means["all classes", 32, BLEND]["pseudo_counts"] == [64, 16, 16]
    assert means["all classes", 0, MCBN]["corrupted"]["error"] == pytest.approx(0.3)
    assert means["one class", 32, MCBN]["corrupted"]["error"] == pytest.approx(0.4)  # on the same images
    assert "blend, best N 64/16/16" in showing.images_text(rows)
    pytest.importorskip("matplotlib")
    assert len(showing.draw_over_rows(rows).get_figure().axes) == 2
    assert len(showing.draw_over_severity(rows).get_figure().axes) == 3


def test_simulated_from_the_command(experiments, monkeypatch, tmp_path):
    from dataclasses import replace

    from experiments.shift import PRESETS, simulated

    short = replace(PRESETS["quick"], simulated_batches=((4, 3),), simulated_streams=1, simulated_length=3)
    monkeypatch.setitem(PRESETS, "quick", short)
    monkeypatch.setattr(simulated, "TRAINING_ROWS", 512)
    for kind in list(simulated.NETWORKS)[1:]:
        monkeypatch.delitem(simulated.NETWORKS, kind)
    ended = experiments("shift", "simulated", "--out", tmp_path)
    assert ended.code == 0, ended.err
    content = json.loads((tmp_path / "shift_simulated.json").read_text())
    assert content["rows"][0]["batches"] == 3
    assert "monitor, 1 streams of 3 batches" in ended.out


def test_streams_have_all_classes_some_or_one_of_the_second_thousand_images():
    labels = torch.arange(2000) % 10
    batches = list(stream_batches(labels, PRESETS["quick"], clean=False))
    assert [(size, stream) for size, stream, _ in batches] == [(64, MIXED), (64, DIRICHLET), (64, SORTED)]
    assert all(len(chosen) == 64 and int(chosen.min()) >= 1000 for _, _, chosen in batches)
    assert len(labels[batches[2][2]].unique()) == 1
    assert len(batches[0][2].unique()) == 64


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 200])
def test_streams_whose_batches_follow_one_another(order, size):
    labels, images = torch.arange(2000) % 10, torch.arange(1000, 2000)
    batches = stream_order(order, labels, images, 500, size, 0)
    chosen = torch.cat(batches)
    assert [len(batch) for batch in batches] == [min(size, 500 - start) for start in range(0, 500, size)]
    assert torch.equal(chosen, torch.cat(stream_order(order, labels, images, 500, size, 0)))
    assert int(chosen.min()) >= 1000
    counts = labels[chosen].bincount(minlength=10)
    if order in (MIXED, "sorted"):
        assert len(chosen.unique()) == 500
        assert int(labels[chosen].diff().count_nonzero()) == (9 if order == "sorted" else pytest.approx(450, abs=30))
    else:
        assert all(len(chosen[labels[chosen] == label].unique()) == min(100, counts[label]) for label in range(10))
    if order == "sorted":
        assert (counts == 50).all()


def test_a_sequence_has_other_images_in_every_part():
    labels, images = torch.arange(2000) % 10, torch.arange(1000, 2000)
    parts = stream_sequence([("fog", 5), ("clean", 0)], MIXED, labels, images, 128, 64, 0)
    assert [(part.corruption, part.severity, len(part.batches)) for part in parts] == [("fog", 5, 2), ("clean", 0, 2)]
    assert not torch.equal(parts[0].batches[0], parts[1].batches[0])


def test_means_of_streams_by_hand():
    row = {"network": "a", "corruption": "fog", "rows": 64, "stream": MIXED, "adapted": True}
    errors = dict.fromkeys((NONE, BATCH, STATISTICS), 0.4)
    rows = [
        {**row, "errors": errors | {streams.ADAPT: 0.2}, "before": (0.5, 0.3, 0.6), "after": (0.1, 0.0, 0.15)},
        {**row, "errors": errors | {streams.ADAPT: 0.3}, "before": (0.3, 0.2, 0.35), "after": (0.3, 0.2, 0.4)},
    ]
    (mean,) = stream_means(rows)
    assert mean["errors"][streams.ADAPT] == 0.25
    assert (mean["before"], mean["before_bias"], mean["before_inside"]) == (0.1, 0.0, 0.5)
    assert (mean["after"], mean["after_bias"], mean["after_inside"]) == (0.05, -0.05, 0.5)
    assert "25.0" in streams_text([mean]) or "0.250" in streams_text([mean])


def test_false_alarms_are_shown_as_rates_with_their_standard_error():
    from experiments.shift.alarms import false_alarms_text

    line = false_alarms_text([{"network": "ResNet-20", "rows": 16, "batches": 400, "alarms": 30}]).splitlines()[1]
    assert line.split() == ["ResNet-20", "16", "400", "0.075", "±", "0.011"]
