"""A plain mini-batch training loop on tensors, deterministic from a seed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from ..network.batches import isolated_torch_randomness


@dataclass
class Training:
    """What happened: `epochs` of the network kept, and (epoch, score) at every evaluation."""

    epochs: int = 0
    scores: list[tuple[int, float]] = field(default_factory=list)


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    loss: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
    batch_size: int,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.0,
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int = 20,
    patience: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Training:
    """Train `model` in place with Adam; rows left over at an epoch's end, fewer than a batch, are dropped.

    Args:
        model: The network; left in evaluation mode.
        x: Inputs, (N, ...).
        y: Targets, (N, ...).
        loss: `loss(model(x), y)`, a scalar.
        epochs: Most passes over the data.
        batch_size: Rows per step.
        learning_rate: Adam's step size.
        weight_decay: lambda in the penalty lambda/2 |W|^2 over weight matrices and kernels (not biases or batch norm).
        evaluate: A score of the network in evaluation mode, lower is better; the best network is kept.
        evaluate_every: Epochs between evaluations.
        patience: Evaluations without improvement before training stops; an equal score is an improvement.
        seed: Decides the order of rows, and what dropout draws.
        progress: Called with (epoch, epochs).
    """
    if not 2 <= batch_size <= len(x):
        raise BayesNormError(f"batch_size: {batch_size} for {len(x)} rows; 2 to {len(x)} would work.")
    generator = torch.Generator().manual_seed(seed)
    weights = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    record, best, kept, waited = Training(epochs=epochs), float("inf"), None, 0
    with isolated_torch_randomness(seed, x.device):
        for epoch in range(1, epochs + 1):
            model.train()
            order = torch.randperm(len(x), generator=generator).to(x.device)
            for rows in order[: len(x) // batch_size * batch_size].view(-1, batch_size):
                objective = loss(model(x[rows]), y[rows])
                if weight_decay:
                    objective = objective + 0.5 * weight_decay * torch.stack([w.square().sum() for w in weights]).sum()
                optimiser.zero_grad(set_to_none=True)
                objective.backward()
                optimiser.step()
            if progress is not None:
                progress(epoch, epochs)
            if evaluate is not None and (epoch % evaluate_every == 0 or epoch == epochs):
                with torch.no_grad():
                    score = evaluate(model.eval())
                record.scores.append((epoch, score))
                if score <= best:
                    best, kept, waited = score, copy.deepcopy(model.state_dict()), 0
                    record.epochs = epoch
                else:
                    waited += 1
                    if waited >= patience:
                        break
    if kept is not None:
        model.load_state_dict(kept)
    model.eval()
    return record
