"""Train all networks of a stack, each as `train` would train it alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_positive, require_whole
from ..errors import BayesNormError, InputError
from ..network import Progress, isolated_torch_randomness
from .collecting import per_network
from .history import StackedHistory
from .passes import stacked_outputs
from .rows import StackedRows
from .stack import Stack
from .training_block import RowLoss, Schedule, Settings, half_squared_error
from .training_run import Evaluate, StackedRun


@torch.inference_mode(False)
def train_stacked(
    stack: Stack,
    rows: StackedRows,
    *,
    epochs: int | Sequence[int] | Tensor,
    batch_size: int,
    loss: RowLoss = half_squared_error,
    learning_rate: float = 1e-3,
    schedule: Schedule | None = None,
    weight_decay: float | Sequence[float] | Tensor = 0.0,
    decoupled: bool = False,
    validation: StackedRows | None = None,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    groups: Sequence[int] | Tensor | None = None,
    seed: int | Sequence[int] = 0,
    capture: bool = True,
    progress: Progress | None = None,
) -> StackedHistory:
    """Train the networks of `stack` in place with Adam, keep the best of each by a score if there is one, and return a
    record.

    The result equals that of `train` with the same rows, seed and settings, up to rounding: rows come in the same
    order, and on a CPU dropout uses the same masks. On a GPU masks have the same distribution; without a kernel, they
    depend on which networks are trained together. Networks that have stopped cost no further time.

    A bias before batch norm has no effect, so its gradient is only rounding error, which Adam turns into whole steps in
    single precision. It and the running mean therefore differ from those of `train`; predictions do not.

    Args:
        stack: The networks.
        rows: Training rows of each network. An incomplete batch at the end of an epoch is dropped.
        epochs: Maximum number of epochs, one for all networks or one for each. Without a score, a network is returned
            as it was after its last epoch.
        batch_size: M, rows per step.
        loss: `loss(f, y)`, one number for each row, (networks, rows), for outputs (networks, rows, outputs); a
            network's loss is its mean over rows.
        learning_rate: Adam's step size.
        schedule: Factor of the step size, `schedule(fraction)` of the fraction of steps done, relative to the largest
            `epochs`; None: 1.
        weight_decay: lambda in lambda/2 |W|^2 over weight matrices, one for all networks or one for each.
        decoupled: Whether matrices shrink by step size times lambda at every step instead (AdamW).
        validation: Rows whose loss in evaluation mode, without weight decay, is a network's score.
        evaluate: Custom scores instead of `validation`: `evaluate(stack, members)` gets the networks that are still
            trained and their indices, and returns a score for each, or several by name. Each name stops separately and
            selects its own networks (`history.kept`), and training continues until all have stopped; `stack` gets those
            of the first.
        evaluate_every: Epochs between scores; a network's last epoch is also scored.
        patience: Scores without improvement before training stops; an equal score is an improvement. None: never.
        groups: Networks with the same number stop together, by the mean of their scores; those that have reached their
            own `epochs` count with their last scores. None: each stops separately.
        seed: Determines the order of rows and dropout; one for all networks, or one for each.
        capture: On a GPU, train networks of the papers' shape by a kernel, and record the step of others once and
            replay it (a CUDA graph); False runs every operation separately.
        progress: Called with (done, total) epochs, summed over networks.
    """
    started = time.perf_counter()
    requirement = "a whole number from 1"
    evaluate_every = require_whole("evaluate_every", evaluate_every, requirement=requirement)
    patience = None if patience is None else require_whole("patience", patience, requirement=requirement)
    if not isinstance(stack, Stack):
        raise BayesNormError(f"stack must be Stack.of(networks), got {type(stack).__name__}.")
    if validation is not None and evaluate is not None:
        raise BayesNormError("evaluate and validation were both given. Pass only one of them.")
    if patience is not None and validation is None and evaluate is None:
        raise BayesNormError("patience needs a score. Pass validation= or evaluate= too.")
    for name, function in (("loss", loss), ("evaluate", evaluate), ("schedule", schedule)):
        if function is not None and not callable(function):
            raise BayesNormError(f"{name} must be a function, got {type(function).__name__}.")
    limits = _epochs_for(epochs, len(stack))
    rows = _trained_rows(stack, rows, "rows", loss)
    settings = Settings(
        batch_size=batch_size_for(batch_size, rows),
        learning_rate=require_positive("learning_rate", learning_rate),
        loss=loss,
        decay=_decay_for(weight_decay, len(stack)),
        seeds=per_network(seed, len(stack)),
        schedule=schedule,
        epochs=int(limits.max()),
        decoupled=decoupled,
    )
    if validation is not None:
        evaluate = _validation_loss(_trained_rows(stack, validation, "validation", loss), loss)
    with isolated_torch_randomness(settings.seeds[0], stack.device):
        run = StackedRun(stack, rows, settings, _groups_for(groups, len(stack)), patience, capture, limits, progress)
        while len(run.active):
            until = int(limits[run.active].min())
            if evaluate is not None:
                until = min(until, run.epoch + evaluate_every - run.epoch % evaluate_every)
            run.train_until(until)
            if evaluate is not None:
                run.judge(evaluate, evaluate_every)
            run.let_go()
        return run.finish(started)


def _trained_rows(stack: Stack, rows: StackedRows, name: str, loss: RowLoss) -> StackedRows:
    """Return rows on the stack's device, or refuse rows without targets that fit the loss."""
    rows = stack.placed(rows, name)
    if rows.y is None:
        raise InputError(f"{name} have no targets. Use StackedRows.of(x, y, ...).")
    if loss is half_squared_error and (rows.y.shape[1:] != (stack.widths[-1],) or not rows.y.is_floating_point()):
        raise InputError(
            f"{name}: targets have shape {tuple(rows.y.shape)} and {rows.y.dtype}, but networks have "
            f"{stack.widths[-1]} real outputs. Pass as many real targets as outputs, or another loss."
        )
    return rows


def batch_size_for(batch_size: Any, rows: StackedRows) -> int:
    """Return a batch size, or refuse one that is too large for some network's rows."""
    least = int(rows.lengths.min())
    at = int(rows.lengths.argmin())
    requirement = f"a whole number from 2 to {least}, the number of rows of network {at}"
    return require_whole("batch_size", batch_size, 2, least, requirement=requirement, error=InputError)


def _epochs_for(epochs: Any, networks: int) -> Tensor:
    """Return the number of epochs of every network, (E,), on the CPU."""
    requirement = "a whole number from 1, or one for each network"
    try:
        given = [*epochs]
    except TypeError:  # one number
        return torch.full((networks,), require_whole("epochs", epochs, requirement=requirement))
    if len(given) != networks:
        raise BayesNormError(
            f"epochs has {len(given)} entries for {networks} networks. Pass one number, or one per network."
        )
    plain = [each.item() if isinstance(each, Tensor) else each for each in given]
    return torch.tensor([require_whole("epochs", each, requirement=requirement) for each in plain])


def _decay_for(weight_decay: Any, networks: int) -> Tensor:
    """Return the weight decay of every network, (E,), on the CPU."""
    try:
        found = torch.as_tensor(weight_decay, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError) as error:
        raise BayesNormError(f"weight_decay must be numbers from 0, got {weight_decay!r}.") from error
    if found.dim() > 1 or (found.dim() == 1 and len(found) != networks):
        raise BayesNormError(
            f"weight_decay has shape {tuple(found.shape)} for {networks} networks. Pass one number, or one per network."
        )
    if not bool((torch.isfinite(found) & (found >= 0)).all()):
        raise BayesNormError(f"weight_decay must be numbers from 0, got {weight_decay!r}.")
    return found.expand(networks)


def _groups_for(groups: Sequence[int] | Tensor | None, networks: int) -> Tensor:
    """Return the group of every network, (E,), counted from 0."""
    if groups is None:
        return torch.arange(networks)
    try:
        found = torch.as_tensor(groups).cpu()
    except (TypeError, ValueError) as error:
        raise BayesNormError(
            f"groups must be a whole number for each of {networks} networks, got {groups!r}."
        ) from error
    if found.shape != (networks,) or found.is_floating_point():
        raise BayesNormError(
            f"groups must be a whole number for each of {networks} networks, got shape {tuple(found.shape)} and "
            f"{found.dtype}."
        )
    return found.unique(return_inverse=True)[1]


def _validation_loss(rows: StackedRows, loss: RowLoss) -> Evaluate:
    """Return a score function: the loss over each network's own rows."""

    def evaluate(stack: Stack, members: Tensor) -> Tensor:
        own = rows.take(members)
        return own.mean(loss(stacked_outputs(stack, own), own.targets()))

    return evaluate
