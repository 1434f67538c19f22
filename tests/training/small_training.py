"""What tests of the training loop share: a network, rows, and what comes of a short training."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from bayesnorm.training import train

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def network(*more):
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), *more, nn.Linear(6, 1))


def data(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, x[:, :1] - x[:, 1:2] + 0.1 * torch.randn(n, 1, generator=generator)


def trained(model, **options):
    options = {"loss": mse_loss, "epochs": 3, "batch_size": 8, **options}
    model = copy.deepcopy(model)
    return model, train(model, *data(), **options)


def global_states():
    numbers = np.random.get_state()[1].tolist()  # noqa: NPY002
    devices = [torch.cuda.get_rng_state().tolist()] if torch.cuda.is_available() else []
    return torch.get_rng_state().tolist(), devices, random.getstate(), numbers


def weights(model):
    return torch.cat([value.detach().flatten().double().cpu() for value in model.state_dict().values()])
