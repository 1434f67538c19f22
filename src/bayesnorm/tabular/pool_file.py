"""The members that are no networks as tensors and JSON values of a file, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import files
from ..likelihoods import likelihood_from
from ..schema import Array, anything, listed, number, one_of, optional, record, refuse, require_tensors, whole
from .linear import LinearModel
from .pool import ERROR_BARS, KINDS, Combination, FoldModels, Pool
from .trees import BoostedTrees

# Largest number of models of a kind.
MOST_MODELS = 10_000

_POOL = record(
    weights=listed(number(0, 1), len(KINDS), len(KINDS)),
    spread=number(0, 1),
    error_bars=one_of("", *ERROR_BARS),
    noise=optional(anything),
    temperatures=listed(number(above=0)),
    models=whole(1, MOST_MODELS),
)

TREES = {
    "feature": (torch.int32,),
    "threshold": (torch.float64,),
    "right": (torch.int32,),
    "value": (torch.float64,),
    "root": (torch.int32,),
    "output": (torch.int32,),
    "baseline": (torch.float64,),
}
"""The arrays of trees and their types."""

UNITS = ("mean", "std", "ceiling", "reach")


def pool_parts(pool: Pool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and JSON values from which `pool_from` restores the pool."""
    combination = pool.combination
    tensors = {"mean": pool.mean, "std": pool.std, "ceiling": combination.ceiling, "reach": combination.reach}
    arrays: dict[str, Any] = {}
    for kind in ("trees", "linear", "tree_scales"):
        models: FoldModels | None = getattr(pool, kind)
        for place, model in enumerate(() if models is None else models.models):
            names = [field.name for field in dataclasses.fields(model)]
            arrays |= {f"{kind}.{place}.{name}": getattr(model, name) for name in names}
    tensors |= {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    config = {
        "weights": list(combination.weights),
        "spread": combination.spread,
        "error_bars": combination.error_bars,
        "noise": None if combination.noise is None else combination.noise.config(),
        "temperatures": list(combination.temperatures),
        "models": len(pool.trees.models),
    }
    return files.prefixed("pool.", {name: tensor.detach().clone() for name, tensor in tensors.items()}), config


def pool_from(tensors: dict[str, Tensor], config: Any, features: int, outputs: int, *, classes: bool) -> Pool:
    """Return the pool from the result of `pool_parts`, or raise an error.

    Args:
        tensors: All tensors of a file.
        config: The JSON values.
        features: Number of features.
        outputs: Number of targets or of classes.
        classes: Whether the targets are classes.
    """
    _POOL(config, "pool")
    tensors, count = files.under("pool.", tensors), config["models"]
    if abs(sum(config["weights"]) - 1) > 1e-6:
        refuse("pool.weights", config["weights"], "numbers that sum to 1")
    listed(number(), *[len(KINDS) if classes else 0] * 2)(config["temperatures"], "pool.temperatures")
    one_of(*([""] if classes else ERROR_BARS))(config["error_bars"], "pool.error_bars")
    units = 1 if classes else outputs
    double = (torch.float64,)
    expected = {
        "mean": Array((units,), double),
        "std": Array((units,), double, 5e-324),
        "ceiling": Array((0 if classes else outputs,), double, empty=True),
        "reach": Array((0,) if classes else (2, outputs), double, empty=True),
    }
    kinds = ["trees", *["tree_scales"] * bool(not classes and ERROR_BARS[config["error_bars"]][1])]
    for kind in kinds:
        for place in range(count):
            expected |= {f"{kind}.{place}.{name}": Array((None,), types, empty=True) for name, types in TREES.items()}
    for place in range(count):
        expected[f"linear.{place}.weight"] = Array((outputs, features), double)
        expected[f"linear.{place}.bias"] = Array((outputs,), double)
    require_tensors(tensors, expected)
    trees = {
        kind: FoldModels(tuple(_trees(tensors, f"{kind}.{k}", features, outputs) for k in range(count)))
        for kind in kinds
    }
    linear = tuple(
        LinearModel(tensors[f"linear.{k}.weight"].numpy(), tensors[f"linear.{k}.bias"].numpy()) for k in range(count)
    )
    noise: Any = None
    if not classes:
        noise = likelihood_from(config["noise"])
        one_of("HeteroscedasticGaussian", "HeteroscedasticStudentT")(type(noise).__name__, "pool.noise.kind")
        for name in ("scale", "floor"):
            if len(np.atleast_1d(getattr(noise, name))) not in (1, outputs):
                refuse(f"pool.noise.{name}", getattr(noise, name), f"1 or {outputs} numbers")
    combination = Combination(
        tuple(config["weights"]),
        config["spread"],
        config["error_bars"],
        tensors["ceiling"],
        tensors["reach"],
        noise,
        tuple(config["temperatures"]),
    )
    return Pool(
        combination,
        trees["trees"],
        FoldModels(linear),
        trees.get("tree_scales"),
        tensors["mean"],
        tensors["std"],
    )


def _trees(tensors: dict[str, Tensor], name: str, features: int, outputs: int) -> BoostedTrees:
    arrays = {part: tensors[f"{name}.{part}"].numpy() for part in TREES}
    return BoostedTrees.from_arrays(arrays, features, outputs, f"pool.{name}")
