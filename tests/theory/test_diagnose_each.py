"""Diagnoses in the course of training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.theory import diagnose_each
from bayesnorm.training import train

from .diagnosed_networks import net, rows


def test_every_so_many_epochs():
    x, y = rows(64, 3), rows(64, 1, 1)
    watch = diagnose_each(x, 8, every=2, batches=20)
    train(net(), x, y, loss=nn.functional.mse_loss, epochs=5, batch_size=8, on_epoch=watch)
    assert list(watch.found) == [2, 4]
    assert watch.found[2].table() != watch.found[4].table()
    lines = [line.split() for line in str(watch).splitlines()[3:]]
    assert [line[:3] for line in lines] == [[epoch, "8", layer] for epoch in "24" for layer in "14"]
    last = watch.found[4].at().layer("4")
    shares = (last.mean.rejected, last.std.rejected, last.mean.fitted_rejected, last.std.fitted_rejected)
    assert lines[-1][3:] == [f"{share:.0%}" for share in shares]


def test_looking_on_does_not_change_training():
    x, y = rows(64, 3), rows(64, 1, 1)
    weights = []
    for watch in (None, diagnose_each(x, 8, batches=20)):
        torch.manual_seed(0)
        model = net()
        train(model, x, y, loss=nn.functional.mse_loss, epochs=2, batch_size=8, on_epoch=watch)
        weights.append(model.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_bad_arguments_are_told_before_training():
    with pytest.raises(bn.BayesNormError, match=r"batch_sizes must be .* got 1"):
        diagnose_each(rows(64, 3), 1)
    with pytest.raises(bn.BayesNormError, match=r"batches must be .* got 3"):
        diagnose_each(rows(64, 3), 8, batches=3)
