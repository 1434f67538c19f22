"""TENT, EATA and SAR: online minimisation of the entropy of predictions, by the affine parameters of batch norm.

All three normalise by the batch. Settings for CIFAR-10-C:

- TENT (Wang et al. 2021): Adam, learning rate 0.001, one step for each batch.
- EATA (Niu et al. 2022): SGD, learning rate 0.005, momentum 0.9; entropy below 0.4 ln 10, cosine with the moving
  average below 0.4, Fisher penalty 1. The paper takes the Fisher information from 2,000 clean images, this code from
  1,000.
- SAR (Niu et al. 2023): rho 0.05, entropy below 0.4 ln 10, reset below 0.2. The paper has no experiment on CIFAR-10-C;
  published comparisons there use Adam with learning rate 0.001, and so does this one. No stage is frozen.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from .grouped import BatchNorm, affine, entropy, grouped_network, run
from .sources import Source

LEARNING_RATE = 1e-3
MARGIN = 0.4
"""Images count as reliable below this share of the largest possible entropy, ln K."""


class Tent:
    """One step of Adam on the mean entropy of every batch."""

    def __init__(self, source: Source, groups: int, learning_rate: float = LEARNING_RATE) -> None:
        self.network = grouped_network(source.network, groups, BatchNorm)
        self.parameters = affine(self.network)
        self.optimiser = torch.optim.Adam(self.parameters, lr=learning_rate)

    def predict(self, x: Tensor) -> Tensor:
        logits = run(self.network, x)
        self.optimiser.zero_grad()
        entropy(logits).mean(0).sum().backward()
        self.optimiser.step()
        return logits.detach()


class Eata:
    """SGD on reliable and new images, weighted by their entropy, with a penalty on changes of important parameters."""

    rate, momentum, similar, penalty = 5e-3, 0.9, 0.4, 1.0

    def __init__(self, source: Source, groups: int) -> None:
        self.network = grouped_network(source.network, groups, BatchNorm)
        self.parameters = affine(self.network)
        self.start = [parameter.detach().clone() for parameter in self.parameters]
        self.fisher = fisher_information(source)
        self.velocity = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.average: Tensor | None = None

    def predict(self, x: Tensor) -> Tensor:
        logits = run(self.network, x)
        uncertain, chosen = entropy(logits), self.chosen(logits.detach())
        margin = MARGIN * math.log(logits.shape[-1])
        weighted = uncertain * (margin - uncertain.detach()).exp()
        count = chosen.sum(0)
        loss = ((weighted * chosen).sum(0) / count.clamp_min(1)).sum()
        gradients = torch.autograd.grad(loss, self.parameters)
        active = (count > 0)[:, None]  # without any image, there is no step
        with torch.no_grad():
            for parameter, start, fisher, velocity, gradient in zip(
                self.parameters, self.start, self.fisher, self.velocity, gradients, strict=True
            ):
                total = gradient + 2 * self.penalty * fisher * (parameter - start)
                velocity.copy_(torch.where(active, self.momentum * velocity + total, velocity))
                parameter.sub_(torch.where(active, self.rate * velocity, torch.zeros_like(velocity)))
        return logits.detach()

    def chosen(self, logits: Tensor) -> Tensor:
        """Return which images are reliable and differ from the moving average of predictions, and update it, (B, G)."""
        probs = logits.softmax(-1)
        chosen = entropy(logits) < MARGIN * math.log(logits.shape[-1])
        if self.average is None:
            self.average = torch.full_like(probs[0], torch.nan)
        first = self.average.isnan().any(-1)
        alike = F.cosine_similarity(probs, self.average.nan_to_num()[None], dim=-1).abs()
        chosen &= first | (alike < self.similar)
        count = chosen.sum(0)[:, None]
        mean = (probs * chosen[..., None]).sum(0) / count.clamp_min(1)
        moved = torch.where(first[:, None], mean, 0.9 * self.average + 0.1 * mean)
        self.average = torch.where(count > 0, moved, self.average)
        return chosen


@lru_cache(maxsize=2)
def fisher_information(source: Source, size: int = 64) -> tuple[Tensor, ...]:
    """Return the mean squared gradients of batches of clean images with predicted labels, each (1, C)."""
    network = grouped_network(source.network, 1, BatchNorm)
    parameters = affine(network)
    batches = source.clean.split(size)
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in batches:
        logits = network(batch)
        gradients = torch.autograd.grad(F.cross_entropy(logits, logits.argmax(1)), parameters)
        total = [part + gradient.square() for part, gradient in zip(total, gradients, strict=True)]
    return tuple(part / len(batches) for part in total)


class Sar(Tent):
    """A step of Adam with the gradient at the parameters that are worst nearby, on reliable images only."""

    radius, reset_below = 0.05, 0.2

    def __init__(self, source: Source, groups: int) -> None:
        super().__init__(source, groups)
        self.start = [parameter.detach().clone() for parameter in self.parameters]
        self.average = torch.full((groups,), torch.nan, device=source.clean.device)

    def predict(self, x: Tensor) -> Tensor:
        logits = run(self.network, x)
        margin = MARGIN * math.log(logits.shape[-1])
        first = entropy(logits)
        reliable = first.detach() < margin
        gradients = torch.autograd.grad(_mean_of(first, reliable).sum(), self.parameters)
        norm = sum(gradient.square().sum(1) for gradient in gradients).sqrt()[:, None]  # type: ignore[union-attr]
        steps = [self.radius * gradient / (norm + 1e-12) for gradient in gradients]
        self._move(steps, 1)
        second = entropy(run(self.network, x))
        reliable &= second.detach() < margin
        loss = _mean_of(second, reliable)
        self.optimiser.zero_grad()
        loss.sum().backward()
        self._move(steps, -1)
        self.optimiser.step()
        self._reset(loss.detach(), reliable.any(0))
        return logits.detach()

    @torch.no_grad()
    def _move(self, steps: list[Tensor], sign: int) -> None:
        torch._foreach_add_(self.parameters, steps, alpha=sign)

    @torch.no_grad()
    def _reset(self, loss: Tensor, any_reliable: Tensor) -> None:
        """Return to the start where the moving average of the loss is small: all answers may be the same class."""
        moved = torch.where(self.average.isnan(), loss, 0.9 * self.average + 0.1 * loss)
        self.average = torch.where(any_reliable, moved, self.average)
        collapsed = self.average < self.reset_below
        for parameter, start in zip(self.parameters, self.start, strict=True):
            parameter.copy_(torch.where(collapsed[:, None], start, parameter))
            state = self.optimiser.state[parameter]
            for name in ("exp_avg", "exp_avg_sq"):
                state[name].masked_fill_(collapsed[:, None], 0)
        self.average.masked_fill_(collapsed, torch.nan)


def _mean_of(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the chosen images' values in every stream, 0 without any; (G,)."""
    return (values * chosen).sum(0) / chosen.sum(0).clamp_min(1)
