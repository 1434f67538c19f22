"""Missing targets: they count for nothing where that was said, and are an error where it was not."""

import dataclasses

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.errors import InputError


def missing_kind(case):
    return dataclasses.replace(case.likelihood, **({"ignore_index": -100} if case.classes else {"missing": True}))


def with_holes(case):
    y = case.y()
    seen = torch.ones(y.shape, dtype=torch.bool)
    seen.flatten()[::3] = False
    return torch.where(seen, y, -100 if case.classes else torch.nan), seen


def test_missing_targets_count_for_nothing(alone_case):
    case = alone_case
    likelihood, (y, seen) = missing_kind(case), with_holes(case)
    f = case.f(1)
    for half in (likelihood.predictive(f), likelihood.predictive(case.f())):
        plain = case.likelihood.predictive(f if len(half.weights) == 1 else case.f())
        expected = torch.where(seen, plain.log_prob(case.y()), 0)
        torch.testing.assert_close(half.log_prob(y), expected)
    wanted = f[0].clone().requires_grad_()
    loss = likelihood.loss(wanted, y)
    torch.testing.assert_close(loss, -torch.where(seen, case.likelihood.predictive(f).log_prob(case.y()), 0).sum() / 5)
    loss.backward()
    assert torch.isfinite(wanted.grad).all()
    if not case.classes:
        crps = likelihood.predictive(f).crps(y)
        torch.testing.assert_close(crps, torch.where(seen, case.likelihood.predictive(f).crps(case.y()), 0))
        expected = case.likelihood.predictive(f).log_prob(case.y())[seen].mean()
        torch.testing.assert_close(metrics.pll(likelihood.predictive(f), y), expected)
        with pytest.raises(InputError, match=r"y must be finite, .* NaN or infinite"):
            metrics.pll(case.likelihood.predictive(f), y)
    with pytest.raises(InputError, match="ignore_index=-100" if case.classes else "missing=True"):
        case.likelihood.loss(f[0], y)
    with pytest.raises(InputError, match=r"^y (must be|has classes)"):
        case.likelihood.predictive(f).log_prob(y)


def test_calibrating_with_missing_targets_is_calibrating_on_the_others():
    """One output: dropping rows and marking them missing is the same."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(80, 3, generator=generator, dtype=torch.float64)
    y = 2 * torch.randn(80, 1, generator=generator, dtype=torch.float64)
    holes = torch.where(torch.arange(80)[:, None] % 3 == 0, torch.nan, y)
    present = torch.arange(80) % 3 != 0
    model = nn.Linear(3, 2).double()
    for likelihood in (bn.Gaussian(), bn.Laplace(), bn.StudentT(), bn.HeteroscedasticGaussian()):
        wide = isinstance(likelihood, bn.HeteroscedasticGaussian)
        network = model if wide else nn.Linear(3, 1).double()
        missing = dataclasses.replace(likelihood, missing=True)
        result = bn.calibrate(bn.deterministic(network, missing), x, holes).likelihood
        expected = bn.calibrate(bn.deterministic(network, likelihood), x[present], y[present]).likelihood
        torch.testing.assert_close(result.noise, expected.noise, rtol=1e-6, atol=0)


def test_an_output_without_any_target():
    y = torch.tensor([[1.0, torch.nan], [2.0, torch.nan]])
    with pytest.raises(InputError, match="y has only NaN for at least one output"):
        bn.Gaussian(missing=True).noise_range(torch.zeros(3, 2, 2), y)


def test_infinity_is_never_a_missing_target():
    with pytest.raises(InputError, match="y must be finite, but 1 of 2 values are infinite"):
        bn.Gaussian(missing=True).predictive(torch.zeros(3, 2, 1)).log_prob(torch.tensor([1.0, torch.inf]))


def test_what_is_no_class():
    for y, said in (
        ([0, 3], "but 1 of 2 values are not, such as 3"),
        ([-1, 0], "such as -1"),
        ([0.5, 0.0], "such as 0.5"),
    ):
        with pytest.raises(InputError, match=said):
            bn.Categorical(ignore_index=-100).loss(torch.zeros(2, 3), torch.tensor(y))


def test_where_looking_would_cost_the_loss_is_nan(monkeypatch):
    """As on a GPU, where a look would have to wait for it."""
    for module in ("real_targets", "classes"):
        monkeypatch.setattr(f"bayesnorm.likelihoods.{module}.holds", lambda condition: False)
    assert bn.Gaussian().loss(torch.zeros(2, 1), torch.tensor([[0.0], [torch.nan]])).isnan()
    assert bn.Categorical().loss(torch.zeros(2, 3), torch.tensor([0, -100])).isnan()
    assert bn.Categorical().loss(torch.zeros(2, 3), torch.tensor([0.0, torch.nan])).isnan()


def test_many_networks_at_once():
    """Inside `vmap` nothing can be looked at, and the numbers are the same."""
    f, y = torch.randn(3, 5, 2), torch.randn(5, 1)
    likelihood = bn.HeteroscedasticGaussian()
    result = torch.vmap(likelihood.loss, in_dims=(0, None))(f, y)
    torch.testing.assert_close(result, torch.stack([likelihood.loss(one, y) for one in f]))
    both = torch.vmap(likelihood.loss)(f, y.expand(3, 5, 1))
    torch.testing.assert_close(both, result)
    labels = torch.randint(0, 2, (3, 5))
    result = torch.vmap(bn.Categorical().loss)(f, labels)
    torch.testing.assert_close(
        result, torch.stack([bn.Categorical().loss(a, b) for a, b in zip(f, labels, strict=True)])
    )
