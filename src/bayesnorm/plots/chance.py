"""How far shares stray by chance alone."""

from __future__ import annotations

import math

import numpy as np
import torch

from ..errors import BayesNormError


def binomial_band(count: int, probability: float, level: float = 0.95) -> tuple[float, float]:
    """Central range of the share of `count` independent trials that succeed: exact binomial quantiles.

    Args:
        count: How many trials.
        probability: Of success in each.
        level: Probability of the range.
    """
    if count < 1:
        raise BayesNormError(f"count: {count} was given; at least one trial would work.")
    if not 0 < level < 1:
        raise BayesNormError(f"level: {level} was given; a probability strictly between 0 and 1 would work.")
    if not 0 < probability < 1:
        return probability, probability
    # All of the mass that double precision can see lies so near to the mean.
    middle, reach = count * probability, 20 + 10 * math.sqrt(count * probability * (1 - probability))
    first, last = max(0, math.floor(middle - reach)), min(count, math.ceil(middle + reach))
    successes = torch.arange(first, last + 1, dtype=torch.float64)
    total = torch.tensor(float(count), dtype=torch.float64)
    log_chance = (
        torch.lgamma(total + 1)
        - torch.lgamma(successes + 1)
        - torch.lgamma(total - successes + 1)
        + successes * math.log(probability)
        + (total - successes) * math.log1p(-probability)
    )
    reached = log_chance.exp().cumsum(0)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    lower, upper = (first + torch.searchsorted(reached, tails).clamp(max=last - first)).tolist()
    return lower / count, upper / count


def binomial_bands(count: np.ndarray, probability: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """`binomial_band` of each pair."""
    pairs = [binomial_band(int(n), float(p), level) for n, p in zip(count, probability, strict=True)]
    lower, upper = np.array(pairs).T
    return lower, upper
