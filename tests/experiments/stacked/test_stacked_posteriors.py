"""Posteriors over a stack: every network doubts as if the method had been fitted on it alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from bayesnorm.stacked import (
    StackedEnsemble,
    StackedExecutable,
    by_own_rows,
    fit_stacked,
    learned_posterior,
    passes,
    stacked_point,
    stacked_statistics,
)

import bayesnorm as bn
from bayesnorm.posterior import Empirical, coordinates

from .stacked_networks import SEEDS, data, in_target_units, network_in_target_units, own, task, together

STATES, DRAWS = 24, 30
SIZES = [16.0, 40.0, 2.5, 100.0, 16.0]

METHODS = {
    "MCBN": bn.MCBN(16, STATES),
    "MCBN, batch": bn.MCBN(16, STATES, center="batch"),
    "GaussianBN rank 6": bn.GaussianBN(16, STATES, rank=6),
    "GaussianBN rank 6, batch": bn.GaussianBN(16, STATES, rank=6, center="batch"),
    "StochasticBN": bn.StochasticBN(16, STATES),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(scope="module")
def trained():
    """Stacks of every family, with their rows and rows that they were not trained on, in double precision."""
    found = {}
    for family in ("batch norm", "dropout", "mixed"):
        networks, rows, held_out = task(family, torch.float64)
        found[family] = together(networks, rows, epochs=3)[0], rows, held_out
    return found


def x_of_all():
    return (data(7, torch.float64, seed=5)[0] - 5) / 3


@pytest.mark.parametrize(("name", "piece"), [*((name, passes.PIECE["cpu"]) for name in METHODS), ("MCBN", 400)])
def test_samples_are_those_of_the_method(trained, name, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    stack, rows, held_out = trained["batch norm"]
    method, engine, x = METHODS[name], bn.MonteCarlo(DRAWS), x_of_all()
    stacked = fit_stacked(method, stack, rows, seed=SEEDS)
    assert stacked.batch_size.tolist() == [16.0] * 5
    stacked = stacked.at_batch_size(SIZES)
    f, of_rows = (engine.outputs(stacked, each, seed=1) for each in (x, held_out))
    mean, var = engine.moments(stacked, x, seed=1)
    assert f.shape == (DRAWS, 5, 7, 1)
    assert f.dtype == torch.float64
    for i in range(5):
        alone = method.fit(stack.network(i), own(rows, i)[0], seed=SEEDS[i]).at_batch_size(SIZES[i])
        expected = in_target_units(engine.outputs(alone, x, seed=1), rows, i)
        torch.testing.assert_close(f[:, i], expected, **CLOSE)
        torch.testing.assert_close(mean[i], expected.mean(0), **CLOSE)
        torch.testing.assert_close(var[i], expected.var(0, correction=0), **CLOSE)
        values = own(held_out, i)[0]
        expected = in_target_units(engine.outputs(alone, values, seed=1), rows, i)
        torch.testing.assert_close(of_rows[:, i, : len(values)], expected, **CLOSE)
    assert var.min() > 1e-6, "there is something to compare"


@pytest.mark.parametrize("piece", [passes.PIECE["cpu"], 100])
@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("family", ["dropout", "mixed"])
def test_masks_are_those_of_mc_dropout(trained, family, consistent, piece, monkeypatch):
    monkeypatch.setitem(passes.PIECE, "cpu", piece)
    stack, rows, held_out = trained[family]
    method, engine, x = bn.MCDropout(consistent=consistent), bn.MonteCarlo(6), x_of_all().repeat(3, 1)
    stacked = fit_stacked(method, stack, rows)
    f, of_rows = (engine.outputs(stacked, each, seed=3) for each in (x, held_out))
    mean, var = engine.moments(stacked, x, seed=3)
    for i in (0, 1, 3, 4):
        alone = method.fit(stack.network(i), likelihood=bn.Gaussian())
        expected = in_target_units(engine.outputs(alone, x, seed=3), rows, i)
        torch.testing.assert_close(f[:, i], expected, **CLOSE)
        torch.testing.assert_close(mean[i], expected.mean(0), **CLOSE)
        torch.testing.assert_close(var[i], expected.var(0, correction=0), **CLOSE)
        values = own(held_out, i)[0]
        expected = in_target_units(engine.outputs(alone, values, seed=3), rows, i)
        torch.testing.assert_close(of_rows[:, i, : len(values)], expected, **CLOSE)
    assert f[:, 2].std(0).max() < 1e-9, "its rate is 0"
    assert var[[0, 1, 3, 4]].amax((1, 2)).min() > 1e-3
    first, second, _ = f[:, 0, :, 0].view(6, 3, 7).unbind(1)
    assert torch.allclose(first, second) == consistent, "the same rows again"
    assert not torch.equal(engine.outputs(stacked, x, seed=4), f)


def test_statistics_are_those_of_the_batches_that_a_fit_samples(trained):
    stack, rows, _ = trained["mixed"]
    found = stacked_statistics(stack, rows, 16, STATES, seed=SEEDS)
    whole = coordinates(found.mean, found.var, found.layers)
    assert whole.shape == (STATES, 5, 2 * (4 + 10))
    for i in range(5):
        alone = bn.MCBN(16, STATES).fit(stack.network(i), own(rows, i)[0], seed=SEEDS[i])
        torch.testing.assert_close(whole[:, i].mean(0), alone.batch_mean, **CLOSE)
        torch.testing.assert_close(whole[:, i] - alone.batch_mean, alone.fluctuations.deviations, **CLOSE)


def test_methods_may_share_what_was_collected(trained):
    stack, rows, held_out = trained["batch norm"]
    collected, executable = stacked_statistics(stack, rows, 16, STATES), StackedExecutable.of(stack, rows)
    for method in METHODS.values():
        shared = learned_posterior(method, collected, executable, bn.Gaussian())
        fitted = fit_stacked(method, stack, rows)
        assert torch.equal(bn.MonteCarlo(4).outputs(shared, held_out), bn.MonteCarlo(4).outputs(fitted, held_out))
        assert (shared.method, shared.center, shared.rows) == (type(method).__name__, method.center, 75)


def test_the_spread_is_what_the_method_says(trained, monkeypatch):
    """Twice the deviations, four times the variance, where outputs are linear in the deviations."""
    stack, rows, held_out = trained["batch norm"]
    original = bn.MCBN.distribution

    def variance(center):
        stacked = fit_stacked(bn.MCBN(16, STATES, center=center), stack, rows).at_batch_size(1e12)
        return bn.MonteCarlo(STATES).moments(stacked, held_out)[1]

    before = {center: variance(center) for center in ("running", "batch")}
    monkeypatch.setattr(bn.MCBN, "distribution", lambda self, deviations: original(self, 2 * deviations))
    for center, expected in before.items():
        torch.testing.assert_close(variance(center), 4 * expected, rtol=1e-4, atol=0)


def test_effective_batch_sizes_scale_the_fluctuations_of_their_networks(trained):
    stack, rows, held_out = trained["batch norm"]
    fitted = fit_stacked(bn.MCBN(16, STATES, center="batch"), stack, rows)
    deviations = torch.randn(5, 5, 44, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    other = dataclasses.replace(fitted, fluctuations=Empirical(deviations)).at_batch_size([64, 16, 4, 16, 16])
    drawn = other.sample(5)
    mean = torch.cat([drawn[f"{layer.name}.running_mean"] for layer in other.layers], -1)
    found = (mean - other.batch_mean[:, :22]).sort(0).values
    for i, factor in enumerate((0.5, 1, 2, 1, 1)):
        torch.testing.assert_close(found[:, i], factor * deviations[:, i, :22].sort(0).values)
    none = dataclasses.replace(fitted, fluctuations=Empirical(0 * deviations))
    assert bn.MonteCarlo(5).moments(none, held_out)[1].max() < 1e-20, "no deviations, no uncertainty"
    for one in (64, 64.0, torch.tensor(64.0), torch.tensor([64.0])):
        assert fitted.at_batch_size(one).batch_size.tolist() == [64.0] * 5
    assert fitted.batch_size.tolist() == [16.0] * 5


@pytest.mark.parametrize("samples", [2, 5])
def test_ensembles_are_those_of_their_members(trained, samples):
    stack, rows, _ = trained["batch norm"]
    four, x = torch.tensor([0, 1, 3, 4]), x_of_all()
    stack, rows = stack.take(four), rows.take(four)
    stacked = StackedEnsemble.of(stack, 2, rows, bn.Gaussian())
    f = bn.MonteCarlo(samples).outputs(stacked, x, seed=3)
    mean, var = bn.MonteCarlo(samples).moments(stacked, x, seed=3)
    assert stacked.default_samples == 2
    for k in range(2):
        networks = [network_in_target_units(stack, rows, i) for i in (2 * k, 2 * k + 1)]
        members = [bn.deterministic(network, bn.Gaussian()) for network in networks]
        expected = bn.MonteCarlo(samples).outputs(bn.ensemble(members), x, seed=3)
        torch.testing.assert_close(f[:, k], expected, **CLOSE)
        torch.testing.assert_close(mean[k], expected.mean(0), **CLOSE)
        torch.testing.assert_close(var[k], expected.var(0, correction=0), **CLOSE)


def test_points_are_those_of_each_network(trained):
    stack, rows, held_out = trained["mixed"]
    stacked = stacked_point(stack, rows, bn.Gaussian(4.0))
    assert stacked.default_samples == 1
    x = x_of_all()
    f, predictive, of_rows = (
        bn.MonteCarlo(3).outputs(stacked, x),
        stacked.predict(x),
        stacked.executable.point(held_out),
    )
    assert f.shape == (3, 5, 7, 1)
    for i in range(5):
        alone = bn.deterministic(stack.network(i), bn.Gaussian())
        expected = in_target_units(alone.predict(x).mean, rows, i)
        torch.testing.assert_close(predictive.mean[i], expected, **CLOSE)
        torch.testing.assert_close(f[:, i], expected.expand(3, 7, 1), **CLOSE)
        values = own(held_out, i)[0]
        expected = in_target_units(alone.predict(values).mean, rows, i)
        torch.testing.assert_close(of_rows[i, : len(values)], expected, **CLOSE)
    assert (predictive.epistemic == 0).all()
    assert (predictive.aleatoric == 0.25).all()


def test_every_row_can_be_asked_of_its_own_network(trained):
    """As the folds of a cross-validation, which are one predictor of all rows."""
    for family, method in (("batch norm", bn.MCBN(16, STATES)), ("dropout", bn.MCDropout())):
        stack, rows, held_out = trained[family]
        stacked = fit_stacked(method, stack, rows)
        f = bn.MonteCarlo(6).outputs(stacked, held_out, seed=2)
        parts = [f[:, i, :n] for i, n in enumerate(held_out.lengths.tolist())]
        joined = by_own_rows(stacked)
        assert torch.equal(bn.MonteCarlo(6).outputs(joined, held_out, seed=2), torch.cat(parts, 1))
        mean, var = bn.MonteCarlo(6).moments(joined, held_out, seed=2)
        torch.testing.assert_close(mean, torch.cat(parts, 1).mean(0), **CLOSE)
        torch.testing.assert_close(var, torch.cat(parts, 1).var(0, correction=0), **CLOSE)
        point = joined.executable.point(held_out)
        whole = stacked.executable.point(held_out)
        assert torch.equal(point, torch.cat([whole[i, :n] for i, n in enumerate(held_out.lengths.tolist())]))


def test_outputs_in_other_units(trained):
    """A scale and a shift of one's own, in double precision whatever that of the networks."""
    stack, rows, held_out = trained["batch norm"]
    plain = fit_stacked(bn.MCBN(16, STATES), stack, rows, executable=StackedExecutable(stack))
    scale, shift = torch.arange(1.0, 6.0)[:, None], torch.arange(5.0)[:, None]
    moved = fit_stacked(bn.MCBN(16, STATES), stack, rows, executable=StackedExecutable(stack, scale, shift))
    f, g = (bn.MonteCarlo(4).outputs(each, held_out) for each in (plain, moved))
    torch.testing.assert_close(g, f * scale[:, None] + shift[:, None], **CLOSE)
    (mean, var), (moved_mean, moved_var) = (bn.MonteCarlo(4).moments(each, held_out) for each in (plain, moved))
    torch.testing.assert_close(moved_mean, mean * scale[:, None] + shift[:, None], **CLOSE)
    torch.testing.assert_close(moved_var, var * scale[:, None].square(), **CLOSE)


def test_single_precision_networks_answer_in_double_where_targets_have_units():
    networks, rows, held_out = task()
    stack, _ = together(networks, rows, epochs=1)
    for each, dtype in ((None, torch.float64), (StackedExecutable(stack), torch.float32)):
        posterior = fit_stacked(bn.MCBN(16, 4), stack, rows, executable=each)
        assert bn.MonteCarlo(4).outputs(posterior, held_out).dtype == dtype
        assert {part.dtype for part in bn.MonteCarlo(4).moments(posterior, held_out)} == {dtype}


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@CUDA
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("batch norm", bn.MCBN(16, STATES)),
        ("batch norm", bn.MCBN(16, STATES, center="batch")),
        ("batch norm", bn.StochasticBN(16, STATES)),
        ("batch norm", bn.GaussianBN(16)),
        ("dropout", bn.MCDropout()),
        ("dropout", bn.MCDropout(consistent=False)),
        ("batch norm", None),
    ],
)
def test_on_a_gpu(family, method, dtype):
    """Outputs, moments and what calibrate chooses are those of a CPU; kernels take their part in single precision."""
    networks, rows, held_out = task(family, dtype, counts=(90, 90, 75, 90))
    here, _ = together(networks, rows, epochs=5)
    noise = bn.Gaussian([1.0] * 4, axis=0, missing=True)
    found = []
    for stack in (here, here.to("cuda")):
        posterior = stacked_point(stack, rows, noise) if method is None else fit_stacked(method, stack, rows, noise)
        f = bn.MonteCarlo(6).outputs(posterior, held_out, seed=1)
        joined = bn.MonteCarlo(6).outputs(by_own_rows(posterior), held_out, seed=1)
        moments = bn.MonteCarlo(6).moments(posterior, held_out, seed=1)
        chosen = bn.calibrate(posterior, held_out, held_out.own_targets, groups=[0, 0, 1, 1], samples=6)
        found.append([f, joined, *moments, torch.tensor(chosen.likelihood.precision).log()])
    close = CLOSE if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-2}
    for place, (expected, other) in enumerate(zip(*found, strict=True)):
        torch.testing.assert_close(other.cpu(), expected, **(close if place < 4 else {"rtol": 1e-2, "atol": 1e-2}))


@CUDA
def test_low_rank_gaussians_on_a_gpu():
    """Directions may come out with the other sign there, and samples with them; the covariance is the same."""
    networks, rows, _ = task(dtype=torch.float64)
    here, _ = together(networks, rows, epochs=5)
    found = []
    for stack in (here, here.to("cuda")):
        factor, own_std = fit_stacked(bn.GaussianBN(16, STATES, rank=6), stack, rows).fluctuations.root()
        found.append(torch.einsum("rep,req->epq", factor, factor).cpu() + own_std.square().diag_embed().cpu())
    # Directions are rounded to 8 binary digits, which two computations may round apart.
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=2**-7 * float(found[0].abs().max()))
