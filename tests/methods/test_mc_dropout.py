"""MC dropout against closed forms and torch's own dropout; its two conventions; and together with MCBN.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm.errors import FileFormatError, InputError, NetworkError
from bayesnorm.methods import dropout_precision

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


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dropout(0.3), (6,)),
        (nn.Dropout1d(0.3), (4, 3)),
        (nn.Dropout2d(0.3), (4, 3, 3)),
        (nn.Dropout3d(0.3), (4, 2, 2, 2)),
        (nn.AlphaDropout(0.3), (6,)),
        (nn.FeatureAlphaDropout(0.3), (4, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
@pytest.mark.parametrize("consistent", [True, False])
def test_outputs_have_the_moments_of_torchs_own_dropout(layer, shape, consistent):
    n, x = 4000, torch.randn(3, *shape, dtype=torch.float64)
    model = nn.Sequential(nn.SELU(), layer, nn.Flatten(), nn.Linear(math.prod(shape), 2), nn.Tanh()).double()
    own = bn.MCDropout(consistent=consistent).fit(model, x, bn.Gaussian()).outputs(n, x)
    model.train()
    with torch.no_grad():
        torchs = torch.stack([model(x) for _ in range(n)])
    error = ((own.var(0) + torchs.var(0)) / n).sqrt()
    assert ((own.mean(0) - torchs.mean(0)).abs() < SIGMAS * error).all()
    error = (standard_error_of_variance(own).square() + standard_error_of_variance(torchs).square()).sqrt()
    assert ((own.var(0) - torchs.var(0)).abs() < SIGMAS * error).all()


def test_predictive_variance_is_spread_plus_noise():
    model, x = mlp(), rows(20, 4)
    predictive = bn.MCDropout().fit(model, x, bn.Gaussian(precision=4.0)).predict(x)
    torch.testing.assert_close(predictive.variance, predictive.loc.var(0, correction=0) + 0.25, **TIGHT)


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


def test_consistent_rows_do_not_depend_on_their_company():
    model, x = mlp(), rows(9, 4)
    posterior = bn.MCDropout().fit(model, x)
    whole = posterior.outputs(8, x)
    for order in (torch.tensor([3]), torch.arange(9).flip(0), torch.tensor([2, 2, 5])):
        torch.testing.assert_close(posterior.outputs(8, x[order]), whole[:, order], **TIGHT)


def test_rows_with_masks_of_their_own_differ_even_where_inputs_agree():
    model, x = mlp(), rows(1, 4).expand(50, 4)
    together = bn.MCDropout().fit(model, x).outputs(3, x)
    torch.testing.assert_close(together, together[:, :1].expand_as(together), **TIGHT)
    apart = bn.MCDropout(consistent=False).fit(model, x).outputs(3, x)
    assert (apart.std(1) > 0.1 * apart.std()).all()


# Rates, seeds, data.


def test_rates_are_the_networks_own_unless_told():
    model, x = mlp(0.2), rows(20, 4)
    assert bn.MCDropout().fit(model, x).rates == {"3": 0.2, "6": 0.2}
    assert bn.MCDropout(0.4).fit(model, x).rates == {"3": 0.4, "6": 0.4}
    one = bn.MCDropout({"3": 0, "6": 0.1}).fit(model, x)
    assert one.rates == {"3": 0.0, "6": 0.1}
    assert list(one.sample(2)) == ["6.seed"]
    assert [layer.p for layer in model if isinstance(layer, nn.Dropout)] == [0.2, 0.2]
    spread = [bn.MCDropout(p).fit(model, x).predict(x).epistemic.mean() for p in (0.01, 0.1, 0.5)]
    assert spread[0] < spread[1] < spread[2]


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


@pytest.mark.parametrize(
    "data",
    [
        rows(20, 4),
        rows(1, 4),
        rows(20, 4).numpy(),
        (rows(20, 4), rows(20, 1)),
        TensorDataset(rows(20, 4), rows(20, 1)),
        DataLoader(TensorDataset(rows(20, 4)), batch_size=5, shuffle=True),
    ],
    ids=lambda data: type(data).__name__,
)
def test_every_kind_of_training_data(data):
    seen = []
    posterior = bn.MCDropout().fit(mlp(), data, progress=lambda done, total: seen.append((done, total)))
    assert posterior.likelihood == bn.Gaussian()
    assert seen == [(1, 1)]


def test_bad_input():
    model, x = mlp(), rows(20, 4)
    with pytest.raises(bn.BayesNormError, match=r"consistent must be .* got 'yes'"):
        bn.MCDropout(consistent="yes")
    with pytest.raises(NetworkError, match=r"p must be a rate from 0 to below 1.* got 1.5"):
        bn.MCDropout(1.5).fit(model, x)
    with pytest.raises(bn.BayesNormError, match=r"seed must be .* got -1"):
        bn.MCDropout().fit(model, x, seed=-1)
    with pytest.raises(InputError, match=r"train_data has .*at least one example"):
        bn.MCDropout().fit(model, x[:0])
    with pytest.raises(InputError, match=r"train_data: the network's forward failed on input of shape \(2, 3\)"):
        bn.MCDropout().fit(model, rows(20, 3))
    with pytest.raises(
        bn.BayesNormError, match=r"likelihood is needed, because the network has outputs of shape \(3,\)"
    ):
        bn.MCDropout().fit(nn.Sequential(nn.Dropout(), nn.Linear(4, 3)).double(), x)
    with pytest.raises(bn.BayesNormError, match=r"n must be .* got 0"):
        bn.MCDropout().fit(model, x).sample(0)
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    with pytest.raises(NetworkError, match=r"model: 0.weight has 1 NaN"):
        bn.MCDropout().fit(model, x)


def test_compiling_is_refused_with_the_reason():
    with pytest.raises(bn.BayesNormError, match=r"compile supports .*DropoutPosterior"):
        bn.MCDropout().fit(mlp(), rows(5, 4)).compile()


def test_calibrating_finds_the_noise():
    model, x = mlp(0.05), rows(200, 4)
    y = model.eval()(x).detach() + 0.5 * rows(200, 1, seed=1)
    posterior = bn.calibrate(bn.MCDropout().fit(model, x), x, y)
    # 200 residuals: relative standard error of a variance sqrt(2 / 200) = 10 %, less the little that dropout spreads.
    assert 0.25 * 0.5 < 1 / posterior.likelihood.precision < 0.25 * 1.5


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


# Together with batch-norm statistics.


@pytest.fixture
def both():
    """A network, its data, MCBN and MC dropout posteriors over it."""
    model, x = mlp(0.02), rows(400, 4)
    with torch.no_grad():
        model.train()(x)
    mcbn = bn.MCBN(batch_size=50, states=400).fit(model, x, bn.Gaussian(4.0))
    return model, rows(8, 4, seed=3), mcbn, bn.MCDropout().fit(model, x, bn.Gaussian(4.0))


def test_a_combined_draw_varies_both(both, reference):
    model, x, mcbn, dropout = both
    for posterior in (bn.combine(mcbn, dropout), bn.combine(dropout, mcbn)):
        states = posterior.sample(6, seed=1)
        assert {*states} == {"1.running_mean", "1.running_var", "3.seed", "6.seed"}
        assert posterior.model is model
        expected = reference(posterior.network, states, x)
        for options in ({}, {"vectorize": False}, {"chunk": 4}, {"block_bytes": 200}):
            torch.testing.assert_close(posterior.executable.run(states, x, **options), expected, **TIGHT)
        still = states | {name: value[:1].expand(6) for name, value in states.items() if name.endswith("seed")}
        assert (posterior.executable.run(still, x).var(0) > 0).all(), "statistics vary under one mask"
        fixed = states | {name: value[:1].expand(6, -1) for name, value in states.items() if "running" in name}
        assert (posterior.executable.run(fixed, x).var(0) > 0).all(), "masks vary under one batch's statistics"


@pytest.mark.parametrize("consistent", [True, False])
def test_small_noises_add_their_variances(both, consistent):
    model, x, mcbn, _ = both
    dropout = bn.MCDropout(consistent=consistent).fit(model, likelihood=bn.Gaussian(4.0))
    engine = bn.MonteCarlo(samples=4000)
    together = bn.combine(mcbn, dropout).predict(x, engine).epistemic
    alone = [part.predict(x, engine).epistemic for part in (mcbn, dropout)]
    assert all(part.min() > 0 for part in alone)
    # Three variances of 4000 samples with relative standard errors around sqrt(2 / 4000) = 2 % (dropout's samples have
    # longer tails: three times that), and a second-order term of the order of the noise itself.
    assert ((together / sum(alone) - 1).abs() < 0.25).all()
    assert abs((together.sum() / sum(alone).sum()).item() - 1) < 0.1


def test_a_combination_keeps_its_effective_batch_size_and_files(both, tmp_path):
    model, x, mcbn, dropout = both
    posterior = bn.combine(mcbn, dropout)
    assert posterior.batch_size == 50
    larger = posterior.at_batch_size(5000)
    assert larger.batch_size == 5000
    assert larger.parts[1] is dropout
    engine = bn.MonteCarlo(samples=400)
    alone = dropout.predict(x, engine).epistemic.mean()
    assert larger.predict(x, engine).epistemic.mean() < posterior.predict(x, engine).epistemic.mean()
    # Next to no batch noise is left: two variances of 400 samples, standard errors of some 10 % each.
    assert abs((larger.predict(x, engine).epistemic.mean() / alone).item() - 1) < 0.5
    for saved in (posterior, larger):
        saved.save(tmp_path / "posterior")
        loaded = bn.load(tmp_path / "posterior", model)
        assert loaded.batch_size == saved.batch_size
        assert torch.equal(loaded.predict(x).mean, saved.predict(x).mean)
    colder = posterior.with_likelihood(bn.Gaussian(0.1))
    assert dataclasses.replace(colder).likelihood == bn.Gaussian(0.1)


def test_combining_twice_the_same_layers_is_refused(both):
    _, _, _, dropout = both
    with pytest.raises(bn.BayesNormError, match=r"Two of the posteriors sample '3.seed'"):
        bn.combine(dropout, dropout)


# The paper's relation.


def test_precision_of_weight_decay():
    for arguments, expected in (
        ((2.0, 0.5, 100, 0.01), 1.0),
        ((1e-2, 0.95, 455, 1e-8), 10.43956043956044),
        ((1, 1, 1, 0.5), 1.0),
    ):
        assert dropout_precision(*arguments) == pytest.approx(expected, rel=1e-12)
        length_scale, keep, n, decay = arguments
        tau = dropout_precision(length_scale, keep, n, decay)
        assert decay == pytest.approx(keep * length_scale**2 / (2 * n * tau)), (
            "the paper's equation 7, solved for lambda"
        )
