"""Joint batch statistics: biased variances, dropout off, all layers from one pass."""

import copy

import pytest
import torch
from torch import nn

from bayesnorm.errors import NetworkError
from bayesnorm.network import collect_moments, collect_statistics, mini_batches

from ..apply import Apply


def net():
    return nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2), nn.BatchNorm1d(2)
    ).double()


X = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def by_hand(model, batch):
    h = model[0](batch)
    first = h.mean(0), h.var(0, correction=0)
    bn = model[1]
    normal = bn.weight * (h - first[0]) / torch.sqrt(first[1] + bn.eps) + bn.bias
    h = model[4](torch.tanh(normal))
    return torch.cat([first[0], h.mean(0)]), torch.cat([first[1], h.var(0, correction=0)])


def test_statistics_are_those_of_one_training_pass_without_dropout():
    model = net()
    model[1].weight.data.normal_()
    model[1].running_mean.fill_(5.0)  # must not matter: the batch normalises
    statistics = collect_statistics(model, mini_batches(X, 8, 5, seed=0))
    assert [(layer.name, layer.channels, layer.eps) for layer in statistics.layers] == [("1", 4, 1e-5), ("5", 2, 1e-5)]
    for batch, mean, var in zip(mini_batches(X, 8, 5, seed=0), statistics.mean, statistics.var, strict=True):
        expected_mean, expected_var = by_hand(model, batch)
        torch.testing.assert_close(mean, expected_mean.detach())
        torch.testing.assert_close(var, expected_var.detach())
    torch.testing.assert_close(statistics.running_mean, torch.cat([model[1].running_mean, model[5].running_mean]))
    assert (statistics.batch_size, statistics.rows) == (8, 50)


def test_half_precision_statistics_are_taken_in_single_precision():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)).to(torch.bfloat16)
    statistics = collect_statistics(model, mini_batches(X, 8, 3, 0))
    assert statistics.mean.dtype == statistics.var.dtype == statistics.running_var.dtype == torch.float32


def test_a_layer_called_by_keyword():
    class ByKeyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.bn(input=x)

    statistics = collect_statistics(ByKeyword().double(), mini_batches(X, 8, 2, 0))
    batch = next(iter(mini_batches(X, 8, 2, 0)))
    torch.testing.assert_close(statistics.mean[0], batch.mean(0))


def test_a_layer_that_runs_for_some_batches_only():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn, self.rare, self.runs = nn.BatchNorm1d(3), nn.BatchNorm1d(3), []

        def forward(self, x):
            self.runs.append(1)
            h = self.bn(x)
            return self.rare(h) if len(self.runs) < 3 else h

    with pytest.raises(NetworkError, match=r"model: batch-norm layer 'rare' runs for some batches"):
        collect_statistics(Sometimes().double(), mini_batches(X, 8, 6, 0))


# `view` refuses images laid out channels-last.
@pytest.mark.parametrize("flatten", [Apply(lambda h: h.view(len(h), 100)), nn.Flatten()])
def test_whatever_the_layout_of_images_statistics_are_those_of_training(flatten):
    body = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), flatten, nn.BatchNorm1d(100)
    model, x = nn.Sequential(*body, nn.Linear(100, 1)).double().eval(), torch.randn(40, 2, 5, 5, dtype=torch.float64)
    batches = mini_batches(x, 8, 5, seed=0)
    statistics = collect_statistics(model, batches)
    trained = copy.deepcopy(model).train()
    first, second = trained[1], trained[4]
    first.momentum = second.momentum = 1.0
    for batch, mean, var in zip(batches, statistics.mean, statistics.var, strict=True):
        trained(batch)
        pixels = 8 * 25
        expected = [first.running_var * (pixels - 1) / pixels, second.running_var * 7 / 8]
        torch.testing.assert_close(mean, torch.cat([first.running_mean, second.running_mean]))
        torch.testing.assert_close(var, torch.cat(expected))


class Steps(nn.Module):
    """Normalises every step of a sequence as if it were a row."""

    def __init__(self):
        super().__init__()
        self.first, self.bn, self.head = nn.BatchNorm1d(3), nn.BatchNorm1d(3), nn.Linear(3, 1)

    def forward(self, x):
        steps = self.bn(x.transpose(1, 2).reshape(-1, 3)).view(len(x), -1, 3)
        return self.head(self.first(steps.mean(1)))


def test_a_layer_whose_input_does_not_hold_rows_has_batch_statistics_but_no_moments_of_rows():
    model, x = Steps().eval(), torch.randn(40, 3, 6)
    batches = mini_batches(x, 8, 5, seed=0)
    assert collect_statistics(model, batches).mean.shape == (5, 6)
    with pytest.raises(NetworkError, match=r"'bn' gets 48 entries for 8 examples.*GaussianBN\(rank=\.\.\.\)"):
        collect_moments(model, batches)
    assert collect_moments(model, batches, ["first"]).mean_std.shape == (3,)
