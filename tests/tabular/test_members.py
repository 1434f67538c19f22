"""The networks of folds are the model: how many there are, what each learned from, and who judges whom."""

import numpy as np
import pytest
import torch

from bayesnorm.tabular import BayesNormRegressor
from bayesnorm.tabular.held_out import HeldOut
from bayesnorm.tabular.members import Members


@pytest.mark.parametrize(("members", "asked", "rows"), [(1, 1, 40), (2, 1, 80), (3, 1, 80), (4, 2, 80)])
def test_members_are_networks_of_folds(line, quick, members, asked, rows):
    X, y = line
    model = BayesNormRegressor(**{**quick, "members": members, "epochs": 5}).fit(X, y)
    result = getattr(model.posterior_, "members", (model.posterior_,))
    assert len(result) == members
    assert all(member.rows == 40 for member in result)
    assert model.posterior_.kind == ("batchnorm" if members == 1 else "ensemble")
    assert (model.selection_.uncertainty.members, model.selection_.uncertainty.asked) == (members, asked)
    assert len(model.selection_.out_of_fold.rows) == rows
    weights = [next(member.model.parameters()) for member in result]
    assert all(not torch.equal(weights[0], other) for other in weights[1:])


def test_held_out_rows_are_predicted_by_the_member_that_did_not_see_them(quick):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(60, 40)), generator.normal(size=60)  # noise alone, which a network can learn by heart
    quick |= {"epochs": 150, "weight_decay": 0.0, "hidden": (50,), "heteroscedastic": False}
    model = BayesNormRegressor(**quick).fit(X, y)
    held_out = model.selection_.out_of_fold
    np.testing.assert_array_equal(held_out.rows, np.arange(60))
    np.testing.assert_allclose(held_out.target[:, 0], y)
    assert set(held_out.fold) == {0, 1}
    x = model._inputs(model.preprocessing_.transform(X))
    said = np.stack([member.executable.point(x)[:, 0].numpy() for member in model.posterior_.members])
    rows = np.arange(60)
    np.testing.assert_allclose(said[held_out.fold, rows], held_out.predictive.mean[:, 0], rtol=1e-4, atol=1e-4)
    unseen, seen = (np.abs(said[which, rows] - y).mean() for which in (held_out.fold, 1 - held_out.fold))
    assert unseen > 3 * seen


def test_without_folds_networks_learn_from_all_rows(line, quick):
    X, y = line
    quick |= {"epochs": 7, "batch_size": 16, "dropout_rate": 0.0, "effective_batch_size": 50.0, "folds": None}
    quick |= {"precision": 4.0, "heteroscedastic": False}
    model = BayesNormRegressor(**{**quick, "members": None}).fit(X, y)
    assert (model.posterior_.kind, model.posterior_.batch_size, model.posterior_.rows) == ("batchnorm", 50.0, 80)
    assert model.selection_.out_of_fold is None
    assert model.selection_.uncertainty is None
    assert model.interval_levels_ is None
    lower, _ = model.predict_interval(X, 0.9)
    np.testing.assert_array_equal(lower, model.predict_dist(X).interval(0.9)[0][:, 0])
    several = BayesNormRegressor(**{**quick, "members": 3}).fit(X, y)
    assert [member.rows for member in several.posterior_.members] == [80] * 3
    noisy = BayesNormRegressor(**{**quick, "precision": None, "heteroscedastic": True}).fit(X, y)
    assert noisy.selection_.noise["scale"] == 1.0  # the networks' own


def test_a_few_rows_do_not_decide_how_far_members_disagree(line, quick, monkeypatch):
    """Of two members that differ wildly on one row of forty, next to nothing is certain; on all of them, nearly all."""
    X, y = line
    seen = []
    calibrated = Members.calibrated
    monkeypatch.setattr(Members, "calibrated", lambda self, *args: seen.append(self) or calibrated(self, *args))
    BayesNormRegressor(**{**quick, "members": 3, "epochs": 5}).fit(X, y)
    (members,) = seen
    first, second = members.rounds
    assert len(second.rows) == 40  # the second round is one member

    def disagreement(error):
        said = {id(first): torch.zeros(80, 2), id(second): torch.zeros(40, 2)}
        said[id(second)][:, 0] = error
        monkeypatch.setattr(HeldOut, "points", lambda held: said[id(held)])
        return members._disagreement()

    one = torch.zeros(40)
    one[3] = 8.0
    assert disagreement(one) == 0.0  # 0.8 on average, give or take 0.8
    assert disagreement(torch.full((40,), 2.0)) == pytest.approx(2.0)
    mixed = torch.linspace(1, 3, 40)
    result = mixed.square() / 2
    assert disagreement(mixed) == pytest.approx(float(result.mean() - 2 * result.std() / 40**0.5))
