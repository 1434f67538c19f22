"""The loop: what it asks, what it keeps, and what happens when the oracle raises or the process dies."""

from __future__ import annotations

import functools
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn
from bayesnorm import RegressionPredictive, active
from bayesnorm.errors import FileFormatError, InputError

POOL = torch.linspace(-1, 1, 30)[:, None]


class Far:
    """A posterior that doubts what is far from all labelled rows."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def predict(self, x, engine=None, seed=0):
        far = (x - self.x.T).abs().amin(1, keepdim=True)
        return RegressionPredictive(torch.stack([-far, far]), torch.tensor(0.1))


def truth(rows, x):
    return torch.sin(3 * x)


def learner(oracle=truth, fit=Far, acquisition=active.epistemic_variance, **options):
    return active.ActiveLearner(POOL, oracle, fit, acquisition, **{"budget": 12, "batch": 4, **options})


class Broken(Exception):
    """What an oracle raises."""


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


def test_it_asks_where_the_posterior_doubts_most():
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


@pytest.mark.parametrize("kind", ["generator", "row by row", "batch"])
def test_an_oracle_that_raises_half_way_loses_nothing(tmp_path, kind):
    path = tmp_path / "labels.safetensors"
    given = []

    def label(row):
        if len(given) == 6:
            given.append(None)  # fails once
            raise Broken("lunch")
        given.append(row)
        return math.sin(3 * float(POOL[row]))

    def batch(rows, x):
        return [[label(row)] for row in rows.tolist()]

    def generator(rows, x):
        for row in rows.tolist():
            yield [label(row)]

    options = {"path": path, "rows_per_call": 1 if kind == "row by row" else None}
    oracle = generator if kind == "generator" else batch
    broken = learner(oracle, **options)
    with pytest.raises(Broken) as caught:
        broken.run()
    kept = 4 if kind == "batch" else 6
    assert len(broken.rows) == kept, "a batch that raised gave no labels; single ones did"
    (note,) = caught.value.__notes__
    assert re.search(rf"round 2.*{kept} labels are kept in .*labels\.safetensors; {8 - kept} chosen rows wait", note)

    asked = []

    def watched(rows, x):
        asked.extend(rows.tolist())
        return oracle(rows, x)

    resumed = learner(watched, **options)
    assert torch.equal(resumed.labels, broken.labels)
    resumed.run()
    assert len(asked) == 12 - kept, "nothing is asked twice"
    uninterrupted = learner()
    uninterrupted.run()
    assert resumed.rows.tolist() == uninterrupted.rows.tolist()
    assert torch.allclose(resumed.labels, uninterrupted.labels.double())


def test_the_same_learner_can_go_on_after_an_error():
    calls = []

    def oracle(rows, x):
        calls.append(rows.tolist())
        if len(calls) == 2:
            raise Broken
        return truth(rows, x)

    broken = learner(oracle)
    with pytest.raises(Broken) as caught:
        broken.run()
    assert "kept in memory" in caught.value.__notes__[0]
    broken.run()
    assert calls[1] == calls[2]
    assert len(broken.rows) == 12


def test_an_interrupted_fit_or_choice_goes_on_in_the_same_way(tmp_path):
    path = tmp_path / "labels"
    fits = []

    def fit(x, y):
        fits.append(len(y))
        if len(fits) == 2:
            raise KeyboardInterrupt
        return Far(x, y)

    with pytest.raises(KeyboardInterrupt):
        learner(fit=fit, path=path).run()
    resumed, whole = learner(path=path), learner()
    assert len(resumed.rows) == 8
    resumed.run()
    whole.run()
    assert resumed.rows.tolist() == whole.rows.tolist()


def test_rows_that_were_asked_for_are_asked_for_again(tmp_path):
    """Someone may be labelling them already; another fit, which need not be deterministic, may not change them."""
    asked = []

    def whim(predictive):
        return torch.rand(len(predictive))

    def oracle(rows, x):
        asked.append(rows.tolist())
        if len(asked) == 2:
            raise Broken
        return truth(rows, x)

    with pytest.raises(Broken):
        learner(oracle, acquisition=whim, path=tmp_path / "labels").run()
    learner(oracle, acquisition=whim, path=tmp_path / "labels").run()
    assert asked[2] == asked[1]


SCRIPT = """
import os, signal, sys, torch
from bayesnorm import RegressionPredictive, active

POOL = torch.linspace(-1, 1, 30)[:, None]

class Far:
    def __init__(self, x, y):
        self.x = x
    def predict(self, x, engine=None, seed=0):
        far = (x - self.x.T).abs().amin(1, keepdim=True)
        return RegressionPredictive(torch.stack([-far, far]), torch.tensor(0.1))

given = 0

def oracle(rows, x):
    global given
    for row in x:
        if given == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        given += 1
        yield torch.sin(3 * row)

learner = active.ActiveLearner(POOL, oracle, Far, active.epistemic_variance, budget=12, batch=4, path=sys.argv[1])
before = len(learner.rows)
learner.run()
print(before, *learner.rows.tolist())
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_process_goes_on_where_it_was(tmp_path):
    path = tmp_path / "labels.safetensors"

    def run(die_after):
        command = [sys.executable, "-W", "error", "-c", SCRIPT, str(path), str(die_after)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    killed = run(6)
    assert killed.returncode == -9, killed.stderr
    done = run(-1)
    assert done.returncode == 0, done.stderr
    before, *rows = map(int, done.stdout.split())
    assert before == 6
    whole = learner()
    whole.run()
    assert rows == whole.rows.tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["labels.safetensors"], "nothing half-written stays"


def test_a_finished_run_comes_back_without_asking_and_takes_more_budget(tmp_path):
    path = tmp_path / "labels"
    learner(path=path).run()

    def nobody(rows, x):
        raise AssertionError("asked again")

    done = learner(nobody, path=path)
    done.run()
    assert len(done.rows) == 12
    more = learner(path=path, budget=20)
    more.run()
    assert len(more.rows) == 20
    assert more.rows.tolist()[:12] == done.rows.tolist()
    with pytest.raises(bn.BayesNormError, match=r"budget: 12 was given, but .* holds 20 rows"):
        learner(path=path)


def test_another_pool_or_other_settings_are_refused(tmp_path):
    path = tmp_path / "labels"
    learner(path=path).run()
    others = {
        "acquisition": {"acquisition": active.predictive_variance},
        "batch": {"batch": 3, "initial": 4},
        "initial": {"initial": [5, 6]},
        "seed": {"seed": 1},
        "candidates": {"candidates": 9},
        "engine": {"engine": bn.MonteCarlo(8)},
        "reference": {"reference": POOL[:2]},
    }
    for name, options in others.items():
        with pytest.raises(FileFormatError, match=rf"another run's: {name} is .* there and .* here"):
            learner(path=path, **options)
    pool = POOL.clone()
    pool[7] += 1e-6
    with pytest.raises(FileFormatError, match=r"another run's: x is .*sha256.* there"):
        active.ActiveLearner(pool, truth, Far, active.epistemic_variance, budget=12, batch=4, path=path)


def test_foreign_and_broken_files_are_refused(tmp_path, regression):
    path = tmp_path / "labels"
    learner(path=path).run()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"holds no labels that an ActiveLearner wrote.*delete it"):
        learner(path=path)
    bn.MCBN(16, states=8).fit(regression.model, regression.x).save(path)
    with pytest.raises(FileFormatError, match="holds no labels"):
        learner(path=path)
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match="posterior"):
        bn.load(path, regression.model)


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


@pytest.mark.parametrize(
    ("oracle", "match"),
    [
        (lambda rows, x: truth(rows, x)[:-1], r"labels of shape \(3, 1\) for 4 rows"),
        (lambda rows, x: torch.tensor(1.0), r"labels of shape \(\) for 4 rows"),
        (lambda rows, x: (1.0 for _ in rows[1:]), "yielded 3 labels for 4 rows"),
        (lambda rows, x: (1.0 for _ in range(5)), "yielded more than 4 labels"),
        (lambda rows, x: ["a"] * 4, "no array of numbers"),
        (lambda rows, x: None, "no array of numbers"),
        (lambda rows, x: truth(rows, x) * 1j, "real numbers"),
        (lambda rows, x: truth(rows, x) if len(rows) == 2 else torch.zeros(4, 2), r"shape \(2,\) per row.*had \(1,\)"),
    ],
)
def test_labels_that_are_none(oracle, match):
    with pytest.raises(InputError, match=match):
        learner(oracle, initial=2 if "had" in match else 4).run()


def test_nan_labels_name_their_rows_and_the_others_are_kept():
    def oracle(rows, x):
        labels = truth(rows, x)
        labels[1] = math.nan
        return labels

    half = learner(oracle, initial=[3, 8, 5])
    with pytest.raises(InputError, match=r"NaN or infinite labels for 1 of 3 rows, 8;.*other 2 are kept"):
        half.run()
    assert half.rows.tolist() == [3, 5]
    half.oracle = truth
    half.run()
    assert half.rows.tolist()[:3] == [3, 8, 5]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"budget": 31}, "budget: 31 was given for 30 rows in the pool"),
        ({"budget": 0}, "budget: 0"),
        ({"batch": 2.5}, "batch: 2.5"),
        ({"rows_per_call": 0}, "rows_per_call: 0"),
        ({"candidates": 3}, "candidates: 3 for batches of 4"),
        ({"seed": -1}, "seed: -1"),
        ({"initial": [1, 2, 1]}, "initial: holds row 1 twice"),
        ({"initial": [1, 30]}, "initial: holds row 30; 0 to 29"),
        ({"initial": [0.5]}, "initial: has shape"),
        ({"initial": 13}, "initial: 13 was given for 12 labels of budget"),
        ({"initial": np.arange(13)}, "initial: holds 13 rows for a budget of 12"),
        ({"path": "no/such/folder/file"}, "path: the folder no/such/folder does not exist"),
        ({"path": "."}, "is a folder"),
        ({"oracle": 3}, "oracle: int was given"),
        ({"fit": None}, "fit: NoneType was given"),
        ({"acquisition": "bald"}, "acquisition: str was given"),
        ({"reference": [[math.nan]]}, "reference: holds 1 NaN"),
    ],
)
def test_settings_that_cannot_work(options, match):
    with pytest.raises(bn.BayesNormError, match=match):
        learner(**options)


def test_a_pool_with_nan_and_a_fit_without_posterior():
    with pytest.raises(InputError, match="x: holds 1 NaN"):
        active.ActiveLearner(torch.tensor([[1.0], [math.nan]]), truth, Far, active.bald, budget=1)
    with pytest.raises(bn.BayesNormError, match="fit: gave Tensor"):
        learner(fit=lambda x, y: y).run()


def test_parts_of_functions_are_told_apart(tmp_path):
    def weighted(predictive, by):
        return by * active.epistemic_variance(predictive)

    path = tmp_path / "labels"
    learner(acquisition=functools.partial(weighted, by=1.0), path=path).run()
    learner(acquisition=functools.partial(weighted, by=1.0), path=path).run()
    with pytest.raises(FileFormatError, match="acquisition"):
        learner(acquisition=functools.partial(weighted, by=2.0), path=path)


def test_with_a_real_network():
    """Classes, MCBN and BatchBALD: the chosen rows tell more than rows at random."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 2, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()

    def fit(x, y):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(60):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
        return bn.MCBN(5, states=32).fit(model.eval(), x, bn.Categorical())

    found = []
    whole = active.ActiveLearner(
        x,
        lambda rows, x: y[rows],
        fit,
        active.BatchBALD(configurations=64),
        budget=30,
        batch=5,
        initial=10,
        on_fit=lambda labels, posterior: found.append(posterior),
    )
    whole.run()
    assert len(set(whole.rows.tolist())) == 30
    for number, posterior in enumerate(found[:-1]):
        before, chosen = whole.rows[: 10 + 5 * number], whole.rows[10 + 5 * number : 15 + 5 * number]
        free = torch.tensor([row for row in range(120) if row not in before.tolist()])
        information = active.bald(posterior.predict(x[chosen])).mean()
        assert float(information) > float(active.bald(posterior.predict(x[free])).mean())
