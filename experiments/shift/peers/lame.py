"""LAME: correct the answers of an unchanged network for those of similar images in the batch (Boudiaf et al. 2022).

Neighbours are the five nearest by the cosine of features, as in the paper. The assignments z minimise
sum_i KL(z_i | p_i) - sum_ij w_ij z_i z_j by the paper's iteration.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .grouped import run
from .sources import Source

NEIGHBOURS, MOST_ROUNDS = 5, 100


class Lame:
    """LAME on every batch of G streams; nothing is carried over."""

    def __init__(self, source: Source, groups: int) -> None:
        self.network = source.network

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        features: list[Tensor] = []
        (head,) = (module for module in self.network.modules() if isinstance(module, nn.Linear))
        handle = head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
        try:
            logits = run(self.network, x)
        finally:
            handle.remove()
        embedded = F.normalize(features[0].unflatten(0, x.shape[:2]).transpose(0, 1), dim=-1)
        return corrected(logits.transpose(0, 1).softmax(-1), neighbours(embedded)).log().transpose(0, 1)


def neighbours(features: Tensor, count: int = NEIGHBOURS) -> Tensor:
    """Return w (G, B, B): 1 for each image's nearest others, given features (G, B, D)."""
    distances = torch.cdist(features, features)
    distances.diagonal(dim1=1, dim2=2).fill_(-1)  # itself is first
    nearest = distances.topk(min(count + 1, features.shape[1]), largest=False).indices[..., 1:]
    return torch.zeros_like(distances).scatter_(-1, nearest, 1.0)


def corrected(probs: Tensor, weights: Tensor) -> Tensor:
    """Return the assignments (G, B, K) for probabilities and weights of pairs of images."""
    log_probs = probs.clamp_min(1e-10).log()
    z, last = log_probs.softmax(-1), None
    for _ in range(MOST_ROUNDS):
        drawn = weights @ z
        z = (log_probs + drawn).softmax(-1)
        energy = (z * (z.clamp_min(1e-20).log() - log_probs - weights @ z)).sum((1, 2))
        if last is not None and bool(((energy - last).abs() <= 1e-8 * last.abs()).all()):
            break
        last = energy
    return z.clamp_min(1e-20)
