"""Train a network to say what another one says: the larger one that it was made of, or any with the same outputs."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
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
    """Train a classifier in place to say what another says (Hinton, Vinyals and Dean 2015); labels are not needed.

    What a teacher says of all classes tells more than a label, and what its layers say more still: a few epochs do what
    many would. Made for a network that lost channels (`compression.prune_channels`), whose whole is the teacher.

    Args:
        student: The network that learns.
        teacher: The network that it learns from, of which a copy is asked in evaluation mode. Its outputs are logits
            (batch, classes, ...).
        x: Inputs of shape (N, ...), a tensor or an array.
        transform: What becomes of a batch's inputs first, as `train(transform=)` has it; both see the same.
        temperature: Both networks' logits are divided by it: the higher, the more unlikely classes count.
        layers: Names of layers whose outputs have the same shape in both networks, such as the stages of a residual
            one: the student's are to be the teacher's.
        weight: How much their squared difference counts, in terms of the teacher's mean square.
        options: Further ones of `train`: `epochs`, `batch_size`, `optimiser`, `learning_rate`, `schedule`, ... but for
            `validation`, whose rows the teacher is not asked about: `evaluate` scores the student. Without an
            optimiser and a rate, steps are those of `relative_adam`, since a student mostly is trained already.
    """
    if options.get("validation") is not None:
        raise BayesNormError("validation: rows were given, but the teacher sees batches only; evaluate= would work.")
    if options.get("optimiser") is None and options.get("learning_rate") is None:
        options["optimiser"] = relative_adam
    taught = Teacher(teacher, transform, temperature, layers, weight)
    with taught.watching(student):
        return train(student, x, torch.zeros(len(x)), **taught.options, **options)


class Teacher:
    """What makes a training one by a teacher; see `distill` for the arguments."""

    def __init__(
        self,
        network: nn.Module,
        transform: Callable[[Tensor], Tensor] | None = None,
        temperature: float = 4.0,
        layers: Iterable[str] = (),
        weight: float = 50.0,
    ) -> None:
        if not isinstance(network, nn.Module):
            raise BayesNormError(f"teacher must be the network that teaches, got {type(network).__name__}.")
        require_function("transform", transform)
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.transform, self.temperature = transform, require_number("temperature", temperature, above=0)
        self.weight, self.layers = require_number("weight", weight, least=0), _names(layers, self.network, "teacher")
        self._said: dict[str, Tensor] = {}  # by the teacher's layers, of the batch that is at hand
        self._answered: dict[str, Tensor] = {}  # and by the student's

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `train` that are the teacher's."""
        return {"loss": self.loss, "transform": self, "transform_targets": True}

    def __call__(self, x: Tensor, y: Tensor) -> Pair:
        """Return inputs as the student sees them, and what the teacher says of them instead of targets."""
        x = x if self.transform is None else self.transform(x)
        with torch.no_grad():
            return x, self.network(x)

    def loss(self, logits: Tensor, said: Tensor) -> Tensor:
        """Return how far the student is from the teacher, in what it says and in what its layers do.

        The first is the Kullback-Leibler divergence times temperature squared, whose gradients are as large as those of
        a cross-entropy.
        """
        student, teacher = (values.float() / self.temperature for values in (logits, said))
        divergence = F.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True)
        value = self.temperature**2 * divergence.sum(1).mean()
        for name in self.layers:
            mine, its = self._answered[name].float(), self._said[name].float()
            if mine.shape != its.shape:
                raise BayesNormError(
                    f"layers: {name!r} gives {tuple(mine.shape)} in the student and {tuple(its.shape)} in the teacher; "
                    "layers with outputs of one shape would work."
                )
            tiny = torch.finfo(its.dtype).tiny
            value = value + self.weight * F.mse_loss(mine, its) / its.square().mean().clamp_min(tiny)
        return value

    @contextlib.contextmanager
    def watching(self, student: nn.Module) -> Iterator[None]:
        """See what the layers of both networks say, as long as the context lasts."""
        _names(self.layers, student, "student")
        hooks = []
        for network, seen in ((self.network, self._said), (student, self._answered)):
            for name in self.layers:
                hooks.append(network.get_submodule(name).register_forward_hook(_keep(seen, name)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._said.clear()
            self._answered.clear()

    def __repr__(self) -> str:
        """Tell settings, by which a checkpoint knows it."""
        watched = f", layers={self.layers!r}, weight={self.weight:g}" if self.layers else ""
        return f"Teacher({type(self.network).__name__}, {self.transform!r}, temperature={self.temperature:g}{watched})"


def _keep(seen: dict[str, Tensor], name: str) -> Callable[[nn.Module, Any, Tensor], None]:
    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        seen[name] = output

    return hook


def _names(layers: Iterable[str], network: nn.Module, which: str) -> tuple[str, ...]:
    """Return names of layers, which a network has to have."""
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    known = dict(network.named_modules())
    for name in names:
        if name not in known or not name:
            raise BayesNormError(
                f"layers: the {which} has no layer {name!r}; one of {', '.join(list(known)[1:6])} would work."
            )
    return names
