"""Train the networks of a table; all folds and settings of the same shape are trained at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from ..network import Progress
from ..training import progress_bar
from .column_checks import ColumnScreen
from .networks import encoder_for, network_for
from .search_plan import Setting
from .stacked import Evaluate, Scales, Stack, StackedRows, stacked_outputs, train_stacked
from .targets import Affine, Targets

# Fraction of the steps for the warm-up of the learning rate, and the final learning rate relative to the largest.
WARM_UP, LEAST_RATE = 0.05, 0.01

# Candidate factors on the predicted noise, or temperatures, for scores during training; the best one counts.
FACTORS = tuple(2 ** (k / 3) for k in range(-9, 13))

# Largest number of held-out rows for scoring a network during training.
MOST_SCORED = 2_000


def warm_cosine(share: float) -> float:
    """Return the factor on the learning rate after a fraction of all steps."""
    if share < WARM_UP:
        return (share + 1e-3) / (WARM_UP + 1e-3)
    angle = math.pi * (share - WARM_UP) / (1 - WARM_UP)
    return LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (1 + math.cos(angle))


@dataclass(frozen=True, eq=False)
class Trainer:
    """What all networks of a table share.

    Args:
        x: Inputs of all N training rows, (N, inputs), in single precision.
        targets: Targets of these rows.
        method: The method of the posterior, which decides the kind of network.
        learning_rate: The largest learning rate.
        seed: Seed of initial weights, row orders and dropout.
        device: The training device.
        verbose: Whether to show progress.
        screen: Chooses the inputs that each network uses; None if all networks use all.
    """

    x: Tensor
    targets: Targets
    method: str
    learning_rate: float
    seed: int
    device: torch.device
    verbose: bool
    screen: ColumnScreen | None = None
    _encoders: dict[str, tuple[nn.Module, Tensor]] = field(default_factory=dict)

    def encoder(self, encoding: str) -> nn.Module:
        """Return the encoder with a name such as "bins 16"."""
        return self._encoded(encoding)[0]

    def _encoded(self, encoding: str) -> tuple[nn.Module, Tensor]:
        if encoding not in self._encoders:
            encoder = encoder_for(encoding, self.x)
            self._encoders[encoding] = encoder, encoder(self.x)
        return self._encoders[encoding]

    def train(
        self,
        settings: Sequence[Setting],
        train_rows: Sequence[Tensor],
        epochs: int,
        *,
        test_rows: Sequence[Tensor] | None = None,
        evaluate_every: int = 1,
        first: int = 0,
        progress: Progress | None = None,
        screened: Sequence[Tensor] | None = None,
    ) -> tuple[Stack, Tensor]:
        """Train a network for every setting and every list of rows; networks of the same setting are adjacent.

        The learning rate warms up, then follows a cosine. With held-out rows, the networks of a setting keep the
        weights of the epoch with the lowest mean held-out loss, at the noise factor that is best for them together: an
        overfitting network underestimates its noise long before its predictions of held-out rows get worse.

        Args:
            settings: Settings with the same encoding, layers and batch size.
            train_rows: Training row numbers of each network of a setting.
            epochs: The number of epochs; with held-out rows, the largest number.
            test_rows: Held-out row numbers of each network. None: the networks are not scored.
            evaluate_every: Number of epochs between two scores.
            first: Number of the first network, which determines the seeds.
            progress: Called with (done, total) epochs of single networks.
            screened: Numbers of the rows that choose the inputs of each network; None for the training rows.

        Returns:
            The networks, and the number of epochs of each, (networks,).
        """
        count, encoding = len(train_rows), settings[0].encoding
        inputs, seeds = self._encoded(encoding)[1].shape[1], [self.seed + first + k for k in range(count)]
        networks = [
            network_for(self.method, inputs, self.targets.outputs, setting.hidden, setting.dropout_rate, seed)
            for setting in settings
            for seed in seeds
        ]
        units = [self.targets.scales_of(numbers) for numbers in train_rows] * len(settings)
        uses = self._uses(encoding, list(screened or train_rows) * len(settings))
        evaluate = None
        if test_rows is not None:
            evaluate = self._score(encoding, list(test_rows) * len(settings), units, count, uses)
        stack = Stack.from_networks(networks).to(self.device)
        history = train_stacked(
            stack,
            self.rows(encoding, list(train_rows) * len(settings), units, uses),
            epochs=epochs,
            batch_size=settings[0].batch_size,
            loss=self.targets.loss,
            learning_rate=self.learning_rate,
            schedule=warm_cosine,
            weight_decay=[setting.weight_decay for setting in settings for _ in seeds],
            decoupled=True,
            evaluate=evaluate,
            evaluate_every=evaluate_every,
            groups=[number for number in range(len(settings)) for _ in seeds],
            seeds=seeds * len(settings),
            progress=progress,
        )
        if uses is not None:
            stack.weights["0.weight"].mul_(uses[:, None].to(stack.device))
        return stack.to("cpu"), history.epochs

    def _uses(self, encoding: str, lists: Sequence[Tensor]) -> Tensor | None:
        """Return which encoded inputs networks use whose inputs some rows choose, (networks, inputs); None for all."""
        if self.screen is None:
            return None
        encoder, x = self._encoded(encoding)
        places = torch.arange(self.x.shape[1])
        if x.shape[1] > len(places):
            column = encoder.get_buffer("column")
            places = torch.cat([places, column.repeat((x.shape[1] - len(places)) // len(column))])
        return torch.from_numpy(np.stack([self.screen.inputs(rows) for rows in lists]))[:, places]

    def _score(
        self,
        encoding: str,
        test_rows: Sequence[Tensor],
        units: Sequence[Affine],
        count: int,
        uses: Tensor | None = None,
    ) -> Evaluate:
        """Return a function that scores networks on held-out rows, at the best noise factor of each setting."""
        rows = self.rows(encoding, [numbers[:MOST_SCORED] for numbers in test_rows], units, uses)
        rows = rows.to(self.device, self.x.dtype)

        def evaluate(stack: Stack, members: Tensor) -> Tensor:
            scored = rows.take(members)
            f, y = stacked_outputs(stack, scored), scored.targets()
            losses = torch.stack([scored.mean(self.targets.loss(self.targets.tempered(f, c), y)) for c in FACTORS])
            groups = losses.view(len(FACTORS), -1, count)  # all networks of a setting are trained equally long
            best = groups.mean(2).argmin(0)
            return groups.gather(0, best[None, :, None].expand(1, -1, count)).flatten()

        return evaluate

    def rows(
        self, encoding: str, lists: Sequence[Tensor], units: Sequence[Affine], uses: Tensor | None = None
    ) -> StackedRows:
        """Return the rows of several networks, each with its unit of the targets; inputs that are not used are 0."""
        x, table = self._encoded(encoding)[1], self.targets.trained
        plain = table.shape[1] - len(units[0][0])  # the column of weights is not standardised
        mean = torch.stack([torch.cat([m, m.new_zeros(plain)]) for m, _ in units])
        std = torch.stack([torch.cat([s, s.new_ones(plain)]) for _, s in units])
        shape = len(lists), x.shape[1]
        x_std = x.new_ones(shape) if uses is None else torch.where(uses, 1.0, math.inf).to(x)
        scales = Scales(x.new_zeros(shape), x_std, mean.float(), std.float())
        return StackedRows.from_lists(x, table, lists, scales)

    @contextlib.contextmanager
    def bar(self, label: str, parts: int = 1) -> Iterator[list[Progress | None]]:
        """Yield progress callbacks for parallel trainings, shown as one bar; None for each if not verbose."""
        if not self.verbose:
            yield [None] * parts
            return
        done, total = [0] * parts, [0] * parts
        with progress_bar(label) as whole:

            def tell(part: int, part_done: int, part_total: int) -> None:
                done[part], total[part] = part_done, part_total
                if all(total):
                    whole(sum(done), sum(total))

            yield [partial(tell, part) for part in range(parts)]
