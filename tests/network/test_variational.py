"""Noisy passes: every estimator against the closed-form moments of outputs, and weights that are used more than once.

Statistical tests draw with fixed seeds and allow `SIGMAS` standard errors, each derived where it is used.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from bayesnorm.errors import NetworkError
from bayesnorm.network.copying import own_copy, reset_weights
from bayesnorm.network.editing.variational import NoisyNetwork, RandomWeights, weight_tensors

SIGMAS = 4.5
"""Two-sided probability 7e-6 of a false alarm per comparison, at most some hundreds of which are made here."""

ESTIMATORS = ("local", "flipout", "weights")


class Doubled(RandomWeights):
    """Weights with a random multiplier, 2 or 0 with equal chance: mean 1, variance 1."""

    def multipliers(self, n):
        return 2 * torch.bernoulli(torch.full((n, self.mean.shape[self.axis]), 0.5, dtype=self.mean.dtype))


def weights_of(network, kind=RandomWeights, std=0.3):
    """Distributions with a different standard deviation for every entry; multipliers are for weights only."""
    return {
        tensor.name: (RandomWeights if tensor.is_bias else kind)(
            tensor.parameter, std * (0.5 + torch.rand_like(tensor.parameter)).detach(), tensor.axis
        )
        for tensor in weight_tensors(network)
    }


def noisy(network, estimator, x, kind=RandomWeights):
    network = own_copy(network)
    return NoisyNetwork(network, weights_of(network, kind), estimator, x)


def passes(network, x, n):
    """n passes, (n, rows, *out)."""
    with torch.no_grad():
        return torch.stack([network(x) for _ in range(n)])


def assert_moments(result, mean, var):
    """Mean and variance of Gaussian samples along axis 0: standard errors sqrt(var / n) and var sqrt(2 / n)."""
    n = len(result)
    assert ((result.mean(0) - mean).abs() <= SIGMAS * (var / n).sqrt() + 1e-12).all()
    assert ((result.var(0) - var).abs() <= SIGMAS * var * (2 / n) ** 0.5 + 1e-12).all()


LAYERS = {
    "linear": (lambda: nn.Linear(5, 4), (5,)),
    "linear without bias": (lambda: nn.Linear(5, 4, bias=False), (5,)),
    "linear on a sequence": (lambda: nn.Linear(5, 4), (3, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2, dilation=2), (4, 9)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1, stride=2), (2, 5, 4)),
    "conv2d circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False), (2, 4, 4)),
    "conv3d": (lambda: nn.Conv3d(2, 2, 2), (2, 3, 3, 3)),
    "transposed conv": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 2, 3)),
}


# Where "local" is not exact it is flipout, which needs no cases of its own there; "weights" knows no layers.
CASES = [*((name, "local") for name in LAYERS), ("linear", "flipout"), ("linear without bias", "flipout")]


@pytest.mark.parametrize(("name", "estimator"), [*CASES, ("conv2d", "weights")])
def test_outputs_have_the_moments_of_drawn_weights(name, estimator):
    """Mean: the layer under M. Variance: the layer under sigma^2 on x^2, as entries are independent."""
    make, shape = LAYERS[name]
    layer, x = make().double(), torch.randn(3, *shape, dtype=torch.float64)
    network = noisy(nn.Sequential(layer), estimator, x)
    variances = {name.removeprefix("0."): w.std.detach().square() for name, w in zip_names(network)}
    with torch.no_grad():
        mean = layer(x)
        var = torch.func.functional_call(layer, variances, (x.square(),))
    # The marginal of every output is Gaussian: flipout's signs do not change a symmetric draw.
    assert_moments(passes(network, x, 1500), mean, var)


def zip_names(network):
    return zip([tensor.name for tensor in weight_tensors(network.network)], network.weights, strict=True)


@pytest.mark.parametrize(
    ("name", "estimator"), [("linear on a sequence", "local"), ("conv2d", "local"), ("conv2d", "weights")]
)
def test_places_of_a_row_share_their_draw(name, estimator):
    """Outputs are linear in the weights: J diag(sigma^2) J^T is the covariance of all of a row's outputs."""
    make, shape = LAYERS[name]
    layer, x = make().double(), torch.randn(2, *shape, dtype=torch.float64)
    network = noisy(nn.Sequential(layer), estimator, x)
    copies = dict(zip_names(network))

    def outputs(weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x[:1],)).flatten()

    with torch.no_grad():
        jacobians = torch.func.jacrev(outputs, argnums=(0, 1))(layer.weight, layer.bias)
        j = torch.cat([part.flatten(1) for part in jacobians], dim=1)
        var = torch.cat([copies["0.weight"].std.flatten(), copies["0.bias"].std]).square()
        covariance = (j * var) @ j.T
    drawn = passes(network, x, 2000)[:, 0].flatten(1)
    # A sample covariance of n Gaussian pairs has standard error sqrt((v1 v2 + c^2) / n).
    diagonal = covariance.diag()
    error = ((diagonal[:, None] * diagonal + covariance.square()) / len(drawn)).sqrt()
    assert ((torch.cov(drawn.T) - covariance).abs() <= SIGMAS * error).all()
    assert (covariance - diagonal.diag()).abs().max() > 0.2 * diagonal.min()


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_rows_draw_for_themselves(estimator):
    x = torch.randn(1, 5, dtype=torch.float64).expand(2, 5).clone()
    drawn = passes(noisy(nn.Sequential(nn.Linear(5, 1).double()), estimator, x), x, 1500)[:, :, 0]
    correlation = torch.corrcoef(drawn.T)[0, 1]
    assert abs(correlation) < SIGMAS / 1500**0.5
    together = passes(noisy(nn.Sequential(nn.Linear(5, 1).double()), "weights", x), x, 3)[:, :, 0]
    torch.testing.assert_close(together[:, 0], together[:, 1])


MULTIPLIED = [("linear on a sequence", "local"), ("conv2d", "local"), ("conv2d", "weights")]


@pytest.mark.parametrize(("name", "estimator"), [*(("linear", e) for e in ESTIMATORS), *MULTIPLIED])
def test_multipliers(name, estimator):
    """Mean as without them; variance that of sigma, and M^2 more along the multiplier's axis."""
    make, shape = LAYERS[name]
    layer, x = make().double(), torch.randn(2, *shape, dtype=torch.float64)
    network = noisy(nn.Sequential(layer), estimator, x, kind=Doubled)
    variances = {name.removeprefix("0."): w.std.detach().square() for name, w in zip_names(network)}
    with torch.no_grad():
        mean, var = layer(x), torch.func.functional_call(layer, variances, (x.square(),))
        if isinstance(layer, nn.Linear):
            var = var + functional.linear(x.square(), layer.weight.square())
        else:
            var = var + (mean - layer.bias.view(-1, 1, 1)).square()
    result = passes(network, x, 2000)
    n = len(result)
    assert ((result.mean(0) - mean).abs() <= SIGMAS * (var / n).sqrt()).all()
    # Not Gaussian any more: the standard error of a variance from the samples' own fourth moment.
    squares = (result - result.mean(0)).square()
    assert ((result.var(0) - var).abs() <= SIGMAS * squares.std(0) / n**0.5).all()


def test_derivatives_reach_means_and_deviations():
    x = torch.randn(8, 2, 5, 4)
    body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4), nn.Tanh(), nn.Linear(4, 1))
    for estimator in ESTIMATORS:
        network = noisy(body, estimator, x)
        network(x).square().sum().backward()
        for weights in network.weights:
            assert weights.mean.grad.abs().max() > 0
            assert weights.rho.grad.abs().max() > 0


def test_a_row_of_zeros_has_finite_derivatives():
    network = noisy(nn.Sequential(nn.Linear(3, 2, bias=False)), "local", torch.ones(2, 3))
    network(torch.zeros(4, 3)).sum().backward()
    assert torch.isfinite(network.weights[0].rho.grad).all()


class Difference(nn.Module):
    """Zero wherever both uses of the weights see the same draw."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.first(x) - self.second(x)


class Scaled(nn.Linear):
    def forward(self, x):
        return 3 * functional.linear(x, self.weight, self.bias)


def tied():
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    second.weight, second.bias = first.weight, first.bias
    return Difference(first, second)


def called_twice():
    layer = nn.Linear(3, 2)
    return Difference(layer, layer)


class Embedded(nn.Module):
    """An embedding that shares the head's weight, as language models do."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(x) - x @ self.table.weight.T


class Folded(nn.Module):
    """Two copies of a row, folded into the batch axis."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        f = self.layer(x.repeat_interleave(2, 0)).view(len(x), 2, 2)
        return f[:, 0] - f[:, 1]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("make", [tied, called_twice, Embedded, Folded])
def test_weights_used_more_than_once_are_drawn_once(make, estimator):
    torch.manual_seed(0)
    x, model = torch.randn(5, 3), make()
    network = noisy(model, estimator, x)
    for _ in range(3):
        torch.testing.assert_close(network(x), torch.zeros_like(network(x)), atol=1e-5, rtol=0)


def test_a_subclass_keeps_its_own_forward():
    x = torch.randn(2, 3, dtype=torch.float64)
    layer = Scaled(3, 2).double()
    network = noisy(nn.Sequential(layer), "local", x)
    variances = {name.removeprefix("0."): w.std.detach().square() for name, w in zip_names(network)}
    with torch.no_grad():
        var = 9 * functional.linear(x.square(), variances["weight"], variances["bias"])
        assert_moments(passes(network, x, 1500), layer(x), var)


class OftenInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.layer(x)) if self.training else self.layer(x)


def test_a_layer_called_more_often_in_training_is_refused():
    x = torch.randn(2, 3)
    network = noisy(OftenInTraining(), "local", x).train()
    with pytest.raises(NetworkError, match=r"'layer' runs once in evaluation mode and more often"):
        network(x)
    noisy(OftenInTraining(), "weights", x).train()(x)


def test_attention_reads_weights_past_the_layers_forward():
    """The output projection's forward is never called, so its weight is put in place instead."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4)
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    network = noisy(model, "local", x).train()
    assert "self_attn.out_proj.weight" in network._replaced
    network(x).square().sum().backward()
    assert all(weights.rho.grad is not None for weights in network.weights)
    assert not any("in_proj" in tensor.name for tensor in weight_tensors(model))


def test_which_tensors_are_drawn():
    model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(3, 1, bias=False))
    results = [(tensor.name, tensor.is_bias, tensor.axis) for tensor in weight_tensors(model)]
    assert results == [("0.weight", False, 0), ("0.bias", True, 0), ("3.weight", False, 1)]
    model[0].requires_grad_(False)
    assert [tensor.name for tensor in weight_tensors(model)] == ["3.weight"]
    model[3].requires_grad_(False)
    with pytest.raises(NetworkError, match=r"model: it has no linear or convolutional layer .*BatchNorm1d.* Pass a"):
        weight_tensors(model)


def test_restart_samples_anew_and_leaves_frozen_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.MultiheadAttention(4, 2))
    model[1].running_mean.fill_(3.0)
    model[2].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    reset_weights(model, "another way")
    after = model.state_dict()
    assert not torch.equal(before["0.weight"], after["0.weight"])
    assert not torch.equal(before["3.in_proj_weight"], after["3.in_proj_weight"])
    assert torch.equal(before["2.weight"], after["2.weight"])
    assert torch.equal(after["1.running_mean"], torch.zeros(4))
    model.register_parameter("token", nn.Parameter(torch.zeros(2)))
    with pytest.raises(NetworkError, match=r"Sequential has parameters but no reset.*Pass another way"):
        reset_weights(model, "another way")


def test_restart_leaves_the_statistics_of_frozen_layers():
    """A pretrained body without its running statistics would be of no use."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
    model[:2].requires_grad_(False)
    for norm in (model[1], model[3]):
        norm.running_mean.fill_(3.0)
    reset_weights(model, "another way")
    assert torch.equal(model[1].running_mean, torch.full((4,), 3.0))
    assert torch.equal(model[3].running_mean, torch.zeros(4))


def test_a_copy_shares_nothing():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    copies = own_copy(model)
    for mine, theirs in zip(copies.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() != theirs.data_ptr()
