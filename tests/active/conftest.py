"""Predictives made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bayesnorm import ClassificationPredictive


@pytest.fixture
def make_classes() -> Callable[..., ClassificationPredictive]:
    """`make_classes(samples, rows, classes)`: random class probabilities in double precision, some of them sharp."""

    def make(samples: int, rows: int, classes: int, seed: int = 0, sharpness: float = 2.0) -> ClassificationPredictive:
        generator = torch.Generator().manual_seed(seed)
        logits = sharpness * torch.randn(samples, rows, classes, generator=generator, dtype=torch.float64)
        return ClassificationPredictive(logits.log_softmax(2), torch.rand(samples, generator=generator).double() + 0.1)

    return make
