"""Learned dropout rates against the published objective, a closed form and the behaviour that the paper describes."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import bayesnorm as bn
from bayesnorm.training import dropout_rates, learn_dropout_rates


def network(inputs=6, rate=0.1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 30), nn.ReLU(), nn.Dropout(rate), nn.Linear(30, 1))


def rows(n, noise=0.3):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 6, generator=generator)
    return x, x[:, :1] * x[:, 1:2] + x[:, 2:3].sin() + noise * torch.randn(n, 1, generator=generator)


def gaussian_loss(f, y):
    return mse_loss(f, y) / (2 * 0.3**2)


def test_without_data_the_rate_is_that_of_the_closed_form():
    """With a loss of 0 and a fixed weight matrix, the divergence alone chooses the rate."""
    model = network(rate=0.3)
    for parameter in model.parameters():
        parameter.requires_grad_(False).mul_(6)  # weights large enough to matter
    squared = float(model[3].weight.square().sum())
    x, y = rows(4)
    learn_dropout_rates(model, x, y, loss=lambda f, _: 0 * f.sum(), epochs=800, batch_size=4, learning_rate=0.02)
    p = torch.linspace(0.001, 0.999, 9_999, dtype=torch.float64)
    entropy = -p * p.log() - (1 - p) * (1 - p).log()
    best = float(p[(squared / (2 * (1 - p)) - 30 * entropy).argmin()])
    assert model[2].p == pytest.approx(best, abs=0.01)


def test_rates_fall_with_more_rows():
    rates = []
    for n in (50, 2_000):
        model = network()
        learn_dropout_rates(model, *rows(n), loss=gaussian_loss, epochs=40_000 // n, batch_size=50, learning_rate=0.01)
        rates.append(model[2].p)
    assert rates[1] < 0.5 * rates[0]


def test_the_network_is_a_plain_one_again_also_after_an_error():
    model, (x, y) = network(), rows(40)
    keys = list(model.state_dict())
    learn_dropout_rates(model, x, y, loss=gaussian_loss, epochs=2, batch_size=20)
    assert list(model.state_dict()) == keys
    assert type(model[2]) is nn.Dropout
    assert "forward" not in vars(model[2])
    posterior = bn.MCDropout().fit(model, x, bn.Gaussian(precision=0.3**-2))
    assert posterior.rates == {"2": model[2].p}

    def fails(f, _):
        raise KeyError("a fault of the loss")

    with pytest.raises(KeyError):
        learn_dropout_rates(model, x, y, loss=fails, epochs=1, batch_size=20)
    assert list(model.state_dict()) == keys
    assert "forward" not in vars(model[2])


def test_same_seed_same_rates_and_dropout_of_every_kind():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(4, 4, 3), nn.Flatten())
    model = bn.add_dropout(nn.Sequential(body, nn.Linear(64, 1)), 0.1)
    x, y = torch.randn(20, 1, 8, 8), torch.randn(20, 1)
    results = []
    for _ in range(2):
        copied = copy.deepcopy(model)
        learn_dropout_rates(copied, x, y, loss=mse_loss, epochs=3, batch_size=10, seed=3, learning_rate=0.1)
        results.append([module.p for module in copied.modules() if isinstance(module, nn.modules.dropout._DropoutNd)])
    assert results[0] == results[1]
    assert len(results[0]) == 2
    assert all(rate not in (0.1, 0.2) for rate in results[0])


def test_relaxed_masks_keep_the_mean_and_share_channels():
    layer = nn.Dropout2d(0.3)
    layer.logit = nn.Parameter(torch.tensor(math.log(0.3 / 0.7)))
    torch.manual_seed(0)
    retained = dropout_rates._relaxed_dropout(layer, torch.ones(4_000, 5, 2, 2)).detach()
    assert float(retained.var((2, 3)).max()) < 1e-8  # one unit of the mask per channel
    # The relaxation moves the mean by little; the standard error of the mean is 0.005.
    assert float(retained.mean()) == pytest.approx(1, abs=0.03)
    assert float((retained < 0.5).double().mean()) == pytest.approx(0.3, abs=0.03)


def test_what_cannot_be_learned_is_refused():
    x, y = rows(10)
    with pytest.raises(bn.BayesNormError, match=r"no dropout layer in front of .* Add some with bn\.add_dropout"):
        learn_dropout_rates(nn.Sequential(nn.Linear(6, 1), nn.Dropout()), x, y, loss=mse_loss, epochs=1, batch_size=5)
    with pytest.raises(bn.BayesNormError, match=r"compiled: .* Leave compiled= out"):
        learn_dropout_rates(network(), x, y, loss=mse_loss, epochs=1, batch_size=5, compiled=True)
    with pytest.raises(bn.BayesNormError, match=r"prior must be a positive number, got 0"):
        learn_dropout_rates(network(), x, y, loss=mse_loss, epochs=1, batch_size=5, prior=0)
