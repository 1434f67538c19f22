"""A one-dimensional regression set for plots."""

import torch
from torch import Tensor

from bayesnorm.arguments import require_seed

# (from, to, points); uncertainty should grow in the gaps between.
_PIECES = ((-5.0, -3.0, 7), (-1.5, 1.0, 7), (2.5, 4.5, 6))
_NOISE_STD = 0.3


def toy_regression(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return twenty noisy points of y = x sin(x) on [-5, 5] with two gaps, for a figure like the MCBN paper's first.

    It is similar to Karpathy's ConvNetJS demo "toy 1d regression" (2015), which the paper follows. These are *not* the
    paper's own points, which were not published.

    Returns:
        `(x, y)`, float32, each (20, 1), sorted by x; y has Gaussian noise with standard deviation 0.3.
    """
    generator = torch.Generator(device="cpu").manual_seed(require_seed(seed))
    pieces = [
        low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64, device="cpu")
        for low, high, count in _PIECES
    ]
    x = torch.cat(pieces).sort().values
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64, device="cpu")
    y = x * torch.sin(x) + _NOISE_STD * noise
    return x.float().unsqueeze(1), y.float().unsqueeze(1)
