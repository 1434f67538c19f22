"""The network as it is, behind the face of a posterior."""

import pytest
import torch

import bayesnorm as bn
from bayesnorm import metrics


def test_it_predicts_what_the_network_predicts(task, snapshot):
    before = snapshot(task.model)
    posterior = bn.deterministic(task.model, task.likelihood)
    predictive = posterior.predict(task.new_x)
    f = task.model(task.new_x).detach()
    expected = task.likelihood.predictive(f[None])
    assert torch.equal(predictive.mean, expected.mean)
    assert not predictive.epistemic.any()
    assert snapshot(task.model) == before


def test_any_number_of_samples_are_all_the_same(regression, reference):
    posterior = bn.deterministic(regression.model, regression.likelihood)
    outputs = bn.MonteCarlo(5).outputs(posterior, regression.new_x)
    torch.testing.assert_close(outputs, reference(posterior.network, posterior.sample(5), regression.new_x))


def test_calibrating_it_is_softmax_with_temperature(classification):
    task = classification
    logits = task.model(task.x).detach().double()
    result = bn.calibrate(bn.deterministic(task.model, bn.Categorical()), task.x, task.y).likelihood.temperature
    temperatures = torch.logspace(-1, 1, 4001, dtype=torch.float64)
    losses = [torch.nn.functional.cross_entropy(logits / t, task.y).item() for t in temperatures]
    best = temperatures[int(torch.tensor(losses).argmin())].item()
    assert result == pytest.approx(best, rel=3e-3)  # the grid's own step is .1 %, and single precision


def test_calibrating_it_is_constant_uncertainty(regression):
    """The MCBN paper's CUBN: one variance for all rows, the one with the least validation CRPS."""
    task = regression.to(torch.float64)
    posterior = bn.calibrate(bn.deterministic(task.model, bn.Gaussian()), task.new_x, task.new_y)
    mean = task.model(task.new_x).detach()
    constant = metrics.constant_variance(mean, task.new_y)
    assert 1 / posterior.likelihood.precision == pytest.approx(float(constant), rel=1e-4)
