"""What happens when the oracle raises or the process dies, and which files a run goes on from."""

import functools
import math
import re

import pytest
import torch

import bayesnorm as bn
from bayesnorm import active, files
from bayesnorm.errors import FileFormatError

from .far_rows import POOL, Broken, Far, learner, truth


@pytest.mark.parametrize("kind", ["generator", "row by row", "batch"])
def test_an_oracle_that_raises_half_way_loses_nothing(tmp_path, kind):
    path = tmp_path / "labels.safetensors"
    answered = []

    def label(row):
        if len(answered) == 6:
            answered.append(None)  # fails once
            raise Broken("lunch")
        answered.append(row)
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
    count = 4 if kind == "batch" else 6
    assert len(broken.rows) == count, "a batch that raised gave no labels; single ones did"
    (note,) = caught.value.__notes__
    assert re.search(
        rf"round 2.*{count} labels are saved in .*labels\.safetensors\. {8 - count} chosen examples have no label", note
    )

    asked = []

    def watched(rows, x):
        asked.extend(rows.tolist())
        return oracle(rows, x)

    resumed = learner(watched, **options)
    assert torch.equal(resumed.labels, broken.labels)
    resumed.run()
    assert len(asked) == 12 - count, "nothing is asked twice"
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
    with pytest.raises(bn.BayesNormError, match=r"budget=12, but .* already has 20 chosen examples"):
        learner(path=path)


def test_a_full_disk_is_told_and_costs_no_label_in_this_process(tmp_path, monkeypatch):
    whole, asked = files.write, []

    def full(path, tensors, config):
        if len(tensors["rows"]) == 8:
            raise OSError("no space left")
        whole(path, tensors, config)

    def oracle(rows, x):
        asked.extend(rows.tolist())
        return truth(rows, x)

    path = tmp_path / "labels"
    run = learner(oracle, path=path)
    monkeypatch.setattr(files, "write", full)
    with pytest.raises(OSError, match="no space left") as caught:
        run.run()
    assert f"4 labels are saved in {path}, and 4 are in memory only" in caught.value.__notes__[0]
    assert len(learner(path=path).rows) == 4, "what the note says"
    monkeypatch.setattr(files, "write", whole)
    run.run()
    assert len(asked) == len(set(asked)) == 12
    assert learner(path=path).rows.tolist() == run.rows.tolist()


def test_a_budget_below_the_batch_takes_more_later(tmp_path):
    path = tmp_path / "labels"
    first = learner(path=path, budget=3, batch=5)
    first.run()
    more = learner(path=path, budget=9, batch=5)
    more.run()
    assert len(more.rows) == 9
    assert more.rows.tolist()[:3] == first.rows.tolist()


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
        with pytest.raises(FileFormatError, match=rf"another run: {name} is .* there and .* here"):
            learner(path=path, **options)
    pool = POOL.clone()
    pool[7] += 1e-6
    with pytest.raises(FileFormatError, match=r"another run: x is .*sha256.* there"):
        active.ActiveLearner(pool, truth, Far, active.epistemic_variance, budget=12, batch=4, path=path)


def test_foreign_and_broken_files_are_refused(tmp_path, regression):
    path = tmp_path / "labels"
    learner(path=path).run()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=r"has no labels that an ActiveLearner wrote.*\)\. To fix this"):
        learner(path=path)
    bn.MCBN(16, states=8).fit(regression.model, regression.x).save(path)
    with pytest.raises(FileFormatError, match="has no labels"):
        learner(path=path)
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match="posterior"):
        bn.load(path, regression.model)


def test_parts_of_functions_are_told_apart(tmp_path):
    def weighted(predictive, by):
        return by * active.epistemic_variance(predictive)

    path = tmp_path / "labels"
    learner(acquisition=functools.partial(weighted, by=1.0), path=path).run()
    learner(acquisition=functools.partial(weighted, by=1.0), path=path).run()
    with pytest.raises(FileFormatError, match="acquisition"):
        learner(acquisition=functools.partial(weighted, by=2.0), path=path)
