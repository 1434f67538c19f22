"""Training of a table's networks, those of all folds and settings at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..network import Progress
from ..stacked import Scales, Stack, StackedRows, stacked_outputs, train_stacked
from ..training import progress_bar
from .networks import network_for
from .search_plan import SearchPlan
from .targets import Affine, Targets

# What the learning rate is multiplied by in the end, one after the other, and for which share of the epochs each.
COOLING, COOLING_EPOCHS = (1 / 3, 1 / 10), 1 / 10

# Most epochs of the last layer alone.
HEAD_EPOCHS = 200


@dataclass(frozen=True, eq=False)
class Trainer:
    """What all networks of a table share.

    Args:
        x: Inputs of all N training rows, (N, inputs), in single precision.
        targets: Theirs.
        method: The method of the posterior, which decides the kind of network.
        hidden: Units of the hidden layers.
        learning_rate: The step size of Adam.
        seed: Decides initial weights, orders of rows and dropout.
        verbose: Whether to show progress.
    """

    x: Tensor
    targets: Targets
    method: str
    hidden: tuple[int, ...]
    learning_rate: float
    seed: int
    verbose: bool

    def train(
        self,
        rows: Sequence[Tensor],
        held_out: Sequence[Tensor] | None,
        plan: SearchPlan,
        batch_size: int,
        settings: Sequence[tuple[float, float | None]],
        *,
        epochs: int | None = None,
        first: int = 0,
        progress: Progress | None = None,
    ) -> tuple[Stack, Tensor]:
        """Networks on every list of rows in every setting, those of a setting side by side and stopping together.

        After the epochs that are best, a tenth as many follow at a third of the learning rate, and as many at a tenth
        of it: steps of one size never come to rest.

        Args:
            rows: Row numbers that each network of a setting learns from.
            held_out: Rows that it is scored by; None where there are none.
            plan: Gives epochs and patience.
            batch_size: M.
            settings: Weight decay and dropout rate of each.
            epochs: How many, where that is known; None asks the plan.
            first: Number of the first network, for its seed; others have the following ones.
            progress: Called with (done, total) epochs of single networks.

        Returns:
            The networks, and for how many epochs each was trained at the full learning rate, (networks,).
        """
        count, each = len(rows), len(settings)
        networks = [
            network_for(self.method, self.x.shape[1], self.targets.outputs, self.hidden, rate, self.seed + first + k)
            for _, rate in settings
            for k in range(count)
        ]
        stack = Stack.of(networks)
        units = [self.targets.scales_of(numbers) for numbers in rows] * each
        search = epochs is None and plan.search and held_out is not None
        learned = self.rows(list(rows) * each, units)
        common: dict[str, Any] = {
            "batch_size": batch_size,
            "loss": self.targets.loss,
            "weight_decay": [decay for decay, _ in settings for _ in range(count)],
            "seed": [self.seed + first + k for k in range(count)] * each,
        }
        history = train_stacked(
            stack,
            learned,
            epochs=epochs or plan.epochs,
            learning_rate=self.learning_rate,
            validation=self.rows(list(held_out) * each, units) if search and held_out is not None else None,
            evaluate_every=plan.evaluate_every,
            patience=plan.patience if search else None,
            groups=[number for number in range(each) for _ in range(count)],
            progress=progress,
            **common,
        )
        for part in COOLING:
            own = (history.epochs * COOLING_EPOCHS).ceil().long()
            train_stacked(stack, learned, epochs=own, learning_rate=self.learning_rate * part, **common)
        return stack, history.epochs

    def train_heads(
        self,
        stack: Stack,
        rows: Sequence[Tensor],
        held_out: Sequence[Tensor] | None,
        plan: SearchPlan,
        batch_size: int,
        epochs: int | None,
    ) -> tuple[list[nn.Sequential], int]:
        """Networks whose last layer has been trained once more with batch norm as it will be used, and for how long.

        Noise that was learned under batch norm holds the jitter of the batches, which the posterior adds as doubt.
        """
        networks = [stack.network(k) for k in range(len(stack))]
        bodies = Stack.of([nn.Sequential(*list(network)[:-1]) for network in networks])
        heads = Stack.of([nn.Sequential(network[-1]) for network in networks])
        units = [self.targets.scales_of(numbers) for numbers in rows]
        search = epochs is None and held_out is not None

        def features(lists: Sequence[Tensor]) -> StackedRows:
            own = self.rows(lists, units)
            numbers = [torch.arange(len(numbers)) for numbers in lists]
            return StackedRows.of(stacked_outputs(bodies, own), own.targets(), numbers)

        history = train_stacked(
            heads,
            features(rows),
            epochs=epochs or min(HEAD_EPOCHS, plan.epochs),
            batch_size=batch_size,
            loss=self.targets.loss,
            validation=features(held_out) if search and held_out is not None else None,
            patience=HEAD_EPOCHS // 10 if search else None,
            groups=[0] * len(stack),
            seed=self.seed,
        )
        for network, head in zip(networks, (heads.network(k) for k in range(len(heads))), strict=True):
            network[-1] = head[0]
        return networks, int(history.epochs[0])

    def rows(self, lists: Sequence[Tensor], units: Sequence[Affine]) -> StackedRows:
        """Rows of several networks, each with its own unit of the targets."""
        table = self.targets.trained
        plain = table.shape[1] - len(units[0][0])  # the weights' column stays as it is
        mean = torch.stack([torch.cat([m, m.new_zeros(plain)]) for m, _ in units])
        std = torch.stack([torch.cat([s, s.new_ones(plain)]) for _, s in units])
        shape = len(lists), self.x.shape[1]
        scales = Scales(self.x.new_zeros(shape), self.x.new_ones(shape), mean.float(), std.float())
        return StackedRows.of(self.x, table, list(lists), standardise=scales)

    @contextlib.contextmanager
    def bar(self, label: str, parts: int = 1) -> Iterator[list[Progress | None]]:
        """What so many trainings at a time tell their progress to, shown as one bar; None where it is not wanted."""
        if not self.verbose:
            yield [None] * parts
            return
        done, total = [0] * parts, [0] * parts
        with progress_bar(label) as whole:

            def tell(part: int, own_done: int, own_total: int) -> None:
                done[part], total[part] = own_done, own_total
                if all(total):
                    whole(sum(done), sum(total))

            yield [partial(tell, part) for part in range(parts)]
