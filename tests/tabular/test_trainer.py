"""Training of all folds and settings of one shape at once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bayesnorm.tabular.search_plan import Setting
from bayesnorm.tabular.targets import NumberTargets
from bayesnorm.tabular.trainer import LEAST_RATE, WARM_UP, Trainer, warm_cosine

SETTING = Setting(encoding="plain", hidden=(6,), dropout_rate=0.0, weight_decay=0.0, batch_size=8)


def trainer_for(X: np.ndarray, y: np.ndarray, heteroscedastic: bool = False) -> Trainer:
    targets = NumberTargets.from_array(y[:, None], None, heteroscedastic)
    x = torch.from_numpy(X).float()
    return Trainer(x, targets, "mcbn", learning_rate=1e-2, seed=0, device=torch.device("cpu"), verbose=False)


def test_the_step_size_rises_and_falls_along_a_cosine():
    shares = np.linspace(0, 1, 1001)
    rates = np.array([warm_cosine(share) for share in shares])
    peak = rates.argmax()
    assert shares[peak] == pytest.approx(WARM_UP, abs=1e-3)
    assert rates[peak] == pytest.approx(1.0)
    assert (np.diff(rates[: peak + 1]) > 0).all()
    assert (np.diff(rates[peak:]) < 0).all()
    assert rates[0] < 0.05
    assert rates[-1] == pytest.approx(LEAST_RATE)
    assert warm_cosine((1 + WARM_UP) / 2) == pytest.approx((1 + LEAST_RATE) / 2)  # halfway down


def test_networks_of_a_setting_are_kept_as_they_were_when_together_they_were_best(line):
    X, _ = line
    noise = np.random.default_rng(5).normal(size=80)  # there is nothing to learn: the best is early
    folds = torch.arange(80).chunk(2)
    settings = [SETTING, replace(SETTING, weight_decay=10.0)]
    trainer = trainer_for(X, noise)
    stack, epochs = trainer.train(settings, folds[::-1], 60, test_rows=folds)
    assert epochs[0] == epochs[1]
    assert epochs[2] == epochs[3]
    assert epochs.min() < 60
    steps = 40 // 8
    assert stack.tracked.tolist() == [steps * e for e in epochs.tolist()]  # batches that batch norm saw
    assert math.isclose(trainer.encoder("plain")(trainer.x).sum(), trainer.x.sum())


def test_a_given_number_of_epochs_is_kept_to_and_the_step_size_falls_all_the_way(line, monkeypatch):
    trainer, everything, shares = trainer_for(*line), torch.arange(80), []
    monkeypatch.setattr("bayesnorm.tabular.trainer.warm_cosine", lambda share: shares.append(share) or 1.0)
    _, epochs = trainer.train([SETTING], [everything] * 2, 30)
    assert epochs.tolist() == [30] * 2
    np.testing.assert_allclose(shares, np.arange(300) / 300)  # ten steps of eight rows in each epoch


def test_members_are_different_networks(line):
    trainer, everything = trainer_for(*line), torch.arange(80)
    trained = [trainer.train([SETTING], [everything], 1, first=k)[0] for k in (0, 0, 1)]
    first, again, other = (stack.weights.flat for stack in trained)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_networks_are_scored_at_the_noise_that_is_best_for_them_all(line):
    """Predicted noise that is eight times too small for all networks does not decide when training is best."""
    trainer = trainer_for(*line, heteroscedastic=True)
    folds = torch.arange(80).chunk(2)
    stack, _ = trainer.train([SETTING], folds[::-1], 5, test_rows=folds)
    units = [trainer.targets.scales_of(rows) for rows in folds[::-1]]
    score = trainer._score("plain", list(folds), units, 2)
    before = score(stack, torch.arange(2))
    last = stack.layers[-1].name
    stack.weights[f"{last}.bias"][:, 1] -= 2 * math.log(8)
    torch.testing.assert_close(score(stack, torch.arange(2)), before)
    stack.weights[f"{last}.bias"][0, 1] -= 2 * math.log(8)  # one alone is not what suits both
    assert (score(stack, torch.arange(2)).mean() > before.mean() * 1.02).all()
