"""A fitted estimator as one file: network, posterior, preprocessing and choices, without training rows or pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from .. import files
from ..errors import BayesNormError, FileFormatError
from .intervals import IntervalLevels
from .likeness import Likeness
from .preprocessing import Preprocessing
from .restoring import posterior_from, posterior_parts
from .search_results import Selection

FORMAT = "bayesnorm-tabular"


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
    levels = getattr(estimator, "interval_levels_", None)
    if levels is not None:
        tensors["interval_levels"] = torch.from_numpy(levels.own)
    tensors["likeness.mean"] = torch.from_numpy(likeness.mean)
    tensors["likeness.root"] = torch.from_numpy(np.ascontiguousarray(likeness.root))
    files.write(Path(path), tensors, config)


def read_estimator(path: str | os.PathLike[str], classes: Mapping[str, type[Any]]) -> Any:
    """Read a fitted estimator that `write_estimator` wrote.

    Args:
        path: The file.
        classes: The estimators that it may hold, by the names of their classes.
    """
    tensors, config = files.read(Path(path))
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FileFormatError(f"path: {path} holds no tabular model; a file written by an estimator's save would work.")
    try:
        return _restored(tensors, config, classes)
    except BayesNormError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"path: {path} does not hold a whole model ({error!r}); save it again.") from error


def _restored(tensors: dict[str, torch.Tensor], config: dict[str, Any], classes: Mapping[str, type[Any]]) -> Any:
    """Return the fitted estimator that tensors and JSON values of a file describe."""
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in config["parameters"].items()}
    estimator: Any = classes[config["estimator"]](**parameters)
    estimator.preprocessing_ = Preprocessing.from_config(config["preprocessing"])
    estimator.selection_ = Selection.from_config(config["selection"])
    mean, root = (tensors[f"likeness.{name}"].numpy() for name in ("mean", "root"))
    estimator.likeness_ = Likeness(mean, root, float(config["threshold"]))
    estimator.seed_, estimator.n_features_in_ = int(config["seed"]), int(config["columns"])
    if config["names"] is not None:
        estimator.feature_names_in_ = np.array(config["names"], dtype=object)
    if config["classes"] is not None:
        estimator.classes_ = np.array(config["classes"]["values"], dtype=config["classes"]["dtype"])
    else:
        own = tensors.get("interval_levels")
        estimator.interval_levels_ = None if own is None else IntervalLevels(own.numpy())
        estimator.n_outputs_, estimator._flat = int(config["outputs"]), bool(config["flat"])
    rate = estimator.selection_.chosen.dropout_rate
    estimator.posterior_ = posterior_from(tensors, config["posterior"], estimator.method, estimator.hidden, rate)
    return estimator


def _json_parameter(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value; a generator of random numbers is not kept, the seed that it gave is."""
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_json_parameter("", each) for each in value]
    return value
