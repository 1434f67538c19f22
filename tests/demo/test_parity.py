"""The page's JavaScript gives the numbers of the package: same weights, same batches, same predictions."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.calibration import select_batch_size
from bayesnorm.network import collect_statistics, mini_batches

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node: apt-get install nodejs")
MODULES = Path(bn.__file__).parent / "demo" / "numerics"
WIDTH, BATCH, STATES, ROWS, STEPS, SAMPLES = 12, 16, 64, 60, 40, 64 * 50
EFFECTIVE, NOISE, DECAY, SIZES = 5.0, 0.04, 1e-4, (4, 16, 64)
EXACT = {"rtol": 1e-5, "atol": 1e-7}


def perceptron(outputs=1, seed=0):
    """Return the page's network, in double precision, with weights that differ from their start."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for inputs in (1, WIDTH, WIDTH):
        layers += [nn.Linear(inputs, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(WIDTH, outputs)).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            offset = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
            parameter.copy_(offset + 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network


def as_json(network):
    """Return a network's numbers in the order of the page's arrays."""
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    norms = [layer for layer in network if isinstance(layer, nn.BatchNorm1d)]
    parts = [
        part for pair in zip(linear, norms, strict=False) for part in (pair[0].weight, pair[1].weight, pair[1].bias)
    ]
    parts += [linear[-1].weight, linear[-1].bias]
    running = [norm.running_mean for norm in norms] + [norm.running_var for norm in norms]
    flat = [torch.cat([part.detach().flatten() for part in tensors]).tolist() for tensors in (parts, running)]
    return {"width": WIDTH, "outputs": linear[-1].out_features, "parameters": flat[0], "running": flat[1]}


def trained_like_the_page(network, x, y, order):
    """Train with torch's Adam, weight decay on matrices, and a learning rate that falls along a cosine."""
    weights = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 2 * STEPS)
    network.train()
    for rows in order:
        optimiser.zero_grad()
        loss = 0.5 * (network(x[rows]) - y[rows]).square().mean()
        (loss + 0.5 * DECAY * sum(weight.square().sum() for weight in weights)).backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def numbers(predictive):
    ends = [*predictive.interval(0.95), *predictive.interval(0.5)]
    values = {
        "mean": predictive.mean,
        "epistemic": predictive.epistemic,
        "aleatoric": predictive.aleatoric,
        "quantiles": torch.stack([ends[0], ends[2], ends[3], ends[1]]),
    }
    return {name: value.squeeze(-1).numpy() for name, value in values.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Python's numbers, and those of the page for the same case."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x) + 0.2 * torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
    new_x = torch.randn(2 * ROWS, 1, generator=generator, dtype=torch.float64)
    new_y = torch.sin(2 * new_x) + 0.2 * torch.randn(2 * ROWS, 1, generator=generator, dtype=torch.float64)
    grid = torch.linspace(-3, 3, 31, dtype=torch.float64)[:, None]
    order = [torch.randperm(ROWS, generator=generator)[:BATCH].tolist() for _ in range(STEPS)]
    shifted = [new_x[: 4 * BATCH] + shift for shift in (0.0, 0.15, 1.5)]
    masks = torch.bernoulli(torch.full((3 * WIDTH,), 0.7, dtype=torch.float64), generator=generator) / 0.7

    python, case = {}, {"x": x.flatten().tolist(), "y": y.flatten().tolist(), "grid": grid.flatten().tolist()}
    network = perceptron()
    settings = {"width": WIDTH, "batchSize": BATCH, "steps": 2 * STEPS, "rate": 0.01, "decay": DECAY}
    case["training"] = {"settings": settings, "start": as_json(network), "order": order}
    trained_like_the_page(network, x, y, order)
    case["network"] = as_json(network)
    python["trained"], python["running"] = case["network"]["parameters"], case["network"]["running"]

    case["masks"] = masks.tolist()
    python["evaluated"] = network(grid).detach().flatten()
    hidden = grid
    for place, layer in enumerate(network):
        hidden = layer(hidden)
        if isinstance(layer, nn.ReLU):
            hidden = hidden * masks.view(3, WIDTH)[place // 3]
    python["masked"] = hidden.detach().flatten()

    batches = mini_batches((x, y), BATCH, STATES, 0)
    rng = np.random.default_rng(0)
    case["batches"] = [rng.choice(ROWS, BATCH, replace=False).tolist() for _ in range(STATES)]
    case["epoch"] = np.random.default_rng(0).permutation(ROWS)[: ROWS // BATCH * BATCH].reshape(-1, BATCH).tolist()
    case |= {"batchSize": BATCH, "effective": EFFECTIVE, "noise": NOISE, "decay": DECAY, "sizes": SIZES}
    likelihood, engine = bn.Gaussian(precision=1 / NOISE), bn.MonteCarlo(samples=STATES)  # every batch once
    posterior = bn.MCBN(BATCH, STATES).fit(network, (x, y), likelihood)
    python["batchMean"], python["deviations"] = posterior.batch_mean, posterior.fluctuations.deviations
    python["std"] = bn.StochasticBN(BATCH, STATES).fit(network, (x, y), likelihood).fluctuations.independent_std
    case["samples"] = SAMPLES
    for kind, method in {
        "mcbn": bn.MCBN(BATCH, STATES),
        "gaussian": bn.GaussianBN(BATCH, STATES, rank=STATES - 1),
        "stochastic": bn.StochasticBN(BATCH, STATES),
    }.items():
        factor, std = method.fit(network, (x, y), likelihood).fluctuations.root()
        independent = torch.zeros(factor.shape[1]) if std is None else std.square()
        covered = factor.square().sum(0) + independent, factor.sum(1).square().sum() + independent.sum()
        python[f"variances of {kind}"] = [values.double().numpy() for values in covered]
    as_published = bn.MCBN(BATCH, STATES, center="batch").fit(network, (x, y), likelihood)
    python["predictions"] = [
        numbers(p.at_batch_size(EFFECTIVE).predict(grid, engine)) for p in (posterior, as_published)
    ]

    noisy = perceptron(outputs=2, seed=3).eval()
    case["noisy"] = as_json(noisy)
    scale = bn.HeteroscedasticGaussian(scale=NOISE**0.5)
    python["noisy"] = numbers(bn.MCBN(BATCH, STATES).fit(noisy, (x, y), scale).predict(grid, engine))

    case["validation"] = {"x": new_x.flatten().tolist(), "y": new_y.flatten().tolist()}
    calibrated = bn.calibrate(posterior, new_x, new_y, batch_size=False, samples=STATES)
    python["noise"] = 1 / calibrated.likelihood.precision
    choice = select_batch_size(posterior, (x, y), batch_sizes=SIZES, weight_decay=DECAY, samples=STATES)
    python["bounds"] = [(row.elbo, row.kl) for row in choice.rows]

    case["halved"] = list(collect_statistics(network, batches).halved)
    case["shifted"] = [inputs.flatten().tolist() for inputs in shifted]
    adapted = [bn.adapt(posterior, inputs) for inputs in shifted]
    python["p_values"] = [bn.drift(posterior, inputs).p_value for inputs in shifted]
    python["shares"] = [result.adaptation.strength for result in adapted]
    python["adapted"] = [numbers(result.predict(grid, engine)) for result in adapted]

    path = tmp_path_factory.mktemp("demo") / "case.json"
    path.write_text(json.dumps(case))
    script = Path(__file__).with_name("parity.mjs")
    ended = subprocess.run([NODE, str(script), str(MODULES), str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return python, json.loads(ended.stdout)


def assert_same_predictions(page, python):
    for name, expected in python.items():
        np.testing.assert_allclose(page[name], expected, err_msg=name, **EXACT)
    width = np.ptp(python["quantiles"], axis=0)
    assert np.abs(np.array(page["drawn"]) - python["quantiles"]).max() < 1e-5 * width.max()


@pytest.mark.parametrize("name", ["trained", "running", "evaluated", "masked", "batchMean", "deviations", "std"])
def test_networks_and_statistics(both, name):
    python, page = both
    np.testing.assert_allclose(page[name], torch.as_tensor(python[name]).numpy(), **EXACT)


def test_predictions_of_mcbn_around_both_centres(both):
    python, page = both
    for mine, expected in zip(page["predictions"], python["predictions"], strict=True):
        assert_same_predictions(mine, expected)


@pytest.mark.parametrize("kind", ["mcbn", "gaussian", "stochastic"])
def test_samples_have_the_variances_and_correlations_of_the_method(both, kind):
    python, page = both
    single, together = python[f"variances of {kind}"]
    error = 0.0 if kind == "mcbn" else (2 / SAMPLES) ** 0.5  # MCBN samples every batch equally often
    np.testing.assert_allclose(page["sampled"][kind]["each"], single, rtol=5 * error + 1e-5)
    assert page["sampled"][kind]["sum"] == pytest.approx(together, rel=4 * error + 1e-5)


def test_predicted_noise(both):
    assert_same_predictions(both[1]["noisy"], both[0]["noisy"])


def test_calibrated_noise_and_evidence_bound(both):
    python, page = both
    assert page["noise"]["noise"] == pytest.approx(python["noise"], rel=1e-4)  # the flat bottom of a score
    np.testing.assert_allclose([(row["elbo"], row["kl"]) for row in page["bounds"]], python["bounds"], rtol=1e-6)


def test_drift_and_adaptation(both):
    python, page = both
    p_values = np.array(python["p_values"])
    np.testing.assert_allclose([shift["p"] for shift in page["shifts"]], p_values, rtol=1e-5, atol=1e-12)
    assert p_values[0] > 0.05 > p_values[2]
    for mine, shares, expected in zip(page["shifts"], python["shares"], python["adapted"], strict=True):
        np.testing.assert_allclose(mine["shares"], shares, **EXACT)
        assert_same_predictions(mine, expected)
