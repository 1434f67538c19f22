"""A head for the noise: outputs of before unchanged, new ones where they were asked to start."""

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import NetworkError
from bayesnorm.training import train


def mlp(bias=True):
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2, bias=bias)).eval()


def cnn(head):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), head).eval()


MODELS = {
    "linear": (mlp, (5, 3), 2),
    "linear without bias": (lambda: mlp(bias=False), (5, 3), 2),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 1)), (5, 3, 9), 2),
    "conv2d": (lambda: cnn(nn.Conv2d(8, 4, 3)), (5, 3, 6, 6), 4),
    "transposed": (lambda: cnn(nn.ConvTranspose2d(8, 4, 2, stride=2)), (5, 3, 6, 6), 4),
}


@pytest.mark.parametrize(("noises", "start"), [(None, 0.0), (1, -2.5), (3, -2.5)])
@pytest.mark.parametrize("name", MODELS)
def test_means_stay_and_noise_starts_where_it_is_told(name, start, noises, snapshot):
    make, shape, outputs = MODELS[name]
    model, x = make(), torch.randn(shape)
    before = snapshot(model)
    network = bn.with_noise_head(model, log_variance=start, noises=noises)
    assert snapshot(model) == before
    result, expected = network(x), model(x)
    assert result.shape[1] == outputs + (noises or outputs)
    torch.testing.assert_close(result[:, :outputs], expected)
    assert torch.equal(result[:, outputs:], torch.full_like(result[:, outputs:], start))
    assert network.training == model.training
    result.square().sum().backward()
    assert network[-1].weight.grad.abs().sum() > 0
    assert model[-1].weight.grad is None
    assert str(outputs + (noises or outputs)) in repr(network[-1])


def test_it_can_be_trained(make_task):
    task = make_task("multi_output")
    network = bn.with_noise_head(task.model, log_variance=-1.0)
    likelihood = bn.HeteroscedasticGaussian()
    before = likelihood.loss(network(task.x), task.y).item()
    train(network, task.x, task.y, loss=likelihood.loss, epochs=8, batch_size=16, learning_rate=1e-2)
    assert likelihood.loss(network(task.x), task.y).item() < before
    predictive = bn.MCBN(batch_size=8).fit(network, (task.x, task.y), likelihood).predict(task.new_x)
    assert predictive.mean.shape == (6, 2)
    assert predictive.aleatoric.std(0).min() > 0


def test_a_named_layer():
    class TwoBranches(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 1)
            self.body = nn.Linear(2, 3)
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.head(self.norm(self.body(x)))

    model = TwoBranches().eval()
    with pytest.raises(NetworkError, match=r"last module with weights, but 'norm' \(BatchNorm1d\).*'head', 'body'"):
        bn.with_noise_head(model)
    assert bn.with_noise_head(model, "head")(torch.zeros(4, 2)).shape == (4, 2)
    with pytest.raises(NetworkError, match=r"layer='tail' is not a linear or .*'head', 'body'"):
        bn.with_noise_head(model, "tail")


def test_what_cannot_be_widened():
    grouped = nn.Sequential(nn.Conv2d(4, 4, 1, groups=2))
    with pytest.raises(NetworkError, match="layer: '0' is a grouped convolution"):
        bn.with_noise_head(grouped)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    with pytest.raises(NetworkError, match="layer"):
        bn.with_noise_head(nn.Sequential(normed))
    with pytest.raises(NetworkError, match="not initialised yet"):
        bn.with_noise_head(nn.Sequential(nn.LazyLinear(2)))
    with pytest.raises(NetworkError, match="layer=None takes the last module"):
        bn.with_noise_head(nn.Sequential(nn.ReLU()))
    with pytest.raises(NetworkError, match=r"model must be .*, got str"):
        bn.with_noise_head("model")


class TwoHeads(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.body, self.norm = kind, nn.Linear(3, 6), nn.BatchNorm1d(6)
        self.mean, self.log_var = nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x):
        h = torch.relu(self.norm(self.body(x)))
        mean, log_var = self.mean(h), self.log_var(h)
        if self.kind == "flat":
            mean, log_var = mean[:, 0], log_var[:, 0]
        return (mean, log_var) if self.kind == "tuple" else {"mean": mean, "log_var": log_var}


@pytest.mark.parametrize(
    ("kind", "entries"), [("dict", ["mean", "log_var"]), ("tuple", [0, 1]), ("flat", ["mean", "log_var"])]
)
def test_two_heads_are_joined(kind, entries, tmp_path):
    model, x = TwoHeads(kind).eval(), torch.randn(40, 3)
    network = bn.joined_outputs(model, entries)
    parts = model(x)
    parts = parts if kind == "tuple" else (parts["mean"], parts["log_var"])
    assert torch.equal(network(x), torch.cat([part.reshape(40, 1) for part in parts], 1))
    posterior = bn.MCBN(batch_size=8).fit(network, (x, x[:, :1]), bn.HeteroscedasticGaussian())
    predictive = posterior.predict(x[:4])
    assert predictive.mean.shape == (4, 1)
    assert (predictive.epistemic > 0).all()
    posterior.save(tmp_path / "posterior")
    again = bn.load(tmp_path / "posterior", bn.joined_outputs(model, entries)).predict(x[:4])
    assert torch.equal(again.variance, predictive.variance)


def test_entries_that_are_not_there():
    model = TwoHeads("dict").eval()
    with pytest.raises(NetworkError, match=r"entries: 'sigma' is not a tensor in the output .* dict .*'mean'"):
        bn.joined_outputs(model, ["mean", "sigma"])(torch.zeros(4, 3))
    for bad in ("mean", [], None):
        with pytest.raises(NetworkError, match=r"^entries must be "):
            bn.joined_outputs(model, bad)
    with pytest.raises(NetworkError, match=r"^model must be "):
        bn.joined_outputs(None, ["mean"])
