"""`bn.compress`: what is noise goes, predictions stay, files hold what they should, and bad input is told."""

import copy

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.compression import load_compressed
from bayesnorm.posterior import HorseshoeWeights, NormalJeffreysWeights


def made_posterior(model, likelihood, noisy, *, kind=NormalJeffreysWeights, std=0.01):
    """Return a posterior about a network's own weights, in which the first of every `noisy` groups are alive."""
    trained = bn.GroupNormalJeffreys if kind is NormalJeffreysWeights else bn.GroupHorseshoe
    x = torch.randn(4, *noisy["shape"])
    y = torch.randint(0, 2, (4,)) if isinstance(likelihood, bn.Categorical) else torch.randn(4, 1)
    method = trained(epochs=1, start="trained", learning_rate=1e-9, delta=std)
    posterior = method.fit(model, (x, y), likelihood)
    for name, layer in posterior.weights.items():
        if hasattr(layer, "log_noise"):
            dead = torch.arange(layer.mean.shape[layer.axis]) >= noisy.get(name, 10**6)
            if kind is NormalJeffreysWeights:
                layer.z_mean[dead] = 1e-4
            else:
                layer.a[0, dead] = -4.0
    return posterior


def image_network():
    torch.manual_seed(1)
    features = [nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU()]
    made = nn.Sequential(*features, nn.Flatten(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    made.register_buffer("order", torch.arange(5))  # as networks have them for positions
    return made


NOISY = {"shape": (1, 8, 8), "0.weight": 4, "4.weight": 3, "7.weight": 2, "9.weight": 5}


@pytest.fixture
def posterior():
    return made_posterior(image_network(), bn.Categorical(), NOISY)


@pytest.mark.parametrize("kind", [NormalJeffreysWeights, HorseshoeWeights])
def test_noise_goes_and_predictions_stay(kind):
    model = image_network()
    before = copy.deepcopy(model.state_dict())
    compressed = bn.compress(made_posterior(model, bn.Categorical(), NOISY, kind=kind))
    small = compressed.network
    shapes = {name: tuple(value.shape) for name, value in small.named_parameters() if name.endswith("weight")}
    # Filter 2 of the second convolution is alive, but the linear layer after it does not hear it.
    expected = {"0.weight": (4, 1, 3, 3), "1.weight": (4,), "4.weight": (2, 4, 3, 3), "7.weight": (5, 2)}
    assert shapes == expected | {"9.weight": (2, 5)}
    x = torch.randn(50, 1, 8, 8)
    torch.testing.assert_close(small(x), compressed.before(x), rtol=0.05, atol=0.02)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert bn.MCBN(batch_size=8, states=4).fit(small, x, bn.Categorical()).predict(x).probs.shape == (50, 2)


def test_files_hold_the_network_in_few_bytes(posterior, tmp_path):
    compressed = bn.compress(posterior)
    compressed.save(tmp_path / "small")
    loaded = load_compressed(tmp_path / "small", image_network())
    x = torch.randn(9, 1, 8, 8)
    assert torch.equal(loaded(x), compressed.network(x))
    assert repr(loaded) == repr(compressed.network)
    assert torch.equal(loaded.order, torch.arange(5))
    report = compressed.report()
    header = int.from_bytes((tmp_path / "small").read_bytes()[:8], "little")
    assert report.bytes_after == (tmp_path / "small").stat().st_size - header - 8 < report.bytes_before / 4


def test_a_network_that_was_trained_on_is_written_as_it_is_until_it_is_rounded(posterior, tmp_path):
    compressed, x = bn.compress(posterior), torch.randn(64, 1, 8, 8)
    few = compressed.report()
    torch.manual_seed(0)
    y, loss = torch.randint(0, 2, (64,)), nn.functional.cross_entropy
    bn.training.train(compressed.network, x, y, loss=loss, epochs=2, batch_size=16)
    trained = copy.deepcopy(compressed.network.state_dict())
    compressed.save(tmp_path / "trained")
    assert torch.equal(load_compressed(tmp_path / "trained", image_network())(x), compressed.network(x))
    assert {layer.bits for layer in compressed.report().layers if len(layer.after) > 1} == {32}

    rounded = compressed.rounded()
    rounded.save(tmp_path / "rounded")
    assert torch.equal(load_compressed(tmp_path / "rounded", image_network())(x), rounded.network(x))
    assert rounded.report().bytes_after < 1.2 * few.bytes_after
    for name, weights in rounded.precisions.items():
        assert weights.step == compressed.precisions[name].step
        moved = rounded.network.state_dict()[name] - trained[name]
        assert 0 < moved.abs().max() <= weights.step / 2 * (1 + 1e-6)
    assert all(torch.equal(value, trained[name]) for name, value in compressed.network.state_dict().items())


def test_rounding_estimates_batch_statistics_anew(posterior):
    compressed, x = bn.compress(posterior), torch.randn(300, 1, 8, 8)
    compressed.network[1].running_mean += 5
    same, anew = compressed.rounded().network, compressed.rounded(x.numpy()).network
    assert torch.equal(same[1].running_mean, compressed.network[1].running_mean)
    expected = anew[0](x[:256]).mean((0, 2, 3))
    torch.testing.assert_close(anew[1].running_mean, expected)


def test_the_report_measures(posterior):
    x, y = torch.randn(80, 1, 8, 8), torch.randint(0, 2, (80,))
    compressed = bn.compress(posterior, x)
    report = compressed.report(x, y)
    assert report.parameters_after < report.parameters_before / 2
    assert report.after.multiply_adds < report.before.multiply_adds / 1.5
    assert report.after.error == pytest.approx((compressed.network(x).argmax(1) != y).double().mean().item())
    assert report.after.seconds > 0
    assert f"{report.parameters_after:,} parameters" in repr(compressed)
    assert "times fewer" in str(report)
    assert "loss" in str(report)


def test_thresholds_are_chosen_by_the_loss():
    """Inputs differ in their noise only: those that the target depends on stay, however noisy they are called."""
    torch.manual_seed(0)
    x = torch.randn(300, 6)
    model = nn.Sequential(nn.Linear(6, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[2.0, -1.0, 0.5, 0.001, 0.0, 0.0005]]))
    posterior = made_posterior(model, bn.Gaussian(4.0), {"shape": (6,)})
    posterior.weights["0.weight"].z_log_std.copy_(torch.tensor([-1.0, -0.9, -0.8, -0.7, -0.6, -0.5]))
    y = model(x).detach()
    compressed = bn.compress(posterior, x, y, tolerance=0.001)
    assert compressed.network[0].columns.tolist() == [0, 1, 2]
    assert compressed.report(x, y).after.error < 0.05
    assert bn.compress(posterior, x, y, threshold=100.0).network[0].weight.shape == (1, 6)


@pytest.mark.parametrize(("looks", "columns"), [(0, 4), (1, 2), (32, 1)])
def test_groups_behind_one_that_matters_are_tried_one_by_one(looks, columns):
    torch.manual_seed(0)
    x, model = torch.randn(300, 4), nn.Sequential(nn.Linear(4, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[2.0, 0.0005, 0.001, 0.0]]))
    posterior = made_posterior(model, bn.Gaussian(4.0), {"shape": (4,)})
    posterior.weights["0.weight"].z_log_std.copy_(torch.tensor([-0.5, -0.6, -0.7, -0.8]))  # the noisiest matters
    result = bn.compress(posterior, x, model(x).detach(), tolerance=0.001, looks=looks).network[0]
    assert result.weight.shape[1] == columns


@pytest.mark.parametrize(("weight", "columns"), [(0.04, 2), (0.059, 2), (0.08, 3)])
def test_what_one_layer_does_not_spend_another_may(weight, columns):
    """Without the input the loss is 2 weight^2 higher: less than half of the tolerance, less than all of it, more."""
    torch.manual_seed(0)
    x, model = torch.randn(20_000, 3), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0, weight], [1.0, 2.0, 0.0]]))
        model[1].weight.fill_(1.0)
    posterior = made_posterior(model, bn.Gaussian(4.0), {"shape": (3,)}, std=1e-4)
    posterior.weights["0.weight"].z_log_std.copy_(torch.tensor([-9.0, -9.0, -5.0]))
    posterior.weights["1.weight"].z_log_std.fill_(-9.0)
    result = bn.compress(posterior, x, model(x).detach(), tolerance=0.01).network
    assert (result[0].weight.shape[1], result[1].weight.shape[1]) == (columns, 2)


def test_noise_that_new_batch_statistics_would_blow_up():
    """What the first channel says is all; the second says little; the third is noise, which the statistics of training
    keep small. Were it blown up, the loss to begin with would be high and the second channel could go, too."""
    torch.manual_seed(0)
    x, model = torch.randn(500, 3), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.diag(torch.tensor([1.0, 1.0, 1e-3])))
        model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([[2.0, 0.3, 3.0]]))
    posterior = made_posterior(model, bn.Gaussian(1.0), {"shape": (3,)}, std=1e-4)
    posterior.weights["0.weight"].z_log_std.fill_(-9.0)
    posterior.weights["2.weight"].z_log_std.copy_(torch.tensor([-9.0, -2.0, 0.0]))
    y = model(x).detach()
    compression = bn.compress(posterior, x, y, tolerance=0.01)
    assert compression.network[2].weight.shape == (1, 2)
    report = compression.report(x, y)
    assert report.after.loss < report.before.loss + 2 * 0.01


def test_new_batch_statistics_where_they_help():
    """Statistics that say twice the variance: new ones take the right one, and the loss is lower."""
    torch.manual_seed(0)
    x, model = torch.randn(4000, 2), nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1), nn.Linear(1, 1)).eval()
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
        model[1].running_var.fill_(4.0)
        model[2].weight.fill_(1.0)
    posterior = made_posterior(model, bn.Gaussian(1.0), {"shape": (2,)}, std=1e-4)
    for name in ("0.weight", "2.weight"):
        posterior.weights[name].z_log_std.fill_(-9.0)
    y = (x[:, :1] + x[:, 1:]) / 2**0.5
    network = bn.compress(posterior, x, y, tolerance=1e-4).network
    torch.testing.assert_close(network[1].running_var, torch.tensor([2.0]), rtol=0.05, atol=0)
    assert model[1].running_var == 4.0


class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.first(x).sort(1)[0].mean((2, 3)))


def test_why_noise_was_kept():
    posterior = made_posterior(Sorted(), bn.Categorical(), {"shape": (1, 5, 5), "first.weight": 2})
    compressed = bn.compress(posterior)
    (reason,) = compressed.unremovable
    assert compressed.unremovable[reason] == 2
    assert "sort" in reason
    assert "2 units of noise could not be removed: sort" in str(compressed.report())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))[:, :1]


def test_what_cannot_be_compressed():
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    model = nn.Linear(3, 1)
    plain = bn.BayesByBackprop(epochs=1).fit(model, (x, y))
    with pytest.raises(bn.BayesNormError, match=r"posterior of BayesByBackprop has no group distributions"):
        bn.compress(plain)
    with pytest.raises(bn.BayesNormError, match=r"posterior of DeterministicPosterior"):
        bn.compress(bn.deterministic(model, bn.Gaussian()))
    groups = bn.GroupNormalJeffreys(epochs=1)
    tied = groups.fit(Tied(), (x, y))
    with pytest.raises(bn.BayesNormError, match="share their weight"):
        bn.compress(tied)
    fitted = groups.fit(model, (x, y))
    with pytest.raises(bn.BayesNormError, match="x is None, but y is given"):
        bn.compress(fitted, y=y)


def test_a_file_of_another_network_is_refused(posterior, tmp_path):
    bn.compress(posterior).save(tmp_path / "small")
    with pytest.raises(bn.BayesNormError, match="a tensor of the network"):
        load_compressed(tmp_path / "small", nn.Linear(2, 2))
    posterior.save(tmp_path / "posterior")
    with pytest.raises(bn.BayesNormError, match="bayesnorm-compressed"):
        load_compressed(tmp_path / "posterior", image_network())
