"""A prediction goes through few functions of the package, so that its stack can be read."""

import sys
import traceback
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesnorm as bn

DEEPEST = 12
ROOT = str(Path(bn.__file__).parent)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.norm(self.body(x)))


def mlp():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(16, 3)


def cnn():
    stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    return nn.Sequential(stem, Residual(), Residual(), head), torch.randn(16, 3, 6, 6)


def deepest_stack(run):
    """Return the deepest stack of the package's functions during a call."""
    deepest, depth = [], 0

    def note(frame, event, _):
        nonlocal deepest, depth
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(ROOT):
            return
        depth += 1 if event == "call" else -1
        if depth > len(deepest):
            stack = [caller.f_code for caller, _ in traceback.walk_stack(frame)]
            names = [code.co_qualname for code in stack if code.co_filename.startswith(ROOT)]
            deepest = max(deepest, names, key=len)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return deepest


@pytest.mark.parametrize("make", [mlp, cnn])
def test_predictions_are_at_most_twelve_functions_deep(make):
    network, x = make()
    posterior = bn.MCBN(batch_size=8).fit(network.eval(), x, bn.Categorical())
    for engine in (bn.MonteCarlo(4), bn.MonteCarlo(4), bn.SigmaPoints(2), bn.Delta()):
        if not isinstance(engine, bn.MonteCarlo):  # the others compute and check derivatives at their first prediction
            posterior.predict(x[:4], engine)
        stack = deepest_stack(lambda engine=engine: posterior.predict(x[:4], engine))
        assert 5 < len(stack) <= DEEPEST, stack
