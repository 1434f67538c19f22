"""A fitted estimator as a file, and back."""

from __future__ import annotations

import numpy as np
import pytest

import bayesnorm as bn
from bayesnorm.errors import FileFormatError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, load


@pytest.mark.parametrize("method", ["mcbn", "gaussian", "stochastic", "dropout", "ensemble"])
def test_the_same_predictions(mixed, quick, method, tmp_path):
    X, y = mixed
    quick["max_epochs"] = 5
    model = BayesNormRegressor(**quick, method=method, heteroscedastic=method == "mcbn").fit(X, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is BayesNormRegressor
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, return_std=True))
    np.testing.assert_array_equal(again.predict_interval(X, 0.8), model.predict_interval(X, 0.8))
    assert again.doubt(X).equals(model.doubt(X))
    assert again.selection_.settings == model.selection_.settings
    assert again.selection_.chosen == model.selection_.chosen
    assert again.selection_.noise == model.selection_.noise
    assert again.selection_.out_of_fold is None
    assert again.feature_names_in_.tolist() == ["size", "town", "grade", "new"]
    assert again.fit(X, y).selection_.out_of_fold is not None


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 8], [False, True], [0.0, 1.0]])
def test_labels_come_back_as_they_were(line, quick, labels, tmp_path):
    X, y = line
    quick |= {"max_epochs": 5, "random_state": np.random.RandomState(3), "weight_decay": np.array([1e-3])}
    model = BayesNormClassifier(**quick).fit(X, np.array(labels)[(y > 5).astype(int)])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.classes_.tolist() == model.classes_.tolist() == labels
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert not hasattr(again, "feature_names_in_")


def test_several_outputs_and_no_folds(line, quick, tmp_path):
    X, y = line
    quick |= {"folds": None, "epochs": 2, "batch_size": 8, "weight_decay": 0.0, "precision": 1.0}
    model = BayesNormRegressor(**quick).fit(X, np.stack([y, -y], 1))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert np.isnan(again.selection_.chosen.score)


def test_no_training_rows_in_the_file(line, quick, tmp_path):
    X, y = line
    BayesNormRegressor(**quick).fit(X, y).save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    assert not any(value.tobytes() in content for value in [*X.ravel(), *y])


def test_other_files_are_refused(line, quick, tmp_path):
    X, y = line
    model = BayesNormRegressor(**quick).fit(X, y)
    model.save(tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    for name, content in {"cut": whole[:-100], "head": whole[:50], "empty": b"", "text": b"hello, world"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileFormatError, match="path: "):
            load(tmp_path / name)
    model.posterior_.save(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="holds no tabular model"):
        load(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="not a file"):
        load(tmp_path / "nothing")
    with pytest.raises(FileFormatError, match="does not exist"):
        model.save(tmp_path / "no" / "folder")
    with pytest.raises(bn.BayesNormError):
        bn.load(tmp_path / "model", model.posterior_.model)


def test_an_incomplete_description_is_refused(line, quick, tmp_path):
    from bayesnorm import files

    BayesNormRegressor(**quick).fit(*line).save(tmp_path / "model")
    tensors, config = files.read(tmp_path / "model")
    for missing in ("preprocessing", "posterior", "selection"):
        files.write(tmp_path / "part", tensors, {name: value for name, value in config.items() if name != missing})
        with pytest.raises(FileFormatError, match="does not hold a whole model"):
            load(tmp_path / "part")
