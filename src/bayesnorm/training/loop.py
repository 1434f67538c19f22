"""One plain mini-batch training loop: deterministic from a seed, and a killed run goes on where it was."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..arguments import require_function, require_number, require_seed, require_whole
from ..errors import BayesNormError, InputError
from ..files import as_path
from ..network import Progress, device_of, dtype_of, isolated_randomness, unwrap
from .batching import Batches, Pair, described_rows, training_batches, validation_rows
from .checkpoint import Checkpoint, described
from .gradients import Gradients, new_gradients
from .objective import Loss, Objective, Penalty
from .optimising import new_optimiser, new_schedule
from .run import History, Run
from .step_times import StepTimes

Score = Callable[[nn.Module], float]
"""`evaluate(model)`: how good a network is, lower is better."""


@torch.inference_mode(False)
@torch.enable_grad()
def train(
    model: nn.Module,
    data: Any,
    y: Any = None,
    *,
    loss: Loss,
    epochs: int,
    batch_size: int | None = None,
    optimiser: Callable[[list[Tensor]], Optimizer] | None = None,
    learning_rate: float | None = None,
    schedule: Callable[[Any], LRScheduler] | None = None,
    schedule_every: str = "epoch",
    weight_decay: float = 0.0,
    penalties: Iterable[Penalty] = (),
    parameters: Iterable[Tensor] | None = None,
    transform: Callable[..., Any] | None = None,
    transform_targets: bool = False,
    validation: tuple[Any, Any] | None = None,
    evaluate: Score | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    mixed_precision: bool = False,
    compiled: bool | str = False,
    seed: int = 0,
    on_epoch: Callable[[int, nn.Module], None] | None = None,
    progress: Progress | None = None,
    times: StepTimes | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
) -> History:
    """Train `model` in place, on the device it is on, and leave it in evaluation mode.

    Args:
        model: The network. All of it is put into training mode.
        data: x of shape (N, ...) with `y` beside it, or a pair (x, y): tensors or arrays, brought to the network's
            device whole. Or a `DataLoader` or `Dataset` of such pairs, whose batches are brought there one by one.
        y: Targets, (N, ...).
        loss: `loss(model(x), y)`, a scalar: a mean over rows.
        epochs: Most passes over the data.
        batch_size: Rows per step, in random order; None takes a `DataLoader`'s own batches in its own order. Rows left
            over at an epoch's end, fewer than a batch, are dropped; of data with fewer rows, all make one batch.
        optimiser: Function that makes the optimiser of a list of parameters; None means Adam.
        learning_rate: Adam's step size; None means 1e-3.
        schedule: Function that makes the learning rate's schedule of an optimiser. `ReduceLROnPlateau` is told every
            new score, or the loss of every epoch where nothing is scored.
        schedule_every: When the schedule moves on: after every "epoch" or every "step".
        weight_decay: lambda in the penalty lambda/2 |W|^2 over weight matrices and kernels (not biases or batch norm),
            which is added to the loss under any optimiser.
        penalties: Further terms of the loss: `penalty(model, epoch)`, a scalar. Epochs count from 1, for terms that
            change as training goes on. Called at every step, in full precision.
        parameters: Tensors to train; None means all of the network's parameters that require gradients. Others stay as
            they are, except that batch norm follows its batches.
        transform: Called with every batch's inputs on the network's device, for what changes from epoch to epoch, such
            as `CropAndFlip`. It may draw from torch's generators; validation rows do not pass through it.
        transform_targets: Whether `transform` is called with a batch's inputs and targets and returns both: labels of
            pixels move with their images.
        validation: A pair (x, y), whose loss in evaluation mode, without penalties, is the network's score; the network
            with the lowest score is kept, also when training ends by an error or a key.
        evaluate: As `validation`, with a score of your own: `evaluate(model)` in evaluation mode, lower is better.
        evaluate_every: Epochs between scores; the last epoch gets one too.
        patience: Scores without improvement before training stops; an equal score is an improvement. None: never.
        mixed_precision: Whether to run the network in bfloat16 where it is on a GPU that has it; weights stay as they
            are.
        compiled: Whether steps run the network through `torch.compile`, which takes its time at first and pays on a
            GPU; scores and looks run it as it is. A word is the mode to compile in; True means "reduce-overhead" there.
            "graph" compiles nothing, but records a step as a CUDA graph and replays it, from the fourth step on: for
            networks and transforms whose Python code does the same at every step, and penalties whose code does the
            same at every step of an epoch.
        seed: Decides the order of rows and what dropout, noise in the network and random transforms draw. The global
            generators are left alone.
        on_epoch: Called with (epoch, model) after each epoch, with the network in evaluation mode. It cannot change
            what training samples.
        progress: Called with (epoch, epochs) after each epoch; `progress_bar()` gives one that shows a bar.
        times: Measures what the parts of some steps take.
        checkpoint: A file that the whole state is written to as training goes on. The same call goes on from it, with
            the same result as a run that was never interrupted (on a GPU as far as its own kernels repeat themselves);
            if that run is over, its result comes back at once. More epochs than then may be asked for; a network of
            other shapes, other data or other settings are refused, as far as they can be told: functions cannot.
        checkpoint_every: Seconds between checkpoints, which are written at the end of an epoch; 0 means every epoch.
    """
    started = time.perf_counter()
    device, dtype, seed = device_of(unwrap(model)), dtype_of(unwrap(model)), require_seed(seed)
    requirement = "a whole number from 1"
    epochs = require_whole("epochs", epochs, requirement=requirement)
    evaluate_every = require_whole("evaluate_every", evaluate_every, requirement=requirement)
    patience = None if patience is None else require_whole("patience", patience, requirement=requirement)
    weight_decay = require_number("weight_decay", weight_decay, least=0)
    checkpoint_every = require_number("checkpoint_every", checkpoint_every, least=0)
    for name, function in {"evaluate": evaluate, "on_epoch": on_epoch, "transform": transform}.items():
        require_function(name, function)
    if transform_targets and transform is None:
        raise BayesNormError("transform_targets: was given without transform; CropAndFlip() would work.")
    if schedule_every not in ("epoch", "step"):
        raise BayesNormError(f"schedule_every must be 'epoch' or 'step', got {schedule_every!r}.")
    if validation is not None and evaluate is not None:
        raise BayesNormError("evaluate: was given beside validation, but one score decides; choose one of them.")
    if patience is not None and validation is None and evaluate is None:
        raise BayesNormError("patience: was given, but nothing to score the network by; validation=(x, y) would work.")

    batches = training_batches(data, y, batch_size, device, dtype, seed)
    trained = _trained(model, parameters)
    objective = Objective(model, loss, penalties, weight_decay, trained, mixed_precision, device, compiled)
    made = new_optimiser(optimiser, learning_rate, trained)
    run = Run(
        model,
        trained,
        made,
        new_schedule(schedule, made),
        torch.Generator().manual_seed(seed),
        device,
        epochs,
        every_step=schedule_every == "step",
        times=times,
    )
    if run.every_step and isinstance(run.schedule, ReduceLROnPlateau):
        raise BayesNormError("schedule_every: 'step' was given, but a plateau is one of epochs; 'epoch' would work.")
    moved = transform if transform is None or transform_targets else partial(_transform_inputs, transform)
    gradients = new_gradients(objective, moved, trained, run.mark, compiled, device)
    rows = None if validation is None else validation_rows(validation, device, dtype)
    if rows is not None:
        evaluate = partial(objective.validation_loss, rows, batches.batch_size or 1)
    store = None
    if checkpoint is not None:
        settings = {
            "seed": seed,
            "data": batches.describe(),
            "batch_size": batches.batch_size,
            "weight_decay": weight_decay,
            "penalties": len(objective.penalties),
            "evaluate_every": evaluate_every if evaluate else None,
            "patience": patience,
            "mixed_precision": objective.half,
            "validation": None if rows is None else described_rows(*rows),
            # Only where they are given: files of a release that did not have them go on being read.
            **({} if transform is None else {"transform": _described(transform)}),
            **({"transform_targets": True} if transform_targets else {}),
            **({"schedule_every": schedule_every} if run.every_step else {}),
        }
        store = _store(checkpoint, run, settings)

    with isolated_randomness(seed, device), _frozen(model, trained):
        state = store.read() if store else None
        if state is not None:
            run.restore(state)
            if progress is not None:
                progress(run.history.stopped, epochs)
        history, written = run.history, started
        started -= history.seconds  # those of interrupted runs count too
        if store and not run.over(patience):
            store.require_writable()
        try:
            model.train()
            while not run.over(patience):
                epoch = history.stopped + 1
                history.losses.append(_train_epoch(run, gradients, batches, epoch))
                if evaluate is not None and (epoch % evaluate_every == 0 or epoch == epochs):
                    with _looking_at(model, seed, device):
                        score = _number(evaluate(model))
                    if math.isnan(score) and run.best is None:
                        name = "evaluate" if validation is None else "validation"
                        raise BayesNormError(f"{name}: the score is NaN in epoch {epoch}; numbers would work.")
                    run.see(score)
                run.step_schedule(scored=evaluate is not None)
                if on_epoch is not None:
                    with _looking_at(model, seed, device):
                        on_epoch(epoch, model)
                now = time.perf_counter()
                history.seconds = now - started
                if run.over(patience) or (store and now - written >= checkpoint_every):
                    run.require_finite()
                    if store:
                        store.write(run.state())
                    written = time.perf_counter()
                if progress is not None:
                    progress(epoch, epochs)
        finally:
            model.eval()
            for tensor in trained:
                tensor.grad = None
            run.finish()
        return history


def _train_epoch(run: Run, gradients: Gradients, batches: Batches, epoch: int) -> float:
    """Train for one pass over the data, and return the mean of what was minimised."""
    with contextlib.closing(batches.epoch(epoch, run.order)) as pairs:
        waiting = [run.step(partial(gradients, batch, epoch)) for batch in _timed(pairs, run)]
    if not waiting:
        raise InputError(f"data: gave no batch in epoch {epoch}; at least one is needed.")
    # Losses are looked at together, because every look waits for the device.
    values: list[float] = torch.stack(waiting).tolist()
    for step, value in enumerate(values, 1):
        if not math.isfinite(value):
            raise BayesNormError(
                f"loss: is {value} at step {step} of epoch {epoch}, {run.what_is_left()}; a smaller learning rate, "
                "standardised inputs and targets, or a loss without logarithms of zero would help."
            )
    return math.fsum(values) / len(values)


def _transform_inputs(transform: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Pair:
    """Return a batch whose inputs alone are transformed."""
    return transform(x), y


def _timed(pairs: Iterator[Pair], run: Run) -> Iterator[Pair]:
    """Yield batches, with a word to what measures, where something does, before and after each is fetched."""
    while True:
        if run.times is not None:
            run.times.begin()
        batch = next(pairs, None)
        if batch is None:
            return
        run.mark("data")
        yield batch


def _described(transform: Any) -> str:
    """Return a transform as text: all of a dataclass, such as `CropAndFlip`, and the type of anything else."""
    return repr(transform) if dataclasses.is_dataclass(transform) else type(transform).__name__


def _number(score: Any) -> float:
    """Return what `evaluate` gave as a plain number, or refuse it."""
    try:
        return float(score)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BayesNormError(f"evaluate: gave {type(score).__name__}; a number would work.") from error


def _trained(model: nn.Module, parameters: Iterable[Tensor] | None) -> list[Tensor]:
    """Return the tensors to train, each once, or refuse those that cannot be trained."""
    name = "model" if parameters is None else "parameters"
    given = parameters if parameters is not None else filter(lambda p: p.requires_grad, model.parameters())
    chosen = list({id(tensor): tensor for tensor in given}.values())
    if not chosen:
        raise BayesNormError(f"{name}: holds no parameter that requires gradients; nothing could be trained.")
    for i, tensor in enumerate(chosen):
        if not isinstance(tensor, Tensor) or not tensor.requires_grad or not tensor.is_leaf:
            found = "no leaf that requires gradients" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise BayesNormError(f"parameters: entry {i} is {found}; parameters of the network would work.")
    return chosen


def _store(checkpoint: str | os.PathLike[str], run: Run, settings: dict[str, Any]) -> Checkpoint:
    """Return the checkpoint of a run, which is recognised by these settings and by what it trains."""
    tensors, chosen = run.tensors(), {id(tensor) for tensor in run.trained}
    known = {
        **{name: f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()},
        "parameters": ", ".join(name for name, tensor in tensors.items() if id(tensor) in chosen),
        # Before the optimiser, in which a schedule leaves its marks: the first difference is what a user is told.
        "schedule": described(run.schedule, run.schedule.state_dict() if run.schedule else None),
        "optimiser": described(run.optimiser, run.optimiser.state_dict()["param_groups"]),
        **settings,
    }
    return Checkpoint(as_path(checkpoint, "checkpoint"), {name: str(value) for name, value in known.items()})


@contextlib.contextmanager
def _frozen(model: nn.Module, trained: list[Tensor]) -> Iterator[None]:
    """Spare parameters that are not trained their gradients while the block lasts."""
    chosen = {id(tensor) for tensor in trained}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)


@contextlib.contextmanager
def _looking_at(model: nn.Module, seed: int, device: torch.device) -> Iterator[None]:
    """Give a look its own mode, gradients and random numbers: training goes on as if nobody had looked."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.eval()
    try:
        with torch.no_grad(), isolated_randomness(seed, device):
            yield
    finally:
        for module, training in modes:
            module.training = training
