"""What tests of exact formulas share: rows and small networks in double precision, and how close is the same."""

import torch
from torch import nn

from bayesnorm.engines.delta import outputs_with_derivatives

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

TIGHT = {"rtol": 1e-9, "atol": 1e-12}
"""Double precision; what is compared is computed along two ways of some tens of operations each."""


def rows(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network(outputs=1, norm=nn.BatchNorm1d):
    return nn.Sequential(
        nn.Linear(3, 5), norm(5), nn.Tanh(), nn.Linear(5, 4), norm(4), nn.Tanh(), nn.Linear(4, outputs)
    ).double()


class Difference(nn.Module):
    """Two layers that normalise the same thing in two scales: whatever batch is drawn, they agree."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.BatchNorm1d(1, eps=1e-30), nn.BatchNorm1d(1, eps=1e-30)

    def forward(self, x):
        return self.a(x) - self.b(3 * x)


def output_jacobian(posterior, x, most_outputs=None):
    """Return outputs, (batch, *out), and their derivatives with respect to the coordinates, (batch, outputs, 2C)."""
    mean, derivatives = outputs_with_derivatives(posterior, x, most_outputs)
    return mean, derivatives()
