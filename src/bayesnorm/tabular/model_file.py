"""Save and load a fitted estimator as one file: networks, posterior, preprocessing and settings, no training rows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .. import files
from ..engines import MonteCarlo
from ..errors import BayesNormError, FileFormatError
from ..predictive import ClassificationPredictive, RegressionPredictive
from ..schema import (
    Array,
    anything,
    either,
    flag,
    just,
    later,
    listed,
    mapping,
    number,
    one_of,
    optional,
    record,
    refuse,
    require_tensors,
    text,
    whole,
)
from .checks import check_parameters
from .conformal import ConformalScores
from .intervals import STEPS, IntervalLevels
from .networks import DOUBLE, METHODS, POSTERIOR, posterior_from, posterior_parts
from .preprocessing import Preprocessing
from .search_results import Selection
from .training_columns import TrainingColumns
from .unusual_rows import Likeness, Ranges

FORMAT, EARLIER_FORMAT = "bayesnorm-tabular-2", "bayesnorm-tabular"

POSTERIORS = {
    method: {"dropout": ("dropout",), "ensemble": ("deterministic",)}.get(method, ("batchnorm", "adapted"))
    for method in METHODS
}
"""The kinds of posterior that members of each method can have."""

# Largest size of the labels in bytes; a file with a huge text dtype must not exhaust the memory.
LARGEST_LABELS = 2**26

_FILE = record(
    format=one_of(FORMAT),
    estimator=text,
    parameters=mapping(anything),  # `check_parameters` checks them; other modules check what is `anything` below
    preprocessing=anything,
    selection=anything,
    threshold=number(0),
    seed=whole(0, 2**31),
    columns=whole(1),
    names=optional(listed(text)),
    classes=anything,
    outputs=optional(whole(1)),
    flat=optional(flag),
    posterior=POSTERIOR,
    training_columns=later(anything),
    ranges=later(anything),
)
"""The structure of a file's JSON."""


def write_estimator(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see `TabularEstimator.save`."""
    check_is_fitted(estimator)
    likeness = estimator.likeness_
    tensors, posterior = posterior_parts(estimator.posterior_)
    classes = getattr(estimator, "classes_", None)
    names = getattr(estimator, "feature_names_in_", None)
    config = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "parameters": {name: _json_parameter(name, value) for name, value in estimator.get_params(deep=False).items()},
        "preprocessing": estimator.preprocessing_.config(),
        "selection": estimator.selection_.config(),
        "threshold": likeness.threshold,
        "seed": estimator.seed_,
        "columns": estimator.n_features_in_,
        "names": None if names is None else list(names),
        "classes": None if classes is None else {"values": classes.tolist(), "dtype": classes.dtype.str},
        "outputs": getattr(estimator, "n_outputs_", None),
        "flat": getattr(estimator, "_flat", None),
        "posterior": posterior,
    }
    known = getattr(estimator, "training_columns_", None)  # missing in pickles of earlier versions
    if known is not None:
        config["training_columns"] = known.config()
    ranges = getattr(estimator, "ranges_", None)
    if ranges is not None:
        config["ranges"] = ranges.config()
    levels = getattr(estimator, "interval_levels_", None)
    if levels is not None:
        tensors["interval_levels"] = torch.from_numpy(levels.own)
    if getattr(estimator, "conformal", False):
        for column, scores in enumerate(estimator.selection_.conformal):
            tensors |= {f"conformal.{column}.{k}": torch.from_numpy(own) for k, own in enumerate(scores.scores)}
    tensors["likeness.mean"] = torch.from_numpy(likeness.mean)
    tensors["likeness.root"] = torch.from_numpy(np.ascontiguousarray(likeness.root))
    files.write(files.as_path(path), tensors, config)


def read_estimator(path: str | os.PathLike[str], classes: Mapping[str, type[Any]]) -> Any:
    """Read a fitted estimator that `write_estimator` wrote.

    Args:
        path: The file.
        classes: The accepted estimator classes, by name.
    """
    tensors, config = files.read(files.as_path(path))
    if config.get("format") == EARLIER_FORMAT:
        raise FileFormatError(f"path: {path} contains a tabular model of an earlier version. Fit the model again.")
    if config.get("format") != FORMAT:
        raise FileFormatError(
            f"path: {path} does not contain a tabular model. Pass a file that an estimator's save wrote."
        )
    try:
        return _restored(tensors, config, classes)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        told = str(error).removeprefix("path: ") if isinstance(error, BayesNormError) else repr(error)
        raise FileFormatError(
            f"path: {path} does not contain a complete model ({told.rstrip('.')}). Save it again."
        ) from error


def _restored(tensors: dict[str, torch.Tensor], config: dict[str, Any], classes: Mapping[str, type[Any]]) -> Any:
    """Return the fitted estimator for the tensors and the JSON of a file."""
    _FILE(config, "config")
    estimator, described = _unfitted(config, classes), config["posterior"]
    one_of("ensemble", *POSTERIORS[estimator.method])(described["kind"], "posterior.kind")
    estimator.preprocessing_ = Preprocessing.from_config(config["preprocessing"])
    estimator.training_columns_ = None
    if "training_columns" in config:
        estimator.training_columns_ = TrainingColumns.from_config(config["training_columns"], estimator.preprocessing_)
    estimator.selection_ = Selection.from_config(config["selection"])
    features, columns = len(estimator.preprocessing_.mean), len(estimator.preprocessing_.columns)
    estimator.ranges_ = Ranges.from_config(config["ranges"], columns) if "ranges" in config else None
    inputs = estimator.preprocessing_.inputs
    whole(inputs, inputs)(described["inputs"], "posterior.inputs")
    whole(columns, columns)(config["columns"], "columns")
    optional(listed(text, columns, columns))(config["names"], "names")
    estimator.seed_, estimator.n_features_in_ = config["seed"], columns
    if config["names"] is not None:
        estimator.feature_names_in_ = np.array(config["names"], dtype=object)
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(("network.", "posterior."))}
    correlated = "likeness.root" in own and own["likeness.root"].dim() == 2
    root = Array((features, features) if correlated else (features,), DOUBLE)
    expected = {"likeness.mean": Array((features,), DOUBLE), "likeness.root": root}
    if isinstance(estimator, ClassifierMixin):
        for name in ("outputs", "flat"):
            just(None)(config[name], name)
        estimator.classes_ = _classes(config["classes"], described["outputs"])
    else:
        targets = described["outputs"] // (1 + estimator.heteroscedastic)
        whole(targets, targets)(config["outputs"], "outputs")
        flag(config["flat"], "flat")
        just(None)(config["classes"], "classes")
        estimator.n_outputs_, estimator._flat, estimator.interval_levels_ = targets, config["flat"], None
        if "interval_levels" in own:
            expected["interval_levels"] = Array((targets, STEPS + 1), DOUBLE, 0.0)
            estimator.interval_levels_ = IntervalLevels(own["interval_levels"].numpy())
        scores = _conformal_names(estimator, targets)
        expected |= {name: Array((None,), DOUBLE) for names in scores for name in names}
    require_tensors(own, expected)
    if not isinstance(estimator, ClassifierMixin):
        found = tuple(ConformalScores(tuple(np.sort(own[name].numpy()) for name in names)) for names in scores)
        estimator.selection_ = replace(estimator.selection_, conformal=found)
    estimator.likeness_ = Likeness(own["likeness.mean"].numpy(), own["likeness.root"].numpy(), config["threshold"])
    estimator.posterior_ = posterior_from(tensors, described, estimator.method, estimator.selection_.chosen)
    for member in getattr(estimator.posterior_, "members", (estimator.posterior_,)):
        one_of(*POSTERIORS[estimator.method])(member.kind, "posterior.members.kind")
    _require_prediction(estimator, inputs)
    return estimator


def _unfitted(config: dict[str, Any], classes: Mapping[str, type[Any]]) -> Any:
    """Return the unfitted estimator of a file, with its parameters."""
    one_of(*classes)(config["estimator"], "estimator")
    kind = classes[config["estimator"]]
    record(**dict.fromkeys(kind().get_params(deep=False), anything))(config["parameters"], "parameters")
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in config["parameters"].items()}
    # Predictions run on the CPU, so another machine does not need the GPU of training.
    check_parameters({**parameters, "device": "cpu"})
    text(parameters["device"], "parameters.device")
    optional(whole(0, 2**32 - 1))(parameters["random_state"], "parameters.random_state")
    return kind(**parameters)


def _conformal_names(estimator: Any, targets: int) -> list[list[str]]:
    """Return the names of the conformal scores in a file, by target and fold; empty if the estimator has none."""
    folds = estimator.selection_.folds
    if not (estimator.conformal and folds):
        return []
    members = folds if estimator.members is None else min(folds, estimator.members)
    return [[f"conformal.{i}.{k}" for k in range(members)] for i in range(targets)]


def _classes(described: Any, count: int) -> NDArray[Any]:
    """Return the labels of a file, one for each output of the network."""
    record(values=listed(either(str, text, either(bool, flag, number())), 2), dtype=text)(described, "classes")
    values, name = described["values"], described["dtype"]
    if len(values) != count or len({(type(value), value) for value in values}) != count:
        refuse("classes.values", values, f"{count} labels, each once,")
    if re.fullmatch(r"[<>|=]?[biufUO]\d{0,9}", name) is None or np.dtype(name).itemsize * count > LARGEST_LABELS:
        refuse("classes.dtype", name, "the dtype of labels")
    found = np.array(values, dtype=name)
    if found.tolist() != values:
        refuse("classes.dtype", name, "a dtype that holds the labels")
    return found


def _require_prediction(estimator: Any, features: int) -> None:
    """Raise an error if the prediction for the mean of the training rows is not finite."""
    samples = MonteCarlo(min(estimator._samples, MonteCarlo.samples))
    found = estimator.posterior_.predict(torch.zeros(1, features, dtype=torch.float64), samples)
    expected = ClassificationPredictive if isinstance(estimator, ClassifierMixin) else RegressionPredictive
    if not isinstance(found, expected):
        refuse("posterior.likelihood", type(found).__name__, "a likelihood of the estimator's kind of targets")
    for part in [found.probs] if isinstance(found, ClassificationPredictive) else [found.mean, found.variance]:
        if not bool(torch.isfinite(part).all()):
            refuse("a prediction", "NaN or infinite", "a posterior with finite ones")


def _json_parameter(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value; a random generator is dropped, because its seed is stored separately."""
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_json_parameter("", each) for each in value]
    return value
