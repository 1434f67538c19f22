"""A stream that follows shifts of its inputs, whatever its classes, and returns when they end."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.errors import BayesNormError, FileFormatError, InputError, NotComparableError
from bayesnorm.shift import AdaptiveStream
from bayesnorm.shift.class_mix import NetworkLayers

from .conftest import CLASSES, FEATURES, clusters, network_and_posterior, shifted

SIZE = 64
MIXED, TWO = torch.arange(512) % CLASSES, torch.arange(512) % 2


def darker(x: Tensor) -> Tensor:
    """Another shift than `shifted`."""
    return 0.4 * x - 1.2


def follow(stream: AdaptiveStream, change, y: Tensor, seed: int, size: int = SIZE) -> tuple[float, Tensor]:
    """Return the error of a stream on a part, and whether each batch was predicted with adapted statistics."""
    wrong, adapted = 0, []
    for x, labels in zip(change(clusters(y, seed)).split(size), y.split(size), strict=True):
        wrong += int((stream.update(x).argmax(1) != labels).sum())
        adapted.append(stream.adapted)
    return wrong / len(y), torch.tensor(adapted)


def plain_error(change, y: Tensor, seed: int) -> float:
    with torch.no_grad():
        return float((network_and_posterior()[0](change(clusters(y, seed))).argmax(1) != y).double().mean())


@pytest.mark.parametrize(
    ("y", "shifts"), [(MIXED, [shifted, darker]), (TWO, [shifted])], ids=["all classes", "two classes"]
)
def test_a_stream_adapts_when_a_shift_begins_follows_the_next_one_and_returns_when_it_ends(y, shifts):
    stream = AdaptiveStream(network_and_posterior()[1])
    parts = [(lambda x: x, False), *((shift, True) for shift in shifts), (lambda x: x, False)]
    for seed, (change, expected) in enumerate(parts, 20):
        error, adapted = follow(stream, change, y, seed)
        if expected:
            assert bool(adapted[len(adapted) // 2 :].all())
            assert error < plain_error(change, y, seed)
        else:
            assert not bool(adapted.any())
            assert error == pytest.approx(plain_error(change, y, seed))
            assert stream.posterior is stream.original


def test_the_class_probabilities_are_those_of_the_posterior_of_now():
    stream = AdaptiveStream(network_and_posterior()[1])
    probs = stream.update(shifted(x := clusters(MIXED[:SIZE], 3)))
    assert stream.adapted
    with torch.no_grad():
        output = bn.adapted_network(stream.posterior).eval()(shifted(x))
    torch.testing.assert_close(probs, output.softmax(1).double(), rtol=1e-4, atol=1e-5)
    predictive = AdaptiveStream(network_and_posterior()[1]).predict(shifted(x))
    assert torch.equal(predictive.probs, stream.posterior.predict(shifted(x)).probs)


def test_single_examples_are_used_together_in_a_window():
    batches, one_by_one = (AdaptiveStream(network_and_posterior()[1], window=32) for _ in range(2))
    x = shifted(clusters(MIXED[:96], 3))
    for part in x.split(32):
        batches.update(part)
    for number, row in enumerate(x.split(1), 1):
        one_by_one.update(row)
        assert one_by_one.adapted == (number >= 32)
    torch.testing.assert_close(one_by_one.posterior.location, batches.posterior.location, rtol=1e-4, atol=1e-5)


def test_a_large_batch_is_treated_in_parts_with_one_probability_for_each_example():
    stream = AdaptiveStream(network_and_posterior()[1])
    stream.update(clusters(MIXED[:10], 1))
    y = MIXED.repeat(3)[:1300]
    probs = stream.update(shifted(clusters(y, 2)))
    assert probs.shape == (1300, CLASSES)
    assert stream.examples == 1310
    assert float((probs.argmax(1) != y).double().mean()) < plain_error(shifted, y, 2)


def test_unchanging_blocks_cost_two_forward_passes(monkeypatch):
    passes = []
    run = NetworkLayers._probabilities
    monkeypatch.setattr(NetworkLayers, "_probabilities", lambda *args: passes.append(1) or run(*args))
    stream = AdaptiveStream(network_and_posterior()[1])
    follow(stream, shifted, MIXED, 3)
    passes.clear()
    follow(stream, shifted, MIXED, 4)
    assert len(passes) == 2 * len(MIXED) // SIZE


def test_a_saved_stream_continues(tmp_path):
    whole, posterior = AdaptiveStream(network_and_posterior()[1]), network_and_posterior()[1]
    part = AdaptiveStream(posterior)
    for seed, change in enumerate([lambda x: x, shifted, shifted, darker]):
        x = change(clusters(MIXED[:SIZE], seed))
        expected = whole.update(x)
        part.save(tmp_path / "stream")
        part = AdaptiveStream.load(tmp_path / "stream", posterior)
        torch.testing.assert_close(part.update(x), expected)
    names = ("examples", "decision", "adapted", "expected_error", "class_mix", "window", "memory")
    assert [getattr(part, name) for name in names] == [getattr(whole, name) for name in names]


def test_other_files_and_posteriors_are_refused(tmp_path):
    network, posterior = network_and_posterior()
    posterior.save(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="is not an adaptive stream"):
        AdaptiveStream.load(tmp_path / "posterior", posterior)
    stream = AdaptiveStream(posterior)
    stream.update(clusters(MIXED[:SIZE], 0))
    stream.save(tmp_path / "stream")
    narrow = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)).eval()
    other = bn.MCBN(32, states=16).fit(narrow, clusters(MIXED, 0), bn.Categorical())
    with pytest.raises(FileFormatError, match="shift is"):
        AdaptiveStream.load(tmp_path / "stream", other)
    with pytest.raises(NotComparableError, match="without class statistics"):
        AdaptiveStream(bn.deterministic(network, bn.Categorical()))
    with pytest.raises(BayesNormError, match="window"):
        AdaptiveStream(posterior, window=4)


def test_odd_batches_neither_crash_nor_change_the_statistics():
    stream, x = AdaptiveStream(network_and_posterior()[1]), clusters(MIXED[:SIZE], 3)
    with pytest.raises(InputError, match=r"NaN|infinite"):
        stream.update(torch.where(torch.arange(FEATURES) == 0, torch.nan, x))
    assert stream.examples == 0
    flipped = x.clone()
    flipped[0, 0] *= -1
    for odd in (x, flipped, x[:1].repeat(SIZE, 1), torch.zeros_like(x), 1e6 * x, x):
        assert bool(torch.isfinite(stream.update(odd)).all())
        assert stream.adapted == stream.decision.startswith("Adapted")
    assert not stream.adapted


def test_memory_is_bounded_on_a_long_stream():
    stream = AdaptiveStream(network_and_posterior()[1], window=32)
    batches = [change(clusters(MIXED[:8], seed)) for seed, change in enumerate([lambda x: x, shifted] * 5)]
    sizes = []
    tracemalloc.start()
    for number in range(150):
        stream.update(batches[number // 20 % 10])
        if number in (69, 149):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] < sizes[0] + 50_000
    assert stream._shift.rows <= stream.memory + stream.window
