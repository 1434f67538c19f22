"""Channels go in the order in which they are missed least, and the others make up for them as well as they can."""

from itertools import islice

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.compression import elimination, prune_channels
from bayesnorm.compression.elimination import Reader, eliminated, make_up


def reader_of(x, outputs, bias=True):
    layer = nn.Linear(x.shape[1], outputs, bias=bias).double()
    centred = x - x.mean(0)
    return Reader(layer, list(range(x.shape[1])), x.mean(0), centred.T @ centred / len(x), torch.rand(outputs).double())


def best_rest(reader, x, units):
    """What outputs lack at best when only these inputs are read, by least squares."""
    outputs, design = reader.layer(x).detach(), torch.cat([x[:, units], torch.ones(len(x), 1).double()], 1)
    rest = outputs - design @ torch.linalg.lstsq(design, outputs).solution
    return float((rest.square().mean(0) * reader.matters).sum())


@pytest.fixture
def rows():
    return torch.randn(400, 6).double() @ torch.randn(6, 6).double() + torch.randn(6).double()


def test_the_order_is_that_of_an_exhaustive_search(rows, monkeypatch):
    monkeypatch.setattr(elimination, "RIDGE", 1e-12)
    reader, left = reader_of(rows, 4), list(range(6))
    for unit in eliminated([reader], set(left)):
        lacks = {one: best_rest(reader, rows, [other for other in left if other != one]) for one in left}
        assert unit == min(lacks, key=lacks.__getitem__)
        left.remove(unit)
    assert len(left) == 1


def test_what_stays_makes_up_for_what_goes(rows, monkeypatch):
    monkeypatch.setattr(elimination, "RIDGE", 1e-12)
    reader = reader_of(rows, 4)
    wanted, rest = best_rest(reader, rows, [0, 2, 5]), [0, 2, 5]
    before = reader.layer(rows).detach()
    make_up([reader], {1, 3, 4})
    result = rows[:, rest] @ reader.layer.weight[:, rest].detach().T + reader.layer.bias.detach()
    assert float(((result - before).square().mean(0) * reader.matters).sum()) == pytest.approx(wanted, rel=1e-6)


def test_units_that_several_layers_read_are_missed_by_all(rows):
    few, all_of_them = reader_of(rows, 3), reader_of(rows, 3)
    with torch.no_grad():
        few.layer.weight[:, :3] = 0
        all_of_them.layer.weight[:, :2] = 0
    assert set(islice(eliminated([few, all_of_them], {0, 1, 2, 3}), 2)) == {0, 1}


@pytest.mark.filterwarnings("ignore:The smaller network gives another class")  # it is not trained
def test_many_inputs_count_one_by_one(monkeypatch):
    monkeypatch.setattr(elimination, "MOST_INPUTS", 2)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.randn(64, 3)
    model(x)
    with torch.no_grad():
        model[1].weight[3] = model[1].bias[3] = 0
    posterior = bn.MCBN(8, states=8).fit(model.eval(), x, bn.Categorical())
    small = prune_channels(posterior, x, multiply_adds=0.9).network
    assert not any(torch.equal(row, model[0].weight[3]) for row in small[0].weight)


@pytest.mark.parametrize("last", [nn.Linear(6, 3), nn.Linear(6, 3, bias=False)])
def test_a_channel_that_another_tells_goes_without_a_trace(last):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), last)
    x = torch.randn(256, 4)
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias):
            tensor[4:] = tensor[:2]
        model[1].weight[4:] *= 2
    for _ in range(50):
        model(x)
    posterior = bn.MCBN(16, states=8).fit(model.eval(), x, bn.Categorical())
    whole = prune_channels(posterior, x, multiply_adds=1.0).network
    small = prune_channels(posterior, x, multiply_adds=0.7).network
    assert small[0].out_features == 4
    torch.testing.assert_close(small(x), whole(x), rtol=0, atol=5e-3)
