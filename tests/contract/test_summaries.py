"""The contract of summaries: for every method and engine they say what the full samples say."""

import pytest
import torch
from every_method import TOLERANCE, each_method, each_network, numbers

import bayesnorm as bn
from bayesnorm.predictive import ClassificationSummary, RegressionSummary

DRAWING = [bn.MonteCarlo(samples=4, chunk=3), bn.MonteCarlo(samples=3, block_bytes=1)]
ENGINES = [*DRAWING, bn.SigmaPoints(rank=2), bn.Delta()]


@each_method
def test_a_summary_of_every_method_says_what_the_samples_say(method, regression, fitted):
    compare_summaries(fitted(method, regression), regression, DRAWING)


@each_network
def test_a_summary_of_every_engine_says_what_the_samples_say(task, fitted):
    compare_summaries(fitted(bn.MCBN(batch_size=8, states=24), task, torch.float64), task, ENGINES)


def compare_summaries(posterior, task, engines):
    for engine in engines:
        samples = posterior.predict(task.new_x, engine, seed=2)
        summary = posterior.predict(task.new_x, engine, seed=2, keep="summary")
        assert_same_but_samples(summary, samples, task.new_y)


def assert_same_but_samples(summary, samples, y):
    if isinstance(samples, bn.ClassificationPredictive):
        assert isinstance(summary, ClassificationSummary)
        expected, result = numbers(samples, y), numbers(summary, y)
        assert summary.sample(3, seed=1).shape == samples.sample(3, seed=1).shape
        dimensions = (*summary.log_probs.shape, len(summary.weights))
        assert dimensions == (1, *samples.log_probs.shape[1:], 1)
    else:
        names = ("mean", "epistemic", "aleatoric", "variance", "std")
        expected, result = ({name: getattr(predictive, name) for name in names} for predictive in (samples, summary))
        expected["crps"], result["crps"] = samples.crps(y), summary.crps(y)
        if isinstance(summary, RegressionSummary):  # not the delta method's, which has no samples to keep
            with pytest.raises(bn.BayesNormError, match=r"samples are needed here.*keep=.summary"):
                summary.interval(0.9)
    for name, value in expected.items():
        if value.is_floating_point():
            torch.testing.assert_close(result[name], value, **TOLERANCE[value.dtype], msg=f"{name}")
        else:
            assert torch.equal(result[name], value), name
