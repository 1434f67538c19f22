"""Pruning channels of trained batch-normalised networks: as many as asked for, those that matter least."""

import copy
import re
import warnings

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.compression import prune_channels
from bayesnorm.network import multiply_adds
from bayesnorm.training import train

# These networks are small, and most of them are not trained, so that their predictions change easily.
pytestmark = pytest.mark.filterwarnings("ignore:The smaller network:bayesnorm.BayesNormWarning")


def image_network():
    layers = [nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, bias=False)]
    layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)]
    return nn.Sequential(*layers)


@pytest.fixture
def posterior():
    model, x = image_network(), torch.randn(64, 1, 7, 7)
    for _ in range(20):
        model(x)  # running statistics
    with torch.no_grad():
        model[1].weight[:2] = 1e-3
        model[4].weight[5] = 0.0
    return bn.MCBN(batch_size=8, states=16).fit(model.eval(), x, bn.Categorical())


@pytest.mark.parametrize("criterion", ["signal", "statistics", "scale"])
def test_channels_without_a_scale_go_first(posterior, criterion):
    model, x = posterior.model, torch.randn(64, 1, 7, 7)
    before = copy.deepcopy(model.state_dict())
    pruned = prune_channels(posterior, x, multiply_adds=0.7, criterion=criterion)
    small = pruned.network
    assert all(torch.equal(value, before[key]) for key, value in pruned.before.state_dict().items())
    remains = [any(torch.equal(row, filter) for row in small[0].weight) for filter in model[0].weight]
    assert remains[:2] == [False, False]
    assert multiply_adds(small, x) <= 0.7 * multiply_adds(model, x)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    again = bn.MCBN(batch_size=8, states=4).fit(small, x, bn.Categorical())
    assert again.predict(x).probs.shape == (64, 3)


def test_what_does_not_matter_goes_without_a_trace(posterior):
    """Channels that batch norm silences can go; new statistics are then those of before, up to their momentum."""
    x = torch.randn(64, 1, 7, 7)
    whole = prune_channels(posterior, x, multiply_adds=1.0)
    assert whole.report().parameters_after == whole.report().parameters_before
    share = multiply_adds(posterior.model[:5], x) / multiply_adds(posterior.model, x) - 1e-3
    less = prune_channels(posterior, x, multiply_adds=share)
    assert less.network[3].weight.shape[0] == 7
    torch.testing.assert_close(less.network(x), whole.network(x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("last", ["bias", "batch norm"])
def test_a_channel_that_is_a_constant_goes_without_a_trace(last):
    """Behind a sigmoid a channel without a scale is not zero; the layer that reads it takes that up."""
    layers = [nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Sigmoid(), nn.Conv2d(6, 4, 3, bias=last == "bias")]
    layers += [nn.BatchNorm2d(4)] if last == "batch norm" else []
    model, x = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)), torch.randn(64, 1, 7, 7)
    for _ in range(20):
        model(x)
    with torch.no_grad():
        model[1].weight[2], model[1].bias[2] = 0.0, 1.5
    posterior = bn.MCBN(batch_size=8, states=4).fit(model.eval(), x, bn.Categorical())
    whole = prune_channels(posterior, x, multiply_adds=1.0).network
    less = prune_channels(posterior, x, multiply_adds=0.9).network
    assert less[0].out_channels == 5
    torch.testing.assert_close(less(x), whole(x), rtol=0, atol=1e-4)


def test_what_cannot_be_pruned(posterior):
    x = torch.randn(16, 1, 7, 7)
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(50, 2))
    mixed = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Softmax(1), nn.Flatten(), nn.Linear(50, 2))
    point, plain, mixed = (bn.deterministic(model, bn.Categorical()) for model in (posterior.model, plain, mixed))
    for argument, rows, options, match in (
        (posterior, x, {"criterion": "magic"}, "criterion must be one of .*, got 'magic'"),
        (posterior, x, {"multiply_adds": 0.01}, "multiply_adds must be a number from 0.05 to 1, got 0.01"),
        (posterior, x, {"multiply_adds": 0.05}, r"multiply_adds=0.05, but a share of 0\.\d+ is left"),
        (posterior.model, x, {}, "posterior must be the posterior .*, got Sequential.* Fit one first"),
        (point, x, {"criterion": "statistics"}, "DeterministicPosterior, which does not sample batch statistics"),
        (posterior, torch.full_like(x, 3e38), {}, r"x gives NaN or infinite inputs to layer '\d'"),
        (plain, x, {}, "model has no channel that can be pruned"),
        (mixed, x, {}, r"can be pruned \(most frequent reason: _2 \(softmax\)"),
    ):
        with pytest.raises(bn.BayesNormError, match=match):
            prune_channels(argument, rows, **options)


class Residual(nn.Module):
    """A residual block; with a projection, its shortcut is a convolution with batch norm."""

    def __init__(self, before, after, projection):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        shortcut = nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential(*shortcut) if projection else nn.Identity()

    def forward(self, x):
        return (self.branch(x) + self.shortcut(x)).relu()


NETWORKS = {
    "plain": [nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()],
    "shortcuts": [Residual(8, 8, False)],
    "projections": [Residual(8, 16, True)],
}


@pytest.fixture(scope="module", params=NETWORKS)
def trained(request):
    """A network that tells apart noisy patterns, its posterior and images."""
    torch.manual_seed(0)
    body = copy.deepcopy(NETWORKS[request.param])
    width = 8 if request.param == "shortcuts" else 16
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *body, nn.AdaptiveAvgPool2d(2))
    model = nn.Sequential(*model, nn.Flatten(), nn.Linear(4 * width, 6))
    y = torch.arange(600) % 6
    x = torch.randn(6, 1, 8, 8)[y] + 0.7 * torch.randn(600, 1, 8, 8)
    train(model, x, y, loss=nn.functional.cross_entropy, epochs=8, batch_size=50)
    return bn.MCBN(batch_size=50, states=32).fit(model.eval(), x, bn.Categorical()), x, y


@pytest.mark.parametrize("criterion", ["signal", "statistics"])
def test_the_classifier_is_not_pruned_away(trained, criterion):
    """Layers without batch norm are on the scale of the others, so none of them is left with one input."""
    posterior, x, y = trained
    small = prune_channels(posterior, x, multiply_adds=0.5, criterion=criterion).network
    assert small[-1].in_features >= posterior.model[-1].in_features / 6
    accuracy = [float((network(x).argmax(1) == y).double().mean()) for network in (posterior.model, small)]
    assert accuracy[0] > 0.9
    assert accuracy[1] > accuracy[0] - 0.25


def test_a_warning_says_if_predictions_change_and_the_repr_what_was_pruned(trained, monkeypatch):
    posterior, x, y = trained
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "narrower" not in repr(prune_channels(posterior, x, multiply_adds=1.0))
    monkeypatch.setattr("bayesnorm.compression.channels.CHANGED", 0.01)
    with pytest.warns(
        bn.BayesNormWarning, match=r"smaller network gives another class for \d+% of x. Fine-tune"
    ) as seen:
        pruned = prune_channels(posterior, x, multiply_adds=0.2, criterion="scale")
    assert seen[0].filename == __file__
    assert "layers are narrower, most of all" in repr(pruned)
    with pytest.warns(
        bn.BayesNormWarning, match=r"of x, and its accuracy on x is [\d.]+% instead of [\d.]+%\."
    ) as seen:
        pruned = prune_channels(posterior, (x, y), multiply_adds=0.2, criterion="scale")
    numbers = [float(number) for number in re.findall(r"([\d.]+)%", str(seen[0].message))[1:]]
    accuracies = [100 * float((net(x).argmax(1) == y).double().mean()) for net in (pruned.network, posterior.model)]
    assert numbers == pytest.approx(accuracies, abs=0.051)
    head = nn.Sequential(*posterior.model[:-1], nn.Linear(posterior.model[-1].in_features, 1)).eval()
    regression = bn.MCBN(batch_size=8, states=4).fit(head, x, bn.Gaussian())
    with pytest.warns(bn.BayesNormWarning, match=r"changes \d+% of the outputs' variance on x"):
        prune_channels(regression, x, multiply_adds=0.2, criterion="scale")


def test_arguments_that_are_no_inputs_are_refused():
    class Scaled(nn.Sequential):
        def forward(self, x, *, scale):
            return super().forward(x) * scale

    model = Scaled(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).eval()
    x = torch.randn(40, 3)
    posterior = bn.MCBN(8, states=8).fit(model, x, bn.Categorical(), forward_kwargs={"scale": 2.0})
    with pytest.raises(bn.BayesNormError, match=r"fitted with forward_kwargs \('scale'\).*default values"):
        prune_channels(posterior, x)
