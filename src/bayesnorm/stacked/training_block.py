"""Some networks of a stack while they are trained, as many as run fastest together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from ..errors import BayesNormError
from ..training.batching import shuffled_batches
from .architecture import Activation, Dense, Norm
from .bundle import Bundle
from .rows import StackedRows
from .stack import Stack
from .trained_layers import TrainedDense, TrainedDrop, TrainedLayer, TrainedNorm, activation

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""`loss(f, y)`, of outputs (networks, rows, outputs) and targets (networks, rows, ...): one for each row."""

GATHERED = 2**18
"""Most numbers of x that are fetched at once."""


def half_squared_error(f: Tensor, y: Tensor) -> Tensor:
    """Half the squared error of every row, averaged over outputs: (networks, rows)."""
    return 0.5 * (f - y).square().mean(-1)


@dataclass
class Settings:
    """What all networks of a stack share in training, and what each has of its own.

    Args:
        batch_size: M.
        learning_rate: Adam's.
        loss: Of each row.
        decay: lambda of each network, (E,), on the CPU.
        seeds: Of each network.
    """

    batch_size: int
    learning_rate: float
    loss: RowLoss
    decay: Tensor
    seeds: list[int]


class Streams:
    """Generators by what they draw for; networks that would draw the same numbers share one."""

    def __init__(self, states: dict[tuple[object, ...], Tensor]) -> None:
        self.states = dict(states)
        self.used: dict[tuple[object, ...], torch.Generator] = {}

    def __call__(self, key: tuple[object, ...], seed: int) -> torch.Generator:
        if key not in self.used:
            self.used[key] = torch.Generator().manual_seed(seed)
            if key in self.states:
                self.used[key].set_state(self.states[key])
        return self.used[key]


class Block:
    """Networks with the same number of steps in an epoch.

    Args:
        members: Their numbers in the stack.
        stack, first, second, steps_done: Their weights, Adam's moments and how many steps it took.
        rows: Their training rows.
        settings: Of the whole stack.
        states: Of generators, where training goes on.
    """

    def __init__(
        self,
        members: Tensor,
        stack: Stack,
        first: Bundle,
        second: Bundle,
        steps_done: int,
        rows: StackedRows,
        settings: Settings,
        states: dict[tuple[object, ...], Tensor],
    ) -> None:
        self.members, self.rows, self.settings = members, rows.take(members), settings
        self.stack, self.first, self.second = stack.take(members), first.take(members), second.take(members)
        self.gradients = Bundle(stack.weights.shapes, len(members), stack.weights.flat)
        self.steps_done = torch.full((), float(steps_done), dtype=torch.float32, device=stack.device)
        self.steps = int(self.rows.lengths[0]) // settings.batch_size
        self.decay = settings.decay[members].to(stack.device, stack.dtype)[:, None, None]
        self.seeds = [settings.seeds[i] for i in members.tolist()]
        self.layers = self._layers()
        trained = next(i for i, layer in enumerate(stack.layers) if layer.shapes)
        self.backwards = self.layers[: trained - len(self.layers) - 1 : -1]  # nothing before them needs a gradient
        self.drops = [layer for layer in self.layers if isinstance(layer, TrainedDrop)]
        self.streams = Streams(states)
        self.abandoned = False
        self._plan_orders()
        self._plan_dropout()

    def _layers(self) -> list[TrainedLayer]:
        weights, gradients = self.stack.weights, self.gradients
        decay = self.decay if bool((self.decay > 0).any()) else None
        found: list[TrainedLayer] = []
        trained_before = False
        for layer in self.stack.layers:
            if isinstance(layer, Dense):
                found.append(TrainedDense(layer, weights, gradients, decay, first=not trained_before))
            elif isinstance(layer, Norm):
                found.append(TrainedNorm(layer, weights, gradients, self.stack.buffers))
            else:
                found.append(activation(layer) if isinstance(layer, Activation) else TrainedDrop(layer))
            trained_before = trained_before or bool(layer.shapes)
        return found

    def _plan_orders(self) -> None:
        keys = list(zip(self.seeds, self.rows.lengths.tolist(), strict=True))
        self.orders = list(dict.fromkeys(keys))
        place = {key: i for i, key in enumerate(self.orders)}
        self.order_of = torch.tensor([place[key] for key in keys], device=self.stack.device)

    def _plan_dropout(self) -> None:
        rates = [self.stack.rates[drop.name].tolist() for drop in self.drops]
        keys = [(seed, *own) for seed, *own in zip(self.seeds, *rates, strict=True)]
        self.masks = list(dict.fromkeys(keys)) if any(any(own) for own in rates) else []
        place = {key: i for i, key in enumerate(self.masks)}
        self.mask_of = torch.tensor([place[key] for key in keys]) if self.masks else None
        places = [i for i, layer in enumerate(self.layers) if isinstance(layer, TrainedDrop)]
        self.units = [self.stack.widths[i] for i in places]
        like = self.stack.weights.flat
        self.keep = [(1 - self.stack.rates[d.name]).to(like.device, like.dtype)[:, None, None] for d in self.drops]

    def epoch_orders(self) -> list[Tensor]:
        """Places in lists of rows, in the order of a new epoch, for each of `orders`."""
        size, stream = self.settings.batch_size, self.streams
        return [
            shuffled_batches(rows, size, stream(("order", seed, rows), seed)).flatten() for seed, rows in self.orders
        ]

    def epoch_rows(self) -> Tensor:
        """Row numbers of a new epoch, (steps, networks, batch_size), drawn as `train` draws them."""
        size = self.settings.batch_size
        orders = torch.stack(self.epoch_orders())
        if self.stack.device.type == "cuda":  # from memory that the device can fetch while the host goes on
            orders = orders.pin_memory().to(self.stack.device, non_blocking=True)
        return (
            self.rows.table.gather(1, orders[self.order_of]).view(len(self.members), self.steps, size).transpose(0, 1)
        )

    def draw_masks(self) -> None:
        """New dropout factors for a step.

        On a CPU those that `train` would draw for each network from its seed; elsewhere they come from the device's
        generator, so that they are distributed alike but depend on which networks are trained together.
        """
        if not self.masks:
            return
        size, like = self.settings.batch_size, self.stack.weights.flat
        if like.device.type != "cpu":
            for drop, units, keep in zip(self.drops, self.units, self.keep, strict=True):
                uniform = torch.rand(len(self.members), size, units, device=like.device, dtype=like.dtype)
                drop.factors = (uniform < keep) / keep.clamp_min(torch.finfo(like.dtype).tiny)
            return
        drawn: list[list[Tensor]] = [[] for _ in self.drops]
        for key in self.masks:
            generator = self.streams(("dropout", *key, self.steps), key[0])
            for column, (units, rate) in enumerate(zip(self.units, key[1:], strict=True)):
                drawn[column].append(_factors(size, units, rate, generator, like))
        for drop, factors in zip(self.drops, drawn, strict=True):
            drop.factors = factors[0] if len(self.masks) == 1 else torch.stack(factors)[self.mask_of]

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One step of Adam in every network: the loss before it without weight decay, (networks,)."""
        self.draw_masks()
        h = x
        for layer in self.layers:
            h = layer.forward(h)
        value, d = self._loss(h, y)
        for layer in self.backwards:
            d = layer.backward(d)
        adam(
            [self.stack.weights.flat],
            [self.gradients.flat],
            [self.first.flat],
            [self.second.flat],
            [],
            [self.steps_done],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.settings.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        return value

    def _loss(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Each network's mean over rows, (networks,), and its gradient at the outputs."""
        if self.settings.loss is half_squared_error:
            error = f - y
            return error.square().mean((1, 2)) / 2, error / (f.shape[1] * f.shape[2])
        f = f.detach().requires_grad_()
        with torch.enable_grad():
            values = self.settings.loss(f, y)
            if not isinstance(values, Tensor) or values.shape != f.shape[:2]:
                found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                raise BayesNormError(
                    f"loss: gave {found} for outputs of shape {tuple(f.shape)}; one number for each row, "
                    f"{tuple(f.shape[:2])}, would work."
                )
            value = values.mean(1)
            (d,) = torch.autograd.grad(value.sum(), f)
        return value.detach(), d

    @torch.no_grad()
    def train(self, epochs: int) -> Tensor:
        """Train for some epochs: mean losses of each, (networks, epochs)."""
        found = [self.epoch() for _ in range(epochs) if not self.abandoned]
        self.stack.tracked += epochs * self.steps
        return torch.stack(found, 1)

    def epoch(self) -> Tensor:
        """One pass over the rows."""
        total = self.stack.weights.flat.new_zeros(len(self.members))
        for x, y in self._batches():
            total += self.step(x, y)
        return total / self.steps

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        numbers = self.epoch_rows()
        at_once = max(1, GATHERED // max(1, numbers[0].numel() * self.rows.x.shape[1]))
        for part in numbers.split(at_once):
            yield from zip(self.rows.inputs(part), self.rows.targets(part), strict=True)

    def generator_states(self) -> dict[tuple[object, ...], Tensor]:
        return {key: generator.get_state() for key, generator in self.streams.used.items()}


def _factors(rows: int, units: int, rate: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """The draws of `nn.Dropout` in training mode, (rows, units)."""
    if rate == 0:
        return like.new_ones(rows, units)
    if rate == 1:
        return like.new_zeros(rows, units)
    return like.new_empty(rows, units).bernoulli_(1 - rate, generator=generator).div_(1 - rate)


def blocks_of(members: Sequence[int], steps: Sequence[int], size: int) -> list[Tensor]:
    """Networks with the same number of steps together, at most `size` in a block."""
    found: list[Tensor] = []
    for count in dict.fromkeys(steps[i] for i in members):
        same = [i for i in members if steps[i] == count]
        blocks = -(-len(same) // size)
        found += [part.clone() for part in torch.tensor(same).tensor_split(blocks)]
    return found
