"""The likelihood of classes from noisy logits (Kendall and Gal 2017): the network says how noisy its logits are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from ..arguments import require_seed, require_whole
from ..errors import InputError
from .classes import ClassTargets, with_zero
from .scales import LOG_STD_BOUND, LOG_STD_LIMIT, bounded, require_flag

# Noisy logits that are held at a time, where that is more than one sample's.
BLOCK_NUMBERS = 2**20

# Samples of the noise that may be asked for; more of them would change no digit that counts.
MOST_SAMPLES = 2**16


@dataclass(frozen=True)
class LogitNoise(ClassTargets):
    """p(y) = mean over noise e ~ N(0, 1) of softmax((f + exp(s / 2) e) / temperature).

    Of 2 C outputs along the first output axis the first C are logits f, the others their log-variances s; with
    `per_class=False` C + 1 outputs, the last of them one log-variance for all logits. Further axes are pixels.
    Log-variances are kept within the limits of `HeteroscedasticGaussian`. Two outputs (a logit and its log-variance)
    are a binary classifier.

    Args:
        temperature: What logits are divided by; above 1 it softens the probabilities, below 1 it sharpens them.
            `calibrate` finds it.
        samples: Number of samples of the noise that the mean is taken over: evenly spread ones (a scrambled Sobol
            sequence), the same for every row, pixel and draw, so that the same outputs have the same probabilities.
        per_class: Whether every class has a log-variance of its own.
        seed: Seed of the samples.
        ignore_index: A class number, such as -100, that stands for a missing target, which then counts for nothing.
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
            found = torch.logsumexp(torch.log_softmax((logits + std * part) / temperature, dim=3), dim=0)
            total = found if total is None else torch.logaddexp(total, found)
        assert total is not None
        return total - math.log(self.samples)

    def _split(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and the standard deviations of their noise, both (n, batch, class, *pixels)."""
        outputs = f.shape[2]
        if outputs < 2 or (self.per_class and outputs % 2):
            raise InputError(
                f"f: {outputs} outputs per row; with per_class={self.per_class} "
                + ("an even number, logits and then as many log-variances," if self.per_class else "two or more")
                + " would work: with_noise_head(model) makes such a network."
            )
        logits, log_variance = f.split(outputs // 2 if self.per_class else [outputs - 1, 1], dim=2)
        std = (0.5 * bounded(log_variance, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)).exp()
        if logits.shape[2] == 1:  # class 0's logit is 0, without noise
            return with_zero(logits), with_zero(std)
        return logits, std


@lru_cache(maxsize=16)
def _standard_noise(samples: int, classes: int, seed: int) -> Tensor:
    """Return evenly spread standard normal numbers, (samples, classes)."""
    uniform = torch.quasirandom.SobolEngine(classes, scramble=True, seed=seed).draw(samples, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
