"""The private copy shares every tensor and nothing else."""

import threading

import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm.errors import NetworkError
from bayesnorm.network.copying import Original, private_copy, tensors_of, unwrap


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))


def test_tensors_are_shared_and_modules_are_not():
    model = net()
    model.register_buffer("table", torch.ones(2))
    model.plain = torch.ones(3)
    copied = private_copy(model)
    for name, tensor in tensors_of(model).items():
        assert tensors_of(copied)[name] is tensor
    assert copied.plain is model.plain
    assert not any(a is b for a, b in zip(model.modules(), copied.modules(), strict=True))
    assert model.training
    assert not any(module.training for module in copied.modules())
    copied[1].running_mean = torch.ones(4)
    copied[1].register_forward_hook(lambda *_: None)
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert not model[1]._forward_hooks


def test_tied_weights_stay_tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    copied = private_copy(model)
    assert copied[2].weight is copied[0].weight is model[0].weight


def test_a_network_that_cannot_be_copied():
    model = net()
    model.lock = threading.Lock()
    with pytest.raises(NetworkError, match=r"model: Sequential cannot be copied .*lock"):
        bn.MCBN(batch_size=4, states=2).fit(model, torch.randn(20, 3))


def test_what_was_moved_replaced_or_added_outdates_copies():
    for change in (
        lambda model: model.double(),
        lambda model: setattr(model[0], "weight", nn.Parameter(torch.ones(4, 3))),
        lambda model: model[-1].register_buffer("late", torch.ones(1)),  # the last entry of all
    ):
        model = net()
        original = Original(model)
        assert not original.changed()
        change(model)
        assert original.changed()


class Compiled(nn.Module):
    """What torch.compile returns, without compiling anything."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, x):
        raise AssertionError("the wrapper is looked through")


@pytest.mark.parametrize("wrap", [Compiled, nn.DataParallel, lambda m: Compiled(nn.DataParallel(m))])
def test_wrappers_are_looked_through(wrap, snapshot, tmp_path):
    model, x = net(), torch.randn(30, 3)
    wrapped = wrap(model)
    assert unwrap(wrapped) is model
    before = snapshot(wrapped)
    posterior = bn.MCBN(batch_size=8, states=4).fit(wrapped, x)
    assert posterior.model is model
    expected = bn.MCBN(batch_size=8, states=4).fit(model, x)
    assert torch.equal(posterior.predict(x).mean, expected.predict(x).mean)
    assert snapshot(wrapped) == before
    posterior.save(tmp_path / "p")
    assert torch.equal(bn.load(tmp_path / "p", wrapped).predict(x).mean, expected.predict(x).mean)


def test_weights_trained_further_are_followed():
    model, x = net(), torch.randn(30, 3)
    posterior = bn.MCBN(batch_size=8, states=4).fit(model, x)
    before = posterior.predict(x).mean
    with torch.no_grad():
        model[3].bias += 1.0
    torch.testing.assert_close(posterior.predict(x).mean, before + 1)
    model.load_state_dict({**model.state_dict(), "3.bias": model[3].bias.detach() + 1})
    torch.testing.assert_close(posterior.predict(x).mean, before + 2)


def test_a_network_moved_to_double_after_fitting_is_followed(reference):
    model, x = net(), torch.randn(30, 3)
    posterior = bn.MCBN(batch_size=8, states=4).fit(model, x)
    single = posterior.predict(x)
    model.double()
    double = posterior.predict(x)
    assert double.mean.dtype == torch.float64
    torch.testing.assert_close(double.mean, single.mean.double(), rtol=1e-4, atol=1e-5)
    states = {name: value.double() for name, value in posterior.sample(8).items()}
    result = bn.MonteCarlo(samples=8).outputs(posterior, x)
    torch.testing.assert_close(result, reference(model, states, x.double()), rtol=1e-5, atol=1e-6)
    model.float()
    assert torch.equal(posterior.predict(x).mean, single.mean)


def test_a_replaced_module_is_followed():
    model, x = net(), torch.randn(30, 3)
    posterior = bn.MCBN(batch_size=8, states=4).fit(model, x)
    model[3] = nn.Linear(4, 1)
    nn.init.zeros_(model[3].weight)
    nn.init.constant_(model[3].bias, 7.0)
    torch.testing.assert_close(posterior.predict(x).mean, torch.full((30, 1), 7.0))


class FrozenNorm(nn.Module):
    """The common way to freeze batch norm in training, whose `train` returns nothing."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(net(), nn.Dropout(0.1))

    def train(self, mode=True):
        super().train(mode)
        self.body[0][1].eval()

    def forward(self, x):
        return self.body(x)


def test_a_train_method_that_returns_nothing():
    model, x = FrozenNorm(), torch.randn(40, 3)
    assert not private_copy(model).body.training
    for method in (bn.MCBN(batch_size=8, states=4), bn.MCDropout()):
        assert torch.isfinite(method.fit(model, x).predict(x).mean).all()
    assert model.body.training


def test_weights_made_in_inference_mode_are_looked_at_too():
    with torch.inference_mode():
        model = nn.Sequential(net(), nn.Dropout(0.1)).eval()
    x = torch.randn(40, 3)
    assert (bn.MCDropout(p=0.5).fit(model, x).predict(x).epistemic > 0).any()
