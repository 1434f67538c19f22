"""Record a training step once and replay it: on a GPU, starting kernels one by one takes longer than running them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import warn
from ...network import capture_graph
from .training_block import Block

# Steps before recording, in which libraries choose their kernels and allocate memory.
WARM_UP = 3


class GraphedBlock(Block):
    """A block on a GPU whose step is a CUDA graph; a step that cannot be recorded runs normally.

    Nothing waits for the device within an epoch: its row numbers are uploaded once, and the graph counts its own steps.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.failed = False  # whether a step could not be recorded

    def epoch(self) -> Tensor:
        if self.graph is None and not self.failed:
            self._record()
        if self.graph is None:
            return super().epoch()
        self.numbers.copy_(self.epoch_rows())
        self.at.zero_()
        self.total.zero_()
        for _ in range(self.steps):
            self.set_rate()
            self.graph.replay()
        return self.total / self.steps

    def _numbered_step(self) -> None:
        """Take the step whose rows `at` points to, and advance `at`."""
        rows = self.numbers.index_select(0, self.at).squeeze(0)
        self.total += self.step(self.rows.inputs(rows), self.rows.targets(rows))
        self.at += 1

    def _record(self) -> None:
        """Record a step, and leave networks and moments unchanged."""
        table = self.rows.table
        shape = self.steps, len(self.members), self.settings.batch_size
        # Any rows are fine until those of an epoch are there.
        self.numbers = table[:, :1].expand(shape[1:]).expand(shape).contiguous()
        self.at = torch.zeros(1, dtype=torch.long, device=table.device)
        self.total = self.stack.weights.flat.new_zeros(len(self.members))
        changed = [self.stack.weights.flat, self.stack.buffers.flat, self.first.flat, self.second.flat, self.steps_done]
        before = [tensor.clone() for tensor in changed]
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.at.zero_()
                    self._numbered_step()
            torch.cuda.current_stream().wait_stream(side)
            self.at.zero_()
            self.graph, _ = capture_graph(self._numbered_step)
        except RuntimeError as error:
            self.failed = True
            torch.cuda.synchronize()
            warn(f"A training step could not be recorded, so training is slower: {error}")
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
