"""Train all networks of a stack, each as `train` would train it alone."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ...network import Progress, isolated_torch_randomness
from .history import StackedHistory
from .rows import StackedRows
from .stack import Stack
from .training_block import RowLoss, Schedule, Settings
from .training_run import ChooseBlock, Evaluate, StackedRun, fastest_block


@torch.inference_mode(False)
def train_stacked(
    stack: Stack,
    rows: StackedRows,
    *,
    epochs: int | Sequence[int],
    batch_size: int,
    loss: RowLoss,
    seeds: Sequence[int],
    learning_rate: float = 1e-3,
    schedule: Schedule | None = None,
    weight_decay: Sequence[float] | None = None,
    decoupled: bool = False,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    groups: Sequence[int] | None = None,
    choose_block: ChooseBlock = fastest_block,
    progress: Progress | None = None,
) -> StackedHistory:
    """Train the networks of `stack` in place with Adam, keep the best of each by a score if there is one, and return a
    record.

    The result equals that of `train` with the same rows, seed and settings, up to rounding: rows come in the same
    order, and on a CPU dropout uses the same masks. On a GPU masks have the same distribution, but depend on which
    networks are trained together. Networks that have stopped cost no further time.

    A bias before batch norm has no effect, so its gradient is only rounding error, which Adam turns into whole steps in
    single precision. It and the running mean therefore differ from those of `train`; predictions do not.

    Args:
        stack: The networks.
        rows: Training rows of each network. An incomplete batch at the end of an epoch is dropped.
        epochs: Maximum number of epochs, one for all networks or one for each. Without a score, a network is returned
            as it was after its last epoch.
        batch_size: M, rows per step; at most the rows of the network with the fewest.
        loss: The loss of each row; a network's loss is its mean over rows.
        seeds: For each network, the seed of the order of rows and of dropout.
        learning_rate: Adam's step size.
        schedule: Factor of the step size, `schedule(fraction)` of the fraction of steps done, relative to the largest
            `epochs`; None: 1.
        weight_decay: For each network, lambda in lambda/2 |W|^2 over weight matrices; None: 0.
        decoupled: Whether matrices shrink by step size times lambda at every step instead (AdamW).
        evaluate: `evaluate(stack, members)` gets the networks that are still trained and their indices, and returns a
            score for each, or several by name. Each name stops separately and selects its own networks
            (`history.kept`), and training continues until all have stopped; `stack` gets those of the first.
        evaluate_every: Epochs between scores; a network's last epoch is also scored.
        patience: Scores without improvement before training stops; an equal score is an improvement. None: never.
        groups: Networks with the same number, counted from 0, stop together, by the mean of their scores; those that
            have reached their own `epochs` count with their last scores. None: each stops separately.
        choose_block: Chooses the kind of `Block` that trains the networks, such as one with its own GPU kernels.
        progress: Called with (done, total) epochs, summed over networks.
    """
    started, count = time.perf_counter(), len(stack)
    limits = torch.full((count,), epochs) if isinstance(epochs, int) else torch.tensor(list(epochs))
    settings = Settings(
        batch_size=batch_size,
        learning_rate=learning_rate,
        loss=loss,
        decay=torch.zeros(count).double() if weight_decay is None else torch.tensor(weight_decay, dtype=torch.float64),
        seeds=list(seeds),
        schedule=schedule,
        epochs=int(limits.max()),
        decoupled=decoupled,
    )
    placed = rows.to(stack.device, stack.dtype)
    group_of: Tensor = torch.arange(count) if groups is None else torch.tensor(groups)
    with isolated_torch_randomness(settings.seeds[0], stack.device):
        run = StackedRun(stack, placed, settings, group_of, patience, choose_block, limits, progress)
        while len(run.active):
            until = int(limits[run.active].min())
            if evaluate is not None:
                until = min(until, run.epoch + evaluate_every - run.epoch % evaluate_every)
            run.train_until(until)
            if evaluate is not None:
                run.judge(evaluate, evaluate_every)
            run.let_go()
        return run.finish(started)
