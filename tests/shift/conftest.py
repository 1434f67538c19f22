"""Small networks fitted once, for regression and for classes, and rows that their training never saw."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.posterior import BatchNormPosterior

INPUTS, BATCH_SIZE, ROWS = 6, 16, 2048
CLASSES, FEATURES = 5, 12


def fresh(count: int, seed: int) -> Tensor:
    """Rows of a world with correlated columns, one of them skewed."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, INPUTS, generator=generator)
    x[:, 1] += x[:, 0]
    x[:, 2] = x[:, 2].exp()
    return x


@cache
def network() -> nn.Module:
    """A network with three batch-norm layers, whose running statistics are those of its rows."""
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for inputs in (INPUTS, 12, 12):
        layers += [nn.Linear(inputs, 12), nn.BatchNorm1d(12, momentum=None), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(12, 1)).train()
    with torch.no_grad():
        for batch in fresh(ROWS, 0).split(256):
            model(batch)
    return model.eval()


@cache
def fitted(method: type[bn.MCBN] = bn.MCBN, **options: int) -> BatchNormPosterior:
    """A posterior of a method on the network."""
    return method(BATCH_SIZE, **({"states": 128} | options)).fit(network(), fresh(ROWS, 0), bn.Gaussian())


def clusters(labels: Tensor, seed: int) -> Tensor:
    """Return inputs around one centre for each class."""
    centers = 1.5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    noise = torch.randn(len(labels), FEATURES, generator=torch.Generator().manual_seed(seed))
    return centers[labels] + noise


def shifted(x: Tensor) -> Tensor:
    return 0.5 * x + 1.0


@cache
def network_and_posterior() -> tuple[nn.Module, bn.posterior.BatchNormPosterior]:
    torch.manual_seed(0)
    y = torch.arange(2000) % CLASSES
    x = clusters(y, 0)
    network = nn.Sequential(
        nn.Linear(FEATURES, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 30), nn.BatchNorm1d(30), nn.ReLU(),
        nn.Linear(30, CLASSES),
    )  # fmt: skip
    bn.training.train(network, (x, y), loss=nn.functional.cross_entropy, epochs=5, batch_size=50)
    network.eval()
    return network, bn.MCBN(32, states=64).fit(network, x, bn.Categorical())
