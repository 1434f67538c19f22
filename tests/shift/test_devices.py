"""Adapting a network on a GPU: statistics of the training data are on the CPU, the network's own are not."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import bayesnorm as bn
from bayesnorm.posterior import AdaptedPosterior
from bayesnorm.shift import AdaptiveStream

from .conftest import CLASSES, clusters, network_and_posterior, shifted

X = shifted(clusters(torch.arange(128) % CLASSES, 3))


def test_an_adapted_posterior_is_on_its_networks_device():
    """Fake tensors have a device and no values, so this needs no GPU; mixing devices raises an error."""

    def on_gpu(value):
        return torch.empty(value.shape, dtype=value.dtype, device="cuda") if isinstance(value, Tensor) else value

    posterior = network_and_posterior()[1]
    adaptation = dataclasses.replace(bn.adapt(posterior, X).adaptation, reference=None)  # which needs values
    assert adaptation.arrays.rows == len(X)  # arrays of fake tensors have no values
    assert posterior.training_batches.reference.rows > 0
    with FakeTensorMode(allow_non_fake_inputs=True):
        parts = {field.name: on_gpu(getattr(posterior.fluctuations, field.name)) for field in fields(posterior)}
        moved = dataclasses.replace(
            posterior,
            running=on_gpu(posterior.running),
            batch_mean=on_gpu(posterior.batch_mean),
            fluctuations=dataclasses.replace(posterior.fluctuations, **parts),
        )
        assert AdaptedPosterior.from_original(moved, adaptation).moved.device.type == "cuda"


def fields(posterior):
    return dataclasses.fields(posterior.fluctuations)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_numbers_of_the_cpu():
    network = network_and_posterior()[0]
    x, y = clusters(torch.arange(512) % CLASSES, 1), torch.arange(512) % CLASSES
    on_gpu = bn.MCBN(batch_size=32).fit(copy.deepcopy(network).cuda(), (x, y), bn.Categorical())
    on_cpu = bn.MCBN(batch_size=32).fit(network, (x, y), bn.Categorical())
    for place in (on_gpu, on_cpu):
        assert bn.drift(place, X).p_value < 0.01
    adapted = [bn.adapt(place, X).predict(X).probs.cpu() for place in (on_gpu, on_cpu)]
    torch.testing.assert_close(*adapted, atol=1e-3, rtol=0)
    streams = [AdaptiveStream(place).predict(X).probs.cpu() for place in (on_gpu, on_cpu)]
    torch.testing.assert_close(*streams, atol=1e-3, rtol=0)
