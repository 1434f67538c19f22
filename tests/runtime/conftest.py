"""Files that watch their inputs, exported once, and new inputs for them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import bayesnorm as bn

CLASSES, FEATURES = 5, 12


class Case(NamedTuple):
    posterior: bn.posterior.BatchNormPosterior
    engine: bn.Engine
    path: Path
    usual: Tensor
    """Inputs like those of training."""
    shifted: Tensor


def clusters(labels: Tensor, seed: int) -> Tensor:
    """Return inputs around one centre for each class."""
    centers = 1.5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    return centers[labels] + torch.randn(len(labels), FEATURES, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="session")
def perceptron(tmp_path_factory) -> Case:
    """Return a classifier that is calibrated on held-out examples; both layers are sampled."""
    torch.manual_seed(0)
    y = torch.arange(2000) % CLASSES
    x = clusters(y, 0)
    network = nn.Sequential(
        nn.Linear(FEATURES, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 20), nn.BatchNorm1d(20), nn.ReLU(),
        nn.Linear(20, CLASSES),
    )  # fmt: skip
    bn.training.train(network, (x, y), loss=nn.functional.cross_entropy, epochs=5, batch_size=50)
    posterior = bn.MCBN(32, states=64).fit(network.eval(), x, bn.Categorical())
    held_out = clusters(y[:300], 9) + 1.5 * torch.randn(300, FEATURES, generator=torch.Generator().manual_seed(1))
    posterior = bn.calibrate(posterior, held_out, y[:300], batch_size=False, samples=4)
    path, engine = tmp_path_factory.mktemp("runtime") / "perceptron.onnx", bn.MonteCarlo(6)
    bn.export(posterior, path, x[:33], engine=engine, outputs=["probs", "mutual_information"], watch=True)
    usual = clusters(y[:150], 5)
    return Case(posterior, engine, path, usual, 0.5 * usual + 1)


@pytest.fixture(scope="session")
def convolutions(tmp_path_factory) -> Case:
    """Return a regression on images of which only the last layer is sampled."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    x = torch.randn(600, 2, 7, 7, generator=torch.Generator().manual_seed(1))
    network.train()
    for _ in range(20):
        network(x)
    posterior = bn.MCBN(16, states=64).fit(network.eval(), x[:500], bn.Gaussian(0.5)).at_layers(1).at_batch_size(8)
    path, engine = tmp_path_factory.mktemp("runtime") / "convolutions.onnx", bn.MonteCarlo(6)
    bn.export(posterior, path, x[:33], engine=engine, outputs=["predictive_mean", "epistemic_std"], watch=True)
    return Case(posterior, engine, path, x[500:570], 1.5 * x[500:570] + 0.4)
