"""Boosted trees as plain arrays, predicted for all rows and trees at once.

A node is a place in the arrays. Its left child is the next node, so that only the right child is stored. A leaf is its
own right child and has a threshold below all features, so that every row goes right and stays at the leaf. A prediction
is then the same few operations for every level of the trees.

For predictions, a feature is replaced by the number of thresholds below it, and a node by one whole number, so that a
step down a tree reads two numbers. Deep trees come first, so that shallow ones are left out of the last steps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..schema import refuse
from .column_types import Numbers

Places = NDArray[np.int32]

# Rows and trees that are predicted together: larger blocks do not fit the processor's cache.
ROWS, TREES = 512, 128

# Bits of a packed node: its place among the thresholds, its feature, and the distance to the right child.
PLACE_BITS, FEATURE_BITS = 24, 16
MOST_NODES = 2**22

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
            values = self.value.take(leaves)
            for output in range(len(self.baseline)):
                result[rows, output] += values[self.output[trees] == output].sum(0)
        return result

    def paths(self, x: Numbers, count: int) -> Numbers:
        """Return the outputs after every `count`-th tree: (steps, rows, outputs); the first step has no tree."""
        steps = len(self.root) // count
        result = np.zeros((steps + 1, len(x), len(self.baseline)))
        for rows, trees, leaves in self._leaves(x):
            values = self.value[leaves]
            for tree, output, part in zip(trees.tolist(), self.output[trees], values, strict=True):
                result[tree // count + 1, rows, output] += part
        return np.asarray(result.cumsum(0) + self.baseline)

    def _leaves(self, x: Numbers) -> Any:
        """Yield slices of rows, numbers of trees, and the leaf of each of these trees for each of these rows."""
        packed = self._packed
        for start in range(0, len(x), ROWS):
            rows = slice(start, min(start + ROWS, len(x)))
            count = rows.stop - rows.start
            cells, column = packed.places(x[rows]), np.arange(count)
            for first in range(0, len(self.root), TREES):
                trees, depth = packed.order[first : first + TREES], packed.depth[first : first + TREES]
                at = np.repeat(self.root[trees, None].astype(np.int64), count, 1)
                for level in range(depth[0]):
                    part = at[: np.count_nonzero(depth > level)]
                    node = packed.nodes.take(part, mode="clip")
                    cell = cells.take((node >> PLACE_BITS & packed.feature_mask) * count + column, mode="clip")
                    part += np.where(cell < (node & packed.place_mask), 1, node >> PLACE_BITS + FEATURE_BITS)
                yield rows, trees, at

    @cached_property
    def _packed(self) -> _PackedNodes:
        place = np.arange(len(self.feature))
        leaf = self.right == place
        features = np.unique(self.feature[~leaf])
        thresholds = tuple(np.unique(self.threshold[~leaf & (self.feature == feature)]) for feature in features)
        nodes = (self.right - place).astype(np.int64) << PLACE_BITS + FEATURE_BITS
        for number, (feature, edges) in enumerate(zip(features, thresholds, strict=True)):
            chosen = np.flatnonzero(~leaf & (self.feature == feature))
            # A row goes left if fewer thresholds than this are below its feature; at a leaf, this is 0.
            nodes[chosen] |= (number << PLACE_BITS) | np.searchsorted(edges, self.threshold[chosen]) + 1
        depth = _depths(self.right, self.root, MOST_LEVELS)
        order = np.argsort(-depth, kind="stable")
        return _PackedNodes(nodes, features, thresholds, order, depth[order])

    @property
    def trees_per_step(self) -> int:
        """Number of trees of a boosting step, at least 1."""
        return max(1, len(np.unique(self.output)))

    @property
    def levels(self) -> int:
        """The largest depth of a tree."""
        return int(_depths(self.right, self.root, MOST_LEVELS).max(initial=0))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

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
        if nodes > MOST_NODES or len(np.unique(trees.feature)) >= 2**FEATURE_BITS:
            refuse(f"{name}.feature", nodes, f"at most {MOST_NODES:,} nodes of {2**FEATURE_BITS:,} features")
        leaf, end = trees.right == place, np.append(trees.root, nodes)[np.searchsorted(trees.root, place, "right")]
        checks = {
            "feature": (trees.feature >= 0) & (trees.feature < features),
            "threshold": leaf == (trees.threshold == LEAF),
            "root": (trees.root >= 0) & (trees.root < nodes) & (np.diff(trees.root, prepend=-1) > 0),
            "right": leaf | ((trees.right > place + 1) & (trees.right < end)),
            "output": (trees.output >= 0) & (trees.output < outputs),
        }
        for part, good in checks.items():
            if not good.all():
                refuse(f"{name}.{part}", arrays[part][~good][:1].tolist(), "the values of trees")
        if _depths(trees.right, trees.root, MOST_LEVELS + 1).max(initial=0) > MOST_LEVELS:
            refuse(f"{name}.right", "deeper trees", f"trees of at most {MOST_LEVELS} levels")
        return trees


@dataclass(frozen=True, eq=False)
class _PackedNodes:
    """Nodes as whole numbers.

    Args:
        nodes: From the lowest bits: the place among the thresholds, the number of the feature, and the distance to the
            right child.
        features: The features that trees compare, ascending.
        thresholds: The thresholds of each of these features, ascending.
        order: The trees, the deepest first.
        depth: The depth of each tree, in this order.
    """

    nodes: NDArray[np.int64]
    features: Places
    thresholds: tuple[Numbers, ...]
    order: NDArray[np.int64]
    depth: NDArray[np.int64]

    place_mask, feature_mask = 2**PLACE_BITS - 1, 2**FEATURE_BITS - 1

    def places(self, x: Numbers) -> NDArray[np.int64]:
        """Return the number of thresholds below each feature, feature by feature, as a flat array."""
        columns = zip(self.features, self.thresholds, strict=True)
        return np.concatenate(
            [np.searchsorted(edges, x[:, feature]) for feature, edges in columns] or [np.empty(0, int)]
        )


def _depths(right: Places, root: Places, most: int) -> NDArray[np.int64]:
    """Return the depth of each tree, at most `most`."""
    depths = np.zeros(len(root), np.int64)
    at = np.unique(root)
    for level in range(most):
        at = at[right[at] != at]
        if not len(at):
            break
        depths[np.searchsorted(root, at, "right") - 1] = level + 1
        at = np.unique(np.concatenate([at + 1, right[at]]))
    return depths
