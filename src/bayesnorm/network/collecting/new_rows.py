"""Compute batch-norm statistics of new examples, as if they were training batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..copying import Original, device_of, dtype_of, private_copy, unwrap
from ..inputs import as_input
from ..locks import fork_generation
from ..restoring import TensorKeeper
from .normalising import NormalisingByBatch
from .recording import RecordedPasses

# Largest number of input values in a forward pass.
MOST_ELEMENTS = 2**22


class RowStatistics:
    """A private copy of a network that returns the statistics of groups of examples, each normalised separately.

    Args:
        model: The network; never modified. Changes of its weights or device are followed.
        layers: Names of the layers that normalise by group, in running order; others keep their running statistics.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str]) -> None:
        self._model, self._layers = model, tuple(layers)
        self._build()

    def _build(self) -> None:
        """Make the private copy that is run, and everything derived from it."""
        original = unwrap(self._model)
        self._device, self._dtype = device_of(original), dtype_of(original)
        self._original = Original(original)  # detects when the user moves the network or replaces parts of it
        self._fork_generation = fork_generation()  # none of them belongs to this copy
        network = private_copy(original)
        self._keeper = TensorKeeper(network)
        self._normalising = NormalisingByBatch(network, self._layers, argument="x")
        self._run = RecordedPasses(self._normalising.run_groups)
        self._layout_chosen = False

    def __getstate__(self) -> dict[str, Any]:
        # The private copy's layers hold functions of this object; a copy of it builds its own private copy.
        return {"_model": self._model, "_layers": self._layers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._build()

    def input(self, x: Any) -> Tensor:
        """Return examples in the network's dtype, on its current device."""
        if self._original.changed() or self._fork_generation != fork_generation():
            self._build()
        return as_input(x, "x", self._device, self._dtype)

    @torch.inference_mode(False)
    @torch.no_grad()
    def moments(self, x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        """Return means and biased variances of groups of examples, each (groups, C).

        Args:
            x: The examples, one group after the other, as returned by `input`.
            groups: Number of groups, all of the same size.
        """
        size = len(x) // groups
        at_once = max(1, MOST_ELEMENTS // max(1, x[0].numel()) // size)
        again = partial(self._normalising.run, x[:size])
        with self._keeper.restore_state(self._device, again=again) as restart:
            if not self._layout_chosen:
                self._normalising.choose_layout(x[:2])
                self._layout_chosen = True
                restart()
            # A replay would write to the network's tensors undetected.
            recordable = not self._keeper.put_back_some
            parts = [self._run(part, len(part) // size, recordable) for part in x.split(at_once * size)]
        mean, var = torch.cat(parts, dim=1)
        return mean, var
