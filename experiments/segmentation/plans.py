"""Define which networks are trained on CamVid, for which task, and how.

There are three tasks: the eleven classes of every pixel; the same with logits whose noise the network predicts (Kendall
and Gal 2017); and a regression without labels, the red channel from the green one, with Laplace noise whose scale the
network predicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesnorm.likelihoods import Categorical, HeteroscedasticLaplace, Likelihood, LogitNoise
from bayesnorm.predictive import ClassificationPredictive
from bayesnorm.training import CropAndFlip
from bayesnorm.training.objective import Loss

from ..data import CAMVID_VOID, IMAGENET_MEAN, IMAGENET_STD
from ..image_networks.recipes import Recipe
from ..image_networks.training import Plan
from ..known_names import require_known
from ..networks import SegNet, UNet
from .frames import CLASSES, Light, load_frames, median_frequency_weights
from .scores import confusion_matrix, segmentation_scores

# Each takes classes, seed, in_channels and dropout.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "segnet": SegNet,
    "unet": UNet,
    "small-segnet": partial(SegNet, width=12, stages=(2, 2, 2)),
    "small-unet": partial(UNet, width=12, depth=3),
}

_QUICK = Recipe(epochs=24, batch_size=6, learning_rate=0.3, images=120, test_images=30)
_PAPER = Recipe(epochs=200, batch_size=10, learning_rate=0.1)
# By preset and task, "" for all other tasks. A density is steep near its peak and needs small steps.
RECIPES: dict[str, dict[str, Recipe]] = {
    "quick": {"": _QUICK, "red": replace(_QUICK, learning_rate=0.02)},
    "paper": {"": _PAPER, "red": replace(_PAPER, learning_rate=0.02)},
}

# Images that are scored at once.
SCORED_AT_ONCE = 8
# Samples of the logits' noise in a training step; predictions use those of `LogitNoise`.
TRAINING_SAMPLES = 8

RED, GREEN = 0, 1


class Task(StrEnum):
    """The task of a network."""

    classes = "classes"
    noisy_logits = "noisy-logits"
    red = "red"


@dataclass(frozen=True)
class SegmentationPlan(Plan):
    """The network, its task and its training.

    Args:
        network: One of `NETWORKS`.
        data: "camvid".
        recipe: The training recipe; its images are evenly spaced over all images.
        seed, compiled: As in `Plan`.
        task: The task.
        light: The light of the training images; all images are scored.
        step: Use every step-th pixel in both directions.
    """

    task: Task = Task.classes
    light: Light = Light.any
    step: int = 1

    targets_move: ClassVar[bool] = True

    @classmethod
    def from_preset(  # type: ignore[override]
        cls,
        network: str,
        preset: str = "quick",
        seed: int = 0,
        *,
        task: Task = Task.classes,
        light: Light = Light.any,
        compiled: bool | str = False,
        **changes: Any,
    ) -> SegmentationPlan:
        """Return the plan of a preset, with some entries of its recipe changed; None keeps an entry.

        By default, steps are neither recorded nor compiled: such large images keep a GPU busy anyway.
        """
        require_known("network", [network], NETWORKS)
        require_known("preset", [preset], RECIPES)
        changed = {name: value for name, value in changes.items() if value is not None}
        recipe = replace(RECIPES[preset].get(str(task), RECIPES[preset][""]), **changed)
        return cls(network, "camvid", recipe, seed, compiled, task, light, 2 if preset == "quick" else 1)

    @property
    def likelihood(self) -> Likelihood:
        """Return the likelihood of the network's outputs."""
        if self.task is Task.red:
            return HeteroscedasticLaplace()
        if self.task is Task.noisy_logits:
            return LogitNoise(samples=32, per_class=False, ignore_index=CAMVID_VOID)
        return Categorical(ignore_index=CAMVID_VOID)

    def new_network(self) -> nn.Module:
        outputs = {Task.classes: CLASSES, Task.noisy_logits: CLASSES + 1, Task.red: 2}[self.task]
        channels = 1 if self.task is Task.red else 3
        options = {"classes": outputs, "in_channels": channels, "dropout": self.recipe.dropout}
        return NETWORKS[self.network](seed=self.seed, **options)

    def transform(self) -> CropAndFlip:
        if self.task is Task.red:  # outside of an image there is no red to predict
            return CropAndFlip(0, True, IMAGENET_MEAN[GREEN : GREEN + 1], IMAGENET_STD[GREEN : GREEN + 1])
        return CropAndFlip(16 // self.step, True, IMAGENET_MEAN, IMAGENET_STD, CAMVID_VOID)

    def load(self, split: str) -> tuple[Tensor, Tensor]:
        count, light = (self.recipe.images, self.light) if split == "train" else (self.recipe.test_images, Light.any)
        return self.frames(split, count, light)

    def frames(self, split: str, count: int | None = None, light: Light = Light.any) -> tuple[Tensor, Tensor]:
        """Return images as bytes, and targets of the task; see `load_frames`."""
        x, y = load_frames(split, count, step=self.step, light=light)
        if self.task is Task.red:
            return x[:, GREEN : GREEN + 1].contiguous(), x[:, RED : RED + 1] / 255
        return x, y

    def loss(self, y: Tensor) -> Loss:
        if self.task is Task.red:
            return _per_pixel(self.likelihood)
        weights = median_frequency_weights(y).to(y.device)
        if self.task is Task.noisy_logits:
            return partial(_noisy_loss, LogitNoise(samples=TRAINING_SAMPLES, per_class=False), weights)
        return partial(F.cross_entropy, weight=weights, ignore_index=CAMVID_VOID)

    @torch.no_grad()
    def score(self, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return mean IoU and accuracies of classes, or the mean absolute error of red, and the NLL per pixel."""
        scaled, total, pixels, off = self.transform().scaled, 0.0, 0, 0.0
        counts = torch.zeros(CLASSES, CLASSES, dtype=torch.long, device=x.device)
        network.eval()
        for images, target in zip(x.split(SCORED_AT_ONCE), y.split(SCORED_AT_ONCE), strict=True):
            predictive = self.likelihood.predictive(network(scaled(images))[None])
            total -= float(predictive.log_prob(target).double().sum())  # 0 for pixels without a label
            if isinstance(predictive, ClassificationPredictive):
                counts += confusion_matrix(predictive.label, target, CLASSES, ignore_index=CAMVID_VOID)
            else:
                off += float((predictive.mean - target).abs().double().sum())
                pixels += target.numel()
        if self.task is Task.red:
            return {"mean absolute error": off / pixels, "nll": total / pixels}
        result = segmentation_scores(counts)
        return {
            "mean IoU": float(result.mean_iou),
            "accuracy": float(result.global_accuracy),
            "class accuracy": float(result.class_accuracy),
            "IoU": [None if math.isnan(iou) else iou for iou in result.iou.tolist()],
            "nll": total / float(counts.sum()),
        }

    def described(self) -> dict[str, Any]:
        told = {"task": str(self.task), "light": str(self.light), "step": self.step}
        return {**super().described(), **told, "recipe": asdict(self.recipe)}


def _noisy_loss(likelihood: LogitNoise, weights: Tensor, f: Tensor, y: Tensor) -> Tensor:
    log_probs = likelihood.log_probs(f.float()[None], torch.ones((), device=f.device))[0]
    return F.nll_loss(log_probs, y, weights, ignore_index=CAMVID_VOID)


def _per_pixel(likelihood: Likelihood) -> Loss:
    """Return a likelihood's loss, which is a sum over pixels, as a mean over pixels."""

    def loss(f: Any, y: Tensor) -> Tensor:
        return likelihood.loss(f, y) / y[0].numel()

    return loss
