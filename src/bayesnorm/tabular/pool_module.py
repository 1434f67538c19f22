"""Boosted trees and linear models as modules of torch, for an exported file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .pool import FoldModels, Pool
from .trees import BoostedTrees


class TreesModule(nn.Module):
    """All trees of all folds, which run together: one comparison for each level.

    Args:
        kind: The trees of each fold.
    """

    def __init__(self, kind: FoldModels) -> None:
        super().__init__()
        models: Any = kind.models
        self.outputs, self.folds = len(models[0].baseline), len(models)
        starts = np.cumsum([0, *(len(model.feature) for model in models)])
        parts: dict[str, list[Any]] = {
            name: [] for name in ("feature", "threshold", "right", "value", "root", "column")
        }
        for number, (model, start) in enumerate(zip(models, starts, strict=False)):
            parts["column"].append(number * self.outputs + model.output)
            for name in ("feature", "threshold", "right", "value", "root"):
                parts[name].append(getattr(model, name) + (start if name in ("right", "root") else 0))
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
        for name in ("feature", "right", "root"):
            self.register_buffer(name, torch.from_numpy(arrays[name].astype(np.int64)))
        for name in ("threshold", "value"):
            self.register_buffer(name, torch.from_numpy(arrays[name].astype(np.float64)))
        sums = np.zeros((len(arrays["root"]), self.folds * self.outputs))
        sums[np.arange(len(sums)), arrays["column"]] = 1.0
        self.register_buffer("sums", torch.from_numpy(sums))
        self.register_buffer("baseline", torch.from_numpy(np.stack([model.baseline for model in models])[:, None]))
        self.levels = max(model.levels for model in models)

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs of all folds: (folds, rows, outputs)."""
        at = self.root.expand(x.shape[0], -1)
        for _ in range(self.levels):
            left = x.gather(1, self.feature[at]) <= self.threshold[at]
            at = torch.where(left, at + 1, self.right[at])
        values = self.value[at] @ self.sums
        return values.view(-1, self.folds, self.outputs).transpose(0, 1) + self.baseline

    feature: Tensor
    threshold: Tensor
    right: Tensor
    value: Tensor
    root: Tensor
    sums: Tensor
    baseline: Tensor


class LinearModule(nn.Module):
    """The linear models of all folds.

    Args:
        kind: The models.
    """

    def __init__(self, kind: FoldModels) -> None:
        super().__init__()
        models: Any = kind.models
        self.register_buffer("weight", torch.from_numpy(np.stack([model.weight.T for model in models])))
        self.register_buffer("bias", torch.from_numpy(np.stack([model.bias for model in models])[:, None]))

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs of all folds: (folds, rows, outputs)."""
        return x @ self.weight + self.bias

    weight: Tensor
    bias: Tensor


def as_pool_module(pool: Pool, shift: float) -> Pool:
    """Return a pool that predicts from tensors, with `shift` subtracted from the targets."""

    def converted(kind: FoldModels | None) -> Any:
        if kind is None:
            return None
        return (TreesModule if isinstance(kind.models[0], BoostedTrees) else LinearModule)(kind)

    kinds = {name: converted(getattr(pool, name)) for name in ("trees", "linear", "tree_scales")}
    return replace(pool, mean=pool.mean - shift, **kinds)
