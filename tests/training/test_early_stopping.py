"""Scores in the course of training: which network is kept, when training ends, and that looking changes nothing."""

import copy
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, lr_scheduler

from bayesnorm.errors import BayesNormError
from bayesnorm.training import objective, train

from .small_training import data, network, trained, weights


def test_the_best_network_is_kept():
    scores = iter([3.0, 1.0, 2.0, 2.0])
    states = {}

    def evaluate(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        score = next(scores)
        states[score] = weights(model)
        return score

    model, history = trained(network(), epochs=8, evaluate=evaluate, evaluate_every=2)
    assert history.scores == [(2, 3.0), (4, 1.0), (6, 2.0), (8, 2.0)]
    assert history.epochs == 4
    assert history.stopped == 8
    assert torch.equal(weights(model), states[1.0])


@pytest.mark.parametrize("end", [KeyboardInterrupt, float("nan"), OSError])
def test_the_best_network_is_kept_whatever_ends_training(end, tmp_path, monkeypatch):
    """A key, a loss that is no number, a disk that is full: hours of training must not go with it."""
    states, scores, steps = {}, iter([3.0, 1.0, 2.0]), iter(range(100))

    def evaluate(model):
        score = next(scores)
        states[score] = weights(model)
        if score == 2 and end is OSError:
            monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        return score

    def loss(f, y):
        if next(steps) < 17 or end is OSError:
            return mse_loss(f, y)
        if end is KeyboardInterrupt:
            raise KeyboardInterrupt
        return mse_loss(f, y) * end

    model = network()
    message = "best state so far, that of epoch 2" if isinstance(end, float) else None
    with pytest.raises((KeyboardInterrupt, BayesNormError), match=message):
        train(
            model,
            *data(),
            loss=loss,
            epochs=5,
            batch_size=8,
            evaluate=evaluate,
            checkpoint=tmp_path / "run",
            checkpoint_every=0,
        )
    assert torch.equal(weights(model), states[1.0])
    assert not model.training


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
    states, history = trained(model, epochs=60, validation=(x.double().numpy(), y), patience=4, **options)
    scores = dict(history.scores)
    assert history.epochs == min(scores, key=scores.get)
    assert history.stopped == history.epochs + 4 < 60
    assert scores[history.epochs] == pytest.approx(mse_loss(states(x), y).item(), rel=1e-6)
    again, _ = trained(model, epochs=history.epochs, **options)
    assert torch.equal(weights(states), weights(again)), "looking changes nothing"
    monkeypatch.setattr(objective, "VALIDATION_ELEMENTS", 1)
    _, in_parts = trained(model, epochs=60, validation=(x, y), patience=4, **options)
    np.testing.assert_allclose([score for _, score in in_parts.scores], [*scores.values()], rtol=1e-6)


def test_a_network_that_writes_into_its_input_leaves_validation_rows_alone():
    x, y = data(30, seed=1)
    before = x.clone()
    model = nn.Sequential(nn.LeakyReLU(0.5, inplace=True), nn.Linear(3, 1))
    states, history = trained(model, epochs=4, validation=(x, y))
    assert torch.equal(x, before)
    assert history.scores[-1][1] == pytest.approx(mse_loss(states(before.clone()), y).item(), rel=1e-6)


def test_a_plateau_is_one_of_scores_however_seldom_they_come():
    """Neither an epoch without a score nor the loss of the epochs before the first one is news."""
    rates = []
    scores = iter([5.0, 4.0, 3.0, 3.5])

    def schedule(optimiser):
        rates.append(optimiser.param_groups[0])
        return lr_scheduler.ReduceLROnPlateau(optimiser, patience=0)

    options = {"evaluate": lambda _: next(scores), "evaluate_every": 3, "schedule": schedule}
    seen = []
    trained(
        network(),
        epochs=12,
        optimiser=partial(SGD, lr=1e-2),
        on_epoch=lambda *_: seen.append(rates[0]["lr"]),
        **options,
    )
    assert seen == pytest.approx([1e-2] * 11 + [1e-3])


def test_a_score_that_is_no_number_chooses_nothing():
    x, y = data(30, seed=1)
    with pytest.raises(BayesNormError, match=r"validation: the score is NaN in epoch 1. It must be a number"):
        trained(network(), epochs=50, validation=(x, y.where(y > y.median(), float("nan"))), patience=1)
    with pytest.raises(BayesNormError, match="evaluate: the score is NaN in epoch 2"):
        trained(network(), evaluate=lambda _: float("nan"), evaluate_every=2)
    scores = iter([2.0, float("nan"), 3.0])
    _, history = trained(network(), epochs=3, evaluate=lambda _: next(scores))
    assert history.epochs == 1, "later, it is no improvement"


def test_what_looking_samples_and_changes_is_its_own():
    """Evaluation in the middle leaves training as it was: random numbers, modes of layers, gradients."""
    result, drawn = [], []

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
        result.append((weights(model).tolist(), modes))
    assert result[0] == result[1]
    assert modes == [True] + [False] * 14, "once it is put into evaluation mode it stays there"
    assert len(drawn) == 3
