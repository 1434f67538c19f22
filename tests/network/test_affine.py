"""Batch norm as an affine map: PyTorch's own numbers, and derivatives that PyTorch's own does not have."""

import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm

from bayesnorm.network.running.affine import AffineBatchNorm

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


class Activated(nn.BatchNorm1d):
    def forward(self, input):
        return super().forward(input).relu()


def layer(kind=nn.BatchNorm1d, **options):
    module = kind(4, **options).double().eval()
    module.running_mean.normal_()
    module.running_var.uniform_(0.5, 3)
    if module.affine:
        nn.init.normal_(module.weight)
        nn.init.normal_(module.bias)
    return module


def statistics(*shape):
    return {
        "0.running_mean": torch.randn(*shape, 4, dtype=torch.float64),
        "0.running_var": torch.rand(*shape, 4, dtype=torch.float64) + 0.3,
    }


def batch_norm_of(module, mean, var, h):
    return batch_norm(h, mean, var, module.weight, module.bias, eps=module.eps)


SHAPES = [(nn.BatchNorm1d, ()), (nn.BatchNorm1d, (5,)), (nn.BatchNorm2d, (3, 2)), (nn.BatchNorm3d, (2, 3, 2))]


@pytest.mark.parametrize(
    ("kind", "shape", "options"),
    [*((*case, {}) for case in SHAPES), (*SHAPES[0], {"affine": False}), (*SHAPES[2], {"eps": 0.4})],
)
def test_the_map_is_batch_norm_in_evaluation(kind, shape, options):
    module = layer(kind, **options)
    network = nn.Sequential(module)
    affine, state = AffineBatchNorm(network), statistics()
    h = torch.randn(6, 4, *shape, dtype=torch.float64)
    maps, rest = affine.maps(state)
    assert rest == {}
    with affine.under(maps):
        result = network(h)
    expected = batch_norm_of(module, state["0.running_mean"], state["0.running_var"], h)
    torch.testing.assert_close(result, expected, **TIGHT)
    torch.testing.assert_close(network(h), batch_norm_of(module, module.running_mean, module.running_var, h), **TIGHT)


def test_rows_may_have_statistics_of_their_own():
    module = layer(nn.BatchNorm2d)
    network, state = nn.Sequential(module), statistics(6)
    affine = AffineBatchNorm(network)
    h = torch.randn(6, 4, 3, 2, dtype=torch.float64)
    with affine.under(affine.maps(state)[0]):
        result = network(h)
    for row in range(6):
        expected = batch_norm_of(module, state["0.running_mean"][row], state["0.running_var"][row], h[row : row + 1])
        torch.testing.assert_close(result[row : row + 1], expected, **TIGHT)


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_what_is_not_given_is_the_layers_own(name):
    module = layer()
    network, state = nn.Sequential(module), statistics()
    affine, h = AffineBatchNorm(network), torch.randn(6, 4, dtype=torch.float64)
    with affine.under(affine.maps({f"0.{name}": state[f"0.{name}"]})[0]):
        result = network(h)
    parts = {"running_mean": module.running_mean, "running_var": module.running_var, name: state[f"0.{name}"]}
    torch.testing.assert_close(result, batch_norm_of(module, *parts.values(), h), **TIGHT)


def test_weight_and_bias_may_be_drawn_too_and_other_entries_are_left():
    module = layer()
    network = nn.Sequential(module, nn.Linear(4, 1).double())
    affine = AffineBatchNorm(network)
    weight, bias = torch.randn(2, 4, dtype=torch.float64)
    state = {**statistics(), "0.weight": weight, "0.bias": bias, "1.bias": torch.ones(1)}
    h = torch.randn(6, 4, dtype=torch.float64)
    maps, rest = affine.maps(state)
    assert list(rest) == ["1.bias"]
    with affine.under(maps):
        result = network[0](h)
    expected = batch_norm(h, state["0.running_mean"], state["0.running_var"], weight, bias, eps=module.eps)
    torch.testing.assert_close(result, expected, **TIGHT)


def test_derivatives_by_the_statistics_are_finite_differences():
    network, state = nn.Sequential(layer()), statistics()
    affine, h = AffineBatchNorm(network), torch.randn(3, 4, dtype=torch.float64)

    def outputs(mean, var):
        with affine.under(affine.maps({"0.running_mean": mean, "0.running_var": var})[0]):
            return network(h)

    assert torch.autograd.gradcheck(outputs, tuple(value.requires_grad_() for value in state.values()))


def test_a_subclass_with_an_activation_keeps_it_and_takes_part_on_request():
    module = layer(Activated)
    network, state = nn.Sequential(module), statistics()
    affine, h = AffineBatchNorm(network), torch.randn(6, 4, dtype=torch.float64)
    assert list(affine.special) == ["0"]
    expected = batch_norm_of(module, state["0.running_mean"], state["0.running_var"], h).relu()
    maps, rest = affine.maps(state, special=True)
    assert rest == {}
    with affine.under(maps):
        torch.testing.assert_close(network(h), expected, **TIGHT)
    maps, rest = affine.maps(state)
    assert rest.keys() == state.keys(), "left to functional_call"
    with affine.under(maps):
        torch.testing.assert_close(
            network(h), batch_norm_of(module, module.running_mean, module.running_var, h).relu(), **TIGHT
        )


def test_a_forward_put_on_the_instance_is_special():
    plain, altered = layer(), layer()
    altered.forward = lambda input: 2 * input
    affine = AffineBatchNorm(nn.Sequential(plain, altered))
    assert list(affine.plain) == ["0"]
    assert list(affine.special) == ["1"]


def test_nothing_stays_after_an_error():
    network, h = nn.Sequential(layer()), torch.randn(6, 4, dtype=torch.float64)
    affine = AffineBatchNorm(network)
    before = network(h)
    with pytest.raises(KeyError), affine.under(affine.maps(statistics())[0]):
        raise KeyError
    assert torch.equal(network(h), before)


def test_the_map_of_a_half_precision_layer_is_taken_in_single_precision():
    network = nn.Sequential(layer().bfloat16())
    scale, _ = AffineBatchNorm(network).map_of("0", None, None)
    module = network[0]
    exact = module.weight.double() / (module.running_var.double() + module.eps).sqrt()
    assert scale.dtype == torch.float32
    torch.testing.assert_close(scale.double(), exact, rtol=1e-6, atol=0)


def test_keyword_input_is_taken():
    network, state = nn.Sequential(layer()), statistics()
    affine, h = AffineBatchNorm(network), torch.randn(6, 4, dtype=torch.float64)
    with affine.under(affine.maps(state)[0]):
        assert torch.equal(network[0](input=h), network[0](h))
