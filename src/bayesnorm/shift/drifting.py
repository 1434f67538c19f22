"""Test, without labels, whether new data come from the training distribution, and find the layers that differ."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bayesnorm_runtime import Drift, drift_test

from ..errors import NotComparableError
from ..posterior import BatchNormPosterior, Posterior
from .adapting import adapt_by
from .class_mix import estimate_shift
from .comparison import compare_with_present, inputs_in_memory, over_statistics


def drift(posterior: Posterior, x: Any) -> Drift:
    """Test whether new data come from the training distribution; labels are not needed.

    One forward pass, in which every batch-norm layer normalises by the new data as in training, gives their batch
    statistics. These are compared with the statistics of training batches, which `fit` has recorded; see
    `posterior/training_batches.py`. The test is of all examples together: it can overlook a few unusual ones among
    many.

    For a classifier, the result also estimates the error on these examples (`expected_error`), their mix of classes
    (`class_mix`), and whether the mix or the inputs have changed (`cause`). These are computed when they are first
    read, with up to five more forward passes. `adapted()` uses them again. The result holds `x`; see `without_inputs`.

    Args:
        posterior: A posterior over batch statistics (`MCBN`, `GaussianBN`, `StochasticBN`), a combination that
            contains one, or an ensemble of these. An adapted posterior is compared with the data it was adapted to.
        x: New inputs, (n, ...), as a tensor or anything that `fit` takes; n is at least 1. Of data sets and streams,
            as many examples are used as fit into 1 GiB.
    """
    parts = over_statistics(posterior)
    x = inputs_in_memory(parts[0], x)
    results = tuple(drift_of(part, x) for part in parts)
    if len(results) == 1:
        return replace(results[0], adapt_to_examples=partial(adapt_by, posterior, x))
    # All members test the same data; the Cauchy combination is valid for dependent tests.
    score = float(np.mean([1 / math.tan(math.pi * min(max(result.p_value, 1e-300), 1 - 1e-15)) for result in results]))
    p_value = math.atan2(1, score) / math.pi
    distance = float(np.mean([result.distance for result in results]))
    adapt_again = partial(adapt_by, posterior, x)
    return Drift(p_value, results[0].rows, distance, results[0].layers, results, adapt_to_examples=adapt_again)


def drift_of(posterior: BatchNormPosterior, x: Any) -> Drift:
    """Test new data with one posterior over batch statistics."""
    comparison = compare_with_present(posterior, x)
    if not bool(comparison.varies.any()):
        raise NotComparableError(
            f"x has {comparison.rows} example{'s' if comparison.rows != 1 else ''}, too few for a test: statistics "
            "of so few training examples do not vary. Pass more examples."
        )
    result = drift_test(comparison)
    if result is None:
        raise NotComparableError(
            "posterior: the statistics of its training batches do not vary, so new data cannot be compared with them. "
            "Fit again on examples that differ, or use a network whose output depends on its inputs."
        )
    estimate = None if posterior.class_statistics is None else partial(estimate_shift, posterior, x)
    return Drift(result.p_value, comparison.rows, result.distance, result.layers, estimate=estimate)
