"""Distillation: train a student network to reproduce the outputs of a teacher network."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import require_function, require_number
from ..errors import BayesNormError
from .batching import Pair
from .loop import train
from .optimising import relative_adam
from .run import History


def distill(
    student: nn.Module,
    teacher: nn.Module,
    x: Any,
    *,
    transform: Callable[[Tensor], Tensor] | None = None,
    temperature: float = 4.0,
    layers: Iterable[str] = (),
    weight: float = 50.0,
    **options: Any,
) -> History:
    """Distil a teacher into a student: train the student, in place, to reproduce the teacher's class probabilities.

    It needs no labels. The teacher's probabilities of all classes, and the outputs of its layers, contain more
    information than labels, so a few epochs are enough. Use it to fine-tune a pruned network
    (`compression.prune_channels`), with the original network as teacher. Returns the training history.

    Reference: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015.

    Args:
        student: The network to train.
        teacher: The network to distil. A copy of it is used in evaluation mode. Its outputs are logits
            (batch, classes, ...).
        x: Inputs of shape (N, ...), a tensor or an array.
        transform: Augmentation of a batch's inputs, as in `train(transform=)`. Student and teacher get the same
            result. Default: None.
        temperature: Divisor of both networks' logits. The higher it is, the more improbable classes count. Default: 4.
        layers: Names of layers with outputs of the same shape in both networks, such as the stages of a residual
            network. The student is also trained to reproduce the teacher's outputs there. Default: none.
        weight: Weight of the squared difference of these outputs, relative to the teacher's mean square. Default: 50.
        options: Further arguments of `train`: `epochs`, `batch_size`, `optimiser`, `learning_rate`, `schedule` and
            others. Use `evaluate` instead of `validation`. Without an optimiser and a learning rate, `relative_adam` is
            used, because a student is usually already trained.
    """
    if options.get("validation") is not None:
        raise BayesNormError(
            "distill does not support validation. Pass a function that scores the student as evaluate=."
        )
    if options.get("optimiser") is None and options.get("learning_rate") is None:
        options["optimiser"] = relative_adam
    taught = Teacher(teacher, transform, temperature, layers, weight)
    with taught.watching(student):
        return train(student, x, torch.zeros(len(x)), **taught.options, **options)


class Teacher:
    """The loss and the transform of a training by distillation. `distill` describes the arguments."""

    def __init__(
        self,
        network: nn.Module,
        transform: Callable[[Tensor], Tensor] | None = None,
        temperature: float = 4.0,
        layers: Iterable[str] = (),
        weight: float = 50.0,
    ) -> None:
        if not isinstance(network, nn.Module):
            raise BayesNormError(f"teacher must be a network (torch.nn.Module), got {type(network).__name__}.")
        require_function("transform", transform)
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.transform, self.temperature = transform, require_number("temperature", temperature, above=0)
        self.weight, self.layers = require_number("weight", weight, least=0), _names(layers, self.network, "teacher")
        self._teacher_outputs: dict[str, Tensor] = {}  # by layer, for the current batch
        self._student_outputs: dict[str, Tensor] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `train` for distillation."""
        return {"loss": self.loss, "transform": self, "transform_targets": True}

    def __call__(self, x: Tensor, y: Tensor) -> Pair:
        """Return the student's inputs, and the teacher's outputs for them as targets."""
        x = x if self.transform is None else self.transform(x)
        with torch.no_grad():
            return x, self.network(x)

    def loss(self, logits: Tensor, teacher_logits: Tensor) -> Tensor:
        """Return the distance of the student from the teacher, in its outputs and in those of its layers.

        The first is the Kullback-Leibler divergence times the squared temperature, so its gradients are as large as
        those of a cross-entropy.
        """
        student, teacher = (values.float() / self.temperature for values in (logits, teacher_logits))
        divergence = F.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True)
        value = self.temperature**2 * divergence.sum(1).mean()
        for name in self.layers:
            output, target = self._student_outputs[name].float(), self._teacher_outputs[name].float()
            if output.shape != target.shape:
                raise BayesNormError(
                    f"layers: {name!r} has shape {tuple(output.shape)} in the student and {tuple(target.shape)} in the "
                    "teacher. Name layers whose outputs have the same shape."
                )
            tiny = torch.finfo(target.dtype).tiny
            value = value + self.weight * F.mse_loss(output, target) / target.square().mean().clamp_min(tiny)
        return value

    @contextlib.contextmanager
    def watching(self, student: nn.Module) -> Iterator[None]:
        """Record the outputs of the chosen layers of both networks while the context lasts."""
        _names(self.layers, student, "student")
        hooks = []
        for network, outputs in ((self.network, self._teacher_outputs), (student, self._student_outputs)):
            for name in self.layers:
                hooks.append(network.get_submodule(name).register_forward_hook(partial(_store_output, outputs, name)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._teacher_outputs.clear()
            self._student_outputs.clear()

    def __repr__(self) -> str:
        """Return the settings, by which a checkpoint recognises it."""
        watched = f", layers={self.layers!r}, weight={self.weight:g}" if self.layers else ""
        return f"Teacher({type(self.network).__name__}, {self.transform!r}, temperature={self.temperature:g}{watched})"


def _store_output(outputs: dict[str, Tensor], name: str, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
    outputs[name] = output


def _names(layers: Iterable[str], network: nn.Module, which: str) -> tuple[str, ...]:
    """Return the names of layers, or raise an error if the network does not have them."""
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    modules = dict(network.named_modules())
    for name in names:
        if name not in modules or not name:
            raise BayesNormError(
                f"layers: the {which} has no layer {name!r}. Its layers include {', '.join(list(modules)[1:6])}."
            )
    return names
