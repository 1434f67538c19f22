"""Run a network under drawn dropout masks: a draw overrides the seed of every dropout layer.

The network that runs is a private copy whose dropout layers are `SeededDropout`; everything else in it is in evaluation
mode. Dropout that is called inside a forward has no layer to give a seed to: it is looked for, and refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, NetworkError
from ..collecting.batches import TrainData, _as_rows, isolated_randomness
from ..copying import device_of, private_copy, require_finite_weights, unwrap
from .affine import State
from .dropout_watch import drops_inside, watch_dropout
from .executable import Executable
from .seeded_dropout import Axes, SeededDropout, find_dropout, seed_dropout

RateChoice = float | Mapping[str, float] | None
"""One rate for all dropout layers, rates by name (others keep their own), or None for the layers' own."""


def dropout_rates(model: nn.Module, p: RateChoice = None) -> dict[str, float]:
    """The rate of every dropout layer that is to be drawn, by name; 0 for what the caller says stays off.

    Args:
        model: The network.
        p: See `RateChoice`. By name, 0 leaves a layer off; for a module that is no dropout layer, it says that
            dropout inside that module's forward may stay off.
    """
    model = unwrap(model)
    require_finite_weights(model)
    found = find_dropout(model)
    rates = {name: float(layer.p) for name, layer in found.items() if layer.p > 0}
    if isinstance(p, Mapping):
        modules = dict(model.named_modules())
        for name, rate in p.items():
            if name not in modules:
                raise NetworkError(f"p: {name!r} is no module of the network; its dropout layers are {_some(found)}.")
            rates[name] = require_rate(rate, f"p[{name!r}]")
            if name not in found and rates[name] > 0:
                raise NetworkError(
                    f"p: {name!r} is {type(modules[name]).__name__} and no dropout layer, so that only 0 (stays off) "
                    f"would work; the dropout layers are {_some(found)}."
                )
    elif p is not None:
        rates = dict.fromkeys(found, require_rate(p, "p"))
    if not found:
        kinds = sorted({type(module).__name__ for module in model.modules()})
        raise NetworkError(
            "model: has no dropout layer (looked for Dropout, Dropout1d/2d/3d, AlphaDropout and FeatureAlphaDropout; "
            f"found {', '.join(kinds[:12])}{', ...' if len(kinds) > 12 else ''}). "
            "bayesnorm.add_dropout(model, p) gives a copy that has some; dropout that a forward calls itself must "
            "become an nn.Dropout layer."
        )
    if not any(rates.values()):
        raise NetworkError(
            f"model: all of its dropout layers ({_some(found)}) have rate 0, so that all draws would agree; "
            "MCDropout(p=0.1) would work, and so would bayesnorm.add_dropout(model, p)."
        )
    for name, module in model.named_modules():
        if rates.get(name) != 0 and drops_inside(module):
            raise NetworkError(_refusal(name, module, f"nn.{type(module).__name__}(dropout={module.dropout})"))
    return rates


class DropoutExecutable(Executable):
    """An `Executable` whose states may hold a seed for every dropout layer, `"<layer>.seed"`.

    Args:
        model: The network.
        output: Which entry to take where it returns a dict or a tuple.
        rates: By layer, see `dropout_rates`.
        consistent: Whether all rows share a draw's masks.
    """

    def __init__(
        self, model: nn.Module, output: str | int | None = None, *, rates: Mapping[str, float], consistent: bool
    ) -> None:
        self.rates, self.consistent = dict(rates), consistent
        self._looked = False
        super().__init__(model, output)

    @property
    def network(self) -> nn.Module:
        """A private copy of the network with a buffer `seed` in every drawn dropout layer; negative means off."""
        self._refresh()
        return self._seeded()[0]

    @property
    def drawn_layers(self) -> tuple[str, ...]:
        """Names of the dropout layers that are drawn."""
        return tuple(name for name, rate in self.rates.items() if rate > 0)

    @torch.inference_mode(False)
    @torch.no_grad()
    def look(self, x: Any) -> None:
        """Find out from a few rows where each layer's input holds them, and refuse dropout that has no layer.

        Done once, before the first run at the latest.
        """
        x = self.input(x)
        if self._looked:
            return
        network, layers = self._seeded()
        seen = watch_dropout(network, layers, x)
        modules = dict(network.named_modules())
        for name, function in seen.always.items():
            raise NetworkError(_refusal(name, modules[name], function, always=True))
        for name, function in seen.in_training.items():
            if self.rates.get(name) != 0:
                raise NetworkError(_refusal(name, modules[name], function))
        if not seen.axes:
            raise NetworkError(f"model: none of its dropout layers ({_some(layers)}) runs in evaluation mode.")
        for name, axes in seen.axes.items():
            self._axes[name] = self._layers[name].axes = axes
        self._looked, self._apart = True, seen.apart

    def _seeded(self) -> tuple[nn.Module, dict[str, SeededDropout]]:
        network = private_copy(self.model)
        found = find_dropout(network)
        for name in self.drawn_layers:
            if name not in found:
                raise NetworkError(
                    f"model: {name!r} is no dropout layer, and the posterior draws one there; a network with the same "
                    f"dropout layers would work (here {_some(found)})."
                )
        drawn = {name: self.rates[name] for name in self.drawn_layers}
        return network, seed_dropout(network, drawn, self.consistent, self._axes, device_of(self.model))

    def _build(self) -> None:
        self._looked, self._apart = False, True
        self._axes: dict[str, Axes] = {}
        super()._build()

    def _private(self) -> nn.Module:
        network, self._layers = self._seeded()
        return network

    def _run(self, states: State, x: Tensor, vectorize: bool, chunk: int | None, block_bytes: int | None) -> Tensor:
        self.look(x)
        return super()._run(states, x, vectorize, chunk, block_bytes)

    def _about_to_run(self, start: int, rows: int) -> None:
        for layer in self._layers.values():
            layer.first_row = start

    def _rows_independent(self, x: Tensor) -> bool:
        # Where an axis holds rows and something else (time, say), nobody knows which of a part's masks is whose.
        return (self.consistent or self._apart) and super()._rows_independent(x)


def example_rows(data: TrainData, seed: int) -> Tensor:
    """One or two inputs of any kind of training data, to look at what the network does with them."""
    with isolated_randomness(seed):
        rows = _as_rows(data, 2, seed)
        if len(rows) == 0:
            raise InputError("train_data: is empty; pass the rows that the network was trained on, or None.")
        return next(rows.batches([[*range(min(2, len(rows)))]], seed))


def require_rate(value: Any, name: str) -> float:
    """A probability of being dropped, below 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise NetworkError(f"{name}: {value!r} was given; a rate from 0 to below 1 would work.")
    return float(value)


def _refusal(name: str, module: nn.Module, function: str, always: bool = False) -> str:
    where = f"{name!r} ({type(module).__name__})" if name else f"its own forward ({type(module).__name__})"
    cure = "an nn.Dropout layer in its place would work"
    if not always:
        cure += f", and MCDropout(p={{{name!r}: 0}}) leaves it off and draws only the dropout layers"
    mode = " also in evaluation mode" if always else ""
    return f"model: {where} calls {function}{mode}, a dropout that has no layer of its own to draw the mask of; {cure}."


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(map(repr, listed[:8])) + (f", ... ({len(listed)} in all)" if len(listed) > 8 else "") or "none"
