"""MC dropout against closed forms and torch's own dropout; its two conventions; and together with MCBN.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm.errors import FileFormatError, NetworkError

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

TIGHT = {"rtol": 1e-9, "atol": 1e-10}


def rows(n, width, seed=0):
    return torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mlp(p=0.3, width=4, hidden=12):
    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Dropout(p),
        nn.Linear(hidden, 1),
    ).double()


def standard_error_of_variance(samples, dim=0):
    """sqrt((m4 - s^4) / n), of samples of any distribution."""
    centred = samples - samples.mean(dim, keepdim=True)
    variance = centred.square().mean(dim)
    return ((centred.pow(4).mean(dim) - variance.square()) / samples.shape[dim]).sqrt()


# The distribution.


@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.8])
def test_a_linear_network_has_the_closed_form(p, consistent):
    n = 20_000
    model = nn.Sequential(nn.Dropout(p), nn.Linear(12, 2)).double()
    x = rows(5, 12)
    f = bn.MCDropout(consistent=consistent).fit(model, x, bn.Gaussian()).outputs(n, x)
    mean = model[1](x).detach()
    variance = x.square() @ model[1].weight.detach().T.square() * p / (1 - p)
    assert ((f.mean(0) - mean).abs() < SIGMAS * (variance / n).sqrt()).all()
    assert ((f.var(0, correction=0) - variance).abs() < SIGMAS * standard_error_of_variance(f)).all()


def test_two_rows_of_a_draw_covary_as_their_masks_do():
    n, p = 20_000, 0.4
    model = nn.Sequential(nn.Dropout(p), nn.Linear(12, 1)).double()
    x = rows(2, 12)
    products = x.prod(0) * model[1].weight.detach()[0].square() * p / (1 - p)
    for consistent, expected in ((True, products.sum().item()), (False, 0.0)):
        f = bn.MCDropout(consistent=consistent).fit(model, x).outputs(n, x)[..., 0]
        together = (f - f.mean(0)).prod(1)
        assert abs(together.mean().item() - expected) < SIGMAS * (together.std() / math.sqrt(n)).item()


def test_batch_norm_stays_in_evaluation_mode():
    model, x = mlp(), rows(20, 4)
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 3)
    posterior = bn.MCDropout(p={"6": 0}).fit(model, x)
    state, network = posterior.sample(1), posterior.network
    hidden = network[:3](x)
    mask = torch.func.functional_call(network[3], {"seed": state["3.seed"][0]}, (torch.ones_like(hidden),))
    expected = network[7](torch.tanh(network[4](hidden * mask))).detach()
    torch.testing.assert_close(posterior.executable.run(state, x)[0], expected, **TIGHT)


# Consistency.


def test_a_consistent_draw_is_a_smooth_function():
    model = mlp().double()
    line = torch.linspace(-1, 1, 400, dtype=torch.float64)[:, None] * rows(1, 4)
    roughness = {}
    for consistent in (True, False):
        f = bn.MCDropout(consistent=consistent).fit(model, line).outputs(16, line)[..., 0]
        roughness[consistent] = f.diff(dim=1).abs().max() / f.std()
    assert roughness[True] < 0.1, "a four-hundredth of the way moves a piecewise smooth function little"
    assert roughness[False] > 1, "masks of their own make neighbours as different as any two samples"


def test_rows_with_masks_of_their_own_differ_even_where_inputs_agree():
    model, x = mlp(), rows(1, 4).expand(50, 4)
    together = bn.MCDropout().fit(model, x).outputs(3, x)
    torch.testing.assert_close(together, together[:, :1].expand_as(together), **TIGHT)
    apart = bn.MCDropout(consistent=False).fit(model, x).outputs(3, x)
    assert (apart.std(1) > 0.1 * apart.std()).all()


# Rates, seeds, data.


def test_first_samples_do_not_depend_on_how_many_follow():
    posterior = bn.MCDropout().fit(mlp(), rows(5, 4))
    few, many = posterior.sample(3, seed=7), posterior.sample(30, seed=7)
    assert all(torch.equal(few[name], many[name][:3]) for name in many)


def test_without_training_data():
    model, x = mlp(), rows(6, 4)
    posterior = bn.MCDropout().fit(model, likelihood=bn.Gaussian(2.0))
    torch.testing.assert_close(posterior.outputs(5, x), bn.MCDropout().fit(model, x).outputs(5, x))
    with pytest.raises(bn.BayesNormError, match=r"likelihood is needed if train_data is not given"):
        bn.MCDropout().fit(model)


def test_every_kind_of_training_data():
    x, seen = rows(20, 4), []
    loader = DataLoader(TensorDataset(x), batch_size=5, shuffle=True)
    for data in (x, x[:1], x.numpy(), (x, x[:, :1]), TensorDataset(x, x[:, :1]), loader):
        posterior = bn.MCDropout().fit(mlp(), data, progress=lambda done, total: seen.append((done, total)))
        assert posterior.likelihood == bn.Gaussian()
    assert seen == [(1, 1)] * 6


def test_consistent_is_true_or_false():
    with pytest.raises(bn.BayesNormError, match=r"consistent must be .* got 'yes'"):
        bn.MCDropout(consistent="yes")


def test_compiling_is_refused_with_the_reason():
    with pytest.raises(bn.BayesNormError, match=r"compile supports .*DropoutPosterior"):
        bn.MCDropout().fit(mlp(), rows(5, 4)).compile()


# Files.


@pytest.mark.parametrize("consistent", [True, False])
def test_files_hold_rates_and_convention(consistent, tmp_path):
    model, x = mlp(0.2), rows(20, 4)
    posterior = bn.MCDropout({"3": 0.5}, consistent).fit(model, x)
    posterior.save(tmp_path / "posterior")
    model[3].p = 0.9
    loaded = bn.load(tmp_path / "posterior", model)
    assert loaded.config() == {"rates": {"3": 0.5, "6": 0.2}, "consistent": consistent}
    assert torch.equal(loaded.predict(x).mean, posterior.predict(x).mean)


def test_files_for_a_network_without_those_layers(tmp_path):
    model, x = mlp(), rows(20, 4)
    bn.MCDropout().fit(model, x).save(tmp_path / "posterior")
    model[6] = nn.Identity()
    with pytest.raises(NetworkError, match=r"model: '6' is not a dropout layer.*\(this one has '3'\)"):
        bn.load(tmp_path / "posterior", model)


@pytest.mark.parametrize("change", [{"rates": {"3": 7.0}}, {"rates": 3}, {"consistent": "yes"}, {"rates": {"3": "x"}}])
def test_files_that_hold_nonsense(change, tmp_path, monkeypatch):
    posterior = bn.MCDropout().fit(mlp(), rows(20, 4))
    config = posterior.config() | change
    monkeypatch.setattr(type(posterior), "config", lambda _self: config)
    posterior.save(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="path: "):
        bn.load(tmp_path / "posterior", posterior.model)
