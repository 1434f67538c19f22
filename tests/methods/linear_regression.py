"""Bayesian linear regression, whose posterior, evidence and best independent bound have closed forms."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.distributions import MultivariateNormal

import bayesnorm as bn


@dataclasses.dataclass
class LinearRegression:
    """y = x w + N(0, 1 / precision) with w ~ N(0, prior_std^2), everything in closed form."""

    x: torch.Tensor
    y: torch.Tensor
    precision: float = 4.0
    prior_std: float = 1.5

    @classmethod
    def of(cls, rows=40, width=3, correlation=0.0, seed=0, weight=None):
        generator = torch.Generator().manual_seed(seed)
        x = torch.linalg.qr(torch.randn(rows, width, dtype=torch.float64, generator=generator))[0] * rows**0.5
        x = x + correlation * x.sum(1, keepdim=True)
        if weight is None:
            w = torch.randn(width, 1, dtype=torch.float64, generator=generator)
        else:
            w = torch.full((width, 1), weight, dtype=torch.float64)
        return cls(x, x @ w + torch.randn(rows, 1, dtype=torch.float64, generator=generator) / 2)

    @property
    def precision_matrix(self):
        return self.precision * self.x.T @ self.x + torch.eye(self.x.shape[1]) / self.prior_std**2

    @property
    def mean(self):
        return torch.linalg.solve(self.precision_matrix, self.precision * self.x.T @ self.y)[:, 0]

    @property
    def log_evidence(self):
        n = len(self.x)
        covariance = self.prior_std**2 * self.x @ self.x.T + torch.eye(n) / self.precision
        zero = torch.zeros(n, dtype=torch.float64)
        return MultivariateNormal(zero, covariance).log_prob(self.y[:, 0]).item()

    def gap(self, mean, var):
        """How far the bound of independent Gaussians lies below that of the best ones, in nats."""
        off, ratio = mean - self.mean, var * self.precision_matrix.diag()
        return (0.5 * off @ self.precision_matrix @ off + 0.5 * (ratio - 1 - ratio.log()).sum()).item()

    @property
    def mean_field_bound(self):
        """The best bound: the evidence less KL(q || exact posterior), both with the same mean."""
        matrix = self.precision_matrix
        return self.log_evidence - 0.5 * (matrix.diag().log().sum() - torch.logdet(matrix)).item()

    def fit(self, method, seed=0):
        model = nn.Linear(self.x.shape[1], 1, bias=False).double()
        return method.fit(model, (self.x, self.y), bn.Gaussian(self.precision), seed=seed)
