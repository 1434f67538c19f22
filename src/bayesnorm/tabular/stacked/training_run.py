"""Train all networks of a stack, each as `train` would train it alone: which networks continue, in which blocks, and
what is kept of each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ...errors import BayesNormError
from ...network import Progress, isolated_torch_randomness
from .graphed_block import GraphedBlock
from .history import Judge, StackedHistory
from .stack import Stack, StackedRows
from .threads import in_threads
from .trained_layers import RowLoss
from .training_block import Block, Schedule, TrainingSettings, TrainingState, blocks_of

# Most working memory of the networks that a CPU trains together: about the size of its caches.
CPU_BYTES = 2**24

# Fraction of a GPU's free memory for the networks that it trains together: a recorded step keeps its memory.
GPU_SHARE = 0.1

# Smallest number of networks for which another CPU core gets its own block, if each needs at most this many bytes of
# working memory.
FEWEST_TOGETHER, SMALL_BYTES = 32, 2**19

# Fraction of a GPU's networks that must continue for its blocks to stay: recording their steps again takes time.
WORTH_PACKING = 0.75

ChooseBlock = Callable[[Stack, TrainingSettings], type[Block]]
"""`choose(stack, settings)`: the kind of block that trains these networks."""

Evaluate = Callable[[Stack, Tensor], Tensor | Mapping[str, Tensor]]
"""`evaluate(stack, members)`: scores of the networks `members`, (A,), of `stack`: (A,), or several by name."""


class StackedRun:
    """A running training; see `train_stacked` for the arguments."""

    def __init__(
        self,
        stack: Stack,
        rows: StackedRows,
        settings: TrainingSettings,
        groups: Tensor,
        patience: int | None,
        choose_block: ChooseBlock,
        limits: Tensor,
        progress: Progress | None,
    ) -> None:
        self.stack, self.rows, self.settings, self.progress = stack, rows, settings, progress
        self.groups, self.patience, self.limits = groups, patience, limits  # limits: each network's last epoch, (E,)
        self.block_kind = choose_block(stack, settings)
        self.steps = (rows.lengths // settings.batch_size).tolist()  # per epoch, for each network
        self.epoch = 0  # the last one that active networks were trained
        self.active = torch.arange(len(stack))  # indices of the networks that continue
        self.stopped = torch.zeros(len(stack), dtype=torch.long)  # the last epoch that each network was trained
        self.losses: list[Tensor] = []  # (E, epochs) of every call of `train_until`
        self.judges: dict[str, Judge] = {}  # one for every score of `evaluate`
        self.blocks: list[Block] = []  # the active networks during training; empty until they are packed
        self.state = TrainingState.untrained(stack)  # that blocks are packed from

    def train_until(self, epoch: int) -> None:
        """Train all active networks to the end of an epoch that is not beyond the limit of any of them."""
        ahead = epoch - self.epoch
        if not self.blocks:
            self._pack()
        losses = torch.full((len(self.stack), ahead), math.nan, dtype=torch.float64)
        self.epoch = epoch
        trained = in_threads(lambda block: block.train(ahead), self.blocks, self.stack.device, self._abandon)
        active = self._is_active()
        for block, values in zip(self.blocks, trained, strict=True):
            # A block may still train networks that have stopped; these must not change.
            inside = active[block.members].nonzero().flatten()
            members, now = block.members[inside], block.stack
            self.stack.put(members, now if len(members) == len(now) else now.take(inside))
            losses[members] = values.double().cpu()[inside]
        self._require_finite(losses[self.active], epoch - ahead)
        self.losses.append(losses)
        self.stopped[self.active] = epoch
        self._tell()

    def judge(self, evaluate: Evaluate, every: int) -> None:
        """Score all groups every `every` epochs, and in between those with a network at its limit."""
        epoch, asked = self.epoch, self.active
        if epoch % every:
            last = torch.zeros(int(self.groups.max()) + 1, dtype=torch.bool)
            last[self.groups[asked[self.limits[asked] == epoch]]] = True
            asked = asked[last[self.groups[asked]]]
        with torch.no_grad(), isolated_torch_randomness(self.settings.seeds[0], self.stack.device):
            result = evaluate(self.stack.take(asked), asked)
        scores = result if isinstance(result, Mapping) else {"score": result}
        if not self.judges:
            self.judges = {name: Judge(self.stack, self.groups, self.patience) for name in scores}
        for name, values in scores.items():
            if bool(values.isnan().any()):
                bad = asked[values.isnan().cpu()].tolist()
                raise BayesNormError(
                    f"The score is NaN in epoch {epoch} for networks {bad[:8]}. Use a smaller learning rate."
                )
            self.judges[name].record_scores(epoch, asked, values, self.stack, self.stopped)

    def let_go(self) -> None:
        """Drop networks that are at their limit, and groups that every score has stopped."""
        over = self.limits[self.active] == self.epoch
        if self.judges:
            stopped = torch.stack([judge.over() for judge in self.judges.values()]).all(0)
            over |= stopped[self.groups[self.active]]
        if bool(over.any()):
            self.active = self.active[~over]
            self._repack()
            self._tell()

    def finish(self, started: float) -> StackedHistory:
        """Put the networks that the first score selected into the stack, and return the record of the training."""
        history = StackedHistory(self.stopped, torch.cat(self.losses, 1))
        history.selected = {name: judge.selected for name, judge in self.judges.items()}
        if history.selected:
            self.stack.put(torch.arange(len(self.stack)), next(iter(history.selected.values())).stack)
        if not bool(torch.isfinite(self.stack.weights.flat).all()):
            raise BayesNormError(
                "loss was finite in every epoch, but the trained weights are not. Use a smaller learning rate."
            )
        history.network_steps = int((self.stopped * torch.tensor(self.steps)).sum())
        history.seconds = time.perf_counter() - started
        return history

    def _pack(self) -> None:
        """Make blocks of the active networks, from their common state."""
        size = _together(self.stack, len(self.active), self.settings.batch_size)
        members = blocks_of(self.active.tolist(), self.steps, size)
        self.blocks = [
            self.block_kind(chosen, self.state, self.epoch * self.steps[int(chosen[0])], self.rows, self.settings)
            for chosen in members
        ]

    def _abandon(self) -> None:
        """Let no block begin another epoch."""
        for block in self.blocks:
            block.abandoned = True

    def _is_active(self) -> Tensor:
        """Return for every network whether it is still trained, (E,)."""
        active = torch.zeros(len(self.stack), dtype=torch.bool)
        active[self.active] = True
        return active

    def _repack(self) -> None:
        """Dissolve the blocks if packing the active networks again saves time."""
        active = self._is_active()
        self.blocks = [block for block in self.blocks if bool(active[block.members].any())]
        running = sum(len(block.members) for block in self.blocks)
        if self.stack.device.type == "cuda" and len(self.active) > WORTH_PACKING * running:
            return
        for block in self.blocks:
            self.state.first.put(block.members, block.first)
            self.state.second.put(block.members, block.second)
            self.state.generators |= block.generators
        self.blocks = []

    def _require_finite(self, losses: Tensor, before: int) -> None:
        """Refuse losses of active networks, (networks, epochs), that are not finite; `before` epochs came earlier."""
        bad = ~torch.isfinite(losses)
        if bool(bad.any()):
            epoch = int(bad.any(0).nonzero()[0])
            networks = self.active[bad[:, epoch]].tolist()
            raise BayesNormError(
                f"loss is NaN or infinite in epoch {before + epoch + 1} for networks "
                f"{networks[:8]}{' and others' if len(networks) > 8 else ''}. Use a smaller learning rate, or "
                "standardise inputs and targets."
            )

    def _tell(self) -> None:
        """Report progress: epochs that networks have completed or do not need."""
        if self.progress is not None:
            total, to_come = int(self.limits.sum()), int((self.limits[self.active] - self.epoch).sum())
            self.progress(total - to_come, total)


def fastest_block(stack: Stack, _settings: TrainingSettings) -> type[Block]:
    """Return the fastest kind of block for the networks' device."""
    return GraphedBlock if stack.device.type == "cuda" else Block


def _together(stack: Stack, networks: int, batch_size: int) -> int:
    """Return the number of networks to train in one block."""
    weights = stack.weights.flat.numel() // len(stack)
    memory = stack.weights.flat.element_size() * (4 * weights + 3 * batch_size * sum(stack.widths))
    if stack.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(stack.device)
        return max(1, int(GPU_SHARE * free) // memory)
    fewest = FEWEST_TOGETHER if memory <= SMALL_BYTES else 1
    return max(1, min(CPU_BYTES // memory, max(fewest, -(-networks // torch.get_num_threads()))))


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
            (`history.selected`), and training continues until all have stopped; `stack` gets those of the first.
        evaluate_every: Epochs between scores; a network's last epoch is also scored.
        patience: Scores without improvement before training stops; an equal score is an improvement. None: never.
        groups: Networks with the same number, counted from 0, stop together, by the mean of their scores; those that
            have reached their own `epochs` count with their last scores. None: each stops separately.
        choose_block: Chooses the kind of `Block` that trains the networks, such as one with its own GPU kernels.
        progress: Called with (done, total) epochs, summed over networks.
    """
    started, count = time.perf_counter(), len(stack)
    limits = torch.full((count,), epochs) if isinstance(epochs, int) else torch.tensor(list(epochs))
    settings = TrainingSettings(
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
