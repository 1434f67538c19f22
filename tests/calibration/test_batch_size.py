"""The ELBO over batch sizes: against sums by hand, and where its maximum lies."""

import itertools
import math

import pytest
import torch

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.theory import GaussianPrior, kl_divergence, unit_gaussians, weight_decay_prior
from experiments.networks import paper_mlp

SIZES = (2, 8, 32, 128, 512)


def fitted(task, **options):
    method = bn.MCBN(batch_size=8, states=32, **options)
    return method.fit(task.model, (task.x, task.y), task.likelihood)


def choose(source, task, **options):
    return bn.select_batch_size(source, (task.x, task.y), **({"batch_sizes": SIZES, "samples": 16} | options))


def test_both_terms_by_hand(task, snapshot):
    task = task.to(torch.float64)
    before = snapshot(task.model)
    posterior = fitted(task)
    choice = choose(posterior, task, weight_decay=1e-3)
    assert snapshot(task.model) == before
    row = choice.rows[1]
    f = bn.MonteCarlo(16).outputs(posterior, task.x)
    log_probs = torch.stack([task.likelihood.predictive(draw[None]).log_prob(task.y) for draw in f])
    fit = log_probs.flatten(2).sum(2).mean(0).sum() if log_probs.dim() > 2 else log_probs.mean(0).sum()
    assert row.batch_size == 8
    assert row.log_likelihood == pytest.approx(fit.item(), rel=1e-9)
    precision = getattr(task.likelihood, "precision", 1.0)
    tau = sum(precision) / len(precision) if isinstance(precision, tuple) else precision
    q = unit_gaussians(task.model, task.x, 8)
    kl = kl_divergence(q, weight_decay_prior(len(task.x), tau, 1e-3 / 2)).sum().item()
    assert row.kl == pytest.approx(kl, rel=1e-9)
    assert row.elbo == row.log_likelihood - row.kl


def test_the_divergence_grows_by_the_logarithm_of_the_size_per_unit(regression):
    """Flat prior on means, wide on standard deviations: each of both gives ln(M'/M) / 2."""
    wide = GaussianPrior(0.0, None, 0.0, 1e6)
    rows = choose(fitted(regression), regression, prior=wide).rows
    units = 8 + 6
    for first, second in itertools.pairwise(rows):
        grown = second.kl - first.kl
        assert grown == pytest.approx(units * math.log(second.batch_size / first.batch_size), rel=1e-6)


def test_the_maximum_balances_fit_and_divergence(regression):
    """Many rows want a good fit (large M), few want a q near the prior (small M)."""
    posterior = fitted(regression)
    few, many = (choose(posterior, regression, train_rows=rows) for rows in (1, 10**9))
    assert few.batch_size == min(SIZES)
    assert many.batch_size == max(SIZES)
    middle = choose(posterior, regression, train_rows=100)
    assert middle.posterior.batch_size == middle.batch_size
    assert middle.posterior.likelihood == posterior.likelihood


def test_real_sizes_through_a_callable(classification):
    task = classification

    def real(size):
        return bn.MCBN(size, states=32).fit(task.model, task.x, task.likelihood)

    choice = choose(real, task, batch_sizes=(4, 8, 16), validation=(task.new_x, task.new_y))
    effective = choose(real(8), task, batch_sizes=(4, 8, 16), validation=(task.new_x, task.new_y))
    assert choice.rows[1] == effective.rows[1]
    assert choice.rows[0] != effective.rows[0]
    assert [row.uncertainty for row in choice.rows] == sorted((row.uncertainty for row in choice.rows), reverse=True)
    assert all(row.validation is not None for row in choice.rows)


def test_the_table(regression):
    choice = choose(fitted(regression), regression, validation=(regression.new_x, regression.new_y))
    text = str(choice)
    assert len(text.splitlines()) == 1 + len(SIZES)
    assert text.count("<- chosen") == 1
    assert "validation" in text


def test_bad_data(regression):
    posterior = fitted(regression)
    with pytest.raises(bn.BayesNormError, match=r"data has no targets .* Pass y"):
        bn.select_batch_size(posterior, regression.x)
    with pytest.raises(bn.BayesNormError, match=r"data must be .* got tuple"):
        bn.select_batch_size(posterior, (regression.x, regression.y[:-1]))
    with pytest.raises(bn.BayesNormError, match="source returned a int"):
        choose(lambda size: size, regression)


def test_a_source_that_is_no_batch_norm_posterior(regression):
    for posterior in (bn.deterministic(regression.model, regression.likelihood), 3, None):
        with pytest.raises(
            bn.BayesNormError, match=rf"source must be a posterior over.* got {type(posterior).__name__}"
        ):
            choose(posterior, regression)


def test_a_callable_is_asked_for_whole_sizes(regression):
    with pytest.raises(bn.BayesNormError, match=r"batch_sizes must be whole numbers .* got 8.5"):
        choose(lambda size: fitted(regression), regression, batch_sizes=(4, 8.5))


def test_arrays_frames_and_lists(regression):
    pd = pytest.importorskip("pandas")
    posterior, y = fitted(regression), regression.y
    expected = choose(posterior, regression, batch_sizes=(4, 8)).rows
    frames = pd.DataFrame(regression.x.numpy(), index=range(len(y), 0, -1)), pd.DataFrame(y.numpy())
    for data in ((regression.x.numpy(), y.numpy()), frames, [regression.x.tolist(), y.tolist()]):
        result = bn.select_batch_size(posterior, data, batch_sizes=(4, 8), samples=16, validation=data).rows
        assert [row.elbo for row in result] == pytest.approx([row.elbo for row in expected], rel=1e-6)
        assert result[0].validation is not None
    batches = [(regression.x[rows], y[rows]) for rows in (slice(0, 20), slice(20, 40), slice(40, None))]
    of_batches = bn.select_batch_size(posterior, batches, batch_sizes=(4, 8), samples=16).rows
    assert [row.elbo for row in of_batches] == pytest.approx([row.elbo for row in expected], rel=1e-6)
    for targets in (iter(y), dict(enumerate(y)), 3.0):
        with pytest.raises(bn.BayesNormError, match=r"^(y|data)"):
            bn.select_batch_size(posterior, (regression.x, targets), batch_sizes=(4, 8))


def test_several_tasks_have_a_bound_and_no_common_uncertainty():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator)
    y = torch.cat([x[:, :1], torch.randint(3, (60, 1), generator=generator)], dim=1)
    likelihood = bn.MultiTask({"depth": bn.Gaussian(), "label": (bn.Categorical(), 3)})
    posterior = bn.MCBN(8, states=16).fit(paper_mlp(3, 4, (6,), eps=1e-5), x, likelihood)
    choice = bn.select_batch_size(posterior, (x, y), batch_sizes=(4, 8), samples=16, validation=(x, y))
    f = bn.MonteCarlo(16).outputs(posterior, x)
    log_probs = torch.stack([likelihood.predictive(draw[None]).log_prob(y) for draw in f])
    assert choice.rows[1].log_likelihood == pytest.approx(float(log_probs.sum(2).mean(0).sum()), rel=1e-5)
    assert math.isnan(choice.rows[1].uncertainty)
    assert "nan" in str(choice)


def test_a_network_that_is_retrained_in_place_has_new_moments(regression):
    """The divergence of every size is that of the network as it then is."""
    x, model = regression.x, regression.model

    def retrained(size):
        with torch.no_grad():
            model[0].weight.mul_(2)
        posterior = bn.MCBN(batch_size=8, states=8).fit(model, x, regression.likelihood).at_batch_size(size)
        expected.append(kl_divergence(unit_gaussians(model, x, 8).at_batch_size(size), prior).sum().item())
        return posterior

    expected, prior = [], GaussianPrior(0.0, None, 0.0, 1.0)
    choice = choose(retrained, regression, batch_sizes=(8, 16, 32), prior=prior)
    assert [row.kl for row in choice.rows] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ((torch.ones(2, 3), torch.ones(2, 1)), "data has 2 rows, but at least 3 are needed"),
        ((torch.full((9, 3), torch.nan), torch.ones(9, 1)), "data has 27 NaN"),
        ((torch.ones(9, 2), torch.ones(9, 1)), "data: the network's forward failed"),
    ],
)
def test_data_that_cannot_be_used_is_told_by_its_name(regression, data, match):
    with pytest.raises(InputError, match=f"^{match}"):
        bn.select_batch_size(fitted(regression), data, samples=4)
