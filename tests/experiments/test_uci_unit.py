"""One unit of the regression benchmark in small: what it tells is what plain calls of the library give."""

import math
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.training import train
from benchmarks.package_profile import FUNCTIONS, MUST_RUN, Ran
from experiments.networks import paper_dropout_mlp, paper_mlp
from experiments.stacked_networks import own_targets
from experiments.uci import presets, unit
from experiments.uci.folds import Data
from experiments.uci.results import METHODS_OF

N, FOLDS, DRAWS, EPOCHS = 90, 2, 20, 30
"""72 training rows and 18 test rows; folds of 36 rows, which 36 others train for."""

TOY = presets.Preset(
    sets=("toy",),
    splits=(1, 2),
    folds=FOLDS,
    seeds=(1, 2),
    weight_decays=(1e-1, 1e-3),
    batch_sizes=(16, 32, 36),
    rates=(0.05,),
    epochs=EPOCHS,
    evaluate_every=10,
    patience=2,
    samples=DRAWS,
    weight_steps=10,
    dropout_batch_size=16,
)
PRECISIONS = 1e-3, 1e3
CLOSE = 1e-4
"""Of single precision: rounding errors that Adam carries through some hundred steps, as in the tests of stacks."""


def toy(_name="toy"):
    generator = np.random.default_rng(3)
    x = 2 * generator.normal(size=(N, 3)) + 1
    return x, 10 + 3 * np.sin(x[:, 0]) + x[:, 1] + 3 * generator.normal(size=N)


@pytest.fixture(scope="module", autouse=True)
def _toy():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[Data.__module__], "load_uci", toy)
        patch.setitem(presets.PRESETS, "toy", TOY)
        patch.setitem(presets.PRECISIONS, "toy", PRECISIONS)
        patch.setattr(unit, "PASSES_AT", 16)
        yield


@pytest.fixture(scope="module")
def data(_toy):
    return Data("toy", TOY.splits, FOLDS)


@pytest.fixture(scope="module")
def watched(_toy):
    """Results by family, and the functions that ran for them."""
    results = {}
    for family, setting in (("bn", 16.0), ("dropout", 0.05)):
        with Ran() as ran:
            results[family] = unit.run("toy", "toy", family, setting, "cpu"), ran
    return results


@pytest.fixture(scope="module")
def results(watched):
    """Results by family."""
    return {family: result for family, (result, _) in watched.items()}


def rows_of(result, method, passes=None):
    return [row for row in result["rows"] if row["method"] == method and row["passes"] == passes]


@pytest.mark.parametrize("family", ["bn", "dropout"])
def test_every_method_has_a_row_for_each_run(results, family):
    counts = Counter(row["method"] for row in results[family]["rows"] if row["passes"] is None)
    assert counts.keys() == set(METHODS_OF[family])
    for method in METHODS_OF[family]:
        runs = [(row["split"], row["seed"]) for row in rows_of(results[family], method)]
        seeds = (0,) if method == "DeepEnsemble" else TOY.seeds
        assert runs == [(split, seed) for split in TOY.splits for seed in seeds], method
    for row in results[family]["rows"]:
        numbers = {name: value for name, value in row.items() if name not in ("method", "passes")}
        assert all(value is None or math.isfinite(value) for value in numbers.values()), row
        assert row["weight_decay"] in TOY.weight_decays
        assert row["epochs"] in range(10, EPOCHS + 1, 10)
        assert 0.999 * PRECISIONS[0] < row["precision"] < 1.001 * PRECISIONS[1]
        assert 0 <= row["coverage_95"] <= 1
        assert (row["effective_batch_size"] is not None) == ("M'" in row["method"])
    # Constant uncertainty about itself is the zero of what is normalised.
    alone, constant = unit.NAMES[family]
    for method in (alone, constant):
        for name in ("normalised_crps", "normalised_pll", "normalised_pll_own"):
            assert [row[name] for row in rows_of(results[family], method)] == pytest.approx([0.0] * 4, abs=1e-4)


@pytest.mark.parametrize("family", ["bn", "dropout"])
def test_a_unit_runs_what_users_run(watched, family):
    _, ran = watched[family]
    assert ran.missing(FUNCTIONS[family]) == []
    assert Ran().missing([metrics.crps]) == [*(f"{name}/" for name in MUST_RUN), "crps"], "none ran, none counts"


def test_test_rows_are_never_trained_on(data):
    assert [len(fold.train) for fold in data.whole] == [72, 72]
    assert [(len(fold.train), len(fold.held)) for fold in data.validated] == [(36, 36)] * 4
    for i, whole in enumerate(data.whole):
        train, test = set(whole.train.tolist()), set(whole.held.tolist())
        assert len(train) == 72
        assert len(test) == 18
        assert not train & test
        folds = data.validated[i * FOLDS : (i + 1) * FOLDS]
        for fold in folds:
            assert fold.split == whole.split
            assert not set(fold.train.tolist()) & set(fold.held.tolist())
            assert set(fold.train.tolist()) | set(fold.held.tolist()) == train
        assert sorted(torch.cat([fold.held for fold in folds]).tolist()) == sorted(train), "each held out once"
    assert set(data.whole[0].held.tolist()) != set(data.whole[1].held.tolist())
    x, y = toy()
    examples = data.train_rows(data.whole)
    picked = data.whole[1].train.numpy()
    np.testing.assert_allclose(examples.scales.x_mean[1], x[picked].mean(0), rtol=1e-5)
    np.testing.assert_allclose(examples.scales.y_std[1], y[picked].std(), rtol=1e-5)
    held = data.held_rows(data.whole, examples)
    np.testing.assert_allclose(own_targets(held)[1, :, 0], y[data.whole[1].held], rtol=1e-5)
    np.testing.assert_allclose(held.scales.y_mean, examples.scales.y_mean)


def half_mse(f, y):
    return 0.5 * mse_loss(f, y)


def trained_alone(fold, family, seed, decay, epochs):
    """Samples in raw units for held rows of one network that `train` trained so long, and the rows' targets."""
    x, y = (part.float() for part in map(torch.from_numpy, toy()))
    mean, std = x[fold.train].mean(0), x[fold.train].std(0, correction=0)
    y_mean, y_std = y[fold.train].mean(), y[fold.train].std(correction=0)
    z, held = (x[fold.train] - mean) / std, (x[fold.held] - mean) / std
    network = paper_mlp(3, seed=seed) if family == "bn" else paper_dropout_mlp(3, 0.05, seed=seed)
    samples = {}

    def look(epoch, model):
        if epoch == epochs:
            if family == "bn":
                posterior = bn.MCBN(16, states=DRAWS, center="batch").fit(model, z, seed=0)
            else:
                posterior = bn.MCDropout(consistent=True).fit(model, likelihood=bn.Gaussian())
            samples[epoch] = bn.MonteCarlo(DRAWS).outputs(posterior, held, seed=0) * y_std + y_mean

    targets = ((y[fold.train] - y_mean) / y_std)[:, None]
    options = {"epochs": EPOCHS, "batch_size": 16, "weight_decay": decay, "seed": seed}
    train(network, z, targets, loss=half_mse, on_epoch=look, **options)
    return samples[epochs], y[fold.held]


@pytest.mark.parametrize(("family", "method"), [("bn", "MCBN"), ("dropout", "MCDropout")])
def test_scores_are_those_of_plain_calls(results, data, family, method):
    """From the chosen weight decay and epochs on: noise from the folds, a network on all training rows, its samples."""
    split, seed = 1, 2
    (row,) = (row for row in rows_of(results[family], method) if (row["split"], row["seed"]) == (split + 1, seed))
    decay, epochs = row["weight_decay"], row["epochs"]
    first = split * FOLDS
    folds = [trained_alone(data.validated[first + i], family, 100 + i, decay, epochs) for i in range(FOLDS)]
    f = torch.cat([samples for samples, _ in folds], 1).double()  # folds are of one length, so that means are one
    y = torch.cat([y for _, y in folds]).double()

    def with_noise(outputs, precision):
        return bn.predictive.RegressionPredictive(outputs, torch.tensor(precision).double().rsqrt())

    at = np.logspace(-2, 1, 1201)
    spacing = at[1] / at[0] - 1
    by_crps = float(at[np.argmin([float(metrics.crps(with_noise(f, p), y)) for p in at])])
    by_pll = float(at[np.argmax([float(metrics.pll(with_noise(f, p), y)) for p in at])])
    assert row["precision"] == pytest.approx(by_crps, rel=spacing)
    assert row["cv_crps"] == pytest.approx(float(metrics.crps(with_noise(f, by_crps), y)), rel=CLOSE)
    constant = metrics.constant_variance(f.mean(0), y[:, None])
    test, y = (part.double() for part in trained_alone(data.whole[split], family, seed, decay, epochs))
    examples = with_noise(test, row["precision"])
    gaussian = bn.predictive.RegressionPredictive(examples.mean[None], examples.std[None])
    assert row["rmse"] == pytest.approx(float(metrics.rmse(examples, y)), rel=CLOSE)
    assert row["crps"] == pytest.approx(float(metrics.crps(examples, y)), rel=CLOSE)
    assert row["pll"] == pytest.approx(float(metrics.pll(examples, y)), abs=CLOSE)
    # A precision that is off by a share changes a log likelihood by half of that share, where errors are as expected.
    assert row["pll_own"] == pytest.approx(float(metrics.pll(with_noise(test, by_pll), y)), abs=spacing)
    assert row["coverage_95"] == pytest.approx(float(metrics.coverage(gaussian, y, 0.95)), abs=1e-9)
    assert row["normalised_crps"] == pytest.approx(
        float(metrics.normalised_crps(examples, y, constant)), abs=100 * CLOSE
    )
    assert row["normalised_pll"] == pytest.approx(float(metrics.normalised_pll(examples, y, constant)), abs=100 * CLOSE)
