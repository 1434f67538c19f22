"""Expected variance reduction: by how much would the uncertainty about rows that matter fall if a row were labelled?

With Gaussian outputs f and noise S the answer does not depend on the label (Cohn, Ghahramani and Jordan 1996):

    reduction of row i  =  mean over reference outputs r of  c_ri (C_ii + S_i)^-1 c_ir,

where C and c are the samples' covariances. Labelling a row then changes the covariance in closed form too, so that a
batch can be built greedily. All is computed in the space of the n samples: with a_i the samples' deviations at row i,
c_ij = a_i^T M a_j, M the identity before any label; no matrix over pairs of rows is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..metrics.checks import check_regression, wide
from ..predictive import Predictive, RegressionPredictive
from ..predictive.base import weighted_mean
from .acquisitions import GreedyBatch, require_count
from .scores import finite_noise

# Most memory of the matrices of a block of rows.
BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class VarianceReduction:
    """Greedy expected variance reduction as an acquisition; the reference is the candidates where none is given."""

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        return greedy_variance_reduction(predictive, count, reference).rows


def variance_reduction(predictive: Predictive, reference: Predictive | None = None) -> Tensor:
    """Return the expected fall of the mean variance over a reference set if the row were labelled, (batch,).

    It is in squared units of the targets and never negative. It is exact where outputs and noise are Gaussian (a linear
    model, a Gaussian process); else the best that a linear update of the samples gives.

    Args:
        predictive: Predictions of the candidates in regression, by Monte Carlo samples.
        reference: Predictions of the rows that matter by the *same* samples (same posterior, engine and seed); None for
            the candidates themselves.
    """
    samples, wanted = _checked(predictive, reference)
    return samples.gains(torch.eye(samples.n, dtype=wanted.dtype, device=wanted.device), wanted)


def greedy_variance_reduction(predictive: Predictive, count: int, reference: Predictive | None = None) -> GreedyBatch:
    """Choose rows that together make the reference's mean variance fall most, greedily: each counts what is left.

    Args:
        predictive: Predictions of the candidates; see `variance_reduction`.
        count: Number of rows to choose.
        reference: Predictions of the rows that matter; see `variance_reduction`.
    """
    samples, wanted = _checked(predictive, reference)
    count = require_count("count", count, samples.rows, "rows")
    inner = torch.eye(samples.n, dtype=wanted.dtype, device=wanted.device)
    rows: list[int] = []
    gains: list[Tensor] = []
    for _ in range(count):
        found = samples.gains(inner, wanted)
        found[rows] = -torch.inf
        rows.append(int(found.argmax()))
        gains.append(found[rows[-1]])
        inner = samples.labelled(inner, rows[-1])
    return GreedyBatch(torch.tensor(rows), torch.stack(gains))


@dataclass(frozen=True)
class _CandidateSamples:
    """Outputs of the candidates under the posterior's samples.

    Args:
        deviations: Deviation of each draw from the mean, times the root of its weight, (n, rows, outputs).
        noise: Variance of each output's noise, (rows, outputs).
    """

    deviations: Tensor
    noise: Tensor

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.deviations)

    @property
    def rows(self) -> int:
        """Number of candidates."""
        return self.deviations.shape[1]

    def gains(self, inner: Tensor, wanted: Tensor) -> Tensor:
        """Return the reduction by each row, (rows,).

        Args:
            inner: The matrix M between deviations in covariances a^T M a, (n, n).
            wanted: Mean of a a^T over reference outputs, (n, n).
        """
        outputs = self.deviations.shape[2]
        side = min(outputs, self.n)
        step = max(1, BLOCK_BYTES // (8 * (3 * side * side + 3 * self.n * outputs)))
        goal = inner @ wanted @ inner
        found = []
        for a, noise in zip(self.deviations.split(step, 1), self.noise.split(step), strict=True):
            a = a.movedim(1, 0)
            if outputs <= self.n:
                covariance = a.mT @ (inner @ a) + torch.diag_embed(noise)
                change = torch.linalg.solve(covariance, a.mT @ (goal @ a))
            else:  # the same by the matrix inversion lemma, with a system as small as the samples
                told = (a / noise[:, None]) @ a.mT
                change = torch.linalg.solve(torch.eye(self.n).to(a) + told @ inner, told @ goal)
            found.append(change.diagonal(dim1=1, dim2=2).sum(1))
        return torch.cat(found).clamp_min(0)

    def labelled(self, inner: Tensor, row: int) -> Tensor:
        """Return `inner` as it is once the row is labelled."""
        a, noise = self.deviations[:, row], self.noise[row]
        if a.shape[1] > self.n:
            return torch.linalg.solve(torch.eye(self.n).to(a) + inner @ (a / noise) @ a.T, inner)
        known = inner @ a
        return inner - known @ torch.linalg.solve(a.T @ known + torch.diag(noise), known.T)


def _checked(predictive: Any, reference: Any) -> tuple[_CandidateSamples, Tensor]:
    """Return the candidates' samples, and the mean over reference outputs of a a^T, (n, n)."""
    candidates = _deviations("predictive", predictive)
    others = candidates if reference is None else _deviations("reference", reference)
    if reference is not None and not torch.equal(reference.weights, predictive.weights):
        raise InputError(
            f"reference: has {len(others)} samples and predictive {len(candidates)}, or other weights; predictions of "
            "one posterior by the same engine and seed would work."
        )
    noise = wide(finite_noise(predictive)).reshape(candidates.shape[1:])
    # Without noise a second label of a row would be divided by nothing.
    least = torch.finfo(noise.dtype).eps * candidates.square().sum(0).max() + torch.finfo(noise.dtype).tiny
    flat = others.flatten(1)
    return _CandidateSamples(candidates, noise.clamp_min(least)), flat @ flat.T / flat.shape[1]


def _deviations(name: str, predictive: Any) -> Tensor:
    """Return the samples' deviations from their mean, times the root of each weight, (n, rows, outputs)."""
    check_regression(predictive)
    assert isinstance(predictive, RegressionPredictive)
    if len(predictive.loc) < 2:
        raise InputError(
            f"{name}: has {len(predictive.loc)} draw, which says nothing of how rows vary together; predictions by "
            "MonteCarlo() with at least 2 would work."
        )
    loc = wide(predictive.loc)
    weights = wide(predictive.weights)
    return (loc - weighted_mean(loc, weights)).flatten(1).mul(weights.sqrt()[:, None]).view(len(loc), loc.shape[1], -1)
