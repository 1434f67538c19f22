"""Train all networks of a stack, each as `train` would train it alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..arguments import require_positive, require_whole
from ..errors import BayesNormError
from ..network import Progress, isolated_torch_randomness
from .arguments import batch_size_for, decay_for, epochs_for, groups_for, trained_rows
from .block import Block, RowLoss, Settings, blocks_of, half_squared_error as half_squared_error
from .bundle import Bundle
from .cores import in_threads
from .draws import per_network
from .fused.block import FusedBlock, trains
from .graph import GraphedBlock
from .history import Judge, StackedHistory
from .rows import StackedRows
from .stack import Stack

CPU_BYTES = 2**24
"""On a CPU, most working memory of the networks that are trained together: about what its caches hold."""

GPU_SHARE = 0.1
"""On a GPU, its share of what is free; recording a step keeps all that the step ever holds."""

FEWEST_TOGETHER = 32
"""On a CPU, networks in a block below which another core is not worth its own block."""

WORTH_PACKING = 0.75
"""On a GPU networks that are over stay until fewer than this share of a block goes on: recording it anew takes time."""

Evaluate = Callable[[Stack, Tensor], Tensor | Mapping[str, Tensor]]
"""`evaluate(stack, members)`: scores of networks `members` (A,), which `stack` holds: (A,), or several by name."""


@torch.inference_mode(False)
def train_stacked(
    stack: Stack,
    rows: StackedRows,
    *,
    epochs: int | Sequence[int] | Tensor,
    batch_size: int,
    loss: RowLoss = half_squared_error,
    learning_rate: float = 1e-3,
    weight_decay: float | Sequence[float] | Tensor = 0.0,
    validation: StackedRows | None = None,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    groups: Sequence[int] | Tensor | None = None,
    seed: int | Sequence[int] = 0,
    capture: bool = True,
    progress: Progress | None = None,
) -> StackedHistory:
    """Train the networks of `stack` in place with Adam, and keep of each the best by a score where there is one.

    Each network comes out as `train` would leave it with the same rows, seed and settings, but for rounding: rows are
    taken in the same order, and on a CPU dropout draws the same masks. (On a GPU masks are distributed alike; but
    where no kernel trains, they depend on which networks are trained together.) Networks whose training is over cost
    nothing any more.

    A bias that batch norm takes out again has no gradient but rounding errors, which Adam makes into whole steps in
    single precision: it and the running mean differ from those of `train`; predictions do not.

    Args:
        stack: The networks.
        rows: Training rows of each. Those left over at an epoch's end, fewer than a batch, are dropped.
        epochs: Most passes over the rows, one number for all networks or one for each. A network leaves after its own;
            without a score it comes out as it was then.
        batch_size: M, rows per step.
        loss: `loss(f, y)`, one number for each row, (networks, rows), of outputs (networks, rows, outputs); a network's
            loss is its mean over rows.
        learning_rate: Adam's step size.
        weight_decay: lambda in lambda/2 |W|^2 over weight matrices, one for all networks or one for each.
        validation: Rows whose loss in evaluation mode, without weight decay, is a network's score.
        evaluate: As `validation`, with scores of your own: `evaluate(stack, members)` gets the networks that are still
            trained and their numbers, and gives a score for each, or several by name. Each name then stops and keeps on
            its own (`history.kept`), and training goes on until all have stopped; `stack` keeps those of the first.
        evaluate_every: Epochs between scores; a network's last epoch gets one too.
        patience: Scores without improvement before training stops; an equal score is an improvement. None: never.
        groups: Networks with the same number stop together, by the mean of their scores, to which those that are
            through with their own `epochs` add their last ones; None: each on its own.
        seed: One for all networks, or one for each: decides the order of rows and dropout.
        capture: On a GPU, train networks of the papers' shape by a kernel, and record the step of others once and
            replay it (a CUDA graph); False runs every operation by itself.
        progress: Called with (done, total) epochs of single networks.
    """
    started = time.perf_counter()
    words = "; a whole number from 1 would work."
    evaluate_every = require_whole("evaluate_every", evaluate_every, words=words)
    patience = None if patience is None else require_whole("patience", patience, words=words)
    if not isinstance(stack, Stack):
        raise BayesNormError(f"stack: {type(stack).__name__} was given; Stack.of(networks) would work.")
    if validation is not None and evaluate is not None:
        raise BayesNormError("evaluate: was given beside validation, but one of them decides; choose.")
    if patience is not None and validation is None and evaluate is None:
        raise BayesNormError("patience: was given, but nothing to score networks by; validation= would work.")
    for name, function in (("loss", loss), ("evaluate", evaluate)):
        if function is not None and not callable(function):
            raise BayesNormError(f"{name}: {type(function).__name__} was given; a function would work.")
    limits = epochs_for(epochs, len(stack))
    rows = trained_rows(stack, rows, "rows", loss)
    settings = Settings(
        batch_size=batch_size_for(batch_size, rows),
        learning_rate=require_positive("learning_rate", learning_rate),
        loss=loss,
        decay=decay_for(weight_decay, len(stack)),
        seeds=per_network(seed, len(stack)),
    )
    if validation is not None:
        evaluate = _validation_loss(trained_rows(stack, validation, "validation", loss), loss)
    with isolated_torch_randomness(settings.seeds[0], stack.device):
        run = _Run(stack, rows, settings, groups_for(groups, len(stack)), patience, capture, limits, progress)
        while len(run.active):
            until = int(limits[run.active].min())
            if evaluate is not None:
                until = min(until, run.epoch + evaluate_every - run.epoch % evaluate_every)
            run.train_until(until)
            if evaluate is not None:
                run.judge(evaluate, evaluate_every)
            run.let_go()
        return run.finish(started)


class _Run:
    """A training under way; see `train_stacked` for the arguments."""

    def __init__(
        self,
        stack: Stack,
        rows: StackedRows,
        settings: Settings,
        groups: Tensor,
        patience: int | None,
        capture: bool,
        limits: Tensor,
        progress: Progress | None,
    ) -> None:
        self.stack, self.rows, self.settings = stack, rows, settings
        self.groups, self.patience, self.capture = groups, patience, capture
        self.steps = (rows.lengths // settings.batch_size).tolist()
        self.first, self.second = (Bundle(stack.weights.shapes, len(stack), stack.weights.flat) for _ in range(2))
        self.states: dict[tuple[object, ...], Tensor] = {}
        self.judges: dict[str, Judge] = {}
        self.active = torch.arange(len(stack))
        self.blocks: list[Block] = []
        self.epoch, self.limits, self.progress = 0, limits, progress
        self.stopped = torch.zeros(len(stack), dtype=torch.long)
        self.losses: list[Tensor] = []

    def train_until(self, epoch: int) -> None:
        """Train all active networks to the end of an epoch, block by block."""
        ahead = epoch - self.epoch
        if not self.blocks:
            self._pack()
        losses = torch.full((len(self.stack), ahead), math.nan, dtype=torch.float64)
        self.epoch = epoch
        found = in_threads(lambda block: block.train(ahead), self.blocks, self.stack.device, self._abandon)
        active = self._is_active()
        for block, values in zip(self.blocks, found, strict=True):
            # A block may still train networks that are over, which must stay as they were.
            inside = active[block.members].nonzero().flatten()
            members, now = block.members[inside], block.stack
            self.stack.put(members, now if len(members) == len(now) else now.take(inside))
            losses[members] = values.double().cpu()[inside]
        self._require_finite(losses[self.active], epoch - ahead)
        self.losses.append(losses)
        self.stopped[self.active] = epoch
        self._tell()

    def _abandon(self) -> None:
        """Let no block begin another epoch."""
        for block in self.blocks:
            block.abandoned = True

    def judge(self, evaluate: Evaluate, every: int) -> None:
        """Score all groups `every` so many epochs, and between them those with a network at its limit."""
        epoch, asked = self.epoch, self.active
        if epoch % every:
            last = torch.zeros(int(self.groups.max()) + 1, dtype=torch.bool)
            last[self.groups[asked[self.limits[asked] == epoch]]] = True
            asked = asked[last[self.groups[asked]]]
        with torch.no_grad(), isolated_torch_randomness(self.settings.seeds[0], self.stack.device):
            given = evaluate(self.stack.take(asked), asked)
        scores = given if isinstance(given, Mapping) else {"score": given}
        if not scores:
            raise BayesNormError("evaluate: gave no score; a score for each network would work.")
        if not self.judges:
            self.judges = {name: Judge(self.stack, self.groups, self.patience) for name in scores}
        if scores.keys() != self.judges.keys():
            raise BayesNormError(f"evaluate: gave {[*scores]} after {[*self.judges]}; the same names would work.")
        for name, values in scores.items():
            if not isinstance(values, Tensor) or values.shape != asked.shape:
                found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                raise BayesNormError(f"evaluate: gave {found} for {len(asked)} networks; a score for each would work.")
            if bool(values.isnan().any()):
                bad = asked[values.isnan().cpu()].tolist()
                raise BayesNormError(f"evaluate: gave NaN in epoch {epoch} for networks {bad[:8]}; numbers would work.")
            self.judges[name].see(epoch, asked, values, self.stack, self.stopped)

    def let_go(self) -> None:
        """Part with networks that are at their limit, and with groups that every score has stopped."""
        over = self.limits[self.active] == self.epoch
        if self.judges:
            stopped = torch.stack([judge.over() for judge in self.judges.values()]).all(0)
            over |= stopped[self.groups[self.active]]
        if bool(over.any()):
            self.active = self.active[~over]
            self._repack()
            self._tell()

    def finish(self, started: float) -> StackedHistory:
        """Leave the stack with the networks that the first score chose."""
        history = StackedHistory(self.stopped, torch.cat(self.losses, 1))
        history.kept = {name: judge.kept for name, judge in self.judges.items()}
        if history.kept:
            self.stack.put(torch.arange(len(self.stack)), next(iter(history.kept.values())).stack)
        if not bool(torch.isfinite(self.stack.weights.flat).all()):
            raise BayesNormError(
                "loss: was finite to the end, but the weights are not; a smaller learning rate would help."
            )
        history.network_steps = int((self.stopped * torch.tensor(self.steps)).sum())
        history.seconds = time.perf_counter() - started
        return history

    def _pack(self) -> None:
        """Make blocks of the active networks, from the state that all are in."""
        kind = _kind_of_block(self.stack, self.settings, self.capture)
        size = _together(self.stack, len(self.active), self.settings.batch_size)
        members = blocks_of(self.active.tolist(), self.steps, size)
        self.blocks = [
            kind(
                chosen,
                self.stack,
                self.first,
                self.second,
                self.epoch * self.steps[int(chosen[0])],
                self.rows,
                self.settings,
                self.states,
            )
            for chosen in members
        ]

    def _is_active(self) -> Tensor:
        """Which networks are still trained, (E,)."""
        active = torch.zeros(len(self.stack), dtype=torch.bool)
        active[self.active] = True
        return active

    def _repack(self) -> None:
        active = self._is_active()
        running = sum(len(block.members) for block in self.blocks)
        if self.stack.device.type == "cuda" and len(self.active) > WORTH_PACKING * running:
            self.blocks = [block for block in self.blocks if bool(active[block.members].any())]
            return
        for block in self.blocks:
            self.first.put(block.members, block.first)
            self.second.put(block.members, block.second)
            self.states |= block.generator_states()
        self.blocks = []

    def _require_finite(self, losses: Tensor, before: int) -> None:
        bad = ~torch.isfinite(losses)
        if bool(bad.any()):
            epoch = int(bad.any(0).nonzero()[0])
            found = self.active[bad[:, epoch]].tolist()
            raise BayesNormError(
                f"loss: is NaN or infinite in epoch {before + epoch + 1} for networks {found[:8]}"
                f"{' and others' if len(found) > 8 else ''}; a smaller learning rate, or standardised inputs and "
                "targets, would help."
            )

    def _tell(self) -> None:
        if self.progress is not None:
            total, to_come = int(self.limits.sum()), int((self.limits[self.active] - self.epoch).sum())
            self.progress(total - to_come, total)


def _kind_of_block(stack: Stack, settings: Settings, capture: bool) -> type[Block]:
    if not capture or stack.device.type != "cuda":
        return Block
    return FusedBlock if trains(stack, settings) else GraphedBlock


def _together(stack: Stack, networks: int, batch_size: int) -> int:
    """How many of some networks to train in one block."""
    weights = stack.weights.flat.numel() // len(stack)
    each = stack.weights.flat.element_size() * (4 * weights + 3 * batch_size * sum(stack.widths))
    if stack.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(stack.device)
        return max(1, int(GPU_SHARE * free) // each)
    return max(1, min(CPU_BYTES // each, max(FEWEST_TOGETHER, -(-networks // torch.get_num_threads()))))


def _validation_loss(rows: StackedRows, loss: RowLoss) -> Evaluate:
    def evaluate(stack: Stack, members: Tensor) -> Tensor:
        own = rows.take(members)
        return own.mean(loss(stack.predict(own), own.targets()))

    return evaluate
