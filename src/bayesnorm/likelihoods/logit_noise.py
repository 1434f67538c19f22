"""The likelihood of classes with noisy logits, whose noise level the network predicts (Kendall and Gal, 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from ..arguments import require_flag, require_seed, require_whole
from ..errors import InputError
from .classes import ClassTargets, with_zero
from .scales import LOG_STD_BOUND, LOG_STD_LIMIT, bounded

# Maximum count of noisy logits that are in memory at once, unless a single sample has more.
BLOCK_NUMBERS = 2**20

# Maximum number of noise samples. More would not change the result noticeably.
MOST_SAMPLES = 2**16


@dataclass(frozen=True)
class LogitNoise(ClassTargets):
    """Classification with predicted noise of the logits.

    p(y) is the mean over noise e ~ N(0, 1) of softmax((f + exp(s / 2) e) / temperature). Of 2 C outputs along the first
    output axis, the first C are logits f, and the others are their log-variances s. With `per_class=False` there are
    C + 1 outputs; the last is one log-variance for all logits. Two outputs (a logit and its log-variance) are a binary
    classifier. Further axes are pixels. Log-variances have the limits of `HeteroscedasticGaussian`.

    Reference: Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer vision?", 2017.

    Args:
        temperature: Divisor of the logits. Above 1 it softens the probabilities, below 1 it sharpens them. `calibrate`
            fits it. Default: 1.
        samples: Number of noise samples in the mean. They are evenly spread (a scrambled Sobol sequence) and the same
            for every example, pixel and posterior sample, so equal outputs give equal probabilities. Default: 64.
        per_class: Whether every class has its own log-variance. Default: True.
        seed: Seed of the noise samples. Default: 0.
        ignore_index: The class number, such as -100, that marks a missing target. Missing targets do not count.
            Default: None, no target is missing.
    """

    least_outputs: ClassVar[int] = 2

    samples: int = 64
    per_class: bool = field(default=True, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("samples", self.samples, 1, MOST_SAMPLES)
        require_seed(self.seed)
        require_flag("per_class", self.per_class)

    def log_probs(self, f: Tensor, temperature: Tensor) -> Tensor:
        logits, std = self._split(f)
        noise = _standard_noise(self.samples, logits.shape[2], self.seed).to(logits)
        noise = noise.view(*noise.shape[:1], 1, 1, *noise.shape[1:], *[1] * (logits.dim() - 3))
        total: Tensor | None = None
        for part in noise.split(max(1, BLOCK_NUMBERS // max(1, logits.numel()))):
            log_prob = torch.logsumexp(torch.log_softmax((logits + std * part) / temperature, dim=3), dim=0)
            total = log_prob if total is None else torch.logaddexp(total, log_prob)
        assert total is not None
        return total - math.log(self.samples)

    def _split(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the standard deviations of their noise, both (n, batch, class, *pixels)."""
        outputs = f.shape[2]
        if outputs < 2 or (self.per_class and outputs % 2):
            raise InputError(
                f"The number of outputs per example is {outputs}, but with per_class={self.per_class} it must be "
                + ("even (logits, then as many log-variances)." if self.per_class else "at least 2.")
                + " with_noise_head(model) adds the missing outputs."
            )
        logits, log_variance = f.split(outputs // 2 if self.per_class else [outputs - 1, 1], dim=2)
        std = (0.5 * bounded(log_variance, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)).exp()
        if logits.shape[2] == 1:  # the logit of class 0 is 0, without noise
            return with_zero(logits), with_zero(std)
        return logits, std


@lru_cache(maxsize=16)
def _standard_noise(samples: int, classes: int, seed: int) -> Tensor:
    """Return evenly spread standard normal numbers, (samples, classes)."""
    uniform = torch.quasirandom.SobolEngine(classes, scramble=True, seed=seed).draw(samples, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
