"""Units of the comparison with peers: their streams, resuming, and their means."""

import json
import time

import numpy as np
import pytest
import torch

from experiments.data import IMAGENET_MEAN, IMAGENET_STD
from experiments.shift.peers import running, streaming
from experiments.shift.peers.measuring import BACK, Place
from experiments.shift.peers.plan import COTTA, ESTIMATES, LENGTHS, METHODS, SEQUENCE, Unit, planned_units
from experiments.shift.peers.short_plan import short_units
from experiments.shift.peers.streaming import order_streams, sequence_streams
from experiments.shift.peers.summary import as_text, summarised

COUNT = 1400
TAKEN = range(1000, COUNT)
WHERE = [("clean", 0), ("fog", 5), ("snow", 5)]


@pytest.fixture
def images(monkeypatch, tmp_path):
    """Test images whose red is the number of their condition, and whose green and blue are their own number."""
    labels = torch.arange(COUNT) % 10

    def loaded(folder, condition, device):
        numbers = np.arange(COUNT)
        colours = np.stack([np.full(COUNT, WHERE.index(condition)), numbers // 256, numbers % 256], 1)
        return torch.from_numpy(np.broadcast_to(colours[:, None, None], (COUNT, 32, 32, 3)).astype(np.uint8))

    monkeypatch.setattr(streaming, "loaded", loaded)
    monkeypatch.setattr(streaming, "test_labels", lambda count: labels)
    return labels


def colours(x):
    """Return what the pixels of a batch (B, G, 3, H, W) of network input say: condition and number."""
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    red, green, blue = ((x[..., 0, 0] * std + mean) * 255).round().long().unbind(-1)
    return red, 256 * green + blue


def test_streams_show_every_condition_in_every_order(images, tmp_path):
    orders = ("mixed", "sorted")
    streams = order_streams(tmp_path, WHERE, orders, 150, 64, TAKEN, "cpu")
    batches = list(streams.batches(64))
    assert [batch.shape for batch in batches] == [(64, 6, 3, 32, 32), (64, 6, 3, 32, 32), (22, 6, 3, 32, 32)]
    condition, number = colours(torch.cat(batches))
    assert torch.equal(condition, torch.tensor([0, 1, 2, 0, 1, 2]).expand(150, -1))
    assert torch.equal(images[number], streams.labels)
    assert int(number.min()) >= 1000  # the first thousand are for temperatures
    assert all(len(set(column.tolist())) == 150 for column in number.T)
    # Sorted streams change their class nine times, mixed ones nearly always.
    changes = (streams.labels[1:] != streams.labels[:-1]).sum(0)
    assert changes[3:].eq(9).all()
    assert changes[:3].gt(100).all()


def test_sequences_end_with_clean_images(images, tmp_path):
    streams = sequence_streams(tmp_path, WHERE, ("mixed", "sorted"), 40, 16, TAKEN, "cpu")
    condition, number = colours(torch.cat(list(streams.batches(16))))
    assert condition[80:].eq(0).all()
    assert sorted(condition[::40, 0].tolist()) == [0, 1, 2]
    assert (condition.view(3, 40, 2) == condition.view(3, 40, 2)[:, :1]).all()
    assert torch.equal(images[number], streams.labels)


def test_units_are_run_once_and_continue(monkeypatch, tmp_path):
    units = [Unit("streams", "ResNet-20", name, 5, ("mixed",), 64, 128) for name in ("a", "b", "c")]
    place, path = Place(tmp_path, tmp_path, "cpu", TAKEN, ("fog",)), tmp_path / "units.jsonl"
    runs = []

    def measure(unit, place):
        runs.append(unit.method)
        if unit.method == "b" and runs.count("b") == 1:
            raise RuntimeError("out of memory")
        return [
            {"corruption": name, "order": "mixed", "error": 0.1, "nll": 1.0, "ece": 0.0} for name in ("clean", "fog")
        ]

    monkeypatch.setattr(running, "measure_unit", measure)
    running.run_units(units, place, 1, path, time.time() + 100)
    assert runs == ["a", "b", "c"]
    assert [unit["method"] for unit in summarised(running.lines(path))["failed"]] == ["b"]
    # Half a line is what a killed process leaves behind.
    with path.open("a") as file:
        file.write('{"stage": "str\n')
    running.run_units(units, place, 1, path, time.time() - 1)
    assert runs == ["a", "b", "c"]
    running.run_units(units, place, 1, path, time.time() + 100)
    assert runs == ["a", "b", "c", "b"]
    results = summarised(running.lines(path))
    assert [row["method"] for row in results["streams"]] == ["a", "c", "b"]
    assert not results["failed"]
    assert json.loads(path.read_text().splitlines()[0])["machine"]["torch"] == torch.__version__


def test_plan_has_every_unit_once_and_the_standard_protocol_for_every_method():
    units = planned_units(["ResNet-20", "ResNet-32"], ["resnet20_1"], LENGTHS["paper"])
    assert len(set(units)) == len(units)
    standard = {(unit.network, unit.method) for unit in units if unit.stage == "standard"}
    assert {(network, method) for network in ("ResNet-20", "ResNet-32") for method in METHODS} <= standard
    sizes = {unit.size for unit in units if unit.stage == "streams" and unit.network == "ResNet-32"}
    assert sizes == {1, 8, 64, 200}


def test_the_short_plan_has_whole_cells_in_order_of_importance():
    units = short_units("ResNet-20", "ResNet-32")
    assert len(set(units)) == len(units)
    cells = {}
    for number, unit in enumerate(units):
        if unit.stage in ("streams", SEQUENCE):
            cells.setdefault((unit.stage, unit.network, unit.orders, unit.size), []).append((number, unit.method))
    for cell in cells.values():
        numbers, methods = zip(*cell, strict=True)
        assert {name for name in METHODS if name != COTTA} <= set(methods)
        assert COTTA in methods or numbers[-1] - numbers[0] == len(numbers) - 1
    assert {unit.network for unit in units[:39]} == {"ResNet-32"}  # the one that nothing was developed on


def test_results_have_scores_by_corruption_and_mean_estimates():
    def row(corruption, error):
        return {"corruption": corruption, "order": "mixed", "error": error, "nll": 1.0, "ece": 0.2}

    head = {"network": "n", "method": "m", "severity": 5, "orders": ["mixed"], "size": 64, "length": 9, "every": 1}
    streams = {**head, "stage": "streams", "rows": [row("clean", 0.1), row("fog", 0.2), row("snow", 0.4)]}
    sequence = {**head, "stage": SEQUENCE, "rows": [row("all", 0.5), row(BACK, 0.3)]}
    estimate = {"order": "mixed", "batches": 2, "truth": [0.3, 0.2], "bias": {"AC": [0.0, 0.1]}}
    estimates = {
        **head,
        "stage": ESTIMATES,
        "rows": [
            {**estimate, "corruption": name, "mae": {"AC": [value, 2 * value]}}
            for name, value in (("clean", 0.01), ("fog", 0.02), ("snow", 0.04))
        ],
    }
    results = summarised([streams, sequence, estimates])
    first, second = results["streams"]
    assert first["scores"] == {"clean": [0.1, 1.0, 0.2], "fog": [0.2, 1.0, 0.2], "snow": [0.4, 1.0, 0.2]}
    assert second["scores"] == {"all": [0.5, 1.0, 0.2], BACK: [0.3, 1.0, 0.2]}
    assert json.loads(as_text(results)) == results
    clean, corrupted = results["estimates"]
    assert clean["mae"]["AC"] == [0.01, 0.02]
    assert corrupted["mae"]["AC"] == pytest.approx([0.03, 0.06])
    assert corrupted["batches"] == 4
