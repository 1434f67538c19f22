"""Tell, without labels, whether new rows come from the world that a network was trained in, and where they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
import torch

from ..errors import NotComparableError
from ..posterior import BatchNormPosterior, Posterior
from .comparison import Comparison, compare_with_present, over_statistics
from .several_tests import LEVEL, holm

# The share of false alarms that the layer which is farthest off may have, beside the distance over all layers; less
# where its tail is known from fewer batches.
ONE_LAYER, OF_BATCHES = 0.1, 256


@dataclass(frozen=True, eq=False)
class LayerDrift:
    """What new rows do at one batch-norm layer, given that the layers before it normalised them.

    Args:
        name: The layer's name in the network.
        p_value: The chance that as many training rows differ so much there.
        mean_shift: How far channels' means moved, in standard deviations of what they are in training (root mean
            square over channels, less what chance alone gives).
        spread_ratio: How much wider channels have become: the ratio of standard deviations, its geometric mean.
        channel_distances: Squared standardised deviations of every channel's mean and log-variance, (2, C); NaN where
            training rows do not vary.
        batches: How many training batches they were standardised by.
    """

    name: str
    p_value: float
    mean_shift: float
    spread_ratio: float
    channel_distances: np.ndarray
    batches: int

    @cached_property
    def channel_p_values(self) -> np.ndarray:
        """The chance that training rows differ so much at a channel, (C,); with many, some are small by chance."""
        tails = 2 * scipy.special.stdtr(self.batches - 1, -np.sqrt(self.channel_distances))
        found: np.ndarray = np.minimum(1, 2 * np.nan_to_num(tails, nan=1.0).min(0))
        return found


@dataclass(frozen=True, eq=False)
class Drift:
    """Whether the statistics of n rows are those of n training rows.

    Args:
        p_value: The chance that as many training rows differ so much; below .05, say, they come from elsewhere.
        rows: n.
        distance: The mean over layers of squared standardised deviations; about 1 for training rows.
        layers: What happens at every watched layer, in running order; of an ensemble, those of its first member.
        members: For an ensemble, what each member sees; else empty.
    """

    p_value: float
    rows: int
    distance: float
    layers: tuple[LayerDrift, ...]
    members: tuple[Drift, ...] = ()

    @property
    def first_layer(self) -> str | None:
        """The first layer at which rows unlike those of training differ beyond chance; None for rows like them."""
        if self.p_value >= LEVEL:
            return None
        adjusted = holm([layer.p_value for layer in self.layers])
        return next((layer.name for layer, p in zip(self.layers, adjusted, strict=True) if p < LEVEL), None)

    def summary(self) -> str:
        """Return a few lines for people."""
        verdict = "unlike" if self.p_value < LEVEL else "like"
        lines = [
            f"{self.rows} row{'s' if self.rows != 1 else ''}: {verdict} the training rows (p = {self.p_value:.2g}, "
            f"distance {self.distance:.2f}, 1 expected)"
        ]
        if self.first_layer is not None:
            lines.append(f"first at layer {self.first_layer}")
        width = max(len(layer.name) for layer in self.layers)
        lines.append(f"{'layer':{width}s}  {'p':>8s}  {'mean moved by':>13s}  {'spread':>7s}")
        lines += [
            f"{layer.name:{width}s}  {layer.p_value:8.2g}  {layer.mean_shift:10.2f} sd  x{layer.spread_ratio:6.2f}"
            for layer in self.layers
        ]
        return "\n".join(lines)


def drift(posterior: Posterior, x: Any) -> Drift:
    """Test whether rows come from the distribution that a network was trained on; labels are not needed.

    One pass of the rows, in which every batch-norm layer normalises by them as in training, gives statistics that are
    held against those of training batches, known from the fit; see `posterior/training_batches.py`. The test is of all
    rows together: a few strange ones among many may pass.

    Args:
        posterior: Over batch statistics (`MCBN`, `GaussianBN`, `StochasticBN`), combined with others, or an ensemble
            of such; an adapted one is compared with what it was adapted to.
        x: New inputs, (n, ...), n from 1 up.
    """
    parts = over_statistics(posterior)
    found = tuple(drift_of(part, x) for part in parts)
    if len(found) == 1:
        return found[0]
    # The members see the same rows: a combination that holds for tests that depend on one another.
    score = float(np.mean([1 / math.tan(math.pi * min(max(each.p_value, 1e-300), 1 - 1e-15)) for each in found]))
    p_value = math.atan2(1, score) / math.pi
    return Drift(p_value, found[0].rows, float(np.mean([each.distance for each in found])), found[0].layers, found)


def drift_of(posterior: BatchNormPosterior, x: Any) -> Drift:
    """Test rows with one posterior over batch statistics."""
    found = compare_with_present(posterior, x)
    if not bool(found.known.any()):
        raise NotComparableError(
            f"x: statistics of as few rows ({found.rows}) are the same for all training rows, so that none can differ; "
            "more rows would work."
        )
    batches = found.batches
    distances = batches.parts.distances(found.standardised, found.known)
    tails = batches.tail(distances, found.size, found.groups)
    # A drift that later layers normalise away, such as of contrast, shows at one layer only.
    farthest = float(np.nanmin(tails[:-1])) * int(found.known.sum())
    share = ONE_LAYER * min(1.0, batches.looked_at(found.size) / OF_BATCHES)
    p_value = min(1.0, float(tails[-1]) / (1 - share), farthest / share)
    return Drift(p_value, found.rows, float(distances[-1]), _layers(found, tails))


def _layers(found: Comparison, tails: np.ndarray) -> tuple[LayerDrift, ...]:
    batches = found.batches
    count = len(batches.layers)
    spread = batches.centers[-1].double().chunk(2)[1].exp().sqrt()
    mean_shift, log_shift = found.shift.chunk(2)
    beyond = (mean_shift.square() - found.noise.chunk(2)[0]) / spread.square()
    channels = torch.where(batches.parts.spread(found.known), found.standardised, torch.nan).numpy().reshape(2, -1)
    each = np.where(np.isnan(tails[:-1]), 1.0, tails[:-1])
    together = np.minimum(1, 2 * np.minimum(each[:count], each[count:]))
    means = batches.parts.means(torch.cat([beyond, log_shift]))
    shifts = means[:count].clamp_min(0).sqrt().tolist()
    ratios = torch.where(found.known[count:], (0.5 * means[count:]).exp(), 1.0).tolist()
    ends = np.cumsum([layer.channels for layer in batches.layers])[:-1]
    return tuple(
        LayerDrift(layer.name, p_value, shift, ratio, own, batches.counts[-1])
        for layer, p_value, shift, ratio, own in zip(
            batches.layers, together.tolist(), shifts, ratios, np.split(channels, ends, axis=1), strict=True
        )
    )
