"""Samples added up some at a time say what all of them say."""

import math

import pytest
import torch

import bayesnorm as bn
from bayesnorm import active, metrics
from bayesnorm.errors import InputError
from bayesnorm.predictive import (
    ClassificationPredictive,
    ClassificationSummary,
    MultiTaskPredictive,
    RegressionPredictive,
    RegressionSummary,
    RunningSummary,
    summarised,
)

CLOSE = {"rtol": 1e-10, "atol": 1e-12}
"""Double precision: some tens of additions of numbers of order 1."""


def added(likelihood, f, weights, parts=((0, 1), (1, 4), (4, 9)), rows=((0, 2), (2, 5))):
    running = RunningSummary(f.shape[1])
    for part in (slice(*ends) for ends in rows):
        for some in (slice(*ends) for ends in parts):
            running.add(part, likelihood.predictive(f[some, part], weights[some]), float(weights[some].sum()))
    return running.predictive()


def outputs(*shape):
    return torch.randn(9, 5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


WEIGHTS = torch.arange(1.0, 10, dtype=torch.float64)


def test_classes_added_up_with_weights():
    f = 30 * outputs(4, 3)
    f[:, :, 1] -= 900  # whose probability is 0 in double precision, but not its logarithm
    f[:, :, 2] = -torch.inf
    whole, result = bn.Categorical(ignore_index=-1).predictive(f, WEIGHTS), added(bn.Categorical(), f, WEIGHTS)
    assert isinstance(result, ClassificationSummary)
    for name in ("probs", "epistemic", "aleatoric", "entropy", "expected_entropy", "mutual_information", "confidence"):
        torch.testing.assert_close(getattr(result, name), getattr(whole, name), **CLOSE, msg=name)
    for label in range(4):
        y = torch.full((5, 3), label)
        torch.testing.assert_close(result.log_prob(y), whole.log_prob(y), **CLOSE)
    assert torch.equal(result.label, whole.label)
    again = summarised(whole)
    assert again.ignore_index == -1
    assert metrics.nll(again, torch.zeros(5, 3)) == pytest.approx(float(metrics.nll(whole, torch.zeros(5, 3))))
    assert metrics.mean_iou(again, torch.zeros(5, 3)) == metrics.mean_iou(whole, torch.zeros(5, 3))


def test_real_targets_added_up_with_weights():
    for likelihood in (bn.Gaussian(4.0), bn.HeteroscedasticLaplace(), bn.StudentT(df=1.5)):
        f, y = 1e3 + outputs(2), torch.full((5, likelihood.target_columns(2)), 1e3, dtype=torch.float64)
        f[:, :, 1] -= 1e3
        whole, result = likelihood.predictive(f, WEIGHTS), added(likelihood, f, WEIGHTS)
        assert isinstance(result, RegressionSummary)
        for name in ("mean", "epistemic", "aleatoric", "variance", "std"):
            torch.testing.assert_close(getattr(result, name), getattr(whole, name), rtol=1e-9, atol=1e-9, msg=name)
        assert float(metrics.rmse(result, y)) == pytest.approx(float(metrics.rmse(whole, y)))
        if torch.isfinite(whole.std).all():
            for score in (metrics.gaussian_pll, metrics.crps):
                assert float(score(result, y)) == pytest.approx(float(score(whole, y)))


def test_what_a_summary_of_real_targets_cannot_say_is_refused():
    result, y = summarised(bn.Gaussian().predictive(outputs(2))), torch.zeros(5, 2)
    asked = [
        lambda: result.log_prob(y),
        lambda: result.expected_log_prob(y),
        lambda: result.cdf(y),
        lambda: result.quantile(0.5),
        lambda: result.sample(3),
        lambda: metrics.pll(result, y),
        lambda: metrics.crps(result, y, form="mixture"),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=r'is a summary .*without keep="summary"'):
            ask()
    assert "no samples kept: mean " in repr(result)


def test_what_needs_the_samples_of_classes_is_refused():
    result = summarised(bn.Categorical().predictive(outputs(3)))
    with pytest.raises(InputError, match="is a summary without samples"):
        active.batch_bald(result, 2)
    pytest.importorskip("torchmetrics")
    uncertainty = metrics.torchmetric(lambda predictive, y: predictive.mutual_information.mean())
    with pytest.raises(InputError, match="is a summary without samples"):
        uncertainty.update(result, torch.zeros(5))


def test_tasks_are_added_up_each_by_itself():
    likelihood = bn.MultiTask({"depth": bn.HeteroscedasticGaussian(), "label": (bn.Categorical(), 3)})
    f = outputs(5)
    whole, result = likelihood.predictive(f, WEIGHTS), added(likelihood, f, WEIGHTS)
    torch.testing.assert_close(result["depth"].variance, whole["depth"].variance, **CLOSE)
    torch.testing.assert_close(result["label"].entropy, whole["label"].entropy, **CLOSE)
    y = torch.ones(5, dtype=torch.long)
    torch.testing.assert_close(result["label"].log_prob(y), whole["label"].log_prob(y), **CLOSE)


def test_single_precision_stays_close_over_many_samples():
    f = 3 * torch.randn(400, 2, 12, 30, generator=torch.Generator().manual_seed(1))
    running = RunningSummary(2)
    for draw in f:
        running.add(slice(0, 2), bn.Categorical().predictive(draw[None]), 1.0)
    result, whole = running.predictive(), bn.Categorical().predictive(f.double())
    # Each of 400 additions rounds logarithms of about ln(12) by an epsilon, and what comes later shrinks it again.
    bound = 400**0.5 * math.log(12) * torch.finfo(torch.float32).eps
    for name in ("probs", "epistemic", "mutual_information"):
        assert (getattr(result, name) - getattr(whole, name)).abs().max() < bound, name


def test_a_predictive_that_nobody_knows_has_no_summary():
    with pytest.raises(InputError, match=r"keep=.summary. supports .* a Odd"):
        summarised(type("Odd", (), {})())


def test_a_predictive_shows_itself_in_one_line():
    regression = RegressionPredictive(torch.tensor([1.0, 3.0])[:, None].expand(2, 5), torch.tensor(1.0))
    shown = "mean 2, 2, 2, ...; std 1.414, 1.414, 1.414, ...; epistemic std 1, 1, 1, ..."
    assert repr(regression) == f"RegressionPredictive((5,), 2 samples: {shown})"
    classes = ClassificationPredictive(torch.tensor([[[0.25, 0.75]], [[0.25, 0.75]]]).log())
    shown = "label 1; confidence 0.75; mutual information 0"
    assert repr(classes) == f"ClassificationPredictive((1, 2), 2 samples: {shown})"
    assert repr(MultiTaskPredictive({"depth": regression})) == f"MultiTaskPredictive(depth={regression!r})"
