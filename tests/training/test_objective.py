"""The objective: the loss, penalties and weight decay in any precision; recorded steps train as others do."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from bayesnorm.errors import BayesNormError
from bayesnorm.training import train

from .small_training import DEVICES, data, network, trained, weights


def test_weight_decay_of_a_network_without_matrices():
    model, plain = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    for trainee, decay in ((model, 0.1), (plain, 0.0)):
        train(trainee, data()[0], data()[0], loss=mse_loss, epochs=2, batch_size=8, weight_decay=decay)
    assert torch.equal(weights(model), weights(plain))


def test_penalties_may_come_from_a_generator():
    model = network()
    penalty = [lambda model, _epoch: model[0].weight.square().sum()]
    results = [weights(trained(model, penalties=source)[0]) for source in (penalty, (single for single in penalty))]
    assert torch.equal(*results)


def test_memory_that_runs_out_is_told_as_such():
    def full(_module, _args):
        raise torch.OutOfMemoryError("full")

    model = network()
    model.register_forward_pre_hook(full)
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        train(model, *data(), loss=mse_loss, epochs=1, batch_size=8)


def test_only_the_chosen_parameters_are_trained():
    model = network()
    noise = torch.zeros((), requires_grad=True)
    after = copy.deepcopy(model)
    after[1].bias.requires_grad_(False)

    def loss(f, y):
        return 0.5 * ((f - y).square() / noise.exp() + noise).mean()

    train(after, *data(), loss=loss, epochs=3, batch_size=8, parameters=[*after[3].parameters(), noise])
    moved = {
        name for (name, p), old in zip(after.named_parameters(), model.parameters(), strict=True) if (p != old).any()
    }
    assert moved == {"3.weight", "3.bias"}
    assert noise.item() != 0
    assert [p.requires_grad for p in after.parameters()] == [True, True, True, False, True, True]
    assert all(p.grad is None for p in [*after.parameters(), noise])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_told_with_its_place(bad):
    calls = iter(range(100))
    model = network()
    with pytest.raises(BayesNormError, match=rf"loss is {bad} at step 4 of epoch 2.*smaller learning rate"):
        train(
            model, *data(), loss=lambda f, y: mse_loss(f, y) * (bad if next(calls) == 8 else 1), epochs=5, batch_size=8
        )
    assert not model.training


def test_looks_at_the_loss_once_an_epoch(monkeypatch):
    """A device's queue must not be waited for at every step."""
    looks = []
    whole = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: looks.append(len(self)) or whole(self))
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("item"))
    trained(network(), epochs=2, loss=lambda f, y: (f - y).square().mean(), optimiser=partial(SGD, lr=0.1))
    assert looks == [5, 5, 6], "five losses each, and six parameters at the end"


def test_mixed_precision_does_nothing_on_a_cpu():
    model = network()
    assert torch.equal(weights(trained(model, mixed_precision=True)[0]), weights(trained(model)[0]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_mixed_precision_on_a_gpu():
    seen = set()
    model = network().cuda()
    model[0].register_forward_hook(lambda _module, _args, output: seen.add(output.dtype))
    half, history = trained(model, mixed_precision=True, epochs=100, learning_rate=1e-2, validation=data())
    assert seen == {torch.bfloat16}
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    assert history.losses[-1] < 0.2 * history.losses[0]
    seen.clear()
    whole, _ = trained(model, epochs=100, learning_rate=1e-2)
    assert seen == {torch.float32}
    x, y = (part.cuda() for part in data())
    assert mse_loss(half(x), y) < 1.5 * mse_loss(whole(x), y) + 0.02 * y.var()


def moved(x):
    return x + 0.1 * torch.rand(len(x), 1, device=x.device)


RECORDED = {
    "transform and schedule": {
        "transform": moved,
        "optimiser": lambda parameters: SGD(parameters, lr=0.05, momentum=0.9),
        "schedule": lambda optimiser: StepLR(optimiser, 3, 0.5),
        "schedule_every": "step",
    },
    "penalties that change from epoch to epoch": {
        "penalties": [lambda model, epoch: 0.1 * epoch * next(model.parameters()).square().sum()]
    },
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", RECORDED)
def test_recorded_steps_train_as_others_do(case, device):
    model, options = network(nn.Dropout(0.2)).to(device), {"epochs": 5, "seed": 3, **RECORDED[case]}
    expected, history = trained(model, **options)
    result, other = trained(model, compiled="graph", **options)
    assert torch.allclose(weights(result), weights(expected), rtol=1e-4, atol=1e-5)
    assert other.losses == pytest.approx(history.losses, rel=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_that_cannot_be_recorded_is_refused():
    class Looking(nn.Module):
        def forward(self, x):
            return x * (1.0 if x.mean().item() > 0 else 0.5)  # makes the host wait

    with pytest.raises(BayesNormError, match=r"cannot record a step .*Use compiled=False"):
        trained(network(Looking()).cuda(), compiled="graph")
    assert torch.rand(3, device="cuda").max() > 0  # the generator is of use
