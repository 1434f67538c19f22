"""The likelihood of classes, from logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .classes import ClassTargets, with_zero


@dataclass(frozen=True)
class Categorical(ClassTargets):
    """y ~ softmax(f / temperature) over the first output axis; further axes are pixels.

    Args:
        temperature: What logits are divided by; above 1 it softens the probabilities, below 1 it sharpens them.
        ignore_index: A class number, such as -100, that stands for a missing target, which then counts for nothing.

    A network with one output per row (or pixel) is read as a binary classifier whose output is the logit of
    class 1.
    """

    def log_probs(self, f: Tensor, temperature: Tensor) -> Tensor:
        return torch.log_softmax(with_zero(f) / temperature, dim=2)
