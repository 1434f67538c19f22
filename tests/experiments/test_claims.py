"""Claims that no table shows: the arithmetic of their measurements, and that each verdict follows its rule."""

import copy

import pytest
import torch

from experiments.claims import (
    CLAIMS,
    batch_norm_elbo,
    dropout_claims,
    exploration,
    jensen,
    learned_rates,
    noise_claims,
    regulariser,
    size_over_rows,
    sparse_priors,
    toy,
)
from experiments.claims.claim import FAILS, HOLDS, PARTLY
from experiments.networks import paper_mlp


@pytest.fixture
def small(monkeypatch):
    """The claims at a size that takes a second in all."""
    for module, settings in (
        (batch_norm_elbo, {"ROWS": 64, "BATCHES": 20, "SIZES": (8, 32)}),
        (jensen, {"ROWS": 64, "ASKED": 4, "BATCHES": 8, "SIZES": (8, 32), "LATE": 3}),
        (size_over_rows, {"ROWS": (100, 200), "STEPS": 8, "SIZES": (8.0, 64.0)}),
        (dropout_claims, {"EPOCHS": 2, "DECAYS": (0.1, 0.01), "WIDTHS": (4, 8), "RATES": (0.1,), "BAND_EPOCHS": 2}),
        (noise_claims, {"EPOCHS": 2, "TASK_EPOCHS": 2}),
        (regulariser, {"ROWS": 64, "NEW_ROWS": 20, "EPOCHS": 2}),
        (sparse_priors, {"ROWS": 64, "NEW_ROWS": 20, "EPOCHS": 1}),
        (learned_rates, {"ROWS": (60, 100), "NEW_ROWS": 20, "STEPS": 4}),
        (exploration, {"ROUNDS": 80}),
    ):
        for name, value in settings.items():
            monkeypatch.setattr(module, name, value)


def test_every_claim_is_measured_and_judged(small, experiments, tmp_path):
    shown = experiments("claims", "--seeds", 2, "--out", tmp_path).out
    for name in CLAIMS:
        assert any(f"{name}: {word}. " in shown for word in (HOLDS, PARTLY, FAILS)), name
    stored = sorted(path.name for path in (tmp_path / "claims").iterdir())
    assert len(stored) == 2 * len({claim.measure for claim in CLAIMS.values()})


def test_batches_are_normalised_as_in_training():
    network = paper_mlp(3, hidden=(5, 4), eps=1e-5).train()
    x = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(0))
    for batch, expected in zip(x, toy.outputs(network, x), strict=True):
        torch.testing.assert_close(copy.deepcopy(network)(batch), expected)


def test_random_batches_have_no_row_twice_and_every_row_equally_often():
    rows = toy.random_batches(10, 4, 5_000, 0)
    assert all(len(set(batch)) == 4 for batch in rows[:100].tolist())
    counts = rows.flatten().bincount(minlength=10)
    assert (counts - 2_000).abs().max() < 5 * (5_000 * 0.4 * 0.6) ** 0.5


def test_the_batch_of_a_row_contains_it_once():
    network = paper_mlp(2, hidden=(4,), eps=1e-5)
    x, y = torch.randn(jensen.ROWS, 2), torch.randn(jensen.ROWS, 1)
    values = jensen._log_likelihoods(network, x, y, jensen.ROWS, 0)
    whole = toy.gaussian_log_prob(toy.outputs(network, x) - y, 1 / toy.NOISE**2)[: jensen.ASKED, 0]
    torch.testing.assert_close(values, whole[:, None].expand_as(values), rtol=1e-3, atol=1e-3)


def test_the_optimum_has_no_gradient():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    centre, covariance = batch_norm_elbo._optimum(features.T @ features, features.T @ y)
    weights = centre.clone().requires_grad_()
    log_prob = toy.gaussian_log_prob(features @ weights - y, 1 / toy.NOISE**2).sum()
    (gradient,) = torch.autograd.grad(
        log_prob - 0.5 * batch_norm_elbo.PRIOR_PRECISION * weights.square().sum(), weights
    )
    assert gradient.abs().max() < 1e-9
    hessian = features.T @ features / toy.NOISE**2 + torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(covariance @ hessian, torch.eye(3, dtype=torch.float64))


def test_verdicts_follow_their_rules():
    def gaps(at_32, at_256):
        return [{str(size): {"gap": gap} for size, gap in ((8, -1), (32, at_32), (128, 0), (256, at_256))}] * 2

    assert [batch_norm_elbo.judge_gap(gaps(*pair)).word for pair in ((0.005, 0), (-0.1, 0.001), (0.1, 0.1))] == [
        HOLDS,
        PARTLY,
        FAILS,
    ]

    def precisions(power):
        return [{str(decay): decay**power for decay in dropout_claims.DECAYS}] * 2

    words = [dropout_claims.judge_precision(precisions(power)).word for power in (-1.0, -0.6, -0.2)]
    assert words == [HOLDS, PARTLY, FAILS]

    def sizes(growth):
        return [{str(rows): 32 * rows**growth for rows in size_over_rows.ROWS}] * 2

    words = [size_over_rows.judge(sizes(growth)).word for growth in (1.0, 0.1, 0.0)]
    assert words == [HOLDS, PARTLY, FAILS]

    def bands(relu, tanh):
        return [
            {name: {"inside": 1.0, "near": 2.0, "far": 2.0 * far} for name, far in (("relu", relu), ("tanh", tanh))}
        ] * 2

    assert [dropout_claims.judge_bands(bands(*pair)).word for pair in ((2, 1), (2, 2), (1, 2))] == [
        HOLDS,
        PARTLY,
        FAILS,
    ]

    def errors(gaussian, laplace):
        losses = {"squared error": 1.0, "Gaussian": gaussian, "Laplace": laplace}
        places = ("none", "anywhere", "one region")
        return [{place: {k: v + 0.01 * i * v for k, v in losses.items()} for place in places} for i in range(4)]

    words = [noise_claims.judge_outliers(errors(*pair)).word for pair in ((0.5, 0.5), (0.5, 1.5), (1.5, 1.5))]
    assert words == [HOLDS, PARTLY, FAILS]


def test_weight_decay_has_the_gradient_of_the_divergence_where_the_paper_assumes_it():
    """One layer, independent columns of the same variance, a large M and a narrow prior."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40_000, 4, generator=generator)
    layer, norm = torch.nn.Linear(4, 3, bias=False), torch.nn.BatchNorm1d(3, affine=False)
    torch.nn.init.normal_(layer.weight, generator=generator)
    prior = regulariser.weight_decay_prior(512, 25.0, 1.0)
    network = torch.nn.Sequential(layer, norm).train()
    with regulariser.BatchNormKL(network, prior, 1e6) as divergence:
        network(rows)
        (gradient,) = torch.autograd.grad(divergence(), [layer.weight])
    expected = 2 * 512 * 25 * layer.weight.detach()
    torch.testing.assert_close(gradient, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))


def test_first_layers_are_measured_by_column():
    weight = torch.tensor([[1.0, 0, 0, 0, 0, 0.5, 0, 0.01]])
    numbers = sparse_priors._numbers(weight, torch.ones(2, 1), torch.zeros(2, 1))
    assert numbers == pytest.approx({"near zero": 6 / 8, "irrelevant": 0.51 / 1.51, "rmse": 1.0})
