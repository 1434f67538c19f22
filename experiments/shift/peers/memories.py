"""The memories of RoTTA and NOTE, which hold a balanced choice of a stream's images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Item:
    """An image in a memory: its number in the stream, its predicted class, the entropy and its age in images."""

    number: int
    label: int
    entropy: float = 0.0
    age: int = 0


class BalancedMemory:
    """RoTTA's memory, balanced over predicted classes, which prefers young and certain images (Yuan et al. 2023).

    Every class may have an equal share of the places. Up to that share, a new image takes a free place, or that of an
    image of the largest classes. Above, it takes that of an image of its own class. In both cases the worst of these
    images goes, and only if it is worse than the new one: 1 / (1 + exp(-age / places)) + entropy / ln K.
    """

    def __init__(self, places: int = 64, classes: int = 10) -> None:
        self.places, self.classes = places, classes
        self.items: list[list[Item]] = [[] for _ in range(classes)]

    def add(self, number: int, label: int, entropy: float) -> None:
        """Offer an image to the memory; all images in it grow older by one."""
        item = Item(number, label, entropy)
        if self._has_place(item):
            self.items[label].append(item)
        for others in self.items:
            for other in others:
                other.age += 1

    def contents(self) -> list[Item]:
        """Return all images in it."""
        return [item for items in self.items for item in items]

    def _has_place(self, item: Item) -> bool:
        counts = [len(items) for items in self.items]
        if counts[item.label] >= self.places / self.classes:
            return self._replaces([item.label], item)
        if sum(counts) < self.places:
            return True
        return self._replaces([label for label, count in enumerate(counts) if count == max(counts)], item)

    def _replaces(self, labels: list[int], item: Item) -> bool:
        """Remove the worst image of these classes if it is worse than a new one; return whether it was."""
        worst = max((old for label in labels for old in self.items[label]), key=self._badness)
        if self._badness(worst) <= self._badness(item):
            return False
        self.items[worst.label].remove(worst)
        return True

    def _badness(self, item: Item) -> float:
        return 1 / (1 + math.exp(-item.age / self.places)) + item.entropy / math.log(self.classes)


class BalancedReservoir:
    """NOTE's memory: prediction-balanced reservoir sampling (Gong et al. 2022).

    In a full memory, an image of a class that is not among the largest replaces one of these at random. An image of one
    of the largest classes replaces one of its own class, with the probability of reservoir sampling.
    """

    def __init__(self, places: int = 64, classes: int = 10, seed: int = 0) -> None:
        self.places = places
        self.items: list[Item] = []
        self.seen = [0] * classes
        self.random = np.random.default_rng(seed)

    def add(self, number: int, label: int) -> None:
        """Offer an image to the memory."""
        self.seen[label] += 1
        if len(self.items) < self.places:
            self.items.append(Item(number, label))
            return
        counts = np.bincount([item.label for item in self.items], minlength=len(self.seen))
        largest = np.flatnonzero(counts == counts.max())
        if label in largest:
            if self.random.random() > counts[label] / self.seen[label]:
                return
            leaving = label
        else:
            leaving = int(self.random.choice(largest))
        same = [place for place, item in enumerate(self.items) if item.label == leaving]
        self.items[int(self.random.choice(same))] = Item(number, label)
