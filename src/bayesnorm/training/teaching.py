"""Train a network to say what another one says: the larger one that it was made of, or any with the same outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import require_function, require_number
from ..errors import BayesNormError
from .batching import Pair


class Teacher:
    """A classifier whose outputs are the targets of another's training (Hinton, Vinyals and Dean 2015).

    What it says of all classes tells more than a label, so that a few epochs do what many would; labels are not
    looked at. It sees every batch as the student sees it, cropped or mirrored.

    ```python
    teacher = Teacher(model, CropAndFlip())
    taught = {"loss": teacher.loss, "transform": teacher, "transform_targets": True}
    train(student, images, labels, **taught, epochs=2, batch_size=128)
    ```

    Args:
        network: The teacher, in evaluation mode; a copy is kept. Its outputs are logits (batch, classes, ...).
        transform: What becomes of a batch's inputs first, as `train(transform=)` has it.
        temperature: Both networks' logits are divided by it: the higher, the more unlikely classes count.
    """

    def __init__(
        self, network: nn.Module, transform: Callable[[Tensor], Tensor] | None = None, temperature: float = 4.0
    ) -> None:
        if not isinstance(network, nn.Module):
            raise BayesNormError(f"network: {type(network).__name__} was given; the network that teaches would work.")
        require_function("transform", transform)
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self.transform, self.temperature = transform, require_number("temperature", temperature, above=0)

    def __call__(self, x: Tensor, y: Tensor) -> Pair:
        """Return inputs as the student sees them, and what the teacher says of them instead of targets."""
        x = x if self.transform is None else self.transform(x)
        with torch.no_grad():
            return x, self.network(x)

    def loss(self, logits: Tensor, said: Tensor) -> Tensor:
        """Return how far the student is from the teacher: the Kullback-Leibler divergence, times temperature squared.

        That factor keeps gradients as large as those of a cross-entropy.
        """
        student, teacher = (values.float() / self.temperature for values in (logits, said))
        divergence = F.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="none", log_target=True)
        return self.temperature**2 * divergence.sum(1).mean()

    def __repr__(self) -> str:
        """Tell settings, by which a checkpoint knows it."""
        return f"Teacher({type(self.network).__name__}, {self.transform!r}, temperature={self.temperature:g})"
