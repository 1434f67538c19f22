"""A fitted estimator as a file, and back."""

import pickle

import numpy as np
import pytest
from torch import nn

import bayesnorm as bn
from bayesnorm import files
from bayesnorm.errors import FileFormatError
from bayesnorm.tabular import BayesNormClassifier, BayesNormRegressor, load

from .conftest import QUICK, line_model, mixed_model


@pytest.mark.parametrize("method", ["mcbn", "gaussian", "stochastic", "dropout", "ensemble"])
def test_the_same_predictions(mixed, method, tmp_path):
    X, model = mixed[0], mixed_model(method)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is BayesNormRegressor
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, return_std=True))
    np.testing.assert_array_equal(again.predict_interval(X, 0.8), model.predict_interval(X, 0.8))
    assert again.uncertainty(X).equals(model.uncertainty(X))
    assert again.selection_.settings == model.selection_.settings
    assert again.selection_.chosen == model.selection_.chosen
    assert again.selection_.noise == model.selection_.noise
    assert again.selection_.out_of_fold is None
    assert again.feature_names_in_.tolist() == ["size", "town", "grade", "new"]


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 8], [False, True], [0.0, 1.0]])
def test_labels_come_back_as_they_were(line, quick, labels, tmp_path):
    X, y = line
    quick |= {"max_epochs": 2, "random_state": np.random.RandomState(3), "weight_decay": np.array([1e-3])}
    model = BayesNormClassifier(**quick).fit(X, np.array(labels)[(y > 5).astype(int)])
    assert set(model.predict(X)) <= set(labels)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.classes_.tolist() == model.classes_.tolist() == labels
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert model.predict_proba(X).shape == (80, 2)
    assert not hasattr(again, "feature_names_in_")


def test_several_outputs_and_no_folds(line, quick, tmp_path):
    X, y = line
    quick |= {"folds": None, "epochs": 2, "batch_size": 8, "dropout_rate": 0.0, "precision": 1.0}
    quick |= {"heteroscedastic": False, "members": 1}
    model = BayesNormRegressor(**quick).fit(X, np.stack([y, -y], 1))
    model.save(tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert np.isnan(again.selection_.chosen.score)


def test_no_training_rows_in_the_file(line, tmp_path):
    X, y = line
    line_model().save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    assert not any(value.tobytes() in content for value in [*X.ravel(), *y])


def test_other_files_are_refused(tmp_path):
    model = line_model()
    model.save(tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    for name, content in {"cut": whole[:-100], "head": whole[:50], "empty": b"", "text": b"hello, world"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileFormatError, match="path: "):
            load(tmp_path / name)
    model.posterior_.save(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="does not contain a tabular model"):
        load(tmp_path / "posterior")
    with pytest.raises(FileFormatError, match="not a file"):
        load(tmp_path / "nothing")
    with pytest.raises(FileFormatError, match="does not exist"):
        model.save(tmp_path / "no" / "folder")
    with pytest.raises(bn.BayesNormError):
        bn.load(tmp_path / "model", model.posterior_.model)


def test_an_incomplete_description_is_refused(tmp_path):
    line_model().save(tmp_path / "model")
    tensors, config = files.read(tmp_path / "model")
    for missing in ("preprocessing", "posterior", "selection"):
        files.write(tmp_path / "part", tensors, {name: value for name, value in config.items() if name != missing})
        with pytest.raises(FileFormatError, match="does not contain a complete model"):
            load(tmp_path / "part")


@pytest.mark.parametrize(("encoding", "per_input", "members"), [("plain", 0, 1), ("bins 4", 4, 4), ("waves 3", 6, 1)])
def test_every_encoding_and_number_of_members(mixed, quick, encoding, per_input, members, tmp_path):
    X, y = mixed
    quick |= {"encoding": encoding, "members": members, "epochs": 2, "effective_batch_size": "cross-validated"}
    model = BayesNormRegressor(**quick, conformal=True).fit(X, y)
    features = model.preprocessing_.transform(X)
    numbers = sum(len(np.unique(column.astype(np.float32))) > 2 for column in features.T)
    for member in getattr(model.posterior_, "members", (model.posterior_,)):
        first = next(module for module in member.model.modules() if isinstance(module, nn.Linear))
        assert features.shape[1] + bool(per_input) <= first.in_features <= features.shape[1] + per_input * numbers
    model.save(tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, return_std=True))
        np.testing.assert_array_equal(again.predict_interval(X, 0.8), model.predict_interval(X, 0.8))
        assert again.selection_.uncertainty == model.selection_.uncertainty
        assert again.selection_.chosen == model.selection_.chosen
        assert len(getattr(again.posterior_, "members", (None,))) == members


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda tensors, config: tensors.pop("conformal.0.1"), "conformal"),
        (lambda tensors, config: tensors.update({"conformal.0.0": tensors["conformal.0.0"][:0]}), "conformal"),
        (lambda tensors, config: tensors.update({"conformal.0.0": tensors["conformal.0.0"] * np.nan}), "conformal"),
        (lambda tensors, config: config["selection"]["uncertainty"].update(members=0), "selection.uncertainty.members"),
        (lambda tensors, config: config["selection"]["uncertainty"].pop("excess"), "excess"),
        (lambda tensors, config: config["selection"]["uncertainty"].update(errors=[]), "selection.uncertainty"),
        (lambda tensors, config: config["posterior"].update(encoded=3), "encoded|column"),
        (lambda tensors, config: config["selection"]["settings"][0].update(encoding="trees 4"), "encoding"),
        (lambda tensors, config: config["parameters"].update(members=0), "members"),
        (lambda tensors, config: config["parameters"].update(device=4), "device"),
    ],
)
def test_what_a_file_says_wrongly_is_named(saved, tmp_path, spoil, told):
    tensors, config = files.read(saved)
    spoil(tensors, config)
    files.write(tmp_path / "spoilt", tensors, config)
    with pytest.raises(FileFormatError, match=rf"does not contain a complete model .*({told})"):
        load(tmp_path / "spoilt")


def test_a_model_trained_on_a_gpu_is_read_where_there_is_none(saved, tmp_path):
    tensors, config = files.read(saved)
    config["parameters"]["device"] = "cuda"
    files.write(tmp_path / "model", tensors, config)
    assert load(tmp_path / "model").device == "cuda"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of a model with bins and conformal scores."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 2))
    path = tmp_path_factory.mktemp("saved") / "model"
    options = QUICK | {"encoding": "bins 4", "epochs": 2}
    BayesNormRegressor(**options, conformal=True).fit(X, X[:, 0] + generator.normal(size=60)).save(path)
    return path
