"""The likelihood of classes, given logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .classes import ClassTargets, with_zero


@dataclass(frozen=True)
class Categorical(ClassTargets):
    """Classification: y ~ softmax(f / temperature) over the first output axis. Further axes are pixels.

    A network with one output per example (or pixel) is a binary classifier whose output is the logit of class 1.

    Args:
        temperature: Divisor of the logits. Above 1 it softens the probabilities, below 1 it sharpens them. Default: 1.
        ignore_index: The class number, such as -100, that marks a missing target. Missing targets do not count.
            Default: None, no target is missing.
    """

    def log_probs(self, f: Tensor, temperature: Tensor) -> Tensor:
        return torch.log_softmax(with_zero(f) / temperature, dim=2)
