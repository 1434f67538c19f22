"""The loop: what it asks, which labels it keeps, and what it refuses."""

import math

import numpy as np
import pytest
import torch

import bayesnorm as bn
from bayesnorm import active
from bayesnorm.errors import InputError

from .far_rows import POOL, Far, learner, truth


def test_it_reaches_the_budget_and_asks_for_every_row_once():
    asked, told, fitted = [], [], []

    def oracle(rows, x):
        assert torch.equal(x, POOL[rows])
        asked.append(rows.tolist())
        return truth(rows, x)

    whole = learner(
        oracle,
        initial=3,
        progress=lambda done, total: told.append((done, total)),
        on_fit=lambda labels, posterior: fitted.append((labels, len(posterior.y))),
    )
    posterior = whole.run()
    assert [len(rows) for rows in asked] == [3, 4, 4, 1]
    rows = [row for rows in asked for row in rows]
    assert len(set(rows)) == 12
    assert whole.rows.tolist() == rows
    assert torch.equal(whole.labels, torch.sin(3 * POOL[rows]))
    assert torch.equal(posterior.x, POOL[rows])
    assert told == [(3, 12), (7, 12), (11, 12), (12, 12)]
    assert fitted == [(count, count) for count in (3, 7, 11, 12)]


def test_it_asks_where_the_posterior_uncertaintys_most():
    whole = learner(initial=[0], batch=1, budget=3)
    whole.run()
    assert whole.rows.tolist()[:2] == [0, 29], "the farthest row from the only labelled one"
    assert whole.rows.tolist()[2] in (14, 15), "then the middle"


def test_the_seed_decides():
    runs = [learner(acquisition=active.Random(), seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.run()
    assert runs[0].rows.tolist() == runs[1].rows.tolist() != runs[2].rows.tolist()
    before = torch.random.get_rng_state()
    learner().run()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_ties_fall_at_random():
    def flat(predictive):
        return torch.zeros(len(predictive))

    runs = [learner(acquisition=flat, initial=[0], seed=seed) for seed in range(3)]
    for run in runs:
        run.run()
    assert len({tuple(run.rows.tolist()) for run in runs}) == 3


def test_candidates_and_reference():
    seen = []

    class Watching:
        def choose(self, predictive, count, *, seed=0, reference=None):
            seen.append((len(predictive), len(reference)))
            return torch.arange(count)

    learner(acquisition=Watching(), candidates=5, reference=POOL[:7]).run()
    assert seen == [(5, 7), (5, 7)]
    with_reference = learner(acquisition=active.VarianceReduction(), reference=POOL[-3:])
    with_reference.run()
    assert len(with_reference.rows) == 12


def test_the_whole_pool_can_be_the_budget():
    whole = learner(budget=30, batch=7, candidates=8)
    whole.run()
    assert sorted(whole.rows.tolist()) == list(range(30))


def test_labels_of_every_kind():
    for labels in (
        lambda rows, x: x[:, 0].numpy(),
        lambda rows, x: x[:, 0].tolist(),
        lambda rows, x: list(x[:, 0]),
        lambda rows, x: (value for value in x[:, 0]),
        lambda rows, x: map(float, x[:, 0]),
    ):
        whole = learner(labels)
        whole.run()
        assert torch.equal(whole.labels.float(), POOL[whole.rows, 0])
    masks = learner(lambda rows, x: torch.ones(len(rows), 5, 5, dtype=torch.uint8))
    masks.run()
    assert masks.labels.shape == (12, 5, 5)
    assert masks.labels.dtype == torch.uint8
    mixed = learner(lambda rows, x: [1] * len(rows) if 0 in rows.tolist() else [0.5] * len(rows), initial=[0])
    mixed.run()
    assert sorted(set(mixed.labels.tolist())) == [0.5, 1.0], "whole numbers among others are numbers like them"


def test_labels_that_are_none():
    for oracle, match in (
        (lambda rows, x: truth(rows, x)[:-1], r"one label per example.* got shape \(3, 1\) for 4 examples"),
        (lambda rows, x: torch.tensor(1.0), r"one label per example.* got shape \(\) for 4 examples"),
        (lambda rows, x: (1.0 for _ in rows[1:]), "got 3 labels for 4 examples"),
        (lambda rows, x: (1.0 for _ in range(5)), "got more than 4 labels for 4 examples"),
        (lambda rows, x: ["a"] * 4, "array of numbers"),
        (lambda rows, x: None, "array of numbers"),
        (lambda rows, x: truth(rows, x) * 1j, "real numbers"),
        (
            lambda rows, x: truth(rows, x) if len(rows) == 2 else torch.zeros(4, 2),
            r"shape \(2,\) per example.*had \(1,\)",
        ),
    ):
        with pytest.raises(InputError, match=match):
            learner(oracle, initial=2 if "had" in match else 4).run()


def test_nan_labels_name_their_rows_and_the_others_are_kept():
    def oracle(rows, x):
        labels = truth(rows, x)
        labels[1] = math.nan
        return labels

    half = learner(oracle, initial=[3, 8, 5])
    with pytest.raises(InputError, match=r"NaN or infinite labels for 1 of 3 examples: 8\..*other 2 labels are kept"):
        half.run()
    assert half.rows.tolist() == [3, 5]
    half.oracle = truth
    half.run()
    assert half.rows.tolist()[:3] == [3, 8, 5]


def test_settings_that_cannot_work():
    for options, match in (
        ({"candidates": 3}, "candidates must be at least the batch size 4, got 3"),
        ({"initial": [1, 2, 1]}, "initial: all indices must be different, got 1 twice"),
        ({"initial": [1, 30]}, "initial: indices must be from 0 to 29, got 30"),
        ({"initial": [0.5]}, "initial must be a number of examples or .* got shape"),
        ({"initial": 13}, "initial must be .* 12, the number of labels in the budget, got 13"),
        ({"initial": np.arange(13)}, "initial must have at most 12 indices, the budget, got 13"),
        ({"path": "no/such/folder/file"}, "path.* no/such/folder does not exist"),
        ({"path": "."}, "is a folder"),
        ({"oracle": 3}, "oracle must be a function, got int"),
        ({"fit": None}, "fit must be a function, got NoneType"),
        ({"acquisition": "bald"}, "acquisition must be .* got str"),
        ({"acquisition": active.Random}, "acquisition must be .* got the class Random"),
        ({"reference": [[math.nan]]}, "reference has 1 NaN"),
    ):
        with pytest.raises(bn.BayesNormError, match=match):
            learner(**options)


def test_a_pool_with_nan_and_a_fit_without_posterior():
    with pytest.raises(InputError, match="x has 1 NaN"):
        active.ActiveLearner(torch.tensor([[1.0], [math.nan]]), truth, Far, active.bald, budget=1)
    with pytest.raises(bn.BayesNormError, match=r"fit must return a posterior.* got Tensor"):
        learner(fit=lambda x, y: y).run()
