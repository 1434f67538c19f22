"""Run a network under sampled dropout masks: a sample overrides the seed of every dropout layer.

The network that runs is a private copy whose dropout layers are `SeededDropout`; everything else in it is in evaluation
mode. Dropout that a forward calls directly has no layer to hold a seed, so such networks are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import NetworkError
from ..copying import device_of, private_copy
from ..dropout_layers import find_dropout, refusal
from ..inputs import with_small_images
from ..layers import listed
from .affine import State
from .dropout_watch import watch_dropout
from .executable import Executable, Take
from .seeded_dropout import Axes, SeededDropout, seed_dropout


class DropoutExecutable(Executable):
    """An `Executable` whose states may hold a seed for every dropout layer, `"<layer>.seed"`.

    Args:
        model: The network.
        output: The entry to take if the network returns a dict or a tuple.
        rates: The rate of every dropout layer, see `dropout_rates`.
        consistent: Whether all examples share a sample's masks.
    """

    def __init__(
        self, model: nn.Module, output: str | int | None = None, *, rates: Mapping[str, float], consistent: bool
    ) -> None:
        self.rates, self.consistent = dict(rates), consistent
        super().__init__(model, output)

    def _build(self) -> None:
        self._looked = False  # whether `look` has run
        self._apart = True  # whether the examples' axes of layers' inputs hold nothing else
        self._axes: dict[str, Axes] = {}  # the examples' axes by layer, if known
        super()._build()

    def _private(self) -> nn.Module:
        network, self._layers = self._seeded()  # the sampled dropout layers of the copy that runs
        return network

    @property
    def network(self) -> nn.Module:
        """Return a private copy of the network; its sampled dropout layers have a buffer `seed`, negative for off."""
        self._refresh()
        return self._seeded()[0]

    @property
    def drawn_layers(self) -> tuple[str, ...]:
        """Return the names of the sampled dropout layers."""
        return tuple(name for name, rate in self.rates.items() if rate > 0)

    @torch.inference_mode(False)
    @torch.no_grad()
    def look(self, x: Any) -> None:
        """Find the axis of examples in each layer's input from a few examples, and refuse dropout without a layer.

        This is done once, before the first run.
        """
        x = self.input(x)
        if self._looked:
            return
        network, layers = self._seeded()
        seen = with_small_images(lambda images: watch_dropout(*self._seeded(), images), x)
        modules = dict(network.named_modules())
        for name, function in seen.always.items():
            raise NetworkError(refusal(name, modules[name], function, always=True))
        for name, function in seen.in_training.items():
            if self.rates.get(name) != 0:
                raise NetworkError(refusal(name, modules[name], function))
        if not seen.axes:
            raise NetworkError(
                f"model: none of its dropout layers ({listed(layers)}) runs in evaluation mode. Pass a network whose "
                "forward uses them."
            )
        for name, axes in seen.axes.items():
            self._axes[name] = self._layers[name].axes = axes
        self._looked, self._apart = True, seen.apart

    def _seeded(self) -> tuple[nn.Module, dict[str, SeededDropout]]:
        """Return a private copy whose sampled dropout layers have seeds, and those layers by name."""
        network = private_copy(self.model)
        layers = find_dropout(network)
        for name in self.drawn_layers:
            if name not in layers:
                raise NetworkError(
                    f"model: {name!r} is not a dropout layer, but the posterior samples one there. Pass a network "
                    f"with the same dropout layers (this one has {listed(layers)})."
                )
        drawn = {name: self.rates[name] for name in self.drawn_layers}
        return network, seed_dropout(network, drawn, self.consistent, self._axes, device_of(self.model))

    def _run(
        self, states: State, x: Tensor, take: Take, vectorize: bool, chunk: int | None, block_bytes: int | None
    ) -> None:
        self.look(x)
        super()._run(states, x, take, vectorize, chunk, block_bytes)

    def _note_first_row(self, start: int) -> None:
        for layer in self._layers.values():
            layer.first_row = start

    def _rows_independent(self, x: Tensor) -> bool:
        # If an axis holds examples and something else (such as time), a block's masks cannot be assigned to examples.
        return (self.consistent or self._apart) and super()._rows_independent(x)
