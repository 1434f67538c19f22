"""Training of all folds and settings at once."""

from __future__ import annotations

import numpy as np
import torch

from bayesnorm.likelihoods import Gaussian
from bayesnorm.metrics import rmse
from bayesnorm.stacked import stacked_point
from bayesnorm.tabular.search_plan import plan_for
from bayesnorm.tabular.targets import NumberTargets
from bayesnorm.tabular.trainer import Trainer


def trainer_for(X: np.ndarray, y: np.ndarray) -> Trainer:
    targets = NumberTargets.of(y[:, None], None, False)
    x = torch.from_numpy(X).float()
    return Trainer(x, targets, "mcbn", (6,), learning_rate=1e-2, seed=0, verbose=False)


def test_every_network_cools_down_for_a_fifth_of_its_own_epochs(line):
    plan = plan_for(40, dropout=False, max_epochs=60, patience=5)
    folds = torch.arange(80).chunk(2)
    settings = [(1e-4, None), (10.0, None)]  # the second learns next to nothing
    stack, epochs = trainer_for(*line).train(folds[::-1], folds, plan, 8, settings)
    assert epochs[0] == epochs[1] != epochs[2] == epochs[3]  # the folds of a setting stop together
    steps = 40 // 8
    assert stack.tracked.tolist() == [steps * (e + 2 * -(-e // 10)) for e in epochs.tolist()]


def test_cooling_lets_training_come_to_rest(line, monkeypatch):
    X, y = line
    trainer, everything = trainer_for(X, y), torch.arange(80)
    plan = plan_for(80, dropout=False, epochs=60)

    def error() -> float:
        stack, epochs = trainer.train([everything] * 4, None, plan, 8, [(0.0, None)])
        assert epochs.tolist() == [60] * 4
        rows = trainer.rows([everything] * 4, [trainer.targets.scales_of(everything)] * 4)
        predictive = stacked_point(stack, rows, Gaussian(missing=True)).predict(rows)
        return float(rmse(predictive, rows.own_targets, each=1).mean())

    cooled = error()
    monkeypatch.setattr("bayesnorm.tabular.trainer.COOLING", ())
    assert cooled < 0.9 * error()


def test_members_are_different_networks(line):
    trainer, everything = trainer_for(*line), torch.arange(80)
    plan = plan_for(80, dropout=False, epochs=1)
    first, second = (trainer.train([everything], None, plan, 8, [(0.0, None)], first=k)[0].weights.flat for k in (0, 1))
    assert not torch.equal(first, second)
