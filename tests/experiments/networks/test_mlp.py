"""The MCBN paper's perceptron."""

import math

import pytest
import torch
from torch import nn

from bayesnorm.errors import BayesNormError
from experiments.networks import paper_dropout_mlp, paper_mlp, plain_mlp


def test_layers_are_the_papers():
    model = paper_mlp(13)
    assert [type(layer) for layer in model] == [
        *[nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2,
        nn.Linear,
    ]
    assert [tuple(model[i].weight.shape) for i in (0, 3, 6)] == [(50, 13), (50, 50), (1, 50)]
    assert model[0].bias is None
    assert model[3].bias is None
    assert torch.equal(model[6].bias, torch.zeros(1))
    for layer in (model[1], model[4]):
        assert layer.eps == 1e-10
        assert torch.equal(layer.weight, torch.ones(50))
        assert torch.equal(layer.bias, torch.zeros(50))


def test_widths_and_eps_can_be_chosen():
    model = paper_mlp(3, out_features=2, hidden=(8, 6, 4), eps=1e-5)
    assert [m.num_features for m in model if isinstance(m, nn.BatchNorm1d)] == [8, 6, 4]
    assert {m.eps for m in model if isinstance(m, nn.BatchNorm1d)} == {1e-5}
    assert model(torch.ones(5, 3)).shape == (5, 2)


def test_weights_are_a_normal_cut_at_two_standard_deviations():
    weight = paper_mlp(400, hidden=(500,))[0].weight.detach().double()
    assert weight.abs().max() <= 0.2 + 1e-6
    # Variance of N(0, 1) cut to [-2, 2]: 1 - 2 * 2 * phi(2) / (Phi(2) - Phi(-2)), 0.8796 squared.
    inside = math.erf(math.sqrt(2))
    exact_std = 0.1 * math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / inside)
    n = weight.numel()
    # A cut normal has lighter tails than a normal, so sigma / sqrt(2 n) bounds the standard error of its std.
    assert abs(weight.std() - exact_std) < 4 * exact_std / math.sqrt(2 * n)
    assert abs(weight.mean()) < 4 * exact_std / math.sqrt(n)
    # A share of erf(1/sqrt 2) / erf(sqrt 2) lies within one standard deviation of the uncut normal.
    share = math.erf(math.sqrt(0.5)) / inside
    observed = (weight.abs() < 0.1).double().mean()
    assert abs(observed - share) < 4 * math.sqrt(share * (1 - share) / n)


def test_seed_decides_alone_and_the_global_generator_is_not_touched():
    torch_state = torch.get_rng_state()
    first = paper_mlp(7, seed=1).state_dict()
    assert torch.equal(torch_state, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(12345)
        again = paper_mlp(7, seed=1).state_dict()
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = paper_mlp(7, seed=2).state_dict()
    assert not torch.equal(first["0.weight"], other["0.weight"])
    square = paper_mlp(50, seed=1)  # layers of one network do not share their samples
    assert not torch.equal(square[0].weight, square[3].weight)


def test_forward_in_training_mode_is_the_formula():
    model = paper_mlp(4, hidden=(6,), seed=3).double()
    x = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    h = x @ model[0].weight.T
    h = (h - h.mean(0)) / (h.var(0, correction=0) + 1e-10).sqrt()
    torch.testing.assert_close(model(x), h.relu() @ model[3].weight.T + model[3].bias)


def test_bad_sizes():
    for sizes in ({"in_features": 0}, {"in_features": 2, "hidden": (5, 0)}, {"in_features": 2, "out_features": 0}):
        with pytest.raises(BayesNormError, match="in_features, out_features and hidden must be whole numbers from 1"):
            paper_mlp(**sizes)


def test_without_batch_norm_every_layer_has_a_bias():
    """Without its shifts a ReLU network can only scale: f(a x) = a f(x)."""
    plain, dropped = plain_mlp(3, 2, (4, 5), seed=7), paper_dropout_mlp(3, 0.1, 2, (4, 5), seed=7)
    assert [type(layer) for layer in plain] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert [type(layer) for layer in dropped] == [nn.Dropout, nn.Linear, nn.ReLU] * 2 + [nn.Dropout, nn.Linear]
    for mine, other in zip(plain.parameters(), dropped.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert [tuple(layer.bias.shape) for layer in plain[::2]] == [(4,), (5,), (2,)]


@pytest.mark.parametrize("make", [paper_mlp, plain_mlp, lambda d, **sizes: paper_dropout_mlp(d, 0.1, **sizes)])
def test_sizes_that_are_no_whole_numbers(make):
    for sizes in ({"hidden": (5, 2.5)}, {"hidden": 50}, {"out_features": "a"}, {"hidden": (0,)}):
        with pytest.raises(BayesNormError, match="in_features, out_features and hidden must be whole numbers from 1"):
            make(3, **sizes)
    with pytest.raises(BayesNormError, match="in_features, out_features and hidden must be whole numbers from 1"):
        make(0)
    assert make(3, hidden=())(torch.ones(2, 3)).shape == (2, 1)
    assert make(3, hidden=iter((4, 5)))(torch.ones(2, 3)).shape == (2, 1)
