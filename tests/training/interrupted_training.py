"""What tests of checkpoints share: a training that can be interrupted."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from bayesnorm.training import train

from .small_training import data

EPOCHS = 7


class Stop(Exception):
    """What interrupts."""


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 1))


def rows(n=43, seed=0):
    return data(n, seed)


def call(model, path=None, stop_after=None, pairs=None, **options):
    """Train, perhaps up to an interruption."""

    def on_epoch(epoch, _model):
        if stop_after is not None and epoch > stop_after:
            raise Stop

    options = {"loss": mse_loss, "epochs": EPOCHS, "batch_size": 8, "seed": 3, "checkpoint_every": 0, **options}
    return train(model, pairs or rows(), on_epoch=on_epoch, checkpoint=path, **options)
