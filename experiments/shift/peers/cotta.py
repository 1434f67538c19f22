"""CoTTA: a teacher that averages the student's weights and its own answers to augmented images (Wang et al. 2022).

Settings of the paper for CIFAR-10-C: Adam with learning rate 0.001 on all weights, the teacher keeps 0.999 of its
weights, 32 augmentations if the original network's mean confidence is below 0.92, and 1 % of all weights return to the
original ones after every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .augmenting import augment
from .grouped import BatchNorm, grouped_network, norms, run
from .sources import Source

LEARNING_RATE, KEEPS, RESTORED = 1e-3, 0.999, 0.01
AUGMENTATIONS, CONFIDENT = 32, 0.92


class Cotta:
    """CoTTA on one stream."""

    def __init__(self, source: Source) -> None:
        self.student, self.teacher, self.original = (grouped_network(source.network, 1, BatchNorm) for _ in range(3))
        self.student.requires_grad_(True)
        self.parameters: list[Tensor] = list(self.student.parameters())
        self.followers: list[Tensor] = list(self.teacher.parameters())
        self.start = list(self.original.parameters())
        self.optimiser = torch.optim.Adam(self.parameters, lr=LEARNING_RATE)
        self.generator = torch.Generator(source.clean.device).manual_seed(0)

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            confidence = run(self.original, x).softmax(-1).amax(-1).mean()
            target = run(self.teacher, x) if confidence >= CONFIDENT else self._averaged(x)
        loss = -(target.softmax(-1) * run(self.student, x).log_softmax(-1)).sum(-1).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.followers, self.parameters, 1 - KEEPS)
            for parameter, start in zip(self.parameters, self.start, strict=True):
                chance = torch.rand(parameter.shape, generator=self.generator, device=parameter.device)
                parameter.copy_(torch.where(chance < RESTORED, start, parameter))
        return target

    def _averaged(self, x: Tensor) -> Tensor:
        """Return the teacher's mean logits over augmentations, each of which is normalised by itself."""
        self._set_groups(AUGMENTATIONS)
        try:
            return run(self.teacher, augment(x.expand(-1, AUGMENTATIONS, -1, -1, -1), self.generator)).mean(1)[:, None]
        finally:
            self._set_groups(1)

    def _set_groups(self, groups: int) -> None:
        for layer in norms(self.teacher):
            layer.groups = groups
