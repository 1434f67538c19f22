"""Call a private copy of a network under one state or many, in four ways that give the same numbers.

`reference` defines a sample: plain overrides by `torch.func.functional_call`. `mapped` computes the same with batch
norm as affine maps, which have derivatives. `in_place` is `mapped` without derivatives and with less memory.
`vectorised` runs many states at once, as an axis of `torch.vmap`.

`require_derivable` refuses networks whose outputs have no derivatives with respect to batch-norm statistics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from ...errors import NetworkError
from ..calling import forward_errors_explained, select_output
from ..copying import tensors_of
from ..restoring import TensorKeeper, quiet_vmap
from ..several import forward_arguments
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
        self.casts_convolutions = False  # whether `vectorised` lowers the precision of convolutions under autocast
        self.restart: Callable[[], None]  # resets generators and written tensors for the next forward pass

    def reference(self, x: Tensor, state: State | None = None) -> Tensor:
        """Return outputs under one state by plain overrides; None for the network without overrides."""
        self.restart()
        x = x.clone()  # a network may write into its input
        args, kwargs = forward_arguments(x)
        overridden = self.in_own_dtypes(state) if state else None
        result = functional_call(self.module, overridden, args, kwargs) if overridden else self.module(*args, **kwargs)
        outputs = select_output(result, self.output, len(x))
        self.output_shape = tuple(outputs.shape[1:])
        return outputs

    def mapped(self, x: Tensor, state: State) -> Tensor:
        """Return outputs under one state with batch norm as affine maps, which have derivatives.

        Statistics may be (batch, channels) if they differ between examples.
        """
        self.restart()
        layers, overridden, tensors = _flat(*self.batchnorm.maps(state, special=True))
        return self._under_maps(x, layers, overridden)(*tensors)

    def in_place(self, x: Tensor, state: State) -> Tensor:
        """Return outputs under one state with batch norm as affine maps that overwrite inputs no longer needed."""
        self.restart()
        layers, overridden, tensors = _flat(*self.batchnorm.maps(state))
        with self.batchnorm.in_place(self.prefix.keeps):
            return self._under_maps(x, layers, overridden)(*tensors)

    def vectorised(self, x: Tensor, states: State) -> Tensor:
        """Return outputs under many states, (n, batch, *out)."""
        self.restart()
        layers, overridden, tensors = _flat(*self.batchnorm.maps(states))
        run_one = self._under_maps(x, layers, overridden)
        with quiet_vmap(), _LowerConvolutions() if self.casts_convolutions else contextlib.nullcontext():
            outputs: Tensor = torch.vmap(run_one, randomness="same")(*tensors)
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

    def _under_maps(self, x: Tensor, layers: list[str], overridden: list[str]) -> Callable[..., Tensor]:
        """Return the function of tensors, see `_flat`, that runs layers as affine maps and overrides other tensors."""
        count = len(layers)

        def run_one(*tensors: Tensor) -> Tensor:  # torch 2.6 writes out a `partial` with the values of its tensors
            args, kwargs = forward_arguments(x.clone())
            pairs = zip(tensors[:count], tensors[count : 2 * count], strict=True)
            rest = dict(zip(overridden, tensors[2 * count :], strict=True))
            with self.batchnorm.under(dict(zip(layers, pairs, strict=True))):
                result = functional_call(self.module, rest, args, kwargs) if rest else self.module(*args, **kwargs)
            return select_output(result, self.output, len(x))

        return run_one


_CONVOLUTIONS = {f"conv{transposed}{axes}d" for transposed in ("", "_transpose") for axes in (1, 2, 3)}


class _LowerConvolutions(TorchFunctionMode):
    """Give convolutions under autocast inputs of lower precision, which torch does not do inside `vmap` on a CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _CONVOLUTIONS and torch.is_autocast_enabled(args[0].device.type):
            dtype = torch.get_autocast_dtype(args[0].device.type)
            args = [value.to(dtype) if isinstance(value, Tensor) else value for value in args]
        return func(*args, **(kwargs or {}))


def _flat(maps: Maps, rest: State) -> tuple[list[str], list[str], list[Tensor]]:
    """Return the names of layers with a map, those of other overrides, and all scales, shifts and overrides.

    `vmap` takes a list of tensors in less time than nested ones.
    """
    scales, shifts = [scale for scale, _ in maps.values()], [shift for _, shift in maps.values()]
    return list(maps), list(rest), [*scales, *shifts, *rest.values()]


# The number of examples, and by how many standard deviations statistics are moved to see whether outputs depend on
# them.
ROWS, SHIFT = 8, 1e-2


@contextlib.contextmanager
def derivative_errors_explained() -> Iterator[None]:
    """Explain errors of a forward pass with derivatives, given that the network runs without derivatives."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        raise NetworkError(
            "model: it cannot be run with derivatives with respect to batch statistics that differ between examples "
            f"({(str(error) or repr(error)).splitlines()[0]}). Does the input of every batch-norm layer have one "
            "entry per example? Use engine=MonteCarlo()."
        ) from error


@torch.no_grad()
def require_derivable(network: PrivateNetwork, state: State, x: Tensor) -> None:
    """Refuse a network whose outputs on some examples of `x` change if batch norm runs as an affine map.

    The check uses other statistics than the network's own. This reveals special layers and forwards that use statistics
    outside of their layers. A forward must also not block derivatives with `torch.no_grad` or `detach`: the variance of
    everything before would be missing without an error.

    Args:
        network: The network.
        state: Means and variances of layers, (channels,), or (batch, channels) if they differ between examples.
        x: Inputs on the network's device.
    """
    state = _moved(
        network.batchnorm, {name: (value[0] if value.dim() > 1 else value).detach() for name, value in state.items()}
    )
    some = x[:ROWS]
    with forward_errors_explained(some, "x", tuple(x.shape)):
        expected = network.reference(some, state)
    outputs, cut_off = _outputs_and_layers_cut_off(network, state, some)
    rounding = max(1e-3, 8 * torch.finfo(expected.dtype).eps)
    within = rounding * float(expected.abs().max())
    if not torch.allclose(expected, outputs, rtol=rounding, atol=within, equal_nan=True):
        what = f"the layers {', '.join(network.batchnorm.special)} use their input for more than normalisation"
        if not network.batchnorm.special:
            what = "its forward uses batch-norm statistics outside of their layers, or normalises by the batch"
        raise NetworkError(
            f"model: {what}, so its outputs have no derivatives with respect to the statistics. Use "
            "engine=MonteCarlo()."
        )
    for layer in cut_off:
        mean, var = f"{layer}.running_mean", f"{layer}.running_var"
        spread = state[var].clamp_min(0).sqrt()
        shifted = state | {mean: state[mean] + SHIFT * spread, var: (1 + SHIFT) * state[var]}
        change = (network.reference(some, shifted) - expected).abs().max()
        if float(change) > 1e-6 * float(expected.abs().max()):  # otherwise its units are zero for these examples
            raise NetworkError(
                f"model: its outputs depend on the statistics of {layer!r}, but its forward blocks their derivatives, "
                "for example with torch.no_grad or detach. Use engine=MonteCarlo()."
            )


def _moved(affine: AffineBatchNorm, state: State) -> State:
    """Return a state in which the statistics of all batch-norm layers are moved by half a standard deviation."""
    moved = dict(state)
    for name, module in (affine.plain | affine.special).items():
        mean, var = f"{name}.running_mean", f"{name}.running_var"
        if mean in moved and module.running_var is not None:
            # In alternating directions, so that some units pass a ReLU.
            sign = 1 - 2 * (torch.arange(module.num_features, device=moved[mean].device) % 2)
            moved[mean] = moved[mean] + 0.5 * sign * (module.running_var + module.eps).sqrt()
        if var in moved:
            moved[var] = 1.5 * moved[var]
    return moved


def _outputs_and_layers_cut_off(network: PrivateNetwork, state: State, x: Tensor) -> tuple[Tensor, list[str]]:
    """Return outputs, with separate statistics for every example, and the layers that get no derivative from them."""
    with torch.enable_grad(), derivative_errors_explained():
        statistics = {name: value.expand(len(x), -1).clone().requires_grad_() for name, value in state.items()}
        outputs = network.mapped(x, statistics)
        weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
        mixed = (outputs * weights).sum()
        gradients: Sequence[Tensor | None] = [None] * len(statistics)
        if mixed.requires_grad:
            gradients = torch.autograd.grad(mixed, list(statistics.values()), allow_unused=True)
    layers = [name.rpartition(".")[0] for name in statistics]
    reached = {layer for layer, g in zip(layers, gradients, strict=True) if g is not None and bool(g.any())}
    return outputs.detach(), [layer for layer in dict.fromkeys(layers) if layer not in reached]
