"""Boosted trees as plain arrays, predicted for all rows and trees at once.

A node is a place in the arrays. Its left child is the next node, so that only the right child is stored. A leaf is its
own right child and has a threshold below all features, so that every row goes right and stays at the leaf. A prediction
is then the same few operations for every level of the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..schema import refuse
from .column_types import Numbers

Places = NDArray[np.int32]

# Rows and trees that are predicted together: larger blocks do not fit the processor's cache.
ROWS, NODES = 512, 2**17

# The threshold of leaves, below all features.
LEAF = -1e150

# Largest accepted depth of a tree in a file.
MOST_LEVELS = 128


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """The sum of many trees for each output.

    Args:
        feature: The feature that each node compares, (nodes,).
        threshold: A row goes left if its feature is at most this; `LEAF` for leaves, (nodes,).
        right: The node to the right, (nodes,); a leaf is its own.
        value: What a leaf adds to an output, (nodes,).
        root: The first node of each tree, ascending, (trees,).
        output: The output that each tree adds to, (trees,).
        baseline: What every row gets, (outputs,).
    """

    feature: Places
    threshold: Numbers
    right: Places
    value: Numbers
    root: Places
    output: Places
    baseline: Numbers

    @classmethod
    def from_nodes(cls, trees: list[Any], outputs: list[int], baseline: Numbers) -> Self:
        """Return the trees of scikit-learn's histogram gradient boosting.

        Args:
            trees: The nodes of each tree, as scikit-learn stores them: each left child follows its parent.
            outputs: The output of each tree.
            baseline: What every row gets, (outputs,).
        """
        sizes = np.array([len(nodes) for nodes in trees], np.int64)
        root = np.cumsum(sizes) - sizes
        nodes = np.concatenate(trees) if trees else np.empty(0, [("is_leaf", "u1")])
        place = np.arange(len(nodes))
        if not len(nodes):
            empty, none = np.empty(0), np.empty(0, np.int32)
            return cls(none, empty, none, empty, none, none, baseline)
        leaf = nodes["is_leaf"].astype(bool)
        start = root.repeat(sizes)
        if not np.array_equal((start + nodes["left"])[~leaf], place[~leaf] + 1) or nodes["is_categorical"].any():
            raise AssertionError("scikit-learn stores trees in an unexpected order")
        return cls(
            np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
            np.where(leaf, LEAF, nodes["num_threshold"]),
            np.where(leaf, place, start + nodes["right"]).astype(np.int32),
            np.where(leaf, nodes["value"], 0.0),
            root.astype(np.int32),
            np.array(outputs, np.int32),
            baseline,
        )

    def first(self, trees: int) -> BoostedTrees:
        """Return the first trees, in the order of boosting."""
        end = int(self.root[trees]) if trees < len(self.root) else len(self.feature)
        nodes = (self.feature[:end], self.threshold[:end], self.right[:end], self.value[:end])
        return BoostedTrees(*nodes, self.root[:trees], self.output[:trees], self.baseline)

    def predict(self, x: Numbers) -> Numbers:
        """Return the outputs of rows of features: (rows, outputs)."""
        result = np.tile(self.baseline, (len(x), 1))
        for rows, trees, leaves in self._leaves(x):
            values = self.value[leaves]
            for output in range(len(self.baseline)):
                result[rows, output] += values[self.output[trees] == output].sum(0)
        return result

    def paths(self, x: Numbers, count: int) -> Numbers:
        """Return the outputs after every `count`-th tree: (steps, rows, outputs); the first step has no tree."""
        steps = len(self.root) // count
        result = np.zeros((steps + 1, len(x), len(self.baseline)))
        for rows, trees, leaves in self._leaves(x):
            values = self.value[leaves]
            for tree, output, part in zip(range(trees.start, trees.stop), self.output[trees], values, strict=True):
                result[tree // count + 1, rows, output] += part
        return np.asarray(result.cumsum(0) + self.baseline)

    def _leaves(self, x: Numbers) -> Any:
        """Yield slices of rows and of trees, and the leaf of each tree for each row."""
        levels, trees = self.levels, max(1, NODES // ROWS)
        flat = np.ascontiguousarray(x, dtype=np.float64)
        for start in range(0, len(x), ROWS):
            rows = slice(start, min(start + ROWS, len(x)))
            block = flat[rows]
            offset, cells = np.arange(len(block), dtype=np.int32) * block.shape[1], block.reshape(-1)
            for first in range(0, len(self.root), trees):
                some = slice(first, min(first + trees, len(self.root)))
                at = np.repeat(self.root[some, None], len(block), 1)
                for _ in range(levels):
                    stays = cells[offset + self.feature[at]] <= self.threshold[at]
                    at = np.where(stays, at + 1, self.right[at])
                yield rows, some, at

    @property
    def trees_per_step(self) -> int:
        """Number of trees of a boosting step, at least 1."""
        return max(1, len(np.unique(self.output)))

    @property
    def levels(self) -> int:
        """The largest depth of a tree."""
        return _depth(self.right, self.root, MOST_LEVELS)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], features: int, outputs: int, name: str) -> Self:
        """Return the trees of a file, or raise an error if its arrays are no trees for these features and outputs.

        Args:
            arrays: The arrays by name, of the right types.
            features: Number of features.
            outputs: Number of outputs.
            name: The name of the arrays in messages.
        """
        trees = cls(**arrays)
        nodes, place = len(trees.feature), np.arange(len(trees.feature))
        for part, size in (
            ("threshold", nodes),
            ("right", nodes),
            ("value", nodes),
            ("output", len(trees.root)),
            ("baseline", outputs),
        ):
            if len(arrays[part]) != size:
                refuse(f"{name}.{part}", len(arrays[part]), f"{size} values")
        leaf = trees.right == place
        checks = {
            "feature": (trees.feature >= 0) & (trees.feature < features),
            "threshold": leaf == (trees.threshold == LEAF),
            "right": leaf | ((trees.right > place + 1) & (trees.right < nodes)),
            "root": (trees.root >= 0) & (trees.root < nodes) & (np.diff(trees.root, prepend=-1) > 0),
            "output": (trees.output >= 0) & (trees.output < outputs),
        }
        for part, good in checks.items():
            if not good.all():
                refuse(f"{name}.{part}", arrays[part][~good][:1].tolist(), "the values of trees")
        if _depth(trees.right, trees.root, MOST_LEVELS + 1) > MOST_LEVELS:
            refuse(f"{name}.right", "deeper trees", f"trees of at most {MOST_LEVELS} levels")
        return trees


def _depth(right: Places, root: Places, most: int) -> int:
    """Return the largest depth of trees, or `most` if one is deeper."""
    at = np.unique(root)
    for level in range(most):
        at = at[right[at] != at]
        if not len(at):
            return level
        at = np.unique(np.concatenate([at + 1, right[at]]))
    return most
