"""Train a block of networks of a stack together, as many as run fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim.adam import adam

from ...training import shuffled_batches
from .architecture import Dense, Drop, Fork, Join, Norm
from .stack import Bundle, Stack, StackedRows, different
from .trained_layers import (
    RowLoss,
    TrainedDense,
    TrainedDrop,
    TrainedFork,
    TrainedJoin,
    TrainedLayer,
    TrainedNorm,
    TrainedReLU,
)

Schedule = Callable[[float], float]
"""A factor of the step size, as a function of the fraction of steps done, from 0 to 1."""

Generators = dict[tuple[Any, ...], torch.Generator]
"""Random generators by their purpose, seed, and what else distinguishes the generators of a seed."""

# Most numbers of x that are fetched at once.
GATHERED = 2**18


@dataclass
class TrainingSettings:
    """Training settings that all networks of a stack share, and those of each network.

    Args:
        batch_size: M, rows per step.
        learning_rate: Adam's step size.
        loss: The loss of each row.
        decay: The weight decay of each network, (E,), on the CPU.
        seeds: The seed of each network.
        schedule: Factor of the step size, as a function of the fraction of steps done; None: always 1.
        epochs: Number of epochs of the whole schedule.
        decoupled: Whether weight matrices shrink by step size times weight decay at every step (AdamW), instead of a
            term in the loss.
    """

    batch_size: int
    learning_rate: float
    loss: RowLoss
    decay: Tensor
    seeds: list[int]
    schedule: Schedule | None = None
    epochs: int = 1
    decoupled: bool = False


@dataclass(eq=False)
class TrainingState:
    """What training changes: the networks, Adam's two moments, and random generators by purpose."""

    stack: Stack
    first: Bundle
    second: Bundle
    generators: Generators = field(default_factory=dict)

    @classmethod
    def untrained(cls, stack: Stack) -> Self:
        """Return the state before the first step."""
        first, second = (Bundle(stack.weights.shapes, len(stack), stack.weights.flat) for _ in range(2))
        return cls(stack, first, second)


class Block:
    """Networks of a stack with the same number of steps per epoch, during training.

    Args:
        members: The networks' indices in the stack.
        state: The state of all networks, of which copies are trained.
        steps_done: Steps that these networks have been trained before.
        rows: Training rows of all networks in the stack.
        settings: Settings of all networks in the stack.
    """

    def __init__(
        self, members: Tensor, state: TrainingState, steps_done: int, rows: StackedRows, settings: TrainingSettings
    ) -> None:
        stack = state.stack
        self.members, self.rows, self.settings = members, rows.take(members), settings
        self.stack, self.first, self.second = stack.take(members), state.first.take(members), state.second.take(members)
        self.gradients = Bundle(stack.weights.shapes, len(members), stack.weights.flat)
        self.steps_done = torch.full((), float(steps_done), dtype=torch.float32, device=stack.device)
        self.steps = int(self.rows.lengths[0]) // settings.batch_size  # per epoch
        self.decay = settings.decay[members].to(stack.device, stack.dtype)[:, None, None]
        self.seeds = [settings.seeds[i] for i in members.tolist()]
        self.taken = steps_done  # the same as a number on the host
        self.rate: float | Tensor = settings.learning_rate  # a tensor if a recorded step has to see it change
        if stack.device.type == "cuda" and settings.schedule is not None:
            self.rate = torch.full((), settings.learning_rate, device=stack.device)
        self.layers = self._layers()
        trained = next(i for i, layer in enumerate(stack.layers) if layer.shapes)
        self.backwards = self.layers[: trained - len(self.layers) - 1 : -1]  # nothing before them needs a gradient
        self.drops = [layer for layer in self.layers if isinstance(layer, TrainedDrop)]
        self.generators: Generators = {}
        self.earlier_generators = state.generators
        self.abandoned = False  # whether no further epoch may begin
        self._plan_orders()
        self._plan_dropout()

    def _layers(self) -> list[TrainedLayer]:
        """Return the layers that train this block's weights."""
        weights, gradients = self.stack.weights, self.gradients
        decay = self.decay if bool((self.decay > 0).any()) and not self.settings.decoupled else None
        layers: list[TrainedLayer] = []
        forks: list[TrainedFork] = []
        trained_before = False
        for layer in self.stack.layers:
            if isinstance(layer, Fork):
                forks.append(TrainedFork())
                layers.append(forks[-1])
            elif isinstance(layer, Join):
                layers.append(TrainedJoin(forks.pop()))
            elif isinstance(layer, Dense):
                layers.append(TrainedDense(layer, weights, gradients, decay, first=not trained_before))
            elif isinstance(layer, Norm):
                layers.append(TrainedNorm(layer, weights, gradients, self.stack.buffers))
            elif isinstance(layer, Drop):
                layers.append(TrainedDrop(layer))
            else:
                layers.append(TrainedReLU())
            trained_before = trained_before or bool(layer.shapes)
        return layers

    def _plan_orders(self) -> None:
        """Find the networks that use their rows in the same order: those with the same seed and number of rows."""
        keys = list(zip(self.seeds, self.rows.lengths.tolist(), strict=True))
        self.orders, order_of = different(keys)
        self.order_of = order_of.to(self.stack.device)

    def _plan_dropout(self) -> None:
        """Find the networks with the same masks: those with the same seed and rates."""
        rates = [self.stack.rates[drop.name].tolist() for drop in self.drops]
        keys = list(zip(self.seeds, *rates, strict=True))
        self.masks, self.mask_of = different(keys if any(map(any, rates)) else [])
        places = [i for i, layer in enumerate(self.layers) if isinstance(layer, TrainedDrop)]
        self.units = [self.stack.widths[i] for i in places]  # numbers per row that each dropout layer gets
        like = self.stack.weights.flat
        # The fraction that each dropout layer keeps, (networks, 1, 1).
        self.keep = [(1 - self.stack.rates[d.name]).to(like.device, like.dtype)[:, None, None] for d in self.drops]

    def epoch_orders(self) -> list[Tensor]:
        """Return random orders for a new epoch, one for each of `orders`: places in the networks' lists of rows."""
        keys = [("order", seed, rows) for seed, rows in self.orders]
        return [shuffled_batches(key[2], self.settings.batch_size, self.generator(key)).flatten() for key in keys]

    def epoch_rows(self) -> Tensor:
        """Return the row numbers of a new epoch, (steps, networks, batch_size), sampled as in `train`."""
        size = self.settings.batch_size
        orders = torch.stack(self.epoch_orders())
        if self.stack.device.type == "cuda":  # pinned memory, which the device can read while the host continues
            orders = orders.pin_memory().to(self.stack.device, non_blocking=True)
        return (
            self.rows.table.gather(1, orders[self.order_of]).view(len(self.members), self.steps, size).transpose(0, 1)
        )

    def sample_masks(self) -> None:
        """Sample new dropout factors for a step.

        On a CPU they equal those of `train` with each network's seed. Elsewhere they come from the device's generator:
        they have the same distribution, but depend on which networks are trained together.
        """
        if not self.masks:
            return
        size, like = self.settings.batch_size, self.stack.weights.flat
        if like.device.type != "cpu":
            for drop, units, keep in zip(self.drops, self.units, self.keep, strict=True):
                uniform = torch.rand(len(self.members), size, units, device=like.device, dtype=like.dtype)
                drop.factors = (uniform < keep) / keep.clamp_min(torch.finfo(like.dtype).tiny)
            return
        factors: list[list[Tensor]] = [[] for _ in self.drops]
        for key in self.masks:
            generator = self.generator(("dropout", *key, self.steps))
            for column, (units, rate) in enumerate(zip(self.units, key[1:], strict=True)):
                factors[column].append(_factors(size, units, rate, generator, like))
        for drop, parts in zip(self.drops, factors, strict=True):
            drop.factors = parts[0] if len(self.masks) == 1 else torch.stack(parts)[self.mask_of]

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one step of Adam in every network, and return the loss before it without weight decay, (networks,)."""
        self.sample_masks()
        h = x
        for layer in self.layers:
            h = layer.forward(h)
        losses, slope = self.settings.loss.with_slope(h, y)
        value, d = losses.mean(1), slope / h.shape[1]
        for layer in self.backwards:
            d = layer.backward(d)
        if self.settings.decoupled:
            shrink = 1 - self.rate * self.decay
            for weight in self.stack.weights.tensors.values():
                if weight.dim() == 3:
                    weight.mul_(shrink)
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
            lr=self.rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        return value

    @torch.no_grad()
    def train(self, epochs: int) -> Tensor:
        """Train for some epochs, and return the mean losses of each, (networks, epochs)."""
        losses = [self.epoch() for _ in range(epochs) if not self.abandoned]
        self.stack.tracked += epochs * self.steps
        return torch.stack(losses, 1)

    def epoch(self) -> Tensor:
        """Train for one pass over the rows, and return each network's mean loss, (networks,)."""
        total = self.stack.weights.flat.new_zeros(len(self.members))
        for x, y in self._batches():
            self.set_rate()
            total += self.step(x, y)
        return total / self.steps

    def set_rate(self) -> None:
        """Set the step size of the next step, and count the step."""
        settings = self.settings
        if settings.schedule is not None:
            rate = settings.learning_rate * settings.schedule(self.taken / (settings.epochs * self.steps))
            if isinstance(self.rate, Tensor):
                self.rate.fill_(rate)
            else:
                self.rate = rate
        self.taken += 1

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and targets of every step of a new epoch."""
        numbers = self.epoch_rows()
        at_once = max(1, GATHERED // max(1, numbers[0].numel() * self.rows.x.shape[1]))
        for part in numbers.split(at_once):
            yield from zip(self.rows.inputs(part), self.rows.targets(part), strict=True)

    def generator(self, key: tuple[Any, ...]) -> torch.Generator:
        """Return the generator of a purpose; networks that need the same random numbers share one.

        Args:
            key: The purpose, the seed, and what else distinguishes the generators of the seed.
        """
        if key not in self.generators:
            earlier = self.earlier_generators.get(key)
            self.generators[key] = earlier.clone_state() if earlier else torch.Generator().manual_seed(key[1])
        return self.generators[key]


def _factors(rows: int, units: int, rate: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """Sample the factors of `nn.Dropout` in training mode, (rows, units)."""
    if rate == 0:
        return like.new_ones(rows, units)
    if rate == 1:
        return like.new_zeros(rows, units)
    return like.new_empty(rows, units).bernoulli_(1 - rate, generator=generator).div_(1 - rate)


def blocks_of(members: Sequence[int], steps: Sequence[int], size: int) -> list[Tensor]:
    """Split networks, by their indices, into blocks of at most `size` with the same number of steps."""
    parts: list[Tensor] = []
    for count in dict.fromkeys(steps[i] for i in members):
        same = [i for i in members if steps[i] == count]
        blocks = -(-len(same) // size)
        parts += [part.clone() for part in torch.tensor(same).tensor_split(blocks)]
    return parts
