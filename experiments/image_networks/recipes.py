"""Training recipes for images: established settings, none of them chosen on test images.

SGD with Nesterov momentum, a learning rate that rises and then falls along a cosine, weight decay on kernels and
matrices. A peak of 0.1 for each 128 images of a batch, a weight decay of 5e-4 and batches of a few hundred images are
common in fast trainings of CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from ..known_names import require_known


@dataclass(frozen=True)
class Recipe:
    """A training recipe.

    Args:
        epochs: Number of epochs.
        batch_size: Images per step.
        learning_rate: The highest one; None means 0.1 for each 128 images of a batch.
        weight_decay: On weights with two dimensions or more.
        momentum: Nesterov momentum.
        rising: Fraction of the steps in which the learning rate rises.
        label_smoothing: Fraction of the target that is spread over all classes.
        dropout: Dropout rate.
        images: Number of training images, the first ones; None means all.
        test_images: Number of scored images, the first ones; None means all.
    """

    epochs: int
    batch_size: int = 512
    learning_rate: float | None = None
    weight_decay: float = 5e-4
    momentum: float = 0.9
    rising: float = 0.2
    label_smoothing: float = 0.0
    dropout: float = 0.0
    images: int | None = None
    test_images: int | None = None

    @property
    def peak(self) -> float:
        """Return the highest learning rate."""
        return 0.1 * self.batch_size / 128 if self.learning_rate is None else self.learning_rate

    @property
    def loss(self) -> Callable[[Any, Tensor], Tensor]:
        """Return the loss of logits and labels."""
        return partial(F.cross_entropy, label_smoothing=self.label_smoothing)

    def optimiser(self, parameters: list[Tensor]) -> Optimizer:
        """Return the optimiser."""
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2]},
        ]
        return SGD(groups, lr=self.peak, momentum=self.momentum, nesterov=True, fused=parameters[0].is_cuda or None)

    def schedule(self, steps: int) -> Callable[[Any], OneCycleLR]:
        """Return a function that makes the learning-rate schedule for so many steps."""
        return partial(
            OneCycleLR, max_lr=self.peak, total_steps=steps, pct_start=self.rising, cycle_momentum=False, div_factor=10
        )


_QUICK = Recipe(epochs=5, batch_size=64, images=2000, test_images=1000)
_NARROW = Recipe(epochs=120, batch_size=256)
_WIDE = Recipe(epochs=50, batch_size=512)

# The recipe of every network for each preset; "quick" is a short test on a CPU, "paper" gives the documented results.
RECIPES: dict[str, dict[str, Recipe]] = {
    "quick": {
        "": _QUICK,
        # A CPU needs a few minutes; larger networks train less, and small batches give enough steps.
        **dict.fromkeys(("resnet44", "resnet56", "vgg11"), replace(_QUICK, epochs=3, images=1000)),
        **dict.fromkeys(("resnet18", "vgg16"), replace(_QUICK, epochs=2, images=512, batch_size=16)),
        "resnet50": replace(_QUICK, epochs=2, images=256, batch_size=8, test_images=500),
    },
    "paper": {
        "": _WIDE,
        **dict.fromkeys(("resnet20", "resnet32", "resnet44", "resnet56", "teye-resnet32"), _NARROW),
        "lenet5": Recipe(epochs=20, batch_size=256),
    },
}


def recipe_for(network: str, preset: str) -> Recipe:
    """Return a network's recipe, or refuse an unknown preset."""
    require_known("preset", [preset], RECIPES)
    return RECIPES[preset].get(network, RECIPES[preset][""])


def set_up_device(device: str) -> None:
    """Let a GPU choose its fastest kernels, also for float32."""
    if device == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
