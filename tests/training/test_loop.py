"""The training loop: what a seed decides, which rows and modes networks see, what is told and what is refused."""

import copy
import re
import sys
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, Adam, RMSprop, lr_scheduler

from bayesnorm.errors import BayesNormError
from bayesnorm.training import progress_bar, relative_adam, train

from .small_training import DEVICES, data, global_states, network, trained, weights


def kl(model, epoch):
    """A penalty that changes with every epoch."""
    return epoch * 0.01 * sum(p.abs().sum() for p in model.parameters())


def by_hand(model, optimiser, schedule, decay, penalties, epochs=4, batch_size=8, seed=3):
    """The loop that everybody writes."""
    model = copy.deepcopy(model)
    x, y = data()
    optimiser = optimiser(model.parameters())
    schedule = schedule and schedule(optimiser)
    losses = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        order = torch.Generator().manual_seed(seed)
        for epoch in range(1, epochs + 1):
            rows = torch.randperm(len(x), generator=order)
            total = 0.0
            for step in range(len(x) // batch_size):
                chosen = rows[step * batch_size : (step + 1) * batch_size]
                optimiser.zero_grad()
                loss = mse_loss(model(x[chosen]), y[chosen])
                for penalty in penalties:
                    loss = loss + penalty(model, epoch)
                if decay:
                    squares = torch.stack([p.square().sum() for p in model.parameters() if p.dim() > 1])
                    loss = loss + decay / 2 * squares.sum()
                loss.backward()
                optimiser.step()
                total += loss.item()
            losses.append(total / (step + 1))
            if schedule:
                schedule.step()
    return model.eval(), losses


@pytest.mark.parametrize(
    ("optimiser", "schedule", "decay", "penalties"),
    [
        (None, None, 0.0, ()),
        (partial(Adam, lr=1e-2, betas=(0.8, 0.9)), None, 0.1, ()),
        (partial(SGD, lr=0.1, momentum=0.9, nesterov=True), partial(lr_scheduler.StepLR, step_size=2), 0.0, ()),
        (partial(SGD, lr=0.1), partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=5), 0.01, (kl,)),
        (
            RMSprop,
            partial(lr_scheduler.CosineAnnealingLR, T_max=4),
            0.0,
            (kl, lambda model, _epoch: model[0].bias.sum()),
        ),
    ],
    ids=["plain", "Adam, decay", "SGD, steps", "one cycle", "two penalties"],
)
def test_it_is_the_loop_that_everybody_writes(optimiser, schedule, decay, penalties):
    model = network(nn.Dropout(0.3))
    expected, losses = by_hand(model, optimiser or partial(Adam, lr=1e-3), schedule, decay, penalties)
    result, history = trained(
        model, epochs=4, seed=3, optimiser=optimiser, schedule=schedule, weight_decay=decay, penalties=penalties
    )
    assert torch.equal(weights(result), weights(expected))
    np.testing.assert_allclose(history.losses, losses, rtol=1e-6)
    assert history.epochs == history.stopped == 4
    assert history.seconds > 0


@pytest.mark.parametrize("more", [(), (nn.Dropout(0.5),)], ids=["plain", "dropout"])
@pytest.mark.parametrize("device", DEVICES)
def test_the_seed_decides_alone(more, device):
    model = network(*more).to(device)
    first, _ = trained(model, seed=1)
    torch.manual_seed(99)
    again, _ = trained(model, seed=1)
    other, _ = trained(model, seed=2)
    assert torch.equal(weights(first), weights(again))
    assert not torch.allclose(weights(first), weights(other))


@pytest.mark.parametrize("more", [(), (nn.Dropout(0.5),)], ids=["plain", "dropout"])
@pytest.mark.parametrize("device", DEVICES)
def test_the_global_generators_are_not_touched(more, device):
    model = network(*more).to(device)
    before = global_states()
    trained(model, validation=data())
    assert global_states() == before


def test_it_learns_with_lbfgs():
    x, y = data()
    model, _ = trained(nn.Linear(3, 1), optimiser=partial(torch.optim.LBFGS, max_iter=20), epochs=2, batch_size=40)
    solution = torch.linalg.lstsq(torch.cat([x, torch.ones(40, 1)], 1), y).solution
    torch.testing.assert_close(torch.cat([model.weight[0], model.bias]), solution[:, 0], rtol=1e-3, atol=1e-3)


def test_rows_left_over_are_dropped_and_others_seen_once():
    x, y = data(21)
    numbered = torch.cat([torch.arange(21.0)[:, None], x[:, 1:]], 1)
    seen = []
    model = nn.Linear(3, 1)
    model.register_forward_pre_hook(lambda _module, args: seen.append(args[0][:, 0].tolist()))
    train(model, numbered, y, loss=mse_loss, epochs=2, batch_size=8, seed=0)
    assert [len(batch) for batch in seen] == [8] * 4
    epochs = [seen[0] + seen[1], seen[2] + seen[3]]
    assert all(len(set(epoch)) == 16 for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_fewer_rows_than_a_batch_make_one():
    seen = []
    model = network()
    model.register_forward_pre_hook(lambda _module, args: seen.append(len(args[0])))
    train(model, *data(5), loss=mse_loss, epochs=2, batch_size=8)
    assert seen == [5, 5]


def test_modes_while_and_after():
    modes = []
    model = network()
    model[0].register_forward_pre_hook(lambda module, _args: modes.append(module.training))
    after, _ = trained(model.eval(), evaluate=lambda m: float(m(data()[0]).sum()))
    assert modes == ([True] * 5 + [False]) * 3
    assert not any(module.training for module in after.modules())
    plain, _ = trained(network())
    assert not any(module.training for module in plain.modules())
    assert all(parameter.grad is None for parameter in plain.parameters())


def test_parameters_that_are_named_twice_are_trained_once():
    model = network()
    once, twice = copy.deepcopy(model), copy.deepcopy(model)
    for trainee, parameters in ((once, [*once.parameters()]), (twice, [*twice.parameters(), twice[0].weight])):
        train(trainee, *data(), loss=mse_loss, epochs=2, batch_size=8, parameters=parameters, weight_decay=0.1)
    assert torch.equal(weights(once), weights(twice))


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
def test_a_bar_tells_the_time_left(rich, monkeypatch, capsys):
    now = [0.0]
    if rich:
        pytest.importorskip("rich", reason="needs rich: pip install typer rich")
        monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal, where bars move
    else:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress_bar("members") as bar:
        for done in range(4):
            now[0] = 100.0 * done
            bar(done, 40)
    err = capsys.readouterr().err
    # rich has a clock of its own.
    assert re.search(r"[\d-]:[\d-]{2}:[\d-]{2}\S* left", err) if rich else "members: 3/40, 1:01:40 left" in err


BAD = {
    "model": ({"model": len}, "model must be a torch.nn.Module.* got builtin_function_or_method"),
    "frozen": ({"model": network().requires_grad_(False)}, "model has no parameter that requires"),
    "patience alone": ({"patience": 2}, r"patience needs a score .*validation=\(x, y\)"),
    "two scores": ({"validation": data(), "evaluate": float}, "validation and evaluate are both given"),
    "no score": ({"evaluate": lambda _: None}, "evaluate must return a number, got NoneType"),
    "inputs": ({"data": (data()[1], data()[1])}, r"data: the network's forward failed on .* \(8, 1\)"),
    "whole inputs": ({"data": (data()[0].long(), data()[1])}, "data: .*failed on .*torch.int64"),
    "validation inputs": ({"validation": (data()[1], data()[1])}, r"validation: .*failed on .* \(40, 1\)"),
    "precision": ({"mixed_precision": torch.float64}, "mixed_precision must be .*bfloat16.* got torch.float64"),
    "an optimiser": ({"optimiser": "adam"}, "optimiser must be a function that makes .* got str"),
    "no optimiser": ({"optimiser": list}, "optimiser must be a function .* returned list"),
    "two rates": ({"optimiser": SGD, "learning_rate": 1.0}, "learning_rate is for Adam"),
    "a schedule": ({"schedule": 3}, "schedule must be a function that makes .* got int"),
    "no schedule": ({"schedule": id}, "schedule must be a function .* returned int"),
    "no parameters": ({"parameters": []}, "parameters has no parameter"),
    "no parameter": ({"parameters": ["0.weight"]}, r"parameters\[0\] is a str"),
    "no gradient": ({"parameters": [torch.zeros(3)]}, r"parameters\[0\] is not a leaf"),
    "no loss": ({"loss": "mse"}, "loss must be a function.* got str"),
    "loss per row": ({"loss": lambda f, y: (f - y).square()}, r"loss must return .* got a tensor of shape \(8, 1\)"),
    "loss that is no tensor": ({"loss": lambda f, y: 1.0}, "loss must return a tensor .* got float"),
    "loss of nothing": ({"loss": lambda f, y: y.mean()}, "loss does not depend on any trained tensor"),
    "one penalty": ({"penalties": max}, "penalties must be a list of functions, got builtin_function_or_method"),
    "no penalty": ({"penalties": [3.0]}, r"penalties\[0\] must be a function.* got float"),
    "penalty that is no tensor": ({"penalties": [lambda *_: 0.0]}, r"penalties\[0\] must return .* got float"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments(case):
    options, message = BAD[case]
    arguments = {"model": network(), "data": data(), "loss": mse_loss, "epochs": 1, "batch_size": 8, **options}
    before = torch.get_rng_state()
    with pytest.raises(BayesNormError, match=message):
        train(**arguments)
    assert torch.equal(torch.get_rng_state(), before)


def rates(*values, **options):
    return [group["lr"] for group in relative_adam([nn.Parameter(value) for value in values], **options).param_groups]


def test_rates_are_shares_of_sizes():
    weights = torch.tensor([[3.0, 4.0], [0.0, 0.0]])  # whose mean square is 25 / 4
    assert rates(weights, 1e-3 * weights, share=0.1) == pytest.approx([0.25, 0.00025])


def test_vectors_and_what_begins_at_nothing_have_the_usual_rate():
    assert rates(torch.zeros(3), torch.full((3,), 2.0), torch.zeros(2, 2)) == pytest.approx([0.001] * 3)


def test_other_settings_are_adams():
    made = relative_adam([nn.Parameter(torch.ones(2))], betas=(0.5, 0.9))
    assert made.defaults["betas"] == (0.5, 0.9)


X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_switched_on_for_training_and_off_again(mode):
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    expected = train(models[0], X, X[:, :1], loss=mse_loss, epochs=2, batch_size=8)
    with mode():
        training = train(models[1], X, X[:, :1], loss=mse_loss, epochs=2, batch_size=8)
        assert not torch.is_grad_enabled()
    assert training.losses == expected.losses
    assert torch.equal(models[1][0].weight, models[0][0].weight)
