"""Calibration: never worse, true where the truth is known, and nothing else changed."""

import dataclasses
import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

import bayesnorm as bn
from bayesnorm.calibration.sampled_outputs import mean_score

from ..apply import Apply

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:(batch_size|temperature). .* scored best:bayesnorm.BayesNormWarning")

SIGMAS = 4.5
N = 2000


def noise(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def regressor(outputs=1):
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, outputs)).double()
    return bn.MCBN(batch_size=16, states=64).fit(model.eval(), noise(200, 3, seed=0), bn.Gaussian())


def sure(posterior):
    """Next to no epistemic uncertainty, so that noise is all there is."""
    return posterior.at_batch_size(1e12)


def calibrated_noise(posterior, x, y, **options):
    precision = bn.calibrate(posterior, x, y, batch_size=False, **options).likelihood.precision
    return 1 / torch.tensor(precision, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:Temperature scaling alone:bayesnorm.BayesNormWarning")
@pytest.mark.parametrize(  # too much noise and uncertainty to start with (seed 0), and too little (seed 3)
    ("name", "seed"), [("regression", 0), ("multi_output", 3), ("classification", 3), ("per_pixel", 0)]
)
def test_never_worse_on_the_same_data(make_task, name, seed):
    task = make_task(name)
    likelihood = bn.Gaussian(10.0 ** (seed - 1)) if task.regression else bn.Categorical(2.0 ** (seed - 1))
    start = bn.MCBN(batch_size=8, states=24).fit(task.model, task.x, likelihood, seed=seed).at_batch_size(4.0**seed)
    for score in ("crps", "pll") if task.regression else ("nll",):
        options = {"score": score, "samples": 12, "seed": seed}
        before = mean_score(start, task.new_x, task.new_y, **options)
        for flags in ({}, {"batch_size": False}, {"noise": False}, {"batch_size": False, "noise": False}):
            calibrated = bn.calibrate(start, task.new_x, task.new_y, **options, **flags)
            assert mean_score(calibrated, task.new_x, task.new_y, **options) <= before


def test_the_best_log_density_is_at_the_mean_squared_error():
    """Without epistemic uncertainty the density of N(f, s^2) is highest at s^2 = mse, in closed form."""
    posterior, x = sure(regressor()), noise(N, 3, seed=1)
    y = posterior.executable.point(x) + 0.3 * noise(N, 1, seed=2)
    value = calibrated_noise(posterior, x, y, score="pll").item()
    mse = (y - posterior.executable.point(x)).square().mean().item()
    assert value == pytest.approx(mse, rel=1e-6)
    # The mean of N squares of normal numbers has relative standard error sqrt(2 / N).
    assert abs(value / 0.09 - 1) < SIGMAS * math.sqrt(2 / N)


def test_the_best_crps_is_scipys_and_near_the_truth():
    posterior, x = sure(regressor()), noise(N, 3, seed=1)
    y = posterior.executable.point(x) + 0.3 * noise(N, 1, seed=2)
    value = calibrated_noise(posterior, x, y).item()
    f = bn.MonteCarlo(64).outputs(posterior, x)
    exact = minimize_scalar(
        lambda u: bn.Gaussian(math.exp(-u)).predictive(f).crps(y).mean().item(),
        bounds=(-6, 2),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert math.log(value) == pytest.approx(exact.x, abs=1e-4)
    # d CRPS / d sigma = 2 phi(z) - 1/sqrt(pi), with mean square (2/sqrt(3) - 1)/pi = .0493 and mean slope
    # 1/(2 sqrt(pi)) = .2821 at the truth, so sigma has relative variance .0493 / .2821^2 / N = .619 / N, and sigma^2
    # four times that.
    assert abs(value / 0.09 - 1) < SIGMAS * math.sqrt(4 * 0.619 / N)


@pytest.mark.parametrize("score", ["crps", "pll"])
def test_every_output_has_a_precision_of_its_own(score):
    posterior, x = sure(regressor(3)), noise(N, 3, seed=1)
    truth = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)
    y = posterior.executable.point(x) + truth * noise(N, 3, seed=2)
    result = calibrated_noise(posterior, x, y, score=score)
    assert result.shape == (3,)
    assert ((result / truth.square() - 1).abs() < SIGMAS * math.sqrt(4 * 0.619 / N)).all()
    one_by_one = [calibrated_noise(_only(posterior, k), x, y[:, k : k + 1], score=score).item() for k in range(3)]
    torch.testing.assert_close(result, torch.tensor(one_by_one, dtype=torch.float64), rtol=1e-4, atol=0)


def test_missing_targets_do_not_count_where_every_output_has_a_precision():
    """Scores of what is chosen and of what stands are means over the same targets, of whatever sign."""
    posterior, x = sure(regressor(2)), noise(N, 3, seed=1)
    truth = torch.tensor([0.01, 0.02], dtype=torch.float64)
    y = posterior.executable.point(x) + truth * noise(N, 2, seed=2)
    y[::2, 0] = math.nan
    y[::3, 1] = math.nan
    start = posterior.with_likelihood(bn.Gaussian((5000.0, 5000.0), missing=True))
    mse = (y - posterior.executable.point(x)).square().nanmean(0)
    result = calibrated_noise(start, x, y, score="pll")
    torch.testing.assert_close(result, mse, rtol=1e-4, atol=0)
    assert mean_score(start, x, y, "pll") < 0


@pytest.mark.parametrize(("score", "axis"), [("crps", 1), ("pll", -1)])
def test_channels_of_maps_keep_precisions_of_their_own(score, axis):
    """One number stays one for all channels; several are calibrated each by its own channel."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 2, 1)).double().eval()
    model = model if axis == 1 else nn.Sequential(model, Apply(lambda f: f.movedim(1, -1)))
    posterior = sure(bn.MCBN(batch_size=16, states=16).fit(model, noise(64, 3, 2, 5, seed=0), bn.Gaussian(axis=axis)))
    x, truth = noise(200, 3, 2, 5, seed=1), torch.tensor([0.1, 5.0], dtype=torch.float64)
    spread = truth.view(2, 1, 1) if axis == 1 else truth
    f = posterior.executable.point(x)
    y = f + spread * noise(*f.shape, seed=2)
    assert calibrated_noise(posterior, x, y, score=score).shape == ()
    start = posterior.with_likelihood(bn.Gaussian((1.0, 1.0), axis=axis))
    result = calibrated_noise(start, x, y, score=score)
    assert result.shape == (2,)
    assert ((result / truth.square() - 1).abs() < SIGMAS * math.sqrt(4 * 0.619 / 2000)).all()


def _only(posterior, k):
    """The same posterior for a network with only the k-th output."""
    model = nn.Sequential(*posterior.model[:3], nn.Linear(6, 1).double())
    model[3].weight, model[3].bias = (
        nn.Parameter(part.detach()[k : k + 1]) for part in (posterior.model[3].weight, posterior.model[3].bias)
    )
    fresh = bn.MCBN(batch_size=16, states=64).fit(model.eval(), noise(200, 3, seed=0), bn.Gaussian())
    return sure(fresh)


def test_the_temperature_is_scipys(classification):
    posterior = bn.MCBN(batch_size=8, states=24).fit(classification.model, classification.x, bn.Categorical())
    x, y = classification.x, classification.y
    result = bn.calibrate(posterior, x, y, batch_size=False, samples=24).likelihood.temperature
    f = bn.MonteCarlo(24).outputs(posterior, x)
    exact = minimize_scalar(
        lambda u: -bn.Categorical(math.exp(u)).predictive(f.double()).log_prob(y).mean().item(),
        bounds=(-3, 3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    # The score is in single precision, 1e-7 relative, so that near its flat minimum the place is known to about 3e-4.
    assert math.log(result) == pytest.approx(exact.x, abs=3e-3)
    assert abs(math.log(result)) > 0.05, "there was something to find"


@pytest.mark.parametrize("truth", [4, 64])
def test_the_batch_size_is_found_where_the_truth_is_known(truth):
    """Every target comes from a draw of its own of the posterior at M' = truth, with little noise."""
    posterior, n = regressor().with_likelihood(bn.Gaussian(1e8)), 800
    x = noise(n, 3, seed=1)
    true = posterior.at_batch_size(truth)
    f = torch.cat([bn.MonteCarlo(64).outputs(true, x[k : k + 64], seed=k) for k in range(0, n, 64)], 1)
    row = torch.arange(n)
    y = f[row % 64, row]
    result = bn.calibrate(posterior, x, y, noise=False).batch_size
    # The variance scales as 1 / M', and its relative standard error from n targets is about sqrt(2 / n) = 5 %: less
    # than the search's last step of sqrt(2). Neighbouring steps are as good as the right one where it lies between two.
    assert abs(math.log2(result / truth)) <= 0.5 + 1e-9


def test_noise_and_batch_size_can_be_left_alone():
    posterior, x = regressor(), noise(50, 3, seed=1)
    y = posterior.executable.point(x) + 0.3 * noise(50, 1, seed=2)
    only_noise = bn.calibrate(posterior, x, y, batch_size=False)
    assert only_noise.batch_size == posterior.batch_size
    assert only_noise.likelihood != posterior.likelihood
    only_size = bn.calibrate(posterior, x, y, noise=False)
    assert only_size.likelihood == posterior.likelihood
    neither = bn.calibrate(posterior, x, y, noise=False, batch_size=False)
    assert (neither.batch_size, neither.likelihood) == (posterior.batch_size, posterior.likelihood)
    assert (posterior.batch_size, posterior.likelihood) == (16, bn.Gaussian()), "the one it started from is unchanged"
    for field in dataclasses.fields(posterior):
        if field.name not in ("batch_size", "likelihood"):
            assert getattr(only_noise, field.name) is getattr(posterior, field.name)


def test_same_seed_same_choice_and_no_global_numbers():
    posterior, x = regressor(), noise(50, 3, seed=1)
    y = posterior.executable.point(x) + 0.3 * noise(50, 1, seed=2)
    before = torch.get_rng_state()
    sizes = [8, 32]
    first, again, other = (bn.calibrate(posterior, x, y, batch_size=sizes, samples=8, seed=seed) for seed in (0, 0, 5))
    assert torch.equal(torch.get_rng_state(), before)
    assert (first.batch_size, first.likelihood) == (again.batch_size, again.likelihood)
    assert other.likelihood != first.likelihood


def fold(posterior, seed, rows=300, scale=0.3):
    x = noise(rows, 3, seed=seed)
    return posterior, x, posterior.executable.point(x) + scale * noise(rows, 1, seed=seed + 100)


@pytest.mark.parametrize("score", ["crps", "pll"])
def test_folds_are_one_validation_set(score):
    """The same network in every fold: choosing over folds is choosing over all their rows."""
    posterior = sure(regressor())
    folds = [fold(posterior, seed, rows) for seed, rows in enumerate((200, 300, 250))]
    x, y = torch.cat([f[1] for f in folds]), torch.cat([f[2] for f in folds])
    together = bn.calibrate(posterior, x, y, score=score, batch_size=False)
    calibrated = bn.calibrate(posterior, folds=folds, score=score, batch_size=False)
    # The searches begin at other ends, and each stops within 1e-4 of the best.
    assert calibrated.likelihood.precision == pytest.approx(together.likelihood.precision, rel=1e-4)


def test_folds_choose_the_batch_size_of_another_posterior():
    """Fold networks choose; the posterior of the network that is kept gets the choice."""
    final = regressor()
    folds = []
    for seed in range(3):
        posterior, x = regressor(), noise(200, 3, seed=seed)
        wide = posterior.at_batch_size(2.0)
        rows = torch.arange(200)
        drawn = bn.MonteCarlo(200).outputs(wide, x, seed=40 + seed)[rows, rows]  # each target another batch of two
        folds.append((posterior, x, drawn + 0.01 * noise(200, 1, seed=seed + 9)))
    calibrated = bn.calibrate(final, folds=folds)
    assert calibrated.model is final.model
    assert calibrated.batch_size < 16
    scores = [
        mean_score(p.at_batch_size(calibrated.batch_size).with_likelihood(calibrated.likelihood), x, y)
        for p, x, y in folds
    ]
    start = [mean_score(p.at_batch_size(final.batch_size).with_likelihood(final.likelihood), x, y) for p, x, y in folds]
    assert sum(scores) <= sum(start)


def test_bad_validation_data():
    for argument, message in (
        ({}, "calibrate needs validation data exactly once"),
        ({"x": torch.zeros(3, 3)}, "x has no targets .* Pass y"),
        ({"x": torch.zeros(3, 3), "y": torch.zeros(3), "folds": [1]}, "calibrate needs validation data exactly once"),
        ({"folds": []}, "folds is empty"),
        ({"folds": 3}, r"folds must be \[\(posterior, x, y\), ...\], got int"),
        ({"folds": [(torch.zeros(3, 3), torch.zeros(3))]}, r"folds\[0\] must be \(posterior, x, y\), got tuple"),
    ):
        with pytest.raises(bn.BayesNormError, match=message):
            bn.calibrate(regressor(), **argument)


def test_another_kind_of_posterior_is_refused():
    posterior, x, y = fold(regressor(), 0)
    for argument in (posterior.model, None):
        with pytest.raises(
            bn.BayesNormError, match=rf"posterior must be .*deterministic\(model.* got {type(argument).__name__}"
        ):
            bn.calibrate(argument, x, y)
    point = bn.deterministic(posterior.model, bn.Gaussian())
    with pytest.raises(bn.BayesNormError, match="another kind of posterior"):
        bn.calibrate(posterior, folds=[(point, x, y)])


def test_the_mean_score_is_that_of_the_targets_that_are_there(classification):
    """Missing ones count for nothing, not as perfect predictions."""
    posterior, x, y = fold(regressor(), 0)
    posterior = posterior.with_likelihood(bn.Gaussian(missing=True))
    some = y.clone()
    some[::3] = math.nan
    there = ~some.flatten().isnan()
    for score in ("crps", "pll"):
        assert mean_score(posterior, x, some, score) == pytest.approx(mean_score(posterior, x[there], y[there], score))
    with pytest.raises(bn.BayesNormError, match="y has no target to score: all are missing"):
        mean_score(posterior, x, torch.full_like(y, math.nan))
    task = classification
    classes = bn.MCBN(8, states=8).fit(task.model, task.x, bn.Categorical(ignore_index=-1))
    labels = task.y.clone()
    labels[::2] = -1
    assert mean_score(classes, task.x, labels) == pytest.approx(
        mean_score(classes, task.x[1::2], task.y[1::2]), rel=1e-5
    )


@pytest.mark.filterwarnings("error")
def test_a_batch_size_at_the_end_of_its_range_warns():
    """Outputs that nothing moves but batch statistics: targets on the mean want none of it, far ones all of it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(64, 2)
    model.train()(x)
    posterior = bn.MCBN(8).fit(model.eval(), x, bn.Gaussian(precision=1e8), seed=0)
    mean = model(x).detach()
    spread = posterior.at_batch_size(1).predict(x).epistemic.sqrt().max()
    with pytest.warns(bn.BayesNormWarning, match="batch size 4096, the largest candidate, scored best"):
        calm = bn.calibrate(posterior, x, mean, noise=False)
    assert "batch_size=4096.0" in repr(calm)  # where it can be read
    signs = torch.sign(torch.randn(64, 1))
    with pytest.warns(bn.BayesNormWarning, match="batch size 1, the smallest candidate, scored best"):
        bn.calibrate(posterior, x, mean + 3 * spread * signs, noise=False)
    # Sizes that somebody names are theirs to answer for, and folds are many networks.
    bn.calibrate(posterior, x, mean, noise=False, batch_size=[1, 4096])
    bn.calibrate(posterior, folds=[(posterior, x, mean)], noise=False)
