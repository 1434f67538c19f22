"""Acquisitions that choose a batch of examples jointly: BatchBALD for classes, variance reduction for numbers.

**BatchBALD** (Kirsch, van Amersfoort and Gal, 2019). BALD scores examples one by one, so it picks near-copies of
one informative example. BatchBALD scores a batch by the joint mutual information I(y_1, ..., y_b; w) and builds it
greedily. By the chain rule, example b adds

    I(y_b; w | y_1..b-1)  =  sum_c p(c) H[ sum_t p(w_t | c) p(y_b | w_t) ]  -  sum_t p(w_t) H[ p(y_b | w_t) ],

where c runs over the label configurations that the earlier examples can have. Up to a limit, all are enumerated. Above
it, they are sampled in proportion to p(c) with equal weights.

**Expected variance reduction** (Cohn, Ghahramani and Jordan 1996): how much the epistemic variance at reference inputs
falls if an example is labelled. With Gaussian outputs f and noise variance S, it does not depend on the label:

    reduction by example i  =  mean over reference outputs r of  c_ri (C_ii + S_i)^-1 c_ir,

where C and c are covariances over the samples. The covariance after a label has a closed form too, so a batch can be
built greedily. Everything is computed in the space of the n samples: with a_i the samples' deviations at example i,
c_ij = a_i^T M a_j, and M is the identity before any label. No matrix over pairs of examples is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_seed
from ..errors import InputError
from ..metrics import check_regression, wide
from ..predictive import (
    ClassificationPredictive,
    ClassificationSummary,
    Predictive,
    RegressionPredictive,
    weighted_mean,
)
from .acquisitions import GreedyBatch, finite_noise, require_classification, require_count

# The number of examples whose gains are updated together.
LAZY_ROWS = 128


@dataclass(frozen=True)
class BatchBALD:
    """Greedy BatchBALD as an acquisition.

    Args:
        configurations: The largest number of label configurations of the examples chosen so far. Up to this number the
            result is exact (with 1,000 and ten classes: the first four examples); above it, they are sampled.
        block_bytes: The largest memory, in bytes, for intermediate probabilities.
    """

    configurations: int = 1024
    block_bytes: int = 2**26

    def __post_init__(self) -> None:
        for name in ("configurations", "block_bytes"):
            object.__setattr__(self, name, require_count(name, getattr(self, name)))

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        return batch_bald(
            predictive, count, configurations=self.configurations, seed=seed, block_bytes=self.block_bytes
        ).rows


def batch_bald(
    predictive: Predictive,
    count: int,
    *,
    configurations: int = 1024,
    seed: int = 0,
    block_bytes: int = 2**26,
) -> GreedyBatch:
    """Choose greedily the examples whose labels have the largest joint mutual information with the posterior's sample.

    Gains are in nats.

    Args:
        predictive: Class probabilities of the candidates under the samples, per example (not per pixel).
        count: Number of examples to choose.
        configurations: The largest number of label configurations; see `BatchBALD`.
        seed: Seed for sampling configurations.
        block_bytes: The largest memory, in bytes, for intermediate probabilities.
    """
    predictive = require_classification(predictive)
    count = require_count("count", count, len(predictive), "candidates")
    configurations = require_count("configurations", configurations)
    block_bytes, seed = require_count("block_bytes", block_bytes), require_seed(seed)
    if isinstance(predictive, ClassificationSummary):
        raise InputError('predictive is a summary without samples. Call predict(x) without keep="summary".')
    if predictive.log_probs.dim() != 3:
        raise InputError(
            f"predictive has log_probs of shape {tuple(predictive.log_probs.shape)}, with one label per pixel, which "
            "are too many to enumerate. Use active.bald."
        )
    generator = torch.Generator().manual_seed(seed)
    pool = _Pool(predictive, block_bytes)
    labels = _Configurations(torch.ones(1, dtype=torch.float64), predictive.weights[None].log().double().cpu())
    # Gains shrink as more labels are known (submodularity), so an example's last gain bounds its next one.
    bounds = torch.full((len(predictive),), torch.inf, dtype=torch.float64)
    rows, gains = [], []
    for _ in range(count):
        best = pool.best(labels, bounds)
        rows.append(best)
        gains.append(float(bounds[best]))
        bounds[best] = -torch.inf
        if len(rows) < count:
            labels = labels.extended(predictive.log_probs[:, best].double().cpu(), configurations, generator)
    return GreedyBatch(torch.tensor(rows), torch.tensor(gains, dtype=torch.float64).clamp_min(0))


@dataclass(frozen=True)
class _Configurations:
    """The label configurations of the examples chosen so far, and the posterior of the samples given each.

    Args:
        share: Probability of each configuration, (c,), sum 1.
        log_posterior: Log probability of each sample given the labels, (c, n).
    """

    share: Tensor
    log_posterior: Tensor

    def extended(self, log_probs: Tensor, most: int, generator: torch.Generator) -> _Configurations:
        """Return all configurations extended by one more example, whose log probabilities are (n, class).

        Above `most` configurations, that many are chosen by systematic sampling in proportion to their shares.
        """
        evidence = self.log_posterior.exp() @ log_probs.exp()
        share = (self.share[:, None] * evidence).flatten()
        possible = share.nonzero()[:, 0]
        share = share[possible] / share[possible].sum()
        if len(possible) > most:
            places = (torch.arange(most) + torch.rand(1, generator=generator, dtype=torch.float64)) / most
            edges = share.cumsum(0)
            sampled = torch.searchsorted(edges / edges[-1], places).clamp_max(len(edges) - 1)
            unique, times = sampled.unique(return_counts=True)
            possible, share = possible[unique], times / times.sum().double()
        classes = log_probs.shape[1]
        joint = self.log_posterior[possible // classes] + log_probs.T[possible % classes]
        return _Configurations(share, joint - joint.logsumexp(1, keepdim=True))


class _Pool:
    """Class probabilities of the candidates, for one matrix product per block of examples."""

    def __init__(self, predictive: ClassificationPredictive, block_bytes: int) -> None:
        self.probs = predictive.log_probs.exp()
        self.expected_entropy = predictive.expected_entropy.double().cpu()
        self.block_bytes = block_bytes

    def best(self, labels: _Configurations, bounds: Tensor) -> int:
        """Return the example with the largest gain, and set the bounds of all evaluated examples to their gains."""
        samples, _, classes = self.probs.shape
        row_bytes = (len(labels.share) + samples) * classes * self.probs.element_size()
        step = max(1, min(LAZY_ROWS, self.block_bytes // row_bytes))
        order = bounds.sort(descending=True, stable=True).indices
        best = -1
        for block in order.split(step):
            if best >= 0 and bounds[best] >= bounds[block[0]]:
                break
            block = block[bounds[block] > -torch.inf]  # without those already chosen
            if len(block):
                bounds[block] = self._gains(labels, block)
                leader = int(block[bounds[block].argmax()])
                best = leader if best < 0 or bounds[leader] > bounds[best] else best
        return best

    def _gains(self, labels: _Configurations, rows: Tensor) -> Tensor:
        """Return I(y; w | configurations), in full precision, because it is a small difference of large numbers."""
        if torch.is_autocast_enabled(self.probs.device.type):
            with torch.autocast(self.probs.device.type, enabled=False):
                return self._gains(labels, rows)
        samples, _, classes = self.probs.shape
        probs = self.probs[:, rows.to(self.probs.device)]
        posterior, share = labels.log_posterior.exp().to(probs), labels.share.to(probs)
        entropy = torch.zeros(len(rows), dtype=probs.dtype, device=probs.device)
        # If one example under all configurations needs too much memory, the configurations are split.
        part = max(1, self.block_bytes // (len(rows) * classes * probs.element_size()))
        for block, weight in zip(posterior.split(part), share.split(part), strict=True):
            mixture = (block @ probs.reshape(samples, -1)).view(len(block), len(rows), classes)
            entropy += weight @ torch.special.entr(mixture).sum(2)
        return entropy.double().cpu() - self.expected_entropy[rows]


# The largest memory, in bytes, for the matrices of a block of examples.
BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class VarianceReduction:
    """Greedy expected variance reduction as an acquisition; the default reference is the candidates."""

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        return greedy_variance_reduction(predictive, count, reference).rows


def variance_reduction(predictive: Predictive, reference: Predictive | None = None) -> Tensor:
    """Return the expected reduction of the mean epistemic variance over a reference set by each label, (batch,).

    It is in squared target units and never negative. It is exact if outputs and noise are Gaussian (a linear model, a
    Gaussian process). Otherwise it is that of the best linear update of the samples.

    Args:
        predictive: Regression predictions of the candidates, by Monte Carlo samples.
        reference: Predictions of the reference inputs by the *same* samples (same posterior, engine and seed); None
            uses the candidates.
    """
    samples, wanted = _checked(predictive, reference)
    return samples.gains(torch.eye(len(wanted)).to(wanted), wanted)


def greedy_variance_reduction(predictive: Predictive, count: int, reference: Predictive | None = None) -> GreedyBatch:
    """Choose greedily the examples that together reduce the mean epistemic variance of the reference most.

    Args:
        predictive: Predictions of the candidates; see `variance_reduction`.
        count: Number of examples to choose.
        reference: Predictions of the reference inputs; see `variance_reduction`.
    """
    samples, wanted = _checked(predictive, reference)
    count = require_count("count", count, len(samples.noise), "candidates")
    inner = torch.eye(len(wanted)).to(wanted)
    rows: list[int] = []
    gains: list[Tensor] = []
    for _ in range(count):
        reductions = samples.gains(inner, wanted)
        reductions[rows] = -torch.inf
        rows.append(int(reductions.argmax()))
        gains.append(reductions[rows[-1]])
        inner = samples.labelled(inner, rows[-1])
    return GreedyBatch(torch.tensor(rows), torch.stack(gains))


@dataclass(frozen=True)
class _CandidateSamples:
    """Outputs of the candidates under the posterior's samples.

    Args:
        deviations: Deviation of each sample from the mean, times the root of its weight, (n, examples, outputs).
        noise: Aleatoric variance of each output, (examples, outputs).
    """

    deviations: Tensor
    noise: Tensor

    def gains(self, inner: Tensor, wanted: Tensor) -> Tensor:
        """Return the reduction by each example, (examples,).

        Args:
            inner: The matrix M of the covariances a^T M a, (n, n).
            wanted: Mean of a a^T over reference outputs, (n, n).
        """
        n, _, outputs = self.deviations.shape
        side = min(outputs, n)
        step = max(1, BLOCK_BYTES // (8 * (3 * side * side + 3 * n * outputs)))
        goal = inner @ wanted @ inner
        reductions = []
        for a, noise in zip(self.deviations.split(step, 1), self.noise.split(step), strict=True):
            a = a.movedim(1, 0)
            if outputs <= n:
                covariance = a.mT @ (inner @ a) + torch.diag_embed(noise)
                change = torch.linalg.solve(covariance, a.mT @ (goal @ a))
            else:  # the same by the matrix inversion lemma, with an (n, n) system
                information = (a / noise[:, None]) @ a.mT
                change = torch.linalg.solve(torch.eye(n).to(a) + information @ inner, information @ goal)
            reductions.append(change.diagonal(dim1=1, dim2=2).sum(1))
        return torch.cat(reductions).clamp_min(0)

    def labelled(self, inner: Tensor, row: int) -> Tensor:
        """Return `inner` after an example is labelled."""
        a, noise = self.deviations[:, row], self.noise[row]
        if a.shape[1] > len(a):
            return torch.linalg.solve(torch.eye(len(a)).to(a) + inner @ (a / noise) @ a.T, inner)
        covariance = inner @ a
        return inner - covariance @ torch.linalg.solve(a.T @ covariance + torch.diag(noise), covariance.T)


def _checked(predictive: Any, reference: Any) -> tuple[_CandidateSamples, Tensor]:
    """Return the candidates' samples, and the mean over reference outputs of a a^T, (n, n)."""
    candidates = _deviations("predictive", predictive)
    others = candidates if reference is None else _deviations("reference", reference)
    if reference is not None and not torch.equal(reference.weights, predictive.weights):
        raise InputError(
            f"reference has {len(others)} samples and predictive has {len(candidates)}, or their weights differ. "
            "Predict both with the same posterior, engine and seed."
        )
    noise = wide(finite_noise(predictive)).reshape(candidates.shape[1:])
    # Without noise, a second label of an example would divide by zero.
    least = torch.finfo(noise.dtype).eps * candidates.square().sum(0).max() + torch.finfo(noise.dtype).tiny
    flat = others.flatten(1)
    return _CandidateSamples(candidates, noise.clamp_min(least)), flat @ flat.T / flat.shape[1]


def _deviations(name: str, predictive: Any) -> Tensor:
    """Return the samples' deviations from their mean, times the root of each weight, (n, examples, outputs)."""
    check_regression(predictive)
    assert isinstance(predictive, RegressionPredictive)
    if len(predictive.loc) < 2:
        raise InputError(
            f"{name} has {len(predictive.loc)} sample, but a covariance needs at least 2. Predict with "
            "MonteCarlo(samples=64)."
        )
    loc = wide(predictive.loc)
    weights = wide(predictive.weights)
    return (loc - weighted_mean(loc, weights)).flatten(1).mul(weights.sqrt()[:, None]).view(len(loc), loc.shape[1], -1)
