"""Batches that somebody chose to do harm, and what they may change: only what the decision rule explains."""

from __future__ import annotations

import gc
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.errors import BayesNormWarning
from bayesnorm.shift import AdaptiveStream
from bayesnorm.shift.class_mix import estimate_shift
from bayesnorm_runtime.class_mix import LEAST_GAIN, LESS_CONFIDENT

from ..marks import takes_long
from .conftest import CLASSES, FEATURES, clusters, network_and_posterior, shifted

LABELS = torch.arange(64) % CLASSES


def pushed(steps: int = 5) -> Tensor:
    """Return examples that were moved, each by at most 0.5 in every input, until the network is wrong."""
    network, x = network_and_posterior()[0], clusters(LABELS, 5)
    moved = x.clone()
    for _ in range(steps):
        moved.requires_grad_()
        loss = torch.nn.functional.cross_entropy(network(moved), LABELS)
        (gradient,) = torch.autograd.grad(loss, moved)
        moved = (x + (moved.detach() + 0.2 * gradient.sign() - x).clamp(-0.5, 0.5)).detach()
    return moved


def uncertain() -> Tensor:
    """Return the examples of a large set whose predictions are least certain."""
    network, x = network_and_posterior()[0], clusters(torch.arange(4000) % CLASSES, 6)
    with torch.no_grad():
        return x[network(x).softmax(1).amax(1).argsort()[:64]]


def extreme() -> Tensor:
    """Return the unshifted examples of a large set that are farthest in one direction."""
    x = clusters(torch.arange(4000) % CLASSES, 7)
    return x[x.sum(1).argsort(descending=True)[:64]]


def one_flipped() -> Tensor:
    x = clusters(LABELS, 5)
    x[3, 2] *= -1
    return x


BATCHES = {
    "pushed over the boundary": pushed,
    "uncertain ones only": uncertain,
    "extreme ones only": extreme,
    "one number flipped": one_flipped,
    "constant": lambda: torch.full((64, FEATURES), 0.7),
    "zeros": lambda: torch.zeros(64, FEATURES),
    "huge": lambda: 1e6 * clusters(LABELS, 5),
    "half of them shifted": lambda: torch.cat([clusters(LABELS[:32], 5), shifted(clusters(LABELS[:32], 6))]),
    "shifted": lambda: shifted(clusters(LABELS, 5)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_statistics_change_only_where_the_decision_rule_says_so(name):
    posterior, x = network_and_posterior()[1], BATCHES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesNormWarning)  # of examples that are all the same
        adapted = bn.adapt(posterior, x)
    shift = estimate_shift(posterior, x)
    # The rule again, from the probabilities: the fall of the error, according to the adapted network.
    answers = shift.before.argmax(1)
    gain = float((shift.after.max(1) - shift.after[np.arange(len(x)), answers]).mean())
    less_confident = float(shift.before.max(1).mean() - shift.after.max(1).mean())
    allowed = gain >= LEAST_GAIN and less_confident <= LESS_CONFIDENT * gain and len(x.unique(dim=0)) > 1
    assert adapted.decision.startswith("Adapted") == allowed
    assert torch.equal(adapted.location, posterior.location) != allowed
    assert bool(torch.isfinite(adapted.location).all())
    assert bool(torch.isfinite(adapted.predict(clusters(LABELS, 8)).probs).all())
    assert allowed or name != "shifted"
    assert not allowed or name not in ("one number flipped", "extreme ones only", "constant", "zeros")
    assert ("copies of one" in adapted.decision) == (name in ("constant", "zeros"))


def test_a_flipped_number_hardly_changes_an_adaptation():
    posterior, x = network_and_posterior()[1], shifted(clusters(LABELS, 5))
    flipped = x.clone()
    flipped[3, 2] *= -1
    first, second = (bn.adapt(posterior, part) for part in (x, flipped))
    probs = [part.predict(x).probs for part in (first, second)]
    assert float((probs[0] - probs[1])[torch.arange(64) != 3].abs().mean()) < 0.02


def test_a_stream_returns_after_an_attack():
    stream, posterior = AdaptiveStream(network_and_posterior()[1]), network_and_posterior()[1]
    for name in ("pushed over the boundary", "uncertain ones only", "huge", "constant", "shifted"):
        for _ in range(3):
            assert bool(torch.isfinite(stream.update(BATCHES[name]())).all())
            assert stream.adapted == (not torch.equal(stream.posterior.location, posterior.location))
    before = stream.posterior
    stream.update(BATCHES["zeros"]())
    assert stream.posterior is before
    for seed in range(20, 40):
        stream.update(clusters(LABELS, seed))
    assert not stream.adapted
    assert stream.posterior is posterior


@takes_long
def test_ten_thousand_batches_do_not_fill_the_memory():
    stream = AdaptiveStream(network_and_posterior()[1], window=32)
    batches = [change(clusters(LABELS[:8], seed)) for seed, change in enumerate([lambda x: x, shifted] * 5)]
    sizes = []
    tracemalloc.start()
    for number in range(10_000):
        stream.update(batches[number // 20 % 10])
        if number in (1999, 9999):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] < sizes[0] + 20_000
    assert stream.examples == 80_000
