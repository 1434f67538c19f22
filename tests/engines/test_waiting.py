"""A prediction on a GPU waits for it once. Tensors of these tests are on a CPU, and pass for tensors on a GPU."""

from collections import Counter

import pytest
import torch

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.network import as_input, delayed_checks

READS = ("__bool__", "__float__", "__int__", "item", "tolist")


@pytest.fixture(params=[bn.MonteCarlo(8), bn.SigmaPoints(2), bn.Delta()], ids=lambda engine: type(engine).__name__)
def predict(request, regression, monkeypatch):
    posterior = bn.MCBN(batch_size=8).fit(regression.model, (regression.x, regression.y), bn.Gaussian(0.1))
    posterior.predict(regression.x[:4], request.param)  # facts about the network are found out once
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    return lambda x: posterior.predict(x, request.param)


def test_inputs_and_outputs_are_checked_together(predict, regression, monkeypatch):
    reads = Counter()
    for name in READS:
        original = getattr(torch.Tensor, name)

        def counted(*args, original=original, name=name):
            reads[name] += 1
            return original(*args)

        monkeypatch.setattr(torch.Tensor, name, counted)
    predict(regression.x[:4])
    assert reads == {"__bool__": 1}


def test_inputs_that_are_not_finite_are_still_refused_by_name(predict, regression):
    x = regression.x[:4].clone()
    x[2, 0] = float("nan")
    with pytest.raises(InputError, match=r"x has 1 NaN or infinite values .* row 2"):
        predict(x)


def test_large_inputs_are_not_mistaken_for_infinite(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    x = torch.tensor([[3e38], [-3e38]])  # their difference is infinite
    with delayed_checks() as passed:
        as_input(x, "x", x.device, x.dtype)
        assert passed(torch.tensor(True))
        assert not passed(torch.tensor(False))
