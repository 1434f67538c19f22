"""Scores and posteriors of the regression benchmark, many networks at once: each as the library has it for one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.nets import paper_mlp
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.selection import select_batch_size
from bayesnorm.stacked import Stack, StackedRows, UnitMoments, train_stacked, unit_moments
from bayesnorm.theory import kl_divergence, unit_gaussians, weight_decay_prior
from experiments.uci import scoring
from experiments.uci.posteriors import MULTIPLES, batchnorm_draws, elbos
from experiments.uci.scoring import Drawn, Noise, best_precision, each_fold, scores

ROWS, DRAWS, SPLITS = 60, 7, 2
LENGTHS = 20, 13, 17, 20
"""Rows of the folds of two splits: the first two are one split's."""

BETWEEN = 1e-2, 1e2
EXACT = {"rtol": 1e-9, "atol": 1e-9}
"""Sums of a few hundred numbers in double precision, in another order."""


def task(dtype=torch.float64, lengths=LENGTHS):
    """Targets in units of their own, and outputs about them with errors of 2 and draws that differ by 1.5."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 2, generator=generator, dtype=dtype)
    y = 40 + 5 * torch.randn(ROWS, generator=generator, dtype=dtype)
    picked = [torch.randperm(ROWS, generator=generator)[:n] for n in lengths]
    rows = StackedRows.of(x, y, picked, standardise=True)
    count, longest = rows.table.shape
    error = 2 * torch.randn(count, longest, 1, generator=generator, dtype=dtype)
    spread = 1.5 * torch.randn(DRAWS, count, longest, 1, generator=generator, dtype=dtype)
    f = rows.targets() + (error + spread) / rows.scales.y_std[:, None]
    f[:, ~rows.mask] = 1e3  # where there is no row: whatever takes it for one is far off
    targets = [y[numbers].double() for numbers in picked]
    return rows, f, targets


def predictive(drawn, i, precision):
    """The public predictive of one network with the same draws."""
    f = drawn.f[:, i, : LENGTHS[i], None].double()
    return RegressionPredictive(f, torch.as_tensor(precision, dtype=torch.float64).rsqrt())


def one_gaussian(drawn, i, precision):
    """The Gaussian with its moments."""
    own = predictive(drawn, i, precision)
    return RegressionPredictive(own.mean[None], own.std[None])


@pytest.mark.parametrize("at_once", [scoring.AT_ONCE, 1], ids=["together", "one by one"])
def test_scores_are_the_public_ones(monkeypatch, at_once):
    monkeypatch.setattr(scoring, "AT_ONCE", at_once)
    rows, f, targets = task()
    drawn = Drawn.of(rows, f)
    assert drawn.f.shape == (DRAWS, 4, 20)
    precision = torch.tensor([3.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    found = {name: getattr(drawn, name)(precision) for name in ("crps", "pll", "coverage")}
    found |= {name: getattr(drawn, name)() for name in ("rmse", "optimal_crps", "optimal_pll")}
    assert len(found["coverage"].unique()) > 1, "some rows are outside"
    for i, y in enumerate(targets):
        own = predictive(drawn, i, precision[i])
        error = y - own.mean[:, 0]
        expected = {
            "crps": metrics.crps(own, y),
            "pll": metrics.pll(own, y),
            "coverage": metrics.coverage(one_gaussian(drawn, i, precision[i]), y, 0.95),
            "rmse": metrics.rmse(own, y),
            "optimal_crps": metrics.optimal_crps(error).mean(),
            "optimal_pll": metrics.optimal_pll(error).mean(),
        }
        for name, value in expected.items():
            torch.testing.assert_close(found[name][i], value, **EXACT, msg=f"{name} of network {i}")


def test_test_scores_and_their_normalisation():
    rows, f, targets = task()
    drawn = Drawn.of(rows, f)
    noise = Noise(
        crps=torch.tensor([0.4, 0.2]).double(),
        pll=torch.tensor([0.3, 0.6]).double(),
        constant_crps=torch.tensor([0.15, 0.25]).double(),
        constant_pll=torch.tensor([0.1, 0.35]).double(),
        cv_crps=torch.tensor([1.5, 1.25]).double(),
    )
    found = scores(drawn, noise)
    for i, y in enumerate(targets):
        split = i // 2
        by_crps = predictive(drawn, i, noise.crps[split])
        by_pll = predictive(drawn, i, noise.pll[split])
        constant, constant_own = 1 / noise.constant_crps[split], 1 / noise.constant_pll[split]
        expected = {
            "rmse": metrics.rmse(by_crps, y),
            "crps": metrics.crps(by_crps, y),
            "pll": metrics.pll(by_crps, y),
            "pll_own": metrics.pll(by_pll, y),
            "normalised_crps": metrics.normalised_crps(by_crps, y, constant),
            "normalised_pll": metrics.normalised_pll(by_crps, y, constant),
            "normalised_pll_own": metrics.normalised_pll(by_pll, y, constant_own),
            "coverage_95": metrics.coverage(one_gaussian(drawn, i, noise.crps[split]), y, 0.95),
            "precision": noise.crps[split],
            "cv_crps": noise.cv_crps[split],
        }
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name][i], value, **EXACT, msg=f"{name} of network {i}")


def test_moments_alone_give_what_needs_no_draws():
    rows, f, _ = task()
    drawn = Drawn.of(rows, f)
    moments = Drawn.of_moments(rows, f.mean(0), f.var(0, correction=0))
    noise, of_moments = (Noise.chosen(each, BETWEEN, SPLITS) for each in (drawn, moments))
    assert of_moments.pll is None
    assert of_moments.constant_pll is None
    torch.testing.assert_close(of_moments.crps, noise.crps, rtol=1e-6, atol=0)
    found, expected = scores(moments, of_moments), scores(drawn, noise)
    assert found.keys() == {name for name in expected if "pll" not in name}
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-6)


def test_single_precision_targets_are_in_their_own_units():
    rows, f, targets = task(torch.float32)
    drawn = Drawn.of(rows, f)
    assert drawn.mean.dtype == drawn.error.dtype == torch.float64
    for i, y in enumerate(targets):  # about 40, there and back: some units in the last place
        torch.testing.assert_close(drawn.y[i, : len(y)], y, rtol=4 * torch.finfo(torch.float32).eps, atol=0)


def test_no_doubt_but_noise():
    rows, f, _ = task()
    drawn = Drawn.of(rows, f)
    constant = drawn.constant()
    assert torch.equal(constant.mean, drawn.mean)
    assert not constant.var.any()
    level = torch.full((4,), 0.2).double()
    alone = torch.distributions.Normal(drawn.mean, level.rsqrt()[:, None]).log_prob(drawn.y)
    torch.testing.assert_close(constant.pll(level), rows.mean(alone), **EXACT)


def test_noise_is_the_best_of_a_fine_grid():
    rows, f, targets = task()
    drawn = Drawn.of(rows, f)
    noise = Noise.chosen(drawn, BETWEEN, SPLITS)
    grid = torch.logspace(-2, 2, 201, dtype=torch.float64)
    spacing = grid[1] / grid[0]
    kinds = {
        "crps": lambda own, y: metrics.crps(own, y),
        "pll": lambda own, y: -metrics.pll(own, y),
        "constant_crps": lambda own, y: metrics.crps(metrics.constant_uncertainty(own, own.aleatoric[0, 0]), y),
        "constant_pll": lambda own, y: -metrics.pll(metrics.constant_uncertainty(own, own.aleatoric[0, 0]), y),
    }
    for name, score in kinds.items():
        for split in range(SPLITS):
            folds = 2 * split, 2 * split + 1

            def mean_score(precision, folds=folds, score=score):
                return torch.stack([score(predictive(drawn, i, precision), targets[i]) for i in folds]).mean()

            reached = torch.stack([mean_score(precision) for precision in grid])
            best, chosen = int(reached.argmin()), getattr(noise, name)[split]
            assert 0 < best < len(grid) - 1, "the test is about a minimum inside the range"
            assert grid[best] / spacing < chosen < grid[best] * spacing
            assert mean_score(chosen) <= reached[best] + 1e-12
            if name == "crps":
                torch.testing.assert_close(noise.cv_crps[split], mean_score(chosen), **EXACT)
    assert abs(noise.crps[0] / noise.crps[1] - 1) > 0.05, "every split has its own"


@pytest.mark.parametrize(("between", "end"), [((1e-5, 1e-3), 1e-3), ((50.0, 900.0), 50.0)])
def test_noise_stays_in_its_range(between, end):
    rows, f, _ = task()
    noise = Noise.chosen(Drawn.of(rows, f), between, SPLITS)
    for name in ("crps", "pll", "constant_crps", "constant_pll"):
        torch.testing.assert_close(getattr(noise, name), torch.full((2,), end).double(), rtol=1e-6, atol=0)


def test_folds_of_a_split_share_a_precision():
    assert each_fold(torch.tensor([1.0, 2.0]), 6).tolist() == [1, 1, 1, 2, 2, 2]
    centres = torch.tensor([0.0, 2.0, -1.0, 1.0]).double()  # of parabolas in the logarithm: means at 1 and 0
    precision, reached = best_precision(
        lambda p: (each_fold(p, 4).log() - centres).square(), (0.1, 10.0), 2, torch.zeros(1)
    )
    torch.testing.assert_close(precision, torch.tensor([1.0, 0.0]).double().exp(), rtol=1e-6, atol=0)
    torch.testing.assert_close(reached, torch.ones(2).double())


M, STATES, WIDTH = 16, 1000, 12
FAR = 5.0
"""Standard errors that the largest of a few thousand numbers stays within: beyond lies one in two million."""


def trained(lengths=(80, 70), table=100):
    """Two networks in double precision, their rows, and statistics of many batches of them."""
    generator = torch.Generator().manual_seed(1)
    x = 2 * torch.randn(table, 4, generator=generator, dtype=torch.float64) + 1
    y = 3 * torch.sin(x[:, :1]) + x[:, 1:2] + 0.3 * torch.randn(table, 1, generator=generator, dtype=torch.float64)
    stack = Stack.of([paper_mlp(4, hidden=(WIDTH, WIDTH), eps=1e-3, seed=i).double() for i in range(len(lengths))])
    picked = [torch.randperm(table, generator=generator)[:n] for n in lengths]
    rows = StackedRows.of(x, y, picked, standardise=True)
    train_stacked(stack, rows, epochs=20, batch_size=M, weight_decay=1e-3, learning_rate=1e-2)
    own = [(rows.inputs()[i, :n], rows.targets()[i, :n]) for i, n in enumerate(lengths)]
    return SimpleNamespace(stack=stack, rows=rows, own=own, networks=[stack.network(i) for i in range(len(lengths))])


def one_pass(task):
    """The same moments by one pass over each network's rows."""
    found = [unit_gaussians(network, x, M) for network, (x, _) in zip(task.networks, task.own, strict=True)]
    return UnitMoments(*(torch.stack([getattr(q, name) for q in found]) for name in ("mean_var", "std_loc", "std_var")))


@pytest.fixture(scope="module")
def posteriors():
    found = trained()
    found.statistics = found.stack.batch_statistics(found.rows, M, STATES, seed=0)
    found.draws = batchnorm_draws(found.statistics, one_pass(found), seed=1)
    return found


def deviations(statistics, i):
    """Of the draws of one network from their centre, (S, 2C)."""
    centre = statistics.running if statistics.center == "running" else statistics.batch_mean
    return statistics.coordinates()[i] - centre[i]


@pytest.mark.parametrize(("name", "center"), [("MCBN", "batch"), ("MCBN centred", "running")])
def test_mcbn_is_the_librarys(posteriors, name, center):
    x = posteriors.own[0][0][:9] + 0.1
    mean, var = posteriors.stack.moments_under(posteriors.draws[name], x)
    for i, network in enumerate(posteriors.networks):
        posterior = bn.MCBN(M, states=STATES, center=center).fit(network, posteriors.own[i][0], seed=0)
        f = bn.MonteCarlo(STATES).outputs(posterior, x)
        torch.testing.assert_close(mean[i], f.mean(0), **EXACT)
        torch.testing.assert_close(var[i], f.var(0, correction=0), **EXACT)


@pytest.mark.parametrize(("name", "method"), [("StochasticBN", bn.StochasticBN), ("GaussianBN", bn.GaussianBN)])
def test_independent_draws_spread_as_the_librarys(posteriors, name, method):
    for i, network in enumerate(posteriors.networks):
        posterior = method(M, states=STATES, center="batch").fit(network, posteriors.own[i][0], seed=0)
        std = posterior.fluctuations.independent_std
        assert len(posterior.fluctuations.factor) == 0
        z = deviations(posteriors.draws[name], i) / std
        assert z.shape == (STATES, 4 * WIDTH)
        # Of S normal numbers the mean has the error 1 / sqrt(S), and the mean square sqrt(2 / S).
        assert z.mean(0).abs().max() < FAR / STATES**0.5
        assert (z.square().mean(0) - 1).abs().max() < FAR * (2 / STATES) ** 0.5
        products = (z.T @ z / STATES).fill_diagonal_(0)
        assert products.abs().max() < FAR / STATES**0.5, "coordinates are independent"


def test_moments_of_random_batches_serve_gaussian_bn_too(posteriors):
    """As in the benchmark; they differ from those of one pass by what other seeds change in either."""
    seeds = range(12)
    units = [unit_moments(posteriors.stack, posteriors.rows, M, seed=seed) for seed in seeds]
    draws = batchnorm_draws(posteriors.statistics, units[0], seed=1)["GaussianBN"]
    for i, network in enumerate(posteriors.networks):
        fits = [bn.GaussianBN(M, center="batch").fit(network, posteriors.own[i][0], seed=seed) for seed in seeds]
        variances = torch.stack([fit.fluctuations.independent_std.square() for fit in fits])
        of_batches = torch.stack([torch.cat([q.mean_var[i], q.std_var[i]]).double() for q in units])
        passes, batches = (v.var(0) / v.mean(0).square() for v in (variances, of_batches))
        ratio = deviations(draws, i).square().mean(0) / variances.mean(0)
        assert ((ratio - 1).abs() < FAR * (2 / STATES + passes / len(seeds) + batches).sqrt()).all()


def test_rank_16_draws_have_the_librarys_covariance(posteriors):
    for i, network in enumerate(posteriors.networks):
        posterior = bn.GaussianBN(M, states=STATES, center="batch", rank=16).fit(network, posteriors.own[i][0], seed=0)
        factor, independent = posterior.fluctuations.root()
        assert len(factor) == 16
        covariance = factor.T @ factor + independent.square().diag()
        variance = covariance.diagonal()
        error = ((covariance.square() + variance[:, None] * variance) / STATES).sqrt()

        def distance(name, i=i, covariance=covariance, error=error):
            draws = deviations(posteriors.draws[name], i)
            return float(((draws.T @ draws / STATES - covariance) / error).abs().max())

        assert distance("GaussianBN rank 16") < FAR
        assert distance("StochasticBN") > 4 * FAR, "draws without correlations would be noticed"


def test_elbos_differ_as_select_batch_size_has_them():
    task = trained()
    tau, decay = torch.tensor([6.0, 2.0]).double(), torch.tensor([1e-2, 1e-3])
    statistics = task.stack.batch_statistics(task.rows, M, 30, seed=0).about("batch")
    raw = tau / task.rows.scales.y_std.flatten().square()
    found = elbos(task.stack, task.rows, statistics, one_pass(task), decay, raw)
    assert found.shape == (len(MULTIPLES), 2)
    for i, network in enumerate(task.networks):
        likelihood = bn.Gaussian(float(tau[i]))
        posterior = bn.MCBN(M, states=30, center="batch").fit(network, task.own[i][0], likelihood, seed=0)
        sizes = [M * multiple for multiple in MULTIPLES]
        choice = select_batch_size(posterior, task.own[i], batch_sizes=sizes, weight_decay=float(decay[i]), samples=30)
        expected = torch.tensor([row.elbo for row in choice.rows]).double()
        torch.testing.assert_close(found[:, i] - found[3, i], expected - expected[3], rtol=1e-6, atol=1e-5)
        assert int(found[:, i].argmax()) == int(expected.argmax())


def test_elbos_of_many_rows_look_at_the_first_thousand():
    task = trained(lengths=(1100,), table=1100)
    statistics = task.stack.batch_statistics(task.rows, M, 6, seed=0).about("batch")
    units, tau, decay = one_pass(task), 3.0, 1e-2
    raw = torch.tensor([tau]) / task.rows.scales.y_std[0].square()
    found = elbos(task.stack, task.rows, statistics, units, torch.tensor([decay]), raw)[:, 0]
    x, y = (part[:1000] for part in task.own[0])
    prior = weight_decay_prior(1100, tau, decay / 2)
    q = unit_gaussians(task.networks[0], task.own[0][0], M)
    expected = []
    for multiple in MULTIPLES:
        f = task.stack.predict_under(statistics.at_batch_size(M * multiple), x)[:, 0]
        fit = torch.distributions.Normal(f, tau**-0.5).log_prob(y).mean() * 1100
        expected.append(fit - kl_divergence(q.at_batch_size(M * multiple), prior).sum())
    expected = torch.stack(expected)
    torch.testing.assert_close(found - found[3], expected - expected[3], rtol=1e-7, atol=1e-6)
