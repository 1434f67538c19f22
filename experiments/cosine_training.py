"""Train small networks on tables: some steps of Adam with a cosine schedule down to zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayesnorm.training import train

from .splits import Rows


def train_steps(
    network: nn.Module,
    rows: Rows,
    loss: Callable[..., Tensor],
    *,
    steps: int,
    batch_size: int,
    validation: Rows | None = None,
    seed: int = 0,
) -> None:
    """Train `network` in place for so many steps, rounded up to whole epochs.

    Args:
        network: The network.
        rows: Inputs and targets.
        loss: As in `train`.
        steps: Steps of the optimiser.
        batch_size: Rows per step.
        validation: Rows that are scored about twenty times; the network with the best score is kept.
        seed: As in `train`.
    """
    epochs = max(1, math.ceil(steps / (len(rows[0]) // batch_size)))
    train(
        network,
        rows,
        loss=loss,
        epochs=epochs,
        batch_size=batch_size,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=5e-3),
        schedule=lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs),
        weight_decay=1e-5,
        validation=validation,
        evaluate_every=max(1, epochs // 20),
        seed=seed,
    )
