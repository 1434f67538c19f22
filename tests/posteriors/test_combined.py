"""Several kinds of randomness in one posterior."""

import math

import pytest
import torch

import bayesnorm as bn

DRAWS = 4000


def parts(task, batch_size=200.0, p=0.02):
    statistics = bn.MCBN(8, states=64).fit(task.model, task.x, task.likelihood).at_batch_size(batch_size)
    return statistics, bn.MCDropout(p=p).fit(task.model, task.x, task.likelihood)


def test_variances_of_small_independent_parts_add(regression):
    task = regression.to(torch.float64)
    both = bn.combine(*parts(task))
    engine = bn.MonteCarlo(DRAWS)
    variances = [part.predict(task.new_x, engine, seed=3).epistemic for part in parts(task)]
    variance = both.predict(task.new_x, engine).epistemic
    # A variance from n samples has relative standard error sqrt((kurtosis - 1) / n); masks at p = 0.02 are rare, with
    # kurtosis about 1 / p. Interactions of the two are of second order.
    error = 4.5 * math.sqrt(50 / DRAWS)
    assert ((variance / (variances[0] + variances[1]) - 1).abs() < error).all()


def test_a_draw_overrides_both_parts(task, reference):
    task = task.to(torch.float64)
    both = bn.combine(*parts(task, batch_size=8.0, p=0.3))
    drawn = both.sample(5, seed=2)
    assert any(name.endswith("running_mean") for name in drawn)
    assert any(name.endswith("seed") for name in drawn)
    expected = reference(both.network, drawn, task.new_x)
    for vectorize in (True, False):
        outputs = bn.MonteCarlo(5, vectorize=vectorize).outputs(both, task.new_x, seed=2)
        torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-10)


def test_save_load_and_the_batch_size(regression, tmp_path):
    both = bn.combine(*parts(regression, batch_size=8.0))
    assert both.batch_size == 8
    assert both.at_batch_size(64).batch_size == 64
    larger = both.at_batch_size(64)
    assert larger.parts[1] is both.parts[1]
    assert larger.predict(regression.new_x).epistemic.mean() < both.predict(regression.new_x).epistemic.mean()
    assert both.with_likelihood(bn.Gaussian(0.1)).likelihood == bn.Gaussian(0.1)
    both.save(tmp_path / "both")
    loaded = bn.load(tmp_path / "both", regression.model)
    torch.testing.assert_close(loaded.predict(regression.new_x).variance, both.predict(regression.new_x).variance)


def test_bad_combinations(regression, classification):
    statistics, _ = parts(regression)
    with pytest.raises(bn.BayesNormError, match="two or more"):
        bn.combine(statistics)
    with pytest.raises(bn.BayesNormError, match="Two of the posteriors sample"):
        bn.combine(statistics, statistics)
    with pytest.raises(bn.BayesNormError, match="different networks"):
        bn.combine(statistics, parts(classification)[1])
