"""BatchBALD (Kirsch, van Amersfoort and Gal, NeurIPS 2019): the joint mutual information of a batch of labels.

BALD scores examples one by one, so it picks near-copies of one informative example. BatchBALD scores a batch by the
joint mutual information I(y_1, ..., y_b; w) and builds it greedily. By the chain rule, example b adds

    I(y_b; w | y_1..b-1)  =  sum_c p(c) H[ sum_t p(w_t | c) p(y_b | w_t) ]  -  sum_t p(w_t) H[ p(y_b | w_t) ],

where c runs over the label configurations that the earlier examples can have. Up to a limit, all are enumerated. Above
it, they are sampled in proportion to p(c) with equal weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import require_seed
from ..errors import InputError
from ..predictive import ClassificationPredictive, ClassificationSummary, Predictive
from .acquisitions import GreedyBatch, require_classification, require_count

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
