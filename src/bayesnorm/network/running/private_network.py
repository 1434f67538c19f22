"""Call a private copy of a network under one state or many, in four ways that give the same numbers.

`reference` defines a sample: plain overrides by `torch.func.functional_call`. `mapped` computes the same with batch
norm as affine maps, which have derivatives. `in_place` is `mapped` without derivatives and with less memory.
`vectorised` runs many states at once, as an axis of `torch.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...errors import NetworkError
from ..calling import select_output
from ..copying import tensors_of
from ..restoring import TensorKeeper, quiet_vmap
from .affine import AffineBatchNorm, Maps, State
from .prefix import PrefixCache


class PrivateNetwork:
    """A private copy of a user's network, with one method for each way to call it.

    All calls must be inside `keeper.restore_state`, which gives `restart`, so that nothing outside of the copy changes.

    Args:
        module: The copy, which shares its tensors with the user's network. Its forwards are replaced.
        output: The entry to take if the network returns a dict (a key) or a tuple (a position).
    """

    def __init__(self, module: nn.Module, output: str | int | None) -> None:
        self.module, self.output = module, output
        self.batchnorm = AffineBatchNorm(module)
        self.prefix = PrefixCache(module)  # made after the maps, because it wraps their forwards too
        self.keeper = TensorKeeper(module)
        self.output_shape: tuple[int, ...] | None = None  # of one example's output, after the first forward pass
        # Shapes and dtypes of what states may override.
        self.overridable = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors_of(module).items()}
        self.restart: Callable[[], None]  # resets generators and written tensors for the next forward pass

    def reference(self, x: Tensor, state: State | None = None) -> Tensor:
        """Return outputs under one state by plain overrides; None for the network without overrides."""
        self.restart()
        x = x.clone()  # a network may write into its input
        result = functional_call(self.module, self.in_own_dtypes(state), (x,)) if state else self.module(x)
        outputs = select_output(result, self.output, len(x))
        self.output_shape = tuple(outputs.shape[1:])
        return outputs

    def mapped(self, x: Tensor, state: State) -> Tensor:
        """Return outputs under one state with batch norm as affine maps, which have derivatives.

        Statistics may be (batch, channels) if they differ between examples.
        """
        self.restart()
        layers, overridden, tensors = _flat(*self.batchnorm.maps(state, special=True))
        return self._under_maps(x, layers, overridden, *tensors)

    def in_place(self, x: Tensor, state: State) -> Tensor:
        """Return outputs under one state with batch norm as affine maps that overwrite inputs no longer needed."""
        self.restart()
        layers, overridden, tensors = _flat(*self.batchnorm.maps(state))
        with self.batchnorm.in_place(self.prefix.keeps):
            return self._under_maps(x, layers, overridden, *tensors)

    def vectorised(self, x: Tensor, states: State) -> Tensor:
        """Return outputs under many states, (n, batch, *out)."""
        self.restart()
        layers, overridden, tensors = _flat(*self.batchnorm.maps(states))
        with quiet_vmap():
            run = torch.vmap(partial(self._under_maps, x, layers, overridden), randomness="same")
            outputs: Tensor = run(*tensors)
        return outputs

    def fitting(self, states: State) -> State:
        """Return states in the dtypes of what they override; refuse states of another architecture."""
        for name, value in states.items():
            shape, _ = self.overridable.get(name, (None, None))
            if value.shape[1:] != shape:
                raise NetworkError(
                    f"states: {name!r} of shape {tuple(value.shape[1:])} does not fit the network "
                    f"({'no such entry' if shape is None else tuple(shape)}). The posterior belongs to another "
                    "architecture. Pass the network that it was fitted on."
                )
        return self.in_own_dtypes(states)

    def in_own_dtypes(self, state: State) -> State:
        """Return a state, or states, in the dtypes of what they override."""
        if all(value.dtype == self.overridable[name][1] for name, value in state.items()):
            return state  # the same object: a compiled network recognises the same samples by it
        return {name: value.to(self.overridable[name][1]) for name, value in state.items()}

    def _under_maps(self, x: Tensor, layers: list[str], overridden: list[str], *tensors: Tensor) -> Tensor:
        """Return outputs with some layers as affine maps and other tensors overridden; see `_flat`."""
        x, count = x.clone(), len(layers)
        pairs = zip(tensors[:count], tensors[count : 2 * count], strict=True)
        rest = dict(zip(overridden, tensors[2 * count :], strict=True))
        with self.batchnorm.under(dict(zip(layers, pairs, strict=True))):
            result = functional_call(self.module, rest, (x,)) if rest else self.module(x)
        return select_output(result, self.output, len(x))


def _flat(maps: Maps, rest: State) -> tuple[list[str], list[str], list[Tensor]]:
    """Return the names of layers with a map, those of other overrides, and all scales, shifts and overrides.

    `vmap` takes a list of tensors in less time than nested ones.
    """
    scales, shifts = [scale for scale, _ in maps.values()], [shift for _, shift in maps.values()]
    return list(maps), list(rest), [*scales, *shifts, *rest.values()]
