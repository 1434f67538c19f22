"""Noise as a parameter beside the network's: what it converges to, and the fixed likelihood it gives."""

import copy

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.training import train

ROWS = 1000


def data(outputs=1):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 2, generator=generator)
    noise = torch.randn(ROWS, outputs, generator=generator) * torch.tensor([0.2, 2.0])[:outputs]
    return x, x[:, :1] + noise


def learn(likelihood, x, y, outputs=1, **options):
    torch.manual_seed(0)
    model, noise = nn.Linear(2, outputs), bn.LearnedNoise(likelihood)
    parameters = [*model.parameters(), *noise.parameters()]
    settings = {"epochs": 60, "batch_size": 100, "learning_rate": 2e-2, **options}
    train(model, x, y, loss=noise, parameters=parameters, **settings)
    return model, noise


def test_a_variance_becomes_the_mean_squared_error():
    x, y = data()
    model, noise = learn(bn.Gaussian(0.1), x, y)
    likelihood = noise.likelihood()
    assert isinstance(likelihood, bn.Gaussian)
    mse = (y - model(x)).square().mean().item()
    assert 1 / likelihood.precision == pytest.approx(mse, rel=0.1)  # the last steps of Adam still move it
    torch.testing.assert_close(noise(model(x), y), likelihood.loss(model(x), y))


def test_one_per_output():
    x, y = data(2)
    model, noise = learn(bn.Gaussian((1.0, 1.0)), x, y, outputs=2)
    mse = (y - model(x)).square().mean(0).tolist()
    assert [1 / p for p in noise.likelihood().precision] == pytest.approx(mse, rel=0.1)


def test_a_scale_becomes_the_mean_absolute_error():
    x, y = data()
    model, noise = learn(bn.Laplace(1.0), x, y)
    assert noise.likelihood().scale == pytest.approx((y - model(x)).abs().mean().item(), rel=0.1)


def test_other_numbers_of_a_likelihood_stay():
    likelihood = bn.LearnedNoise(bn.StudentT(3.0, 2.0, missing=True)).likelihood()
    assert (likelihood.df, likelihood.missing) == (3.0, True)
    assert likelihood.scale == pytest.approx(2.0)
    assert bn.LearnedNoise(bn.Categorical(2.0, ignore_index=-1)).likelihood().ignore_index == -1


def test_extremes_are_finite():
    for log_noise in (-1e4, -60.0, 60.0, 1e4):
        noise = bn.LearnedNoise(bn.Gaussian())
        nn.init.constant_(noise.log_noise, log_noise)
        noise(torch.zeros(3, 1), torch.ones(3, 1)).backward()
        assert torch.isfinite(noise.log_noise.grad)
        assert noise.log_noise.grad != 0
        assert noise.likelihood().precision > 0


def test_the_best_epochs_noise_is_kept_with_the_network():
    x, y = data()
    noises = {}

    def look(epoch, model):
        noises[epoch] = copy.deepcopy(model.state_dict()), noise.log_noise.item()

    torch.manual_seed(0)
    model, noise = nn.Linear(2, 1), bn.LearnedNoise(bn.Gaussian())
    scores = iter([3.0, 1.0, 2.0])
    options = {"epochs": 3, "batch_size": 100, "learning_rate": 2e-2, "evaluate": lambda _: next(scores)}
    parameters = [*model.parameters(), *noise.parameters()]
    history = train(model, x, y, loss=noise, parameters=parameters, on_epoch=look, **options)
    assert history.epochs == 2
    assert noise.log_noise.item() == noises[2][1]


def test_a_posterior_takes_what_was_learned(regression):
    noise = bn.LearnedNoise(bn.Gaussian(4.0))
    posterior = bn.MCBN(batch_size=8).fit(regression.model, (regression.x, regression.y), noise.likelihood())
    torch.testing.assert_close(posterior.predict(regression.new_x).aleatoric, torch.full((6, 1), 0.25))


def test_what_is_no_likelihood():
    for argument in (None, 3.0, bn.Gaussian):
        with pytest.raises(bn.BayesNormError, match=r"^likelihood "):
            bn.LearnedNoise(argument)
