"""Bayes by Backprop's own promises: its start, its prior, what is random, files, and what is refused."""

import copy
import dataclasses
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm.errors import InputError
from bayesnorm.methods import fitting


def captured(monkeypatch):
    """What `fit` gives to `train`."""
    seen = {}

    def spy(model, data, **options):
        seen.update(options, model=model)
        return real(model, data, **options)

    real = fitting.train
    monkeypatch.setattr(fitting, "train", spy)
    return seen


@pytest.mark.parametrize("weight", [1, 0.3])
def test_the_divergence_is_divided_by_rows_and_its_weight_rises(monkeypatch, regression, weight):
    seen = captured(monkeypatch)
    method = bn.BayesByBackprop(epochs=5, batch_size=16, kl_warmup=3, kl_weight=weight)
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    (penalty,) = seen["penalties"]
    values = torch.stack([penalty(seen["model"], epoch) for epoch in range(1, 6)])
    full = weight * posterior.kl() / len(regression.x)
    torch.testing.assert_close(values, full * torch.tensor([0.25, 0.5, 0.75, 1, 1]), rtol=1e-4, atol=0)


def test_warmup_lets_the_data_speak_first(regression):
    """While the divergence counts for less, weights go farther from the prior."""
    data = regression.x, regression.y
    method = bn.BayesByBackprop(epochs=20, batch_size=16, prior=0.1, learning_rate=0.01)
    pressed = method.fit(regression.model, data, regression.likelihood)
    warm = dataclasses.replace(method, kl_warmup=19).fit(regression.model, data, regression.likelihood)
    assert warm.kl() > 1.1 * pressed.kl()


@pytest.mark.parametrize("prior_center", ["zero", "trained"])
def test_starting_from_trained_weights_stays_near_them(regression, prior_center):
    method = bn.BayesByBackprop(
        start="trained", prior_center=prior_center, delta=0.05, epochs=2, batch_size=16, learning_rate=1e-4
    )
    model = regression.model
    posterior = method.fit(model, (regression.x, regression.y), regression.likelihood)
    steps = 2 * (len(regression.x) // 16)
    trained = dict(model.named_parameters())
    for name, weights in posterior.weights.items():
        # A step of Adam moves a parameter by at most (1 - .9) / sqrt(1 - .999) = 3.2 times the learning rate.
        assert (weights.mean - trained[name]).abs().max() < 3.2 * steps * 1e-4
        expected = (0.05 * trained[name].abs()).clamp_min(1e-4)
        torch.testing.assert_close(weights.std, expected, rtol=0.02, atol=0)
        assert (weights.center is None) == (prior_center == "zero")
    with torch.no_grad():
        exact = model(regression.new_x)
    predictive = posterior.predict(regression.new_x, bn.MonteCarlo(samples=400))
    # Weights spread by 5 %: outputs move by a few of these in standard deviation, and the mean by second order.
    assert (predictive.mean - exact).abs().max() < 0.1 * exact.std()
    fresh = dataclasses.replace(method, start="fresh", prior_center="zero")
    other = fresh.fit(model, (regression.x, regression.y), regression.likelihood)
    assert (other.predict(regression.new_x).mean - exact).abs().max() > 0.3 * exact.std()


def test_prior_about_the_trained_weights_has_less_to_pay(regression):
    options = {"start": "trained", "epochs": 2, "batch_size": 16, "prior": 0.1}
    data = regression.x, regression.y
    near = bn.BayesByBackprop(**options, prior_center="trained").fit(regression.model, data, regression.likelihood)
    far = bn.BayesByBackprop(**options).fit(regression.model, data, regression.likelihood)
    assert near.kl() < far.kl()


def test_what_is_random_and_what_is_a_point(make_task):
    task = make_task("per_pixel")
    posterior = bn.BayesByBackprop(epochs=2, batch_size=16).fit(task.model, (task.x, task.y), task.likelihood)
    assert set(posterior.weights) == {"0.weight", "3.weight", "3.bias", "7.weight", "7.bias"}
    state = posterior.sample(3)
    assert set(state) == {*dict(task.model.named_parameters()), *dict(task.model.named_buffers())}
    for name, value in state.items():
        same = bool((value[0] == value[1]).all())
        assert same == (name not in posterior.weights), name
    buffers = dict(task.model.named_buffers())
    assert not torch.equal(state["1.running_mean"][0], buffers["1.running_mean"]), "batch norm follows training"
    assert not torch.equal(state["1.weight"][0], dict(task.model.named_parameters())["1.weight"])


def test_frozen_parameters_stay_points_with_their_values(regression):
    model = regression.model
    model[0].requires_grad_(False)
    posterior = bn.BayesByBackprop(epochs=2, batch_size=16).fit(model, (regression.x, regression.y))
    assert "0.weight" not in posterior.weights
    assert torch.equal(posterior.points["0.weight"], model[0].weight)
    assert "3.weight" in posterior.weights


def test_shared_weights_predict_as_they_were_trained():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(40, 3)
    posterior = bn.BayesByBackprop(epochs=2, batch_size=8).fit(model, (x, x[:, :1]))
    state = posterior.sample(2)
    assert "2.weight" not in state
    same = copy.deepcopy(model)
    same.load_state_dict({**{name: value[1] for name, value in state.items()}, "2.weight": state["0.weight"][1]})
    torch.testing.assert_close(posterior.outputs(2, x)[1], same(x))


def test_only_the_architecture_counts_when_loading(regression, tmp_path):
    method = bn.BayesByBackprop(epochs=2, batch_size=16, start="trained", prior_center="trained", prior=(0.5, 1.0, 0.1))
    posterior = method.fit(regression.model, (regression.x, regression.y), regression.likelihood)
    posterior.save(tmp_path / "posterior")
    other = copy.deepcopy(regression.model)
    for module in other.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    loaded = bn.load(tmp_path / "posterior", other)
    assert torch.equal(loaded.predict(regression.new_x).mean, posterior.predict(regression.new_x).mean)
    assert loaded.prior == posterior.prior
    assert loaded.kl(8, seed=1) == posterior.kl(8, seed=1)
    assert loaded.elbo(regression.x, regression.y) == pytest.approx(posterior.elbo(regression.x, regression.y))
    with pytest.raises(bn.BayesNormError, match="model does not match"):
        bn.load(tmp_path / "posterior", nn.Linear(3, 1))


def test_the_network_may_change_after_the_fit(regression):
    posterior = bn.BayesByBackprop(epochs=2, batch_size=16).fit(regression.model, (regression.x, regression.y))
    expected = posterior.predict(regression.new_x).mean
    with torch.no_grad():
        for tensor in regression.model.state_dict().values():
            tensor.zero_()
    assert torch.equal(posterior.predict(regression.new_x).mean, expected)


@pytest.mark.parametrize("draw", [lambda q, seed: q.sample(3, seed)["0.weight"], lambda q, seed: q.kl(3, seed)])
def test_threads_take_turns_at_drawing(regression, monkeypatch, draw):
    """One that begins while another samples would give it its own random numbers, and leave the generator moved."""
    prior = (0.5, 1.0, 0.1)  # whose divergence is drawn too
    posterior = bn.BayesByBackprop(epochs=1, prior=prior).fit(regression.model, (regression.x, regression.y))
    expected, before = [torch.as_tensor(draw(posterior, seed)) for seed in (1, 2)], torch.get_rng_state()
    began, result, randn = threading.Event(), {}, torch.randn

    def second():
        result[2] = draw(posterior, 2)

    other = threading.Thread(target=second)

    def slow(*arguments, **options):
        if threading.current_thread() is other:
            began.set()
        elif other.ident is None:
            other.start()
            began.wait(0.5)
        return randn(*arguments, **options)

    monkeypatch.setattr(torch, "randn", slow)
    result[1] = draw(posterior, 1)
    other.join()
    assert torch.equal(torch.as_tensor(result[1]), expected[0])
    assert torch.equal(torch.as_tensor(result[2]), expected[1])
    assert torch.equal(torch.get_rng_state(), before)


def test_loaders_and_data_sets(regression):
    data = TensorDataset(regression.x, regression.y)
    method = bn.BayesByBackprop(epochs=2)
    state = torch.get_rng_state()
    for source in (DataLoader(data, batch_size=16, shuffle=True), data, [regression.x.numpy(), regression.y.numpy()]):
        posterior = method.fit(regression.model, source, regression.likelihood)
        assert posterior.rows == len(data)
        assert torch.isfinite(posterior.predict(regression.new_x).mean).all()
    assert torch.equal(torch.get_rng_state(), state)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return {"features": self.body(x), "mean": self.head(torch.relu(self.body(x)))}


def test_a_chosen_output_and_progress():
    x, told = torch.randn(30, 3), []
    posterior = bn.BayesByBackprop(epochs=3, batch_size=8).fit(
        Heads(), (x, x[:, :1]), output="mean", progress=lambda *at: told.append(at)
    )
    assert posterior.predict(x).mean.shape == (30, 1)
    assert told == [(1, 3), (2, 3), (3, 3)]


BAD_OPTIONS = [
    ({"schedule": "linear"}, r"schedule must be one of 'cosine', 'constant'.* got 'linear'"),
    ({"prior": (0.5, 1.0)}, r"prior must be .*\(pi, std1, std2\).* got \(0.5, 1.0\)"),
    ({"prior": (1.5, 1.0, 0.1)}, r"prior must be .*pi up to 1"),
    ({"prior_center": "mean"}, r"prior_center must be one of 'zero', 'trained'.* got 'mean'"),
    ({"prior_center": "trained"}, r'prior_center="trained" needs start="trained"'),
    ({"estimator": "reinforce"}, r"estimator must be one of 'local', 'flipout', 'weights'.* got 'reinforce'"),
    ({"start": "warm"}, r"start must be one of 'fresh', 'trained'.* got 'warm'"),
    ({"kl_warmup": 5, "epochs": 5}, r"kl_warmup is 5, .*epochs=5.*at most 4"),
]


def test_bad_options():
    for options, match in BAD_OPTIONS:
        with pytest.raises(bn.BayesNormError, match=match):
            bn.BayesByBackprop(**options)


def test_bound_of_other_rows_is_refused(regression):
    posterior = bn.BayesByBackprop(epochs=1, batch_size=16).fit(regression.model, (regression.x, regression.y))
    with pytest.raises(InputError, match=r"y has 5 rows, but x has 80"):
        posterior.elbo(regression.x, regression.y[:5])
    with pytest.raises(bn.BayesNormError, match=r"n must be .* got 0"):
        posterior.kl(0)


def test_batches_go_through_a_transform():
    x = torch.randint(0, 256, (24, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = (x[:, :1].float() / 255).round()
    method = bn.BayesByBackprop(epochs=2, batch_size=8)
    scaled = method.fit(nn.Linear(5, 1), (x.float() / 255, y), bn.Gaussian(), seed=3)
    changed = dataclasses.replace(method, transform=lambda rows: rows.float() / 255)
    same = changed.fit(nn.Linear(5, 1), (x, y), bn.Gaussian(), seed=3)
    for name, buffers in scaled.weights.items():
        torch.testing.assert_close(buffers.mean, same.weights[name].mean, rtol=0, atol=0)


@pytest.mark.parametrize("data", [7, DataLoader], ids=str)
def test_data_without_a_length_are_refused(data):
    with pytest.raises(InputError, match=r"train_data of type \w+ has no length"):
        bn.BayesByBackprop(epochs=1, batch_size=8).fit(nn.Linear(3, 1), data)
