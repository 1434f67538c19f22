"""RoTTA and NOTE: adaptation with a balanced memory, for streams whose classes come in a temporal order.

- RoTTA (Yuan et al. 2023): memory of 64 images, an update after every 64; Adam, learning rate 0.001; the teacher, which
  predicts, moves by 0.001; statistics move by 0.05. The augmentations are those of CoTTA.
- NOTE (Gong et al. 2022): memory of 64 images, an update after every 64; Adam, learning rate 0.0001; statistics move by
  0.01; shrinkage 4. The paper trains the network with its instance-aware layers. Here the network is a trained one with
  ordinary batch norm, whose layers are replaced.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .augmenting import augment
from .grouped import GroupedNorm, affine, entropy, grouped_network, norms, run
from .memories import BalancedMemory, BalancedReservoir, Item
from .sources import Source

EVERY = 64
"""Images of a stream between two updates, and places of a memory."""


class ImageStore:
    """Holds the images of the memories of G streams."""

    def __init__(self) -> None:
        self.images: dict[int, Tensor] = {}

    def add(self, number: int, images: Tensor) -> None:
        """Keep the images with this number, one of each stream, (G, 3, H, W)."""
        self.images[number] = images

    def batch(self, contents: list[list[Item]]) -> tuple[Tensor, Tensor]:
        """Return the images of all memories, (B, G, 3, H, W), and which places have one, (B, G); forget all others.

        Places without an image are black.
        """
        first = next(iter(self.images.values()))
        x = first.new_zeros(max(map(len, contents)), *first.shape)
        present = first.new_zeros(x.shape[:2])
        for group, items in enumerate(contents):
            x[: len(items), group] = torch.stack([self.images[item.number][group] for item in items])
            present[: len(items), group] = 1
        in_use = {item.number for items in contents for item in items}
        self.images = {number: images for number, images in self.images.items() if number in in_use}
        return x, present


class RobustNorm(GroupedNorm):
    """Normalises by its own statistics; while it collects, they move towards those of the memory first."""

    speed = 0.05
    collecting = False
    weights: Tensor | None = None
    """Which places of each stream's memory have an image, (B, G)."""

    def normalised(self, x: Tensor) -> Tensor:
        if not self.collecting:
            return self.by(x, self.mean, self.var)
        assert self.weights is not None
        images = x.view(len(x), *self.weight.shape, *x.shape[2:])
        share = (self.weights / self.weights.sum(0))[..., None]
        mean = (share * images.mean((3, 4))).sum(0)
        var = (share * (images - mean[..., None, None]).square().mean((3, 4))).sum(0)
        mean, var = torch.lerp(self.mean, mean, self.speed), torch.lerp(self.var, var, self.speed)
        self.mean.copy_(mean.detach())
        self.var.copy_(var.detach())
        return self.by_differentiable(x, mean, var)


class Rotta:
    """A student learns from its teacher on augmented images of a memory; the teacher follows and predicts."""

    learning_rate, following = 1e-3, 1e-3

    def __init__(self, source: Source, groups: int) -> None:
        self.student, self.teacher = (grouped_network(source.network, groups, RobustNorm) for _ in range(2))
        self.parameters = affine(self.student)
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.learning_rate)
        self.memories = [BalancedMemory(EVERY) for _ in range(groups)]
        self.images = ImageStore()
        self.generator = torch.Generator(source.clean.device).manual_seed(0)
        self.count = 0

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits = run(self.teacher, x)
        labels, uncertain = logits.argmax(-1).tolist(), entropy(logits).tolist()
        for image, image_labels, image_entropies in zip(x, labels, uncertain, strict=True):
            for memory, label, value in zip(self.memories, image_labels, image_entropies, strict=True):
                memory.add(self.count, label, value)
            self.images.add(self.count, image)
            self.count += 1
            if self.count % EVERY == 0:
                self._update()
        return logits

    def _update(self) -> None:
        contents = [memory.contents() for memory in self.memories]
        x, present = self.images.batch(contents)
        ages = torch.zeros_like(present)
        for place, items in enumerate(contents):
            ages[: len(items), place] = torch.tensor([item.age / EVERY for item in items], device=ages.device)
        timely = (-ages).exp() / (1 + (-ages).exp())
        for network in (self.student, self.teacher):
            for layer in norms(network):
                assert isinstance(layer, RobustNorm)
                layer.collecting, layer.weights = True, present
        with torch.no_grad():
            target = run(self.teacher, x).softmax(-1)
        learned = run(self.student, augment(x, self.generator))
        loss = -(target * learned.log_softmax(-1)).sum(-1) * timely * present
        self.optimiser.zero_grad()
        (loss.sum(0) / present.sum(0)).sum().backward()
        self.optimiser.step()
        for network in (self.student, self.teacher):
            for layer in norms(network):
                assert isinstance(layer, RobustNorm)
                layer.collecting = False
        with torch.no_grad():
            torch._foreach_lerp_(affine(self.teacher), self.parameters, self.following)


class InstanceNorm(GroupedNorm):
    """NOTE's instance-aware layer: statistics of an image replace the running ones as far as they surely differ.

    Differences up to `shrinkage` standard errors of an image's statistics do not count. While it collects, the batch's
    statistics take the place of the running ones, which move towards them.
    """

    speed, shrinkage = 0.01, 4.0
    collecting = False

    def normalised(self, x: Tensor) -> Tensor:
        images = x.view(len(x), *self.weight.shape, *x.shape[2:])
        pixels = images.shape[3] * images.shape[4]
        image_var, image_mean = torch.var_mean(images, (3, 4))
        mean, var = self.mean, self.var
        if self.collecting:
            var, mean = torch.var_mean(images, (0, 3, 4))
            self.mean.lerp_(mean.detach(), self.speed)
            self.var.lerp_(var.detach(), self.speed)
        if pixels == 1:
            return self.by_differentiable(x, mean, var)
        error_of_mean = ((var + self.eps) / pixels).sqrt()
        error_of_var = (var + self.eps) * (2 / (pixels - 1)) ** 0.5
        mean = mean + shrunk(image_mean - mean, self.shrinkage * error_of_mean)
        var = (var + shrunk(image_var - var, self.shrinkage * error_of_var)).relu()
        return self.by_differentiable(x, mean, var)


def shrunk(values: Tensor, by: Tensor) -> Tensor:
    """Return values moved towards 0 by this much, and 0 if they are smaller."""
    return values.sign() * F.relu(values.abs() - by)


class Note:
    """Predicts with instance-aware layers; after every 64 images, Adam takes a step on the entropy of a memory."""

    learning_rate = 1e-4

    def __init__(self, source: Source, groups: int) -> None:
        self.network = grouped_network(source.network, groups, InstanceNorm)
        self.parameters = affine(self.network)
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.learning_rate)
        self.memories = [BalancedReservoir(EVERY, seed=group) for group in range(groups)]
        self.images = ImageStore()
        self.count = 0

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            logits = run(self.network, x)
        for image, labels in zip(x, logits.argmax(-1).tolist(), strict=True):
            for memory, label in zip(self.memories, labels, strict=True):
                memory.add(self.count, label)
            self.images.add(self.count, image)
            self.count += 1
            if self.count % EVERY == 0:
                self._update()
        return logits

    def _update(self) -> None:
        x, _ = self.images.batch([memory.items for memory in self.memories])
        for layer in norms(self.network):
            assert isinstance(layer, InstanceNorm)
            layer.collecting = True
        self.optimiser.zero_grad()
        entropy(run(self.network, x)).mean(0).sum().backward()
        self.optimiser.step()
        for layer in norms(self.network):
            assert isinstance(layer, InstanceNorm)
            layer.collecting = False
