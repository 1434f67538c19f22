"""Posteriors of one network run together, and give the outputs that they give alone."""

import torch
from torch import nn

import bayesnorm as bn


def network(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    model(torch.randn(40, 3))
    return model.eval()


def test_outputs_of_several_posteriors_are_those_of_each_alone():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    first, second = (bn.MCBN(16, states=32).fit(network(seed), x, bn.Categorical()) for seed in range(2))
    alone = type(bn.deterministic(first.model, bn.Categorical()))(first.executable, bn.Categorical())
    several = [first, first.at_batch_size(2), alone, bn.ensemble([first, second]), first.at_layers(1), alone, second]
    engine = bn.MonteCarlo(6)
    for posterior, outputs in zip(several, engine.outputs_of_several(several, x, seed=3), strict=True):
        assert outputs.shape == (6, 60, 2)
        torch.testing.assert_close(outputs, engine.outputs(posterior, x, seed=3), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(engine.outputs(alone, x)[0], first.model(x).detach(), rtol=1e-5, atol=1e-6)


def test_a_deterministic_network_runs_in_blocks_of_limited_memory():
    sizes = []

    class Watching(nn.Conv2d):
        def forward(self, x):
            sizes.append(len(x))
            return super().forward(x)

    model = nn.Sequential(Watching(3, 16, 3), nn.BatchNorm2d(16), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    x = torch.randn(300, 3, 34, 34, generator=torch.Generator().manual_seed(0))
    posterior = bn.deterministic(model, bn.Categorical())
    for keep in ("samples", "summary"):
        probs = posterior.predict(x, keep=keep).probs
        torch.testing.assert_close(probs, torch.softmax(model(x).detach(), -1))
        sizes.pop()
        assert max(sizes) * 16 * 32 * 32 * 4 <= 4 * 2**20
