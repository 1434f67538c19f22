"""Steps that are recorded and replayed on a GPU train as steps that are not."""

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from bayesnorm.errors import BayesNormError

from .small_training import DEVICES, network, trained, weights


def moved(x):
    return x + 0.1 * torch.rand(len(x), 1, device=x.device)


@pytest.mark.parametrize("device", DEVICES)
def test_recorded_steps_train_as_others_do(device):
    options = {
        "epochs": 4,
        "transform": moved,
        "optimiser": lambda parameters: SGD(parameters, lr=0.05, momentum=0.9),
        "schedule": lambda optimiser: StepLR(optimiser, 3, 0.5),
        "schedule_every": "step",
        "seed": 3,
    }
    model = network(nn.Dropout(0.2)).to(device)
    expected, history = trained(model, **options)
    found, other = trained(model, compiled="graph", **options)
    assert torch.allclose(weights(found), weights(expected), rtol=1e-4, atol=1e-5)
    assert other.losses == pytest.approx(history.losses, rel=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_that_cannot_be_recorded_is_refused():
    class Looking(nn.Module):
        def forward(self, x):
            return x * (1.0 if x.mean().item() > 0 else 0.5)  # makes the host wait

    with pytest.raises(BayesNormError, match=r"cannot record a step .*Use compiled=False"):
        trained(network(Looking()).cuda(), compiled="graph")
    assert torch.rand(3, device="cuda").max() > 0  # the generator is of use


@pytest.mark.parametrize("device", DEVICES)
def test_penalties_that_change_from_epoch_to_epoch(device):
    options = {
        "epochs": 5,
        "penalties": [lambda model, epoch: 0.1 * epoch * next(model.parameters()).square().sum()],
        "seed": 3,
    }
    model = network(nn.Dropout(0.2)).to(device)
    expected, history = trained(model, **options)
    found, other = trained(model, compiled="graph", **options)
    assert torch.allclose(weights(found), weights(expected), rtol=1e-4, atol=1e-5)
    assert other.losses == pytest.approx(history.losses, rel=1e-4)
