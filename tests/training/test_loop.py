"""The training loop: what a seed decides, what is minimised, which network is kept."""

from __future__ import annotations

import copy
import random
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, Adam, RMSprop, lr_scheduler

from bayesnorm.errors import BayesNormError, NetworkError
from bayesnorm.training import Step, loop, objective, progress_bar, train

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def network(*more):
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), *more, nn.Linear(6, 1))


def data(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, x[:, :1] - x[:, 1:2] + 0.1 * torch.randn(n, 1, generator=generator)


def trained(model, **options):
    options = {"loss": mse_loss, "epochs": 3, "batch_size": 8, **options}
    model = copy.deepcopy(model)
    return model, train(model, *data(), **options)


def weights(model):
    return torch.cat([value.detach().flatten().double().cpu() for value in model.state_dict().values()])


def global_states():
    numbers = np.random.get_state()[1].tolist()  # noqa: NPY002
    devices = [torch.cuda.get_rng_state().tolist()] if torch.cuda.is_available() else []
    return torch.get_rng_state().tolist(), devices, random.getstate(), numbers


def kl(model, at):
    """A penalty that changes with every step."""
    return at.epoch * 0.01 * sum(p.abs().sum() for p in model.parameters()) / at.step


def by_hand(model, optimiser, schedule, schedule_every, decay, penalties, epochs=4, batch_size=8, seed=3):
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
                    loss = loss + penalty(model, Step(epoch, epochs, step + 1, len(x) // batch_size))
                if decay:
                    squares = torch.stack([p.square().sum() for p in model.parameters() if p.dim() > 1])
                    loss = loss + decay / 2 * squares.sum()
                loss.backward()
                optimiser.step()
                total += loss.item()
                if schedule and schedule_every == "step":
                    schedule.step()
            losses.append(total / (step + 1))
            if schedule and schedule_every == "epoch":
                schedule.step()
    return model.eval(), losses


@pytest.mark.parametrize(
    ("optimiser", "schedule", "schedule_every", "decay", "penalties"),
    [
        (None, None, "epoch", 0.0, ()),
        (partial(Adam, lr=1e-2, betas=(0.8, 0.9)), None, "epoch", 0.1, ()),
        (
            partial(SGD, lr=0.1, momentum=0.9, nesterov=True),
            partial(lr_scheduler.StepLR, step_size=2),
            "epoch",
            0.0,
            (),
        ),
        (partial(SGD, lr=0.1), partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=20), "step", 0.01, (kl,)),
        (
            RMSprop,
            partial(lr_scheduler.CosineAnnealingLR, T_max=4),
            "epoch",
            0.0,
            (kl, lambda model, at: model[0].bias.sum()),
        ),
    ],
    ids=["plain", "Adam, decay", "SGD, steps", "one cycle by step", "two penalties"],
)
def test_it_is_the_loop_that_everybody_writes(optimiser, schedule, schedule_every, decay, penalties):
    model = network(nn.Dropout(0.3))
    expected, losses = by_hand(model, optimiser or partial(Adam, lr=1e-3), schedule, schedule_every, decay, penalties)
    found, history = trained(
        model,
        epochs=4,
        seed=3,
        optimiser=optimiser,
        schedule=schedule,
        schedule_every=schedule_every,
        weight_decay=decay,
        penalties=penalties,
    )
    assert torch.equal(weights(found), weights(expected))
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


def test_it_learns():
    x, y = data()
    model, history = trained(network(), epochs=150, learning_rate=1e-2)
    assert history.epochs == 150
    assert mse_loss(model(x), y) < 0.1 * y.var()
    assert history.losses[-1] < 0.1 * history.losses[0]


def test_it_learns_with_lbfgs():
    x, y = data()
    model, _ = trained(nn.Linear(3, 1), optimiser=partial(torch.optim.LBFGS, max_iter=20), epochs=2, batch_size=40)
    solution = torch.linalg.lstsq(torch.cat([x, torch.ones(40, 1)], 1), y).solution
    torch.testing.assert_close(torch.cat([model.weight[0], model.bias]), solution[:, 0], rtol=1e-3, atol=1e-3)


def test_weight_decay_pulls_at_matrices_only():
    """With no other loss, only weight matrices move, and towards zero."""
    model = network()
    nn.init.ones_(model[0].bias)
    after, _ = trained(model, loss=lambda f, y: 0.0 * f.sum(), weight_decay=1.0, epochs=5, learning_rate=1e-2)
    for (name, old), new in zip(model.named_parameters(), after.parameters(), strict=True):
        if old.dim() >= 2:
            assert new.norm() < old.norm(), name
            assert not torch.equal(new, old)
        else:
            assert torch.equal(new, old), name


def test_weight_decay_of_a_network_without_matrices():
    model, plain = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    for each, decay in ((model, 0.1), (plain, 0.0)):
        train(each, data()[0], data()[0], loss=mse_loss, epochs=2, batch_size=8, weight_decay=decay)
    assert torch.equal(weights(model), weights(plain))


def test_the_penalty_is_half_lambda_times_the_squared_norm():
    model, decay = nn.Linear(3, 1), 0.3
    seen = []
    model.weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    expected = decay * model.weight.detach().clone()
    train(model, *data(8), loss=lambda f, y: 0.0 * f.sum(), epochs=1, batch_size=8, weight_decay=decay)
    torch.testing.assert_close(seen[-1], expected)


def test_penalties_are_told_where_training_is():
    seen = []

    def penalty(model, at):
        assert isinstance(model, nn.Sequential)
        seen.append(tuple(at))
        return torch.zeros(())

    trained(network(), epochs=2, batch_size=20, penalties=[penalty])
    assert seen == [(1, 2, 1, 2), (1, 2, 2, 2), (2, 2, 1, 2), (2, 2, 2, 2)]


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


def test_the_best_network_is_kept():
    scores = iter([3.0, 1.0, 2.0, 2.0])
    kept = {}

    def evaluate(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        score = next(scores)
        kept[score] = weights(model)
        return score

    model, history = trained(network(), epochs=8, evaluate=evaluate, evaluate_every=2)
    assert history.scores == [(2, 3.0), (4, 1.0), (6, 2.0), (8, 2.0)]
    assert history.epochs == 4
    assert history.stopped == 8
    assert torch.equal(weights(model), kept[1.0])


def test_patience_ends_training_and_an_equal_score_is_an_improvement():
    def run(values, patience):
        scores = iter(values)
        return trained(network(), epochs=9, evaluate=lambda _: next(scores), patience=patience)[1]

    history = run([1.0, 2, 2, 2, 2, 2, 2, 2, 2], 3)
    assert [epoch for epoch, _ in history.scores] == [1, 2, 3, 4]
    assert (history.epochs, history.stopped) == (1, 4)
    equal = run([1.0] * 9, 2)
    assert len(equal.scores) == 9
    assert equal.epochs == 9
    assert len(run([1.0, *[2.0] * 8], None).scores) == 9


def test_the_last_epoch_is_looked_at_too():
    _, history = trained(network(), epochs=5, evaluate=lambda _: 1.0, evaluate_every=2)
    assert [epoch for epoch, _ in history.scores] == [2, 4, 5]


def test_early_stopping_on_validation_rows(monkeypatch):
    """A rate so high that it gets worse: the network is the one of the best epoch, whose loss is the score."""
    x, y = data(30, seed=1)
    options = {"optimiser": partial(SGD, lr=0.3), "seed": 5}
    model = network(nn.Dropout(0.5))
    kept, history = trained(model, epochs=60, validation=(x.double().numpy(), y), patience=4, **options)
    scores = dict(history.scores)
    assert history.epochs == min(scores, key=scores.get)
    assert history.stopped == history.epochs + 4 < 60
    assert scores[history.epochs] == pytest.approx(mse_loss(kept(x), y).item(), rel=1e-6)
    again, _ = trained(model, epochs=history.epochs, **options)
    assert torch.equal(weights(kept), weights(again)), "looking changes nothing"
    monkeypatch.setattr(objective, "VALIDATION_ELEMENTS", 1)
    _, in_parts = trained(model, epochs=60, validation=(x, y), patience=4, **options)
    np.testing.assert_allclose([score for _, score in in_parts.scores], [*scores.values()], rtol=1e-6)


def test_a_schedule_that_waits_for_a_plateau_sees_the_scores():
    made = []
    scores = iter([1.0, 0.5, 0.7, 0.8])
    trained(
        network(),
        epochs=4,
        optimiser=partial(SGD, lr=1e-2),
        schedule=lambda optimiser: made.append(lr_scheduler.ReduceLROnPlateau(optimiser, patience=0)) or made[0],
        evaluate=lambda _: next(scores),
    )
    assert made[0].get_last_lr() == pytest.approx([1e-4]), "two scores without improvement"


def test_what_looking_draws_and_changes_is_its_own():
    """Evaluation in the middle leaves training as it was: random numbers, modes of layers, gradients."""
    found, drawn = [], []

    def look(_epoch, model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        drawn.append((torch.rand(()).item(), random.random(), np.random.rand()))  # noqa: NPY002

    start = network(nn.Dropout(0.5), nn.Dropout(0.5))
    for on_epoch in (None, look):
        model = copy.deepcopy(start)
        frozen = model[3]
        model.register_forward_hook(lambda _module, _args, _output, frozen=frozen: frozen.eval() and None)
        modes = []
        frozen.register_forward_pre_hook(lambda module, _args, modes=modes: modes.append(module.training))
        train(model, *data(), loss=mse_loss, epochs=3, batch_size=8, on_epoch=on_epoch)
        found.append((weights(model).tolist(), modes))
    assert found[0] == found[1]
    assert modes == [True] + [False] * 14, "once it is put into evaluation mode it stays there"
    assert len(drawn) == 3


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


def test_progress_is_told():
    seen = []
    trained(network(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
def test_a_bar(rich, monkeypatch, capsys):
    if rich:
        pytest.importorskip("rich", reason="needs rich: pip install 'bayesnorm[cli]'")
    else:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    trained(network(), progress=True)
    with progress_bar("members") as bar:
        trained(network(), progress=bar)
    out, err = capsys.readouterr()
    assert out == ""
    assert "members" in err
    assert ("100%" if rich else "3/3") in err


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("look_every", [2, 1000])
def test_a_loss_that_is_no_number_is_told_with_its_place(bad, look_every, monkeypatch):
    monkeypatch.setattr(loop, "LOOK_EVERY", look_every)
    calls = iter(range(100))
    model = network()
    with pytest.raises(BayesNormError, match=rf"loss: is {bad} at step 4 of epoch 2.*smaller learning rate"):
        train(
            model, *data(), loss=lambda f, y: mse_loss(f, y) * (bad if next(calls) == 8 else 1), epochs=5, batch_size=8
        )
    assert not model.training


def test_weights_that_the_last_step_broke():
    with pytest.raises(BayesNormError, match="loss: was finite to the end of epoch 1, but the weights are not"):
        trained(nn.Linear(3, 1), epochs=1, batch_size=40, optimiser=partial(SGD, lr=float("inf")))


def test_looks_at_the_loss_once_an_epoch(monkeypatch):
    """A device's queue must not be waited for at every step."""
    looks = []
    whole = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: looks.append(len(self)) or whole(self))
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("item"))
    trained(network(), epochs=2, loss=lambda f, y: (f - y).square().mean(), optimiser=partial(SGD, lr=0.1))
    assert looks == [5, 5, 6], "five losses each, and six parameters at the end"


@pytest.mark.parametrize("dtype", [True, torch.bfloat16, torch.float16])
def test_mixed_precision_does_nothing_on_a_cpu(dtype):
    model = network()
    assert torch.equal(weights(trained(model, mixed_precision=dtype)[0]), weights(trained(model)[0]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [True, torch.bfloat16, torch.float16])
def test_mixed_precision_on_a_gpu(dtype):
    seen = set()
    model = network().cuda()
    model[0].register_forward_hook(lambda _module, _args, output: seen.add(output.dtype))
    half, history = trained(model, mixed_precision=dtype, epochs=100, learning_rate=1e-2, validation=data())
    assert seen == {torch.bfloat16 if dtype is True else dtype}
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    assert history.losses[-1] < 0.2 * history.losses[0]
    seen.clear()
    whole, _ = trained(model, epochs=100, learning_rate=1e-2)
    assert seen == {torch.float32}
    x, y = (part.cuda() for part in data())
    assert mse_loss(half(x), y) < 1.5 * mse_loss(whole(x), y) + 0.02 * y.var()


BAD = {
    "model": ({"model": len}, NetworkError, "model: builtin_function_or_method was given; a torch.nn.Module"),
    "frozen": ({"model": network().requires_grad_(False)}, BayesNormError, "model: holds no parameter that requires"),
    "epochs": ({"epochs": 0}, BayesNormError, "epochs: 0 was given; a whole number from 1"),
    "no epochs": ({"epochs": None}, BayesNormError, "epochs: None was given"),
    "half an epoch": ({"epochs": 0.5}, BayesNormError, "epochs: 0.5 was given"),
    "evaluate_every": ({"evaluate_every": 0}, BayesNormError, "evaluate_every: 0 was given"),
    "patience": ({"patience": 0, "validation": data()}, BayesNormError, "patience: 0 was given"),
    "patience alone": ({"patience": 2}, BayesNormError, r"patience: .*validation=\(x, y\) would work"),
    "two scores": ({"validation": data(), "evaluate": float}, BayesNormError, "evaluate: was given beside validation"),
    "seed": ({"seed": -1}, BayesNormError, "seed: -1 was given"),
    "decay": ({"weight_decay": -1.0}, BayesNormError, "weight_decay: -1.0 was given; a number from 0"),
    "decay that is none": ({"weight_decay": float("nan")}, BayesNormError, "weight_decay: nan was given"),
    "precision": ({"mixed_precision": torch.float64}, BayesNormError, "mixed_precision: torch.float64 .*bfloat16"),
    "an optimiser": ({"optimiser": "adam"}, BayesNormError, "optimiser: str was given; a function that makes one"),
    "no optimiser": ({"optimiser": list}, BayesNormError, "optimiser: made list; a function"),
    "two rates": ({"optimiser": SGD, "learning_rate": 1.0}, BayesNormError, "learning_rate: is Adam's"),
    "a schedule": ({"schedule": 3}, BayesNormError, "schedule: int was given; a function that makes one"),
    "no schedule": ({"schedule": id}, BayesNormError, "schedule: made int; a function"),
    "schedule_every": ({"schedule_every": "batch"}, BayesNormError, "schedule_every: 'batch' .*'epoch' or 'step'"),
    "plateau by step": (
        {"schedule": lr_scheduler.ReduceLROnPlateau, "schedule_every": "step"},
        BayesNormError,
        "schedule_every: 'step' does not go with ReduceLROnPlateau",
    ),
    "no parameters": ({"parameters": []}, BayesNormError, "parameters: holds no parameter"),
    "no parameter": ({"parameters": ["0.weight"]}, BayesNormError, "parameters: entry 0 is str"),
    "no gradient": ({"parameters": [torch.zeros(3)]}, BayesNormError, "parameters: entry 0 is no leaf"),
    "no loss": ({"loss": "mse"}, BayesNormError, "loss: str was given; a function"),
    "loss per row": ({"loss": lambda f, y: (f - y).square()}, BayesNormError, r"loss: gave a tensor of shape \(8, 1\)"),
    "loss that is no tensor": ({"loss": lambda f, y: 1.0}, BayesNormError, "loss: gave float; a tensor"),
    "loss of nothing": ({"loss": lambda f, y: y.mean()}, BayesNormError, "loss: depends on nothing that is trained"),
    "no penalty": ({"penalties": [3.0]}, BayesNormError, r"penalties\[0\]: float was given; a function"),
    "penalty that is no tensor": ({"penalties": [lambda *_: 0.0]}, BayesNormError, r"penalties\[0\]: gave float"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments(case):
    options, kind, message = BAD[case]
    arguments = {"model": network(), "data": data(), "loss": mse_loss, "epochs": 1, "batch_size": 8, **options}
    before = torch.get_rng_state()
    with pytest.raises(kind, match=message):
        train(**arguments)
    assert torch.equal(torch.get_rng_state(), before)
