"""Save and load a fitted estimator as one file: networks, posterior, preprocessing and settings, no training rows.

Everything in a file is checked before it is used: the structure of the JSON, the shapes and values of tensors, and that
they fit each other. No prediction is needed.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .. import files
from ..errors import BayesNormError, FileFormatError
from ..likelihoods import likelihood_from
from ..network import Executable, tensors_of
from ..posterior import Posterior, restored_posterior
from ..schema import (
    Array,
    anything,
    arrays_like,
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
    with_tuples,
)
from ..training import Rescaled
from .checks import check_parameters
from .intervals import LEVELS, ConformalScores, IntervalLevels
from .networks import Encoded, PiecewiseLinear, Waves, network_for, parsed_encoding
from .pool_file import pool_from, pool_parts
from .preprocessing import Preprocessing
from .search_results import NetworkSetting, Selection
from .training_columns import TrainingColumns
from .unusual_rows import Likeness, Ranges

FORMAT, EARLIER_FORMAT = "bayesnorm-tabular-2", "bayesnorm-tabular"

ESTIMATORS: dict[str, type[Any]] = {}
"""The estimators by their names in files; their modules add them, because they import this one."""

DOUBLE = (torch.float64,)

# Largest size of the labels in bytes; a file with a huge text dtype must not exhaust the memory.
LARGEST_LABELS = 2**26

# Largest number of encoded inputs that a file may declare.
MOST_ENCODED = 2**20

_POSTERIOR = record(
    inputs=whole(1),
    encoded=whole(0, MOST_ENCODED),
    outputs=whole(1),
    kind=one_of("batchnorm", "adapted", "dropout", "deterministic", "ensemble"),
    config=anything,  # each kind of posterior checks its own configuration
    likelihood=anything,
)
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
    posterior=_POSTERIOR,
    training_columns=anything,
    ranges=anything,
    pool=later(optional(anything)),
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
        "training_columns": estimator.training_columns_.config(),
        "ranges": estimator.ranges_.config(),
    }
    if estimator.pool_ is not None:
        parts, config["pool"] = pool_parts(estimator.pool_)
        tensors |= parts
    levels = getattr(estimator, "interval_levels_", None)
    arrays = {} if levels is None else {"interval_levels": levels.levels}
    if getattr(estimator, "conformal", False):
        for column, conformal in enumerate(estimator.selection_.conformal):
            arrays |= {f"conformal.{column}.{k}": scores for k, scores in enumerate(conformal.scores)}
    arrays |= {"likeness.mean": likeness.mean, "likeness.root": likeness.root}
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    files.write(files.as_path(path), tensors, config)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the fitted `BayesNormRegressor` or `BayesNormClassifier` in a file that its `save` wrote.

    Args:
        path: The file.
    """
    tensors, config = files.read(files.as_path(path))
    if config.get("format") not in (FORMAT, EARLIER_FORMAT):
        raise FileFormatError(
            f"path: {path} does not contain a tabular model. Pass a file that an estimator's save wrote."
        )
    if config["format"] == EARLIER_FORMAT or not {"training_columns", "ranges"} <= config.keys():
        raise FileFormatError(f"path: {path} contains a tabular model of an earlier version. Fit the model again.")
    try:
        return _restored(tensors, config)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).removeprefix("path: ") if isinstance(error, BayesNormError) else repr(error)
        raise FileFormatError(
            f"path: {path} does not contain a complete model ({reason.rstrip('.')}). Save it again."
        ) from error


def _restored(tensors: dict[str, Tensor], config: dict[str, Any]) -> Any:
    """Return the fitted estimator for the tensors and the JSON of a file."""
    _FILE(config, "config")
    estimator, posterior = _unfitted(config), config["posterior"]
    preprocessing = estimator.preprocessing_ = Preprocessing.from_config(config["preprocessing"])
    features, columns = len(preprocessing.mean), len(preprocessing.columns)
    estimator.training_columns_ = TrainingColumns.from_config(config["training_columns"], preprocessing)
    estimator.ranges_ = Ranges.from_config(config["ranges"], columns)
    estimator.selection_ = Selection.from_config(config["selection"])
    whole(preprocessing.inputs, preprocessing.inputs)(posterior["inputs"], "posterior.inputs")
    whole(columns, columns)(config["columns"], "columns")
    optional(listed(text, columns, columns))(config["names"], "names")
    estimator.seed_, estimator.n_features_in_ = config["seed"], columns
    if config["names"] is not None:
        estimator.feature_names_in_ = np.array(config["names"], dtype=object)
    arrays = {
        name: tensor for name, tensor in tensors.items() if not name.startswith(("network.", "posterior.", "pool."))
    }
    correlated = "likeness.root" in arrays and arrays["likeness.root"].dim() == 2
    root = Array((features, features) if correlated else (features,), DOUBLE)
    expected = {"likeness.mean": Array((features,), DOUBLE), "likeness.root": root}
    scores: list[list[str]] = []
    if isinstance(estimator, ClassifierMixin):
        estimator.classes_ = _classes(config["classes"], posterior["outputs"])
        for name in ("outputs", "flat"):
            just(None)(config[name], name)
        _require_likelihood(posterior["likelihood"], ["Categorical"], "temperature")
    else:
        targets = posterior["outputs"] // (1 + estimator.heteroscedastic)
        whole(targets, targets)(config["outputs"], "outputs")
        flag(config["flat"], "flat")
        just(None)(config["classes"], "classes")
        if estimator.heteroscedastic:
            kinds = ["HeteroscedasticGaussian", "HeteroscedasticStudentT"]
            _require_likelihood(posterior["likelihood"], kinds, "scale", "floor", "df", targets=targets)
        else:
            _require_likelihood(posterior["likelihood"], ["Gaussian"], "precision", targets=targets)
        estimator.n_outputs_, estimator._flat, estimator.interval_levels_ = targets, config["flat"], None
        if "interval_levels" in arrays:
            expected["interval_levels"] = Array((targets, len(LEVELS)), DOUBLE, 0.0)
            estimator.interval_levels_ = IntervalLevels(arrays["interval_levels"].numpy())
        scores = _conformal_names(estimator, targets)
        expected |= {name: Array((None,), DOUBLE) for names in scores for name in names}
    require_tensors(arrays, expected)
    conformal = (ConformalScores(tuple(np.sort(arrays[name].numpy()) for name in names)) for names in scores)
    estimator.selection_ = replace(estimator.selection_, conformal=tuple(conformal))
    estimator.likeness_ = Likeness(
        arrays["likeness.mean"].numpy(), arrays["likeness.root"].numpy(), config["threshold"]
    )
    estimator.posterior_ = posterior_from(tensors, posterior, estimator.method, estimator.selection_.chosen)
    classes = isinstance(estimator, ClassifierMixin)
    outputs = posterior["outputs"] if classes else estimator.n_outputs_
    estimator.pool_ = None
    if config.get("pool") is not None:
        estimator.pool_ = pool_from(tensors, config["pool"], posterior["inputs"], outputs, classes=classes)
    return estimator


def _unfitted(config: dict[str, Any]) -> Any:
    """Return the unfitted estimator of a file, with its parameters."""
    one_of(*ESTIMATORS)(config["estimator"], "estimator")
    kind = ESTIMATORS[config["estimator"]]
    record(**dict.fromkeys(kind().get_params(deep=False), anything))(config["parameters"], "parameters")
    parameters = with_tuples(config["parameters"])
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
    labels = np.array(values, dtype=name)
    if labels.tolist() != values:
        refuse("classes.dtype", name, "a dtype that holds the labels")
    return labels


def _require_likelihood(config: Any, kinds: list[str], *fields: str, targets: int = 1) -> None:
    """Raise an error for a likelihood of other targets than the estimator's."""
    numbers = later(either(list, listed(number(), targets, targets), number()))
    record(kind=one_of(*kinds), **dict.fromkeys(fields, numbers))(config, "posterior.likelihood")


def _json_parameter(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value; a random generator is dropped, because its seed is stored separately."""
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_json_parameter("", entry) for entry in value] if isinstance(value, list | tuple) else value


def posterior_parts(posterior: Posterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and JSON values from which `posterior_from` restores the posterior."""
    network = tensors_of(posterior.model)
    weights = [tensor for name, tensor in network.items() if name.endswith("weight") and tensor.dim() == 2]
    encoder = posterior.model.get_submodule("network.0")
    tensors = {f"network.{name}": tensor.detach().clone() for name, tensor in network.items()}
    tensors |= {f"posterior.{name}": tensor.detach().clone() for name, tensor in posterior.tensors().items()}
    numbers = len(encoder.get_buffer("column")) if not isinstance(encoder, nn.Identity) else 0
    config = {
        "inputs": weights[0].shape[1] - numbers * (1 + isinstance(encoder, Waves)),
        "encoded": numbers,
        "outputs": weights[-1].shape[0],
        "kind": posterior.kind,
        "config": posterior.config(),
        "likelihood": posterior.likelihood.config(),
    }
    return tensors, json.loads(json.dumps(config))  # lists for tuples, as in a file


def posterior_from(
    tensors: dict[str, Tensor], config: dict[str, Any], method: str, setting: NetworkSetting
) -> Posterior:
    """Return the posterior from the result of `posterior_parts`; sizes are checked before networks are built."""
    weights = files.under("network.", tensors)
    encoder, added = _encoder(setting.encoding, config["encoded"], weights, config["inputs"])
    widths = [config["inputs"] + added, *setting.hidden, config["outputs"]]
    _require_sizes(weights, widths, config["inputs"])
    inner = network_for(method, widths[0], widths[-1], setting.hidden, setting.dropout_rate, 0)
    model = Rescaled(
        Encoded(encoder, *inner).double(), *(weights[name] for name in ("x_mean", "x_std", "y_mean", "y_std"))
    ).eval()
    require_tensors(weights, arrays_like(tensors_of(model), DOUBLE))
    model.load_state_dict(weights)
    kinds = {"dropout": ["dropout"], "ensemble": ["deterministic"]}.get(method, ["batchnorm", "adapted"])
    one_of("ensemble", *kinds)(config["kind"], "posterior.kind")
    posterior = restored_posterior(
        {"kind": config["kind"], "posterior": config["config"]},
        Executable(model),
        likelihood_from(config["likelihood"]),
        files.under("posterior.", tensors),
    )
    for member in getattr(posterior, "members", (posterior,)):
        one_of(*kinds)(member.kind, "posterior.members.kind")
    return posterior


def _encoder(encoding: str, numbers: int, weights: dict[str, Tensor], inputs: int) -> tuple[nn.Module, int]:
    """Return an encoder with the sizes of a file's encoder, and how many numbers it adds to the inputs."""
    kind, _ = parsed_encoding(encoding)
    if kind == "plain":
        whole(0, 0)(numbers, "posterior.encoded")
        return nn.Identity(), 0
    least = {"low": -math.inf, "width": 5e-324} if kind == "bins" else {"frequency": -math.inf}
    expected = {"network.0.column": Array((numbers,), (torch.long,), 0)}
    expected |= {f"network.0.{name}": Array((numbers,), DOUBLE, bound) for name, bound in least.items()}
    require_tensors({name: weights[name] for name in expected if name in weights}, expected)
    column = weights["network.0.column"]
    if numbers and int(column.max()) >= inputs:
        refuse("posterior.network.0.column", int(column.max()), f"numbers below {inputs}")
    if bool((column.diff() < 0).any()):
        refuse("posterior.network.0.column", column.tolist(), "numbers in ascending order")
    zeros = torch.zeros(numbers, dtype=torch.float64)
    return (
        (PiecewiseLinear(column, zeros, zeros + 1), numbers) if kind == "bins" else (Waves(column, zeros), 2 * numbers)
    )


def _require_sizes(weights: dict[str, Tensor], widths: list[int], inputs: int) -> None:
    """Raise an error if the layer widths or the scales of inputs and outputs differ from those of the tensors."""
    matrices = [name for name, tensor in weights.items() if tensor.dim() == 2]
    in_order = sorted(matrices, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()])
    shapes, wanted = [tuple(weights[name].shape) for name in in_order], [(b, a) for a, b in pairwise(widths)]
    if shapes != wanted:
        refuse("posterior.network", shapes, f"weights of shapes {wanted}")
    scales = {}
    for name in ("x_mean", "x_std", "y_mean", "y_std"):
        size = inputs if name.startswith("x") else widths[-1]
        if weights.get(name, torch.empty(0)).shape == (1,):
            size = 1  # one value for all
        scales[name] = Array((size,), DOUBLE, 5e-324 if name.endswith("std") else -math.inf)
    require_tensors({name: tensor for name, tensor in weights.items() if name in scales}, scales)
