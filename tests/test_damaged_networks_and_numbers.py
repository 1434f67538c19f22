"""Networks and numbers that fits and predictions once accepted, or ended with an error of another package."""

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)


def network(eps=1e-5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, eps=eps), nn.ReLU(), nn.Linear(8, 1)).eval()


def test_arrays_of_the_other_byte_order_give_the_same_numbers():
    model, swapped = network(), X.astype(X.dtype.newbyteorder(">"))
    expected, posterior = (bn.MCBN(16, states=8).fit(model, x) for x in (X, swapped))
    assert torch.equal(posterior.predict(swapped).mean, expected.predict(X).mean)
    calibrated = [bn.calibrate(expected, x, x[:, :1], batch_size=False, samples=4) for x in (X, swapped)]
    assert calibrated[0].likelihood == calibrated[1].likelihood


def test_a_negative_running_variance():
    model = network()
    model[1].running_var[3] = -1.0
    said = r"running variance of batch-norm layer '1' is negative in 1 of 8 channels.*update_bn"
    with pytest.raises(bn.BayesNormError, match=said):
        bn.MCBN(16, states=8).fit(model, X)


def test_a_running_mean_whose_square_is_infinite():
    """A posterior of it could be saved, but not loaded."""
    model = network()
    model[1].running_mean[3] = -1e20
    with pytest.raises(bn.BayesNormError, match=r"running mean of batch-norm layer '1' is 1e\+20, but the largest"):
        bn.MCBN(16, states=8).fit(model, X)


@pytest.mark.parametrize("method", [bn.MCBN, bn.GaussianBN])
def test_constant_data_in_a_layer_without_eps(method):
    with pytest.raises(bn.BayesNormError, match=r"layer '1' has eps=0, and the inputs of 8 of its 8 channels"):
        method(16, states=8).fit(network(eps=0.0), np.ones_like(X))


def test_more_batches_than_fit_into_memory():
    with pytest.raises(bn.BayesNormError, match=r"states must be at most 1,000,000, got 1000000000000"):
        bn.MCBN(16, states=10**12)
    with pytest.raises(bn.BayesNormError, match=r"samples must be a whole number from 1 to 1000000, got 1000000000000"):
        bn.MonteCarlo(samples=10**12)


@pytest.mark.parametrize("likelihood", [bn.StudentT, bn.HeteroscedasticStudentT])
def test_degrees_of_freedom_that_overflow(likelihood):
    with pytest.raises(bn.BayesNormError, match=r"df must be a finite number from 1.1 .* to 1e\+09"):
        likelihood(df=1e300)
