"""Data and networks that several claims share: Friedman's function, and a batch-norm network under given batches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bayesnorm.training import train

from ..known_noise import friedman
from ..networks import paper_mlp

SCALE = 5.0
"""Friedman's function is divided by this, so that its standard deviation is about 1."""
NOISE = 0.2


def friedman_rows(rows: int, seed: int, noise: float = NOISE) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs in [-1, 1], noisy targets and the true function, each with `rows` rows."""
    generator = np.random.default_rng(seed)
    X, f = friedman(rows, generator)
    truth = torch.tensor((f - 14.4) / SCALE, dtype=torch.float32)[:, None]
    noisy = truth + noise * torch.tensor(generator.standard_normal((rows, 1)), dtype=torch.float32)
    return torch.tensor(2 * X - 1, dtype=torch.float32), noisy, truth


def trained(x: Tensor, y: Tensor, *, batch_size: int, epochs: int, seed: int, weight_decay: float = 1e-4) -> nn.Module:
    """Return the network of the MCBN paper, trained on the squared error."""
    network = paper_mlp(x.shape[1], seed=seed, eps=1e-5)
    train(
        network,
        x,
        y,
        loss=mse_loss,
        batch_size=batch_size,
        epochs=epochs,
        learning_rate=5e-3,
        weight_decay=weight_decay,
        seed=seed,
    )
    return network


def hidden_units(network: nn.Module, x: Tensor) -> Tensor:
    """Return the inputs of the last layer, where every batch is normalised by its own statistics, as in training.

    Args:
        network: A sequence of linear layers, batch norm and activations.
        x: Batches (..., batch, columns); the statistics are those of the last axis but one.
    """
    for layer in list(network.children())[:-1]:
        if isinstance(layer, nn.BatchNorm1d):
            variance, centre = torch.var_mean(x, dim=-2, correction=0, keepdim=True)
            x = (x - centre) / (variance + layer.eps).sqrt() * layer.weight + layer.bias
        else:
            x = layer(x)
    return x


def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs (..., batch, outputs) under the batches' own statistics; see `hidden_units`."""
    result: Tensor = list(network.children())[-1](hidden_units(network, x))
    return result


def random_batches(rows: int, batch_size: int, batches: int, seed: int) -> Tensor:
    """Return row numbers (batches, batch_size), drawn without replacement within a batch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batches, rows, generator=generator).argsort(1)[:, :batch_size]


def gaussian_log_prob(error: Tensor, precision: float) -> Tensor:
    """Return the log density of normal noise at `error`."""
    return 0.5 * (np.log(precision) - np.log(2 * np.pi)) - 0.5 * precision * error**2
