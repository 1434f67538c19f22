"""Train with one program per network, which keeps its weights on the chip for many epochs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesnorm.errors import BayesNormWarning
from bayesnorm.tabular.stacked import Block, GraphedBlock, HalfSquaredError, Stack, TrainingSettings, fastest_block

from .fused_passes import scale_tensors
from .shape import Shape, block_rows, precision, shape_of

# Most row numbers that are held at once; further epochs need another launch.
ORDERED = 2**26


class FusedBlock(GraphedBlock):
    """A block on a GPU whose networks are trained by a kernel, several epochs in one launch.

    If the GPU's multiprocessors have too little memory, steps are recorded as for other networks.
    """

    shape: Shape
    fits = True  # assumed until a launch fails

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        shape = shape_of(self.stack)
        assert shape is not None
        self.shape = shape
        self.done = int(self.steps_done)  # also counted here, because reading a tensor waits for the device
        rows, device = self.rows, self.stack.device
        self.table = rows.table.to(torch.int32).contiguous()
        self.scales = scale_tensors(rows.scales)
        self.decays = self.decay.flatten().contiguous()
        self.seed_of = torch.tensor([seed % 2**31 for seed in self.seeds], device=device)
        self.keeps = torch.stack([keep.flatten() for keep in self.keep], 1).contiguous() if shape.drops else None

    @torch.no_grad()
    def train(self, epochs: int) -> Tensor:
        """Train for some epochs, and return the mean losses of each, (networks, epochs)."""
        from . import kernels

        at_once = max(1, ORDERED // (len(self.orders) * self.steps * self.settings.batch_size))
        before = {key: self.generator(key).clone_state() for key in self.generators}
        try:
            if self.fits:
                return torch.cat([self._launch(min(at_once, epochs - done)) for done in range(0, epochs, at_once)], 1)
        except kernels.OutOfResources as error:
            self.fits, self.generators = False, before
            warnings.warn(
                f"The networks do not fit on a multiprocessor, so training is slower: {error}",
                BayesNormWarning,
                stacklevel=2,
            )
        return super().train(epochs)

    def _launch(self, epochs: int) -> Tensor:
        """Train for some epochs in one launch of the kernel, and return their losses, (networks, epochs)."""
        from . import kernels

        shape, device = self.shape, self.stack.device
        losses = torch.empty(len(self.members), epochs, device=device)
        shared = (
            self.rows.x,
            self.rows.y,
            self.table,
            self._orders(epochs),
            self.order_of,
            *self.scales,
            self.decays,
            self._corrections(epochs),
            losses,
        )
        sizes = {
            "inputs": shape.inputs,
            "longest": self.table.shape[1],
            "epochs": epochs,
            "steps": self.steps,
            "per_epoch": self.steps * self.settings.batch_size,
        }
        tiles: dict[str, Any] = {
            "width": shape.width,
            "D": shape.D,
            "H": shape.H,
            "PRECISION": precision(),
            "num_warps": shape.warps,
        }
        moved = self.stack.weights.flat, self.first.flat, self.second.flat
        places = shape.places(self.stack.weights)
        rows = block_rows(self.settings.batch_size)
        assert rows is not None
        if shape.norms:
            kernels.train_batchnorm[(len(self.members),)](
                *moved,
                self.stack.buffers.flat,
                *shared,
                **sizes,
                eps=shape.eps,
                momentum=shape.momentum,
                **places,
                **shape.running_places(self.stack.buffers),
                blocks=self.settings.batch_size // rows,
                R=rows,
                SINGLE=self.settings.batch_size == rows,
                **tiles,
            )
        else:
            kernels.train_dropout[(len(self.members),)](
                *moved,
                *shared,
                self.seed_of,
                self.keeps,
                self.done,
                **sizes,
                **places,
                R=rows,
                **tiles,
            )
        self.done += epochs * self.steps
        self.steps_done.fill_(self.done)
        self.stack.tracked += epochs * self.steps
        return losses

    def _orders(self, epochs: int) -> Tensor:
        """Return places in the networks' tables, in the order in which rows are used: (orders, epochs, rows)."""
        drawn = torch.stack([torch.stack(self.epoch_orders()) for _ in range(epochs)], 1).to(torch.int32)
        return (
            drawn.pin_memory().to(self.stack.device, non_blocking=True) if self.stack.device.type == "cuda" else drawn
        )

    def _corrections(self, epochs: int) -> Tensor:
        """Return Adam's step size and the factor of its root at every step, (steps, 2)."""
        t = np.arange(self.done + 1, self.done + epochs * self.steps + 1, dtype=np.float64)
        rate, root = self.settings.learning_rate / (1 - 0.9**t), 1 / np.sqrt(1 - 0.999**t)
        return torch.from_numpy(np.stack([rate, root], 1)).to(self.stack.device, torch.float32)


def choose_block(stack: Stack, settings: TrainingSettings) -> type[Block]:
    """Return the fastest kind of block, for `train_stacked(..., choose_block=choose_block)`."""
    return FusedBlock if trains(stack, settings) else fastest_block(stack, settings)


def trains(stack: Stack, settings: TrainingSettings) -> bool:
    """Return whether `FusedBlock` can train these networks with these settings."""
    shape = shape_of(stack)
    if shape is None or settings.loss != HalfSquaredError() or settings.decay.isnan().any():
        return False
    if settings.schedule is not None or settings.decoupled:
        return False
    if any(bool((rate == 1).any()) for rate in stack.rates.values()):  # kept values are divided by the kept fraction
        return False
    rows = block_rows(settings.batch_size)
    return rows is not None and (bool(shape.norms) or rows == settings.batch_size)
