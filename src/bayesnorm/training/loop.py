"""The mini-batch training loop: deterministic given a seed, and resumable after an interruption."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..arguments import require_function, require_number, require_seed, require_whole
from ..errors import BayesNormError, InputError
from ..files import as_path
from ..network import Progress, device_of, dtype_of, isolated_randomness, unwrap
from .batching import Batches, Pair, described_rows, training_batches, validation_rows
from .checkpoint import Checkpoint, described
from .objective import GRAPH, Gradients, Loss, Objective, Penalty, RecordedGradients
from .optimising import new_optimiser, new_schedule
from .run import History, Run

Score = Callable[[nn.Module], float]
"""`evaluate(model)`: the score of a network; lower is better."""


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
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
) -> History:
    """Train `model` in place on its device, leave it in evaluation mode, and return the history.

    The result only depends on the arguments and the seed. With `checkpoint`, an interrupted call can be resumed.

    Args:
        model: The network. All of it is put into training mode.
        data: Inputs of shape (N, ...) with `y`, or a pair (x, y): tensors or arrays, which are moved to the network's
            device as a whole. Or a `DataLoader` or `Dataset` of such pairs, whose batches are moved one by one.
        y: Targets, (N, ...). Default: None, they are in `data`.
        loss: `loss(model(x), y)`, a scalar: a mean over examples.
        epochs: Maximum number of passes over the data.
        batch_size: Examples per step, in random order. Examples left over at the end of an epoch, fewer than a batch,
            are dropped. If there are fewer examples than a batch, all make one batch. Default: None, the batches of a
            `DataLoader` in its order.
        optimiser: A function that makes the optimiser, given a list of parameters. Default: None, Adam.
        learning_rate: Learning rate of Adam. Default: None, 0.001.
        schedule: A function that makes the learning-rate schedule, given the optimiser. `ReduceLROnPlateau` gets every
            new score, or the loss of every epoch if there are no scores. Default: None.
        schedule_every: Advance the schedule after every "epoch" or every "step". Default: "epoch".
        weight_decay: lambda in the penalty lambda/2 |W|^2 over weight matrices and kernels (not biases or batch norm).
            It is added to the loss with any optimiser. Default: 0.
        penalties: Further terms of the loss: `penalty(model, epoch)`, a scalar. Epochs count from 1. They are computed
            at every step, in full precision. Default: none.
        parameters: Tensors to train. Others are not changed, except that batch norm updates its running statistics.
            Default: None, all parameters of the network that require gradients.
        transform: Augmentation: a function of every batch's inputs on the network's device, such as `CropAndFlip`. It
            may use torch's random generators. Validation data are not transformed. Default: None.
        transform_targets: Whether `transform` takes inputs and targets and returns both, so that pixel labels move with
            their images. Default: False.
        validation: A pair (x, y). Its loss in evaluation mode, without penalties, is the network's score. The network
            with the lowest score is kept, also if training ends with an error or is interrupted. Default: None.
        evaluate: Your own score instead of `validation`: `evaluate(model)` in evaluation mode; lower is better.
            Default: None.
        evaluate_every: Number of epochs between scores; the last epoch is always scored. Default: 1.
        patience: Number of scores without improvement before training stops; an equal score counts as improvement.
            Default: None, never stop early.
        mixed_precision: Whether to run the network in bfloat16 on GPUs that support it; the weights keep their
            precision. Default: False.
        compiled: Whether steps use `torch.compile`, which takes time at the start and makes steps on a GPU faster.
            Scores use the uncompiled network. A string is the compile mode; True means "reduce-overhead" on a GPU.
            "graph" compiles nothing, but records a step as a CUDA graph and replays it from the fourth step on. It
            needs networks and transforms whose Python code does the same at every step, and penalties whose code does
            the same at every step of an epoch. Default: False.
        seed: Seed of the order of examples, of dropout, and of random noise and transforms. The global generators are
            not changed. Default: 0.
        on_epoch: Called with (epoch, model) after each epoch, with the network in evaluation mode. It does not affect
            the random numbers of training. Default: None.
        progress: Called with (epoch, epochs) after each epoch. `progress_bar()` shows a bar. Default: None.
        checkpoint: A file to which the whole state is written during training. The same call resumes from it, with the
            same result as an uninterrupted run (on a GPU, as far as its kernels are deterministic). If that run is
            finished, its result is returned at once. You may ask for more epochs than before. Other shapes, data or
            settings raise an error, but changed functions cannot be detected. Default: None.
        checkpoint_every: Minimum seconds between checkpoints, which are written at the end of an epoch; 0 for every
            epoch. Default: 60.
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
    _require_consistent(transform, transform_targets, schedule_every, validation, evaluate, patience)

    batches = training_batches(data, y, batch_size, device, dtype, seed)
    trained = _trained(model, parameters)
    objective = Objective(model, loss, penalties, weight_decay, trained, mixed_precision, device, compiled)
    made, order = new_optimiser(optimiser, learning_rate, trained), torch.Generator().manual_seed(seed)
    made_schedule, every_step = new_schedule(schedule, made), schedule_every == "step"
    run = Run(model, trained, made, made_schedule, order, device, epochs, patience, every_step=every_step)
    of_pairs = transform if transform is None or transform_targets else partial(_transform_inputs, transform)
    rows = None if validation is None else validation_rows(validation, device, dtype)
    if rows is not None:
        evaluate = partial(objective.validation_loss, rows, batches.batch_size or 1)
    store = None
    if checkpoint is not None:
        # All fields of a dataclass, such as `CropAndFlip`.
        transform_name = repr(transform) if dataclasses.is_dataclass(transform) else type(transform).__name__
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
            # Only if they are given, so that files of older releases without them can still be read.
            **({} if transform is None else {"transform": transform_name}),
            **({"transform_targets": True} if transform_targets else {}),
            **({"schedule_every": schedule_every} if run.every_step else {}),
        }
        store = _store(checkpoint, run, settings)
    gradients = RecordedGradients if compiled == GRAPH and device.type == "cuda" else Gradients
    loop = _Loop(
        run,
        batches,
        gradients(objective, of_pairs, trained),
        on_epoch,
        progress,
        evaluate,
        evaluate_every,
        "evaluate" if validation is None else "validation",
        seed,
        store,
        checkpoint_every,
    )
    with isolated_randomness(seed, device), _frozen(model, trained):
        return loop.run_epochs(started)


def _require_consistent(
    transform: Any, transform_targets: bool, schedule_every: str, validation: Any, evaluate: Any, patience: int | None
) -> None:
    """Raise an error for arguments of `train` that do not fit together."""
    if transform_targets and transform is None:
        raise BayesNormError("transform_targets=True needs a transform. Pass transform=CropAndFlip(), for example.")
    if schedule_every not in ("epoch", "step"):
        raise BayesNormError(f"schedule_every must be 'epoch' or 'step', got {schedule_every!r}.")
    if validation is not None and evaluate is not None:
        raise BayesNormError("validation and evaluate are both given, but only one can score the network. Pass one.")
    if patience is not None and validation is None and evaluate is None:
        raise BayesNormError("patience needs a score of the network. Pass validation=(x, y) or evaluate=.")


@dataclass
class _Loop:
    """The epochs of a run, with scores, checkpoints and the caller's functions between them; see `train`.

    Args:
        run: The state of the training.
        batches: The batches.
        gradients: Stores the gradients of a batch.
        evaluate, evaluate_every, on_epoch, progress, checkpoint_every, seed: As in `train`.
        score_name: The argument that gives the score, for messages.
        store: The checkpoint, or None.
    """

    run: Run
    batches: Batches
    gradients: Gradients
    on_epoch: Callable[[int, nn.Module], None] | None
    progress: Progress | None
    evaluate: Score | None
    evaluate_every: int
    score_name: str
    seed: int
    store: Checkpoint | None
    checkpoint_every: float

    def run_epochs(self, started: float) -> History:
        """Train until the run is over, leave the best network in evaluation mode, and return the history.

        Args:
            started: The time at which `train` was called.
        """
        run, written = self.run, started
        state = self.store.read() if self.store else None
        if state is not None:
            run.restore(state)
            self._tell()
        started -= run.history.seconds  # time of interrupted runs counts too
        if self.store and not run.over:
            self.store.require_writable()
        try:
            run.model.train()
            while not run.over:
                self._run_epoch()
                now = time.perf_counter()
                run.history.seconds = now - started
                if run.over or (self.store and now - written >= self.checkpoint_every):
                    run.require_finite()
                    if self.store:
                        self.store.write(run.state())
                    written = time.perf_counter()
                self._tell()
        finally:
            run.model.eval()
            for tensor in run.trained:
                tensor.grad = None
            run.finish()
        return run.history

    def _run_epoch(self) -> None:
        """Train for one pass over the data, and score the network if it is time."""
        run, epoch = self.run, self.run.history.stopped + 1
        run.history.losses.append(self._mean_loss(epoch))
        if self.evaluate is not None and (epoch % self.evaluate_every == 0 or epoch == run.epochs):
            with self._evaluation():
                score = _number(self.evaluate(run.model))
            if math.isnan(score) and run.best is None:
                raise BayesNormError(f"{self.score_name}: the score is NaN in epoch {epoch}. It must be a number.")
            run.record_score(score)
        run.step_schedule(scored=self.evaluate is not None)
        if self.on_epoch is not None:
            with self._evaluation():
                self.on_epoch(epoch, run.model)

    def _mean_loss(self, epoch: int) -> float:
        """Train for one pass over the data, and return the mean of the objective."""
        with contextlib.closing(self.batches.epoch(epoch, self.run.order)) as pairs:
            waiting = [self.run.step(partial(self.gradients, batch, epoch)) for batch in pairs]
        if not waiting:
            raise InputError(f"data has no batch in epoch {epoch}. At least one batch is needed.")
        # Losses are read together, because every read waits for the device.
        values: list[float] = torch.stack(waiting).tolist()
        for step, value in enumerate(values, 1):
            if not math.isfinite(value):
                raise BayesNormError(
                    f"The loss is {value} at step {step} of epoch {epoch}, {self.run.describe_left()}. Try a smaller "
                    "learning rate, standardised inputs and targets, or a loss without logarithms of zero."
                )
        return math.fsum(values) / len(values)

    @contextlib.contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Evaluate the network with its own mode, gradients and random numbers, without any effect on training."""
        modes = [(module, module.training) for _, module in self.run.model.named_modules()]
        self.run.model.eval()
        try:
            with torch.no_grad(), isolated_randomness(self.seed, self.run.device):
                yield
        finally:
            for module, training in modes:
                module.training = training

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(self.run.history.stopped, self.run.epochs)


def _transform_inputs(transform: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Pair:
    """Return a batch with transformed inputs and unchanged targets."""
    return transform(x), y


def _number(score: Any) -> float:
    """Return the result of `evaluate` as a plain number, or raise an error."""
    try:
        return float(score)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BayesNormError(f"evaluate must return a number, got {type(score).__name__}.") from error


def _trained(model: nn.Module, parameters: Iterable[Tensor] | None) -> list[Tensor]:
    """Return the tensors to train, each once, or raise an error if one cannot be trained."""
    name = "model" if parameters is None else "parameters"
    tensors = parameters if parameters is not None else filter(lambda p: p.requires_grad, model.parameters())
    chosen = list({id(tensor): tensor for tensor in tensors}.values())
    if not chosen:
        raise BayesNormError(f"{name} has no parameter that requires gradients, so there is nothing to train.")
    for i, tensor in enumerate(chosen):
        if not isinstance(tensor, Tensor) or not tensor.requires_grad or not tensor.is_leaf:
            kind = "not a leaf that requires gradients" if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
            raise BayesNormError(f"parameters[{i}] is {kind}. Pass parameters of the network.")
    return chosen


def _store(checkpoint: str | os.PathLike[str], run: Run, settings: dict[str, Any]) -> Checkpoint:
    """Return the checkpoint of a run, which is recognised by its settings and its tensors."""
    tensors, chosen = run.tensors(), {id(tensor) for tensor in run.trained}
    settings = {
        **{name: f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()},
        "parameters": ", ".join(name for name, tensor in tensors.items() if id(tensor) in chosen),
        # Before the optimiser, whose settings a schedule changes: the error names the first difference.
        "schedule": described(run.schedule, run.schedule.state_dict() if run.schedule else None),
        "optimiser": described(run.optimiser, run.optimiser.state_dict()["param_groups"]),
        **settings,
    }
    return Checkpoint(as_path(checkpoint, "checkpoint"), {name: str(value) for name, value in settings.items()})


@contextlib.contextmanager
def _frozen(model: nn.Module, trained: list[Tensor]) -> Iterator[None]:
    """Turn off gradients of parameters that are not trained, within the context."""
    chosen = {id(tensor) for tensor in trained}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
