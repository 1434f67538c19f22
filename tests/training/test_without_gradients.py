"""Training asked for where gradients are switched off, as in a notebook that only predicts otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from bayesnorm.training import train

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_switched_on_for_training_and_off_again(mode):
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    expected = train(models[0], X, X[:, :1], loss=mse_loss, epochs=2, batch_size=8)
    with mode():
        found = train(models[1], X, X[:, :1], loss=mse_loss, epochs=2, batch_size=8)
        assert not torch.is_grad_enabled()
    assert found.losses == expected.losses
    assert torch.equal(models[1][0].weight, models[0][0].weight)
