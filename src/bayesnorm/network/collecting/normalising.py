"""Make the batch-norm layers of a private copy normalise by the batch, as in training, and record its moments.

`NormalisingByBatch` does this for batches of training data. `RowStatistics` runs groups of new examples as if they were
training batches. `single_input_statistics` looks at single inputs in evaluation mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...errors import NetworkError
from ...progress import long_progress
from ..calling import agrees, as_input, call_network, may_gain_from_channels_last
from ..copying import Original, device_of, dtype_of, own_copy, private_copy, unwrap
from ..gpu_graphs import RecordedPasses
from ..layers import find_batchnorm
from ..restoring import TensorKeeper, isolated_torch_randomness
from ..several import Inputs
from .moments import mean_and_var, row_averages, row_sums

Measure = Callable[[Tensor], tuple[Tensor, ...]]
"""Returns moments of a layer's input: `mean_and_var`, `row_averages` or `no_moments`."""
Rule = Callable[[str, tuple[Tensor, ...]], tuple[Tensor, Tensor]]
"""Chooses the mean and variance that a layer normalises by, given its name and the moments of its input."""


def no_moments(h: Tensor) -> tuple[Tensor, ...]:
    """Return nothing, for rules that need no moments of a layer's input."""
    return ()


class NormalisingByBatch:
    """A private copy of a network whose chosen layers normalise by the batch, as in training, and record its moments.

    Before a layer runs, the moments of its input replace its running statistics. The layer itself stays in evaluation
    mode, so other training-mode effects do not happen.

    Args:
        network: The copy; forwards of its layers are replaced.
        names: The chosen layers.
        over_rows: Whether to record the sums of `row_sums` instead of means and variances.
        argument: The caller's argument that holds the examples, for messages.
    """

    def __init__(
        self, network: nn.Module, names: tuple[str, ...], over_rows: bool = False, argument: str = "train_data"
    ) -> None:
        batchnorm = find_batchnorm(network)
        self.modules = {name: batchnorm[name] for name in names}
        self._network, self._argument = network, argument
        self._measure: Measure = row_averages if over_rows else mean_and_var
        # Restored after a forward pass.
        self._buffers: dict[str, dict[str, Any]] = {
            name: dict(module._buffers) for name, module in self.modules.items()
        }
        self._running_means = torch.cat([buffers["running_mean"] for buffers in self._buffers.values()])
        self._layout = torch.preserve_format  # memory layout of inputs
        self._rows = 0  # number of examples in the current forward pass
        self._groups = 1  # number of groups that the current forward pass normalises separately
        self._rule: Rule | None = None  # chooses the statistics of the current forward pass; None for the batch's own
        self._output: Any = None  # what the network returned in the current forward pass
        self._rows_are_entries = True  # whether every layer's input has one entry per example
        self._moments: dict[str, tuple[Tensor, ...]] = {}  # by layer that has run in this forward pass
        self._passing: dict[str, dict[str, Tensor]] = {}  # running statistics that leave an input unchanged
        for name, module in self.modules.items():
            module.forward = self._wrapped(name, module, module.forward)  # type: ignore[method-assign]

    def choose_layout(self, x: Tensor) -> None:
        """Run images channels-last from now on if that may be faster and gives these examples the same moments."""
        if not may_gain_from_channels_last(self._network, x):
            return

        def moments() -> Tensor:
            with isolated_torch_randomness(0, x.device):  # a network may use random numbers: the same in both passes
                return self.run(x)

        expected = moments()
        self._layout = torch.channels_last
        if not agrees(moments, expected):
            self._layout = torch.preserve_format

    def run(self, x: Tensor) -> Tensor:
        """Return the moments of one batch: means and biased variances, (2, C), or sums over examples, (5, C)."""
        layer_results = self._pass(x, 1)
        mean, var, *averages = (torch.cat(parts, dim=-1) for parts in zip(*layer_results, strict=True))
        if self._measure is mean_and_var:
            return torch.stack([mean, var])
        deviations, squares = averages
        return row_sums(mean, deviations, squares, self._running_means)

    def run_groups(self, x: Tensor, groups: int) -> Tensor:
        """Return means and biased variances of groups, each normalised separately, (2, groups, C), in one forward pass.

        Args:
            x: The examples of all groups, one group after the other.
            groups: Number of groups, all of the same size.
        """
        if groups > 1 and self._rows_are_entries:
            layer_results = self._pass(x, groups)
            if self._rows_are_entries:
                return torch.stack([torch.cat(parts, dim=-1) for parts in zip(*layer_results, strict=True)])
        measure, self._measure = self._measure, mean_and_var
        try:
            return torch.stack([self.run(part) for part in x.chunk(groups)], dim=1)
        finally:
            self._measure = measure

    def running(self, name: str) -> tuple[Tensor, Tensor, float]:
        """Return a layer's running mean, its running variance and eps."""
        buffers = self._buffers[name]
        return buffers["running_mean"], buffers["running_var"], self.modules[name].eps

    def run_rule(self, x: Tensor, rule: Rule, measure: Measure) -> Any:
        """Return the network's output if every layer normalises by the statistics that a rule gives for its input."""
        before, self._measure, self._rule = self._measure, measure, rule
        try:
            self._pass(x, 1)
            return self._output
        finally:
            self._measure, self._rule, self._output = before, None, None

    def _pass(self, x: Tensor, groups: int) -> list[tuple[Tensor, ...]]:
        """Run the network once, and return the moments of every layer's input."""
        self._moments.clear()
        self._rows, self._groups = len(x), groups
        try:
            # A copy, since a network may write into its input.
            self._output = call_network(self._network, x.clone(memory_format=self._layout), self._argument)
        finally:
            for name, module in self.modules.items():
                module._buffers.update(self._buffers[name])
        missing = [name for name in self.modules if name not in self._moments]
        if missing:
            raise NetworkError(
                f"model: batch-norm layer {missing[0]!r} runs for some batches and not for others. Leave it out with "
                "layers=."
            )
        return [self._moments[name] for name in self.modules]

    def _wrapped(self, name: str, module: _BatchNorm, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward that computes the moments of its input and normalises by them."""
        dtype = self._buffers[name]["running_mean"].dtype

        def normalise_by_batch(*args: Any, **kwargs: Any) -> Any:
            if name in self._moments:
                raise NetworkError(
                    f"model: batch-norm layer {name!r} is called more than once in a forward pass. Leave it out with "
                    "layers=."
                )
            h = (args[0] if args else kwargs["input"]).detach()  # a forward may compute derivatives itself
            if self._measure is row_averages and len(h) != self._rows:
                raise NetworkError(
                    f"model: batch-norm layer {name!r} gets {len(h)} entries for {self._rows} examples, so the "
                    "contribution of one example to its statistics is unknown. Use MCBN or GaussianBN(rank=...), "
                    "which need only statistics of whole batches, or leave the layer out with layers=."
                )
            if self._groups > 1:
                return self._by_groups(name, module, forward, h, args, kwargs)
            moments = self._moments[name] = self._measure(h)
            mean, var, *_ = moments if self._rule is None else self._rule(name, moments)
            module._buffers.update(running_mean=mean.to(dtype), running_var=var.to(dtype))
            return forward(*args, **kwargs)

        return normalise_by_batch

    def _by_groups(
        self, name: str, module: _BatchNorm, forward: Callable[..., Any], h: Tensor, args: Any, kwargs: Any
    ) -> Any:
        """Normalise every group separately, and run the layer on the normalised input."""
        if len(h) != self._rows:
            self._rows_are_entries, self._groups = False, 1  # results of this pass are not used
            self._moments[name] = mean_and_var(h)
            return forward(*args, **kwargs)
        parts = h.unflatten(0, (self._groups, -1))
        self._moments[name] = mean, var = mean_and_var(parts, leading=1)
        shape = (self._groups, 1, -1, *[1] * (h.dim() - 2))
        scale = (var + module.eps).rsqrt_()
        normalised = torch.addcmul((-mean * scale).view(shape), parts, scale.view(shape)).to(h.dtype).flatten(0, 1)
        if name not in self._passing:
            running_mean = self._buffers[name]["running_mean"]
            unit = torch.full_like(running_mean, 1 - module.eps)
            self._passing[name] = {"running_mean": torch.zeros_like(running_mean), "running_var": unit}
        module._buffers.update(self._passing[name])
        return forward(normalised, *args[1:], **kwargs) if args else forward(**(kwargs | {"input": normalised}))


# Largest number of input values in a forward pass.
MOST_ELEMENTS = 2**22


class RowStatistics:
    """A private copy of a network that returns the statistics of groups of examples, each normalised separately.

    Args:
        model: The network; never modified. Changes of its weights or device are followed.
        layers: Names of the layers that normalise by group, in running order; others keep their running statistics.
        forward_kwargs: Further arguments of every forward pass.
    """

    def __init__(
        self, model: nn.Module, layers: Sequence[str], forward_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self._model, self._layers, self._forward_kwargs = model, tuple(layers), forward_kwargs
        self._build()

    def _build(self) -> None:
        """Make the private copy that is run, and everything derived from it."""
        original = unwrap(self._model)
        self._device, self._dtype = device_of(original), dtype_of(original)
        self._original = Original(original)  # detects when the user moves the network or replaces parts of it
        network = private_copy(original, self._forward_kwargs)
        self._keeper = TensorKeeper(network)
        self._normalising = NormalisingByBatch(network, self._layers, argument="x")
        self._run = RecordedPasses(self._normalising.run_groups)
        self._layout_chosen = False

    def __getstate__(self) -> dict[str, Any]:
        # The private copy's layers hold functions of this object; a copy of it builds its own private copy.
        return {"_model": self._model, "_layers": self._layers, "_forward_kwargs": self._forward_kwargs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._build()

    def input(self, x: Any) -> Any:
        """Return examples in the network's dtype, on its current device."""
        if self._original.changed():
            self._build()
        return x if isinstance(x, Inputs) else as_input(x, "x", self._device, self._dtype)

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
        with self._isolated(x, size):
            # A replay would write to the network's tensors undetected.
            recordable = not self._keeper.put_back_some
            parts = []
            with long_progress("statistics") as tell:
                for part in x.split(at_once * size):
                    parts.append(self._run(part, len(part) // size, recordable))
                    tell(len(parts) * at_once, groups)
        mean, var = torch.cat(parts, dim=1)
        return mean, var

    def running(self, name: str) -> tuple[Tensor, Tensor, float]:
        """Return a layer's running mean, its running variance and eps."""
        return self._normalising.running(name)

    @torch.inference_mode(False)
    @torch.no_grad()
    def run_rule(self, x: Tensor, rule: Rule, measure: Measure = row_averages) -> Any:
        """Return the network's output if every layer normalises by the statistics that a rule gives for its input.

        Args:
            x: The examples, as returned by `input`.
            rule: Called with a layer's name and the moments of its input, in running order.
            measure: Returns these moments. The fewer it computes, the faster it is.
        """
        with self._isolated(x, len(x)):
            return self._normalising.run_rule(x, rule, measure)

    @contextlib.contextmanager
    def _isolated(self, x: Tensor, size: int) -> Iterator[None]:
        """Work without side effects on examples, of which a forward pass takes `size`, in the fastest layout."""
        again = partial(self._normalising.run, x[:size])
        with self._keeper.restore_state(self._device, again=again) as restart:
            if not self._layout_chosen:
                self._normalising.choose_layout(x[:2])
                self._layout_chosen = True
                restart()
            yield


# Numbers of inputs per forward pass.
AT_ONCE = 2**18


def single_input_statistics(
    model: nn.Module, x: Tensor, forward_kwargs: Mapping[str, Any] | None = None
) -> list[Tensor]:
    """Return the statistics of every input alone at each layer that runs once, (inputs, channels) each.

    For each layer these are the means over positions and, if there is more than one position, the logarithms of the
    variances over positions. The network runs in evaluation mode, so inputs do not influence each other.

    Args:
        model: The network; never modified.
        x: Inputs on its device.
        forward_kwargs: Further arguments of every forward pass.
    """
    network = own_copy(model, forward_kwargs)
    seen: dict[str, list[Tensor]] = {}

    def hook(name: str) -> Callable[[nn.Module, Any], None]:
        def record(layer: nn.Module, inputs: Any) -> None:
            h = inputs[0].detach().double()
            positions = h.flatten(2) if h.dim() > 2 else h[:, :, None]
            seen.setdefault(name, []).append(positions.mean(2))
            if positions.shape[2] > 1:
                seen.setdefault(f"{name}.var", []).append((positions.var(2, correction=0) + 1e-8).log())

        return record

    for name, layer in find_batchnorm(network).items():
        layer.register_forward_pre_hook(hook(name))
    blocks = x.split(max(1, AT_ONCE // max(1, x[0].numel())))
    with long_progress("statistics") as tell:
        for done, block in enumerate(blocks, start=1):
            call_network(network, block.clone(), "x")
            tell(done, len(blocks))
    parts = [torch.cat(values) for values in seen.values() if len(values) == len(blocks)]
    return [part for part in parts if len(part) == len(x)]
