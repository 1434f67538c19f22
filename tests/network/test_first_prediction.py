"""The first prediction on inputs of a kind looks at two rows twice; later ones do not look at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesnorm as bn

from ..apply import Apply

ROWS: list[int] = []
"""How many rows came into each forward."""


class Watched(nn.Sequential):
    def forward(self, x):
        ROWS.append(len(x))
        return super().forward(x)


def mlp():
    return Watched(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(64, 3)


def convolutional():
    layers = nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return Watched(*layers, nn.Linear(8, 1)), torch.randn(64, 2, 6, 6)


def forwards(predict):
    ROWS.clear()
    predict()
    return list(ROWS)


@pytest.mark.parametrize("make", [mlp, convolutional])
def test_vectorised_samples_are_compared_once_with_the_plain_way(make):
    model, x = make()
    posterior = bn.MCBN(batch_size=8, states=6).fit(model.eval(), x)
    record_and_replay = [20, 20]
    assert forwards(lambda: posterior.predict(x[:20])) == [2, 2, *record_and_replay]
    assert forwards(lambda: posterior.predict(x[:20])) == record_and_replay
    assert forwards(lambda: posterior.predict(x[:30])) == [30, 30], "more rows are inputs of the same kind"


@pytest.mark.parametrize(("make", "looks"), [(mlp, [2]), (convolutional, [2, 2])])
def test_the_plain_loop_only_looks_at_sizes_and_layouts(make, looks):
    model, x = make()
    posterior = bn.MCBN(batch_size=8, states=6).fit(model.eval(), x)
    engine = bn.MonteCarlo(4, vectorize=False)
    assert forwards(lambda: posterior.predict(x[:20], engine)) == [*looks, 20, *[20] * 4]
    assert forwards(lambda: posterior.predict(x[:20], engine)) == [20, *[20] * 4]


def test_whether_rows_depend_on_one_another_is_asked_once():
    model, x = mlp()
    posterior = bn.MCBN(batch_size=8, states=6).fit(model.eval(), x)
    engine = bn.MonteCarlo(4, block_bytes=8 * 4 * 10)  # ten rows' hidden layer
    blocks = [10, *[10] * 4, 10, *[10] * 4]
    assert forwards(lambda: posterior.predict(x[:20], engine)) == [2, 2, 3, *blocks]
    assert forwards(lambda: posterior.predict(x[:20], engine)) == blocks


def test_derivatives_are_compared_once_with_the_plain_way():
    model, x = mlp()
    posterior = bn.MCBN(batch_size=8, states=6).fit(model.eval(), x)
    assert forwards(lambda: posterior.predict(x[:20], bn.Delta())) == [8, 8, 20]
    assert forwards(lambda: posterior.predict(x[:20], bn.Delta())) == [20]


def test_what_two_rows_could_not_show_runs_in_a_loop_from_then_on(reference):
    # The shape of what is inside depends on drawn values, but with two rows.
    odd = Apply(lambda h: torch.cat([h[h[:, 0] > -1e9]]) if len(h) > 2 else h)
    model = nn.Sequential(nn.BatchNorm1d(3), odd, nn.Linear(3, 1)).double().eval()
    x = torch.randn(40, 3, dtype=torch.float64)
    posterior = bn.MCBN(batch_size=8, states=6).fit(model, x)
    engine = bn.MonteCarlo(6, chunk=4, block_bytes=3 * 8 * 15)  # 15 rows at a time
    with pytest.warns(bn.BayesNormWarning, match="Sequential cannot be vectorised") as said:
        outputs = engine.outputs(posterior, x)
    assert len(said) == 1
    torch.testing.assert_close(outputs, reference(model, posterior.sample(6), x))
    torch.testing.assert_close(engine.outputs(posterior, x), outputs, rtol=0, atol=0)
