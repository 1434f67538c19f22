"""BatchBALD (Kirsch, van Amersfoort and Gal, NeurIPS 2019): what a batch of labels tells together.

BALD scores rows one by one, and so picks near-copies of one informative row. BatchBALD scores a batch by the joint
I(y_1, ..., y_b; w) and builds it greedily. By the chain rule, row b adds

    I(y_b; w | y_1..b-1)  =  sum_c p(c) H[ sum_t p(w_t | c) p(y_b | w_t) ]  -  sum_t p(w_t) H[ p(y_b | w_t) ],

where c runs over the configurations of labels that the earlier rows can have. They are enumerated while there are
few; past a limit they are drawn, in proportion to p(c), and each stands for an equal share.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_seed
from ..errors import InputError
from ..predictive import ClassificationPredictive, ClassificationSummary, Predictive
from .acquisitions import GreedyBatch, require_count
from .scores import require_classification

# Number of rows whose gain is brought up to date at a time.
LAZY_ROWS = 128


@dataclass(frozen=True)
class BatchBALD:
    """Greedy BatchBALD as an acquisition.

    Args:
        configurations: Most label configurations of the rows chosen so far. Exact up to it, e.g. the first four rows
            of ten classes with 1,000; above it, drawn.
        block_bytes: Most memory of the intermediate probabilities.
    """

    configurations: int = 1024
    block_bytes: int = 2**26

    def __post_init__(self) -> None:
        hold_plain_numbers(self)

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
    """Choose rows whose labels together tell most about the posterior's draw, greedily; gains are in nats.

    Args:
        predictive: Class probabilities of the candidates under the samples, per row (not per pixel).
        count: Number of rows to choose.
        configurations: Most label configurations that are kept; see `BatchBALD`.
        seed: Seed of the configurations that are drawn.
        block_bytes: Most memory of the intermediate probabilities.
    """
    predictive = require_classification(predictive)
    count = require_count("count", count, len(predictive), "rows")
    configurations = require_count("configurations", configurations)
    block_bytes = require_count("block_bytes", block_bytes)
    if isinstance(predictive, ClassificationSummary):
        raise InputError('predictive: is a summary without samples; predict(x) without keep="summary" would work.')
    if predictive.log_probs.dim() != 3:
        raise InputError(
            f"predictive: has log_probs of shape {tuple(predictive.log_probs.shape)}, and the labels of all pixels "
            "of a row are too many to enumerate; active.bald scores such rows."
        )
    generator = torch.Generator().manual_seed(require_seed(seed))
    pool = _Pool(predictive, block_bytes)
    known = _Configurations(torch.ones(1, dtype=torch.float64), predictive.weights[None].log().double().cpu())
    # A row adds less the more is known (submodularity), so that its last gain bounds its next one.
    bounds = torch.full((len(predictive),), torch.inf, dtype=torch.float64)
    rows, gains = [], []
    for _ in range(count):
        best = pool.best(known, bounds)
        rows.append(best)
        gains.append(float(bounds[best]))
        bounds[best] = -torch.inf
        if len(rows) < count:
            known = known.extended(predictive.log_probs[:, best].double().cpu(), configurations, generator)
    return GreedyBatch(torch.tensor(rows), torch.tensor(gains, dtype=torch.float64).clamp_min(0))


@dataclass(frozen=True)
class _Configurations:
    """Labels that the rows chosen so far can have, by what they say of the samples.

    Args:
        share: Probability of each, (c,), sum 1.
        log_posterior: Log probability of each draw given the labels, (c, n).
    """

    share: Tensor
    log_posterior: Tensor

    def extended(self, log_probs: Tensor, most: int, generator: torch.Generator) -> _Configurations:
        """Return each with every label of one more row, whose log probabilities under the samples are (n, class).

        Past `most` of them, that many are drawn by systematic sampling: in proportion to their shares, give or take 1.
        """
        evidence = self.log_posterior.exp() @ log_probs.exp()
        share = (self.share[:, None] * evidence).flatten()
        found = share.nonzero()[:, 0]
        share = share[found] / share[found].sum()
        if len(found) > most:
            places = (torch.arange(most) + torch.rand(1, generator=generator, dtype=torch.float64)) / most
            edges = share.cumsum(0)
            drawn = torch.searchsorted(edges / edges[-1], places).clamp_max(len(edges) - 1)
            unique, times = drawn.unique(return_counts=True)
            found, share = found[unique], times / times.sum().double()
        classes = log_probs.shape[1]
        joint = self.log_posterior[found // classes] + log_probs.T[found % classes]
        return _Configurations(share, joint - joint.logsumexp(1, keepdim=True))


class _Pool:
    """Class probabilities of the candidates, laid out for one matrix product per block of rows."""

    def __init__(self, predictive: ClassificationPredictive, block_bytes: int) -> None:
        self.probs = predictive.log_probs.exp()
        self.expected_entropy = predictive.expected_entropy.double().cpu()
        self.block_bytes = block_bytes

    def best(self, known: _Configurations, bounds: Tensor) -> int:
        """Return the row that adds most, and replace the bounds of rows that had to be looked at by their gains."""
        samples, _, classes = self.probs.shape
        row_bytes = (len(known.share) + samples) * classes * self.probs.element_size()
        step = max(1, min(LAZY_ROWS, self.block_bytes // row_bytes))
        order = bounds.sort(descending=True, stable=True).indices
        best = -1
        for block in order.split(step):
            if best >= 0 and bounds[best] >= bounds[block[0]]:
                break
            block = block[bounds[block] > -torch.inf]  # not those chosen already
            if len(block):
                bounds[block] = self._gains(known, block)
                leader = int(block[bounds[block].argmax()])
                best = leader if best < 0 or bounds[leader] > bounds[best] else best
        return best

    def _gains(self, known: _Configurations, rows: Tensor) -> Tensor:
        """Return I(y; w | configurations) of some rows, in full precision: a small difference of large numbers."""
        if torch.is_autocast_enabled(self.probs.device.type):
            with torch.autocast(self.probs.device.type, enabled=False):
                return self._gains(known, rows)
        samples, _, classes = self.probs.shape
        probs = self.probs[:, rows.to(self.probs.device)]
        posterior, share = known.log_posterior.exp().to(probs), known.share.to(probs)
        entropy = torch.zeros(len(rows), dtype=probs.dtype, device=probs.device)
        # Where even one row under all configurations is too much memory, the configurations come in parts.
        part = max(1, self.block_bytes // (len(rows) * classes * probs.element_size()))
        for some, weight in zip(posterior.split(part), share.split(part), strict=True):
            mixture = (some @ probs.reshape(samples, -1)).view(len(some), len(rows), classes)
            entropy += weight @ torch.special.entr(mixture).sum(2)
        return entropy.double().cpu() - self.expected_entropy[rows]
