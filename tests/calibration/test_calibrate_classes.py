"""`calibrate` keeps a classifier's samples by default, and warns if temperature scaling alone scores better."""

import math

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.calibration.sampled_outputs import SampledOutputs, mean_score

# Small networks often want the least or the largest batch size; test_calibrate.py asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:(batch_size|temperature). .* scored best:bayesnorm.BayesNormWarning")

SIZES = [4.0**power for power in range(7)]


def noise(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def posterior():
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).eval()
    for seed, parameter in enumerate(model.parameters()):
        parameter.data = 1.5 * noise(*parameter.shape, seed=seed)
    return bn.MCBN(batch_size=16, states=64).fit(model, noise(200, 3, seed=20), bn.Categorical())


def labels(logits, seed):
    """One class for each row of logits."""
    probabilities = torch.softmax(logits, -1)
    return torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(seed))[:, 0]


def test_never_loses_to_temperature_alone(posterior):
    """The network knows the odds, but for a temperature: any uncertainty that few rows ask for is their chance."""
    point, new_x = bn.deterministic(posterior.model, bn.Categorical()), noise(1000, 3, seed=1)
    new_y = labels(point.executable.point(new_x) / 2, seed=1)
    lost: dict[str, list[float]] = {"guarded": [], "by score": []}
    for seed in range(4):
        x = noise(100, 3, seed=100 + seed)
        y = labels(point.executable.point(x) / 2, seed=seed)
        reference = mean_score(bn.calibrate(point, x, y), new_x, new_y, samples=1)
        for name, options in (("guarded", {}), ("by score", {"evidence": 0})):
            calibrated = bn.calibrate(posterior, x, y, batch_size=True, samples=16, refinements=4, **options)
            lost[name].append(mean_score(calibrated, new_x, new_y, samples=16) - reference)
    assert sum(lost["guarded"]) / 4 < 5e-4, "M' = 4096 is nearly the network without uncertainty"
    assert sum(lost["by score"]) / 4 > 5e-4, "so there was something to guard against"


def test_the_default_keeps_the_samples_and_warns_if_a_temperature_alone_is_better(posterior):
    """The network's own probabilities are right at temperature 2, so that samples can only lose."""
    x = noise(2000, 3, seed=30)
    y = labels(posterior.executable.point(x) / 2, seed=30)
    alone = bn.calibrate(bn.deterministic(posterior.model, bn.Categorical()), x, y)
    with pytest.warns(bn.BayesNormWarning, match="Temperature scaling alone scores better on these 2,000") as seen:
        calibrated = bn.calibrate(posterior.at_batch_size(2), x, y)
    assert calibrated.batch_size == 2
    assert calibrated.predict(x).mutual_information.mean() > 0.02
    assert f"its NLL is {mean_score(alone, x, y, samples=1):.4f}" in str(seen[0].message)
    assert f"with samples it is {mean_score(calibrated, x, y, samples=calibrated.default_samples):.4f}" in str(
        seen[0].message
    )
    assert seen[0].filename == __file__


def test_the_default_does_not_warn_if_samples_help(posterior):
    """Every label comes from its own sample, so that samples are right and the network alone is overconfident."""
    true, x = posterior.at_batch_size(2), noise(640, 3, seed=31)
    f = torch.cat([bn.MonteCarlo(64).outputs(true, x[k : k + 64], seed=k) for k in range(0, len(x), 64)], 1)
    row = torch.arange(len(x))
    calibrated = bn.calibrate(true, x, labels(3 * f[row % 64, row], seed=31))
    assert calibrated.batch_size == 2
    assert calibrated.likelihood.temperature < 1


def test_without_a_temperature_to_fit_the_default_searches_the_size(posterior):
    x = noise(100, 3, seed=32)
    y = labels(posterior.executable.point(x) / 2, seed=32)
    options = {"noise": False, "samples": 8}
    searched = bn.calibrate(posterior, x, y, batch_size=True, **options)
    assert bn.calibrate(posterior, x, y, **options).batch_size == searched.batch_size != 16


def test_uncertainty_that_pays_is_kept(posterior):
    """Every label comes from a draw of its own: that is seen at once."""
    x, true = noise(384, 3, seed=2), posterior.at_batch_size(1.0)
    f = torch.cat([bn.MonteCarlo(64).outputs(true, x[k : k + 64], seed=k) for k in range(0, len(x), 64)], 1)
    row = torch.arange(len(x))
    y = labels(3 * f[row % 64, row], seed=2)
    options = {"samples": 24, "refinements": 4}
    calibrated = bn.calibrate(posterior.with_likelihood(bn.Categorical(2.0)), x, y, batch_size=True, **options)
    assert calibrated.batch_size <= 4
    constant = bn.calibrate(posterior, x, y, batch_size=[4096], **options)
    assert mean_score(calibrated, x, y, samples=24) < mean_score(constant, x, y, samples=24)


def test_a_temperature_that_rises_with_uncertainty_is_found(posterior):
    """Labels of a network whose logits are worth less the more they move under samples."""
    x, options = noise(1000, 3, seed=6), {"samples": 8, "refinements": 2, "batch_size": True}
    uncertainty = bn.MonteCarlo(32).outputs(posterior, x).var(0).mean(1).log()
    z = ((uncertainty - uncertainty.mean()) / uncertainty.std()).clamp(0, 2)
    y = labels(posterior.executable.point(x) / (0.7 * torch.exp(0.8 * z))[:, None], seed=6)
    default = bn.calibrate(posterior, x, y)
    assert isinstance(default.likelihood, bn.VarianceScaledCategorical)
    assert default.batch_size == 16
    calibrated = bn.calibrate(posterior, x, y, **options)
    assert isinstance(calibrated.likelihood, bn.VarianceScaledCategorical)
    assert 0.1 < calibrated.likelihood.slope < 0.8, "less than the true one, as a prior holds it back"
    constant = bn.calibrate(posterior.at_batch_size(4096), x, y, **{**options, "batch_size": False})
    assert mean_score(calibrated, x, y, samples=8) < mean_score(constant, x, y, samples=8) - 0.005
    assert bn.calibrate(calibrated, x, y, **options).likelihood == calibrated.likelihood, (
        "asked anew, the answer is the same"
    )
    assert type(bn.calibrate(posterior, x, y, evidence=50, **options).likelihood) is bn.Categorical


@pytest.mark.parametrize("shape", [(1,), ()], ids=["one output", "no axis of outputs"])
def test_a_binary_classifier_may_listen(posterior, shape):
    model = nn.Sequential(*posterior.model[:3], nn.Linear(8, 1), nn.Unflatten(1, shape) if shape else nn.Flatten(0))
    model[3].weight.data, model[3].bias.data = 3 * noise(1, 8, seed=8), noise(1, seed=9)
    x = noise(400, 3, seed=7)
    binary = bn.MCBN(batch_size=16, states=32).fit(model.eval(), x, bn.Categorical())
    uncertainty = bn.MonteCarlo(32).outputs(binary, x).reshape(32, 400).var(0).log()
    z = ((uncertainty - uncertainty.mean()) / uncertainty.std()).clamp(0, 2)
    y = torch.bernoulli(
        torch.sigmoid(binary.executable.point(x).reshape(400) * torch.exp(-1.5 * z)),
        generator=torch.Generator().manual_seed(7),
    ).long()
    result = bn.calibrate(binary, x, y, batch_size=True, samples=8, refinements=2).likelihood
    assert isinstance(result, bn.VarianceScaledCategorical)


def test_named_sizes_are_taken_by_their_score(posterior):
    x = noise(60, 3, seed=3)
    y = labels(posterior.executable.point(x), seed=4)
    options = {"samples": 16}
    by_size = {size: bn.calibrate(posterior, x, y, batch_size=[size], **options) for size in SIZES}
    best = min(by_size, key=lambda size: mean_score(by_size[size], x, y, **options))
    assert bn.calibrate(posterior, x, y, batch_size=SIZES, **options).batch_size == best


def test_one_row_is_no_evidence(posterior):
    x = noise(1, 3, seed=5)
    assert bn.calibrate(posterior, x, torch.zeros(1, dtype=torch.long), batch_size=True, samples=4).batch_size == 4096


@pytest.fixture(scope="module")
def pixels():
    """Two folds of images with missing labels: (posterior, x, y)."""
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 3, 1)).eval()
    likelihood = bn.Categorical(ignore_index=-1)
    posterior = bn.MCBN(batch_size=4, states=8).fit(model, noise(20, 1, 3, 2, seed=0), likelihood)
    generators = [torch.Generator().manual_seed(seed) for seed in range(2)]
    labels = [torch.randint(-1, 3, (rows, 3, 2), generator=g) for rows, g in zip((5, 8), generators, strict=True)]
    return [(posterior, noise(len(y), 1, 3, 2, seed=seed), y) for seed, y in enumerate(labels)]


def test_the_search_for_a_temperature_uses_the_score(pixels):
    """It has its own formula, which must agree with missing labels, with weights and with impossible classes."""
    likelihood = bn.Categorical(ignore_index=-1)
    folds = SampledOutputs.sample(pixels, likelihood, None, 6, seed=0)
    f, y = 3 * noise(4, 9, 3, seed=1), torch.arange(9) % 3
    binary = SampledOutputs([f[..., 0]], [y.clamp_max(1)], bn.Categorical())
    weighted = SampledOutputs([f], [y], bn.Categorical(), "nll", torch.arange(9.0))
    f = torch.where(torch.arange(3) == (y[:, None] + 1) % 3, -math.inf, f)
    for scored in (folds, binary, weighted, SampledOutputs([f], [y], bn.Categorical())):
        for temperature in torch.tensor([0.05, 1.3, 20.0], dtype=torch.float64):
            expected = scored.score(scored.likelihood.with_noise(temperature)).double()
            torch.testing.assert_close(scored.noise_objective()(temperature).double(), expected, rtol=1e-5, atol=0)


def test_scores_of_rows_average_to_the_score(pixels):
    """Rows with fewer pixels that count weigh less; folds are rows of one set."""
    likelihood = bn.Categorical(ignore_index=-1)
    scored = SampledOutputs.sample(pixels, likelihood, None, 6, seed=0)
    rows = scored.by_row(likelihood)
    assert rows.shape == (13,)
    assert float(rows.mean()) == pytest.approx(float(scored.score(likelihood)), rel=1e-5)
    first = -likelihood.predictive(scored.outputs[0]).log_prob(pixels[0][2])[0].sum()
    count = sum(int((y >= 0).sum()) for _, _, y in pixels)
    assert math.isclose(float(rows[0]), float(first) * 13 / count, rel_tol=1e-5)


@pytest.mark.parametrize(("flip", "message"), [(False, "0.05, the lowest"), (True, "20, the highest")])
def test_a_temperature_at_the_end_of_its_range_warns(flip, message):
    network = nn.Linear(1, 2)
    network.weight.data, network.bias.data = torch.tensor([[0.0], [5.0]]), torch.zeros(2)
    x = noise(100, 1, seed=0)
    y = ((x[:, 0] > 0) ^ flip).long()
    with pytest.warns(bn.BayesNormWarning, match=f"temperature: {message} of the search, scored best"):
        bn.calibrate(bn.deterministic(network, bn.Categorical()), x, y)
