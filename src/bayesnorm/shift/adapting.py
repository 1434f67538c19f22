"""Move a posterior over batch statistics to where new, unlabelled rows come from."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import scipy
import torch
from torch import nn

from ..arguments import as_number
from ..errors import BayesNormError, BayesNormWarning
from ..network import own_copy
from ..posterior import (
    Adaptation,
    AdaptedPosterior,
    BatchNormPosterior,
    CombinedPosterior,
    EnsemblePosterior,
    Posterior,
)
from .comparison import Comparison, compare, over_statistics


def adapt(posterior: Posterior, x: Any, *, strength: float | None = None) -> Any:
    """Return a new posterior, moved by unlabelled rows to the world that they come from.

    Per layer, its means and its log-variances apart, n rows show shifts whose mean square is d in units of what
    training rows show by chance. With shifts of scale t (see `posterior/adapted.py`) d is 1 + t^2 on average, which
    makes max(0, 1 - 1/d) of the shift believed, the rest chance. All of it counts only as far as there is a drift at
    all: with the distance T over all layers a scaled chi-squared variable of k effective channels, the share is
    multiplied by the probability that t is not 0 (before, 1/2; and 1 / (1 + t^2) uniform if it is not). So rows from
    the world of training leave a posterior as it is.

    Adapting an adapted posterior takes the rows of both together. Labels are not used: if the new rows have other
    classes, or only one, their statistics differ for that reason too, and adapting to them can hurt.

    Args:
        posterior: Over batch statistics, combined with others, or an ensemble of such, whose members move each.
        x: New inputs, (n, ...), such as will be predicted; n from 1 up.
        strength: Which share of the shift to believe at every layer, 0 to 1, instead.
    """
    given = None if strength is None else as_number(strength)
    if strength is not None and (given is None or not 0 <= given <= 1):
        raise BayesNormError(f"strength must be a number from 0 to 1, or None, got {strength!r}.")
    over_statistics(posterior)  # which refuses what cannot be adapted
    return _adapted(posterior, x, given)


def adapted_network(posterior: Posterior) -> nn.Module:
    """Return a plain copy of the network whose running statistics are those that a posterior lies about.

    Args:
        posterior: Over batch statistics, or combined with others; of an ensemble, `posterior.members` have one each.
    """
    parts = over_statistics(posterior)
    if len(parts) > 1:
        raise BayesNormError(
            f"posterior: has {len(parts)} networks; adapted_network(member) for each of posterior.members would work."
        )
    network = own_copy(posterior.model)
    buffers = dict(network.named_buffers())
    with torch.no_grad():
        for name, value in parts[0].state(parts[0].location).items():
            buffers[name].copy_(value)
    return network


def _adapted(posterior: Posterior, x: Any, strength: float | None) -> Posterior:
    if isinstance(posterior, EnsemblePosterior):
        return dataclasses.replace(
            posterior, members=tuple(_adapted(member, x, strength) for member in posterior.members)
        )
    if isinstance(posterior, CombinedPosterior):
        parts = (_adapted(p, x, strength) if isinstance(p, BatchNormPosterior) else p for p in posterior.parts)
        return dataclasses.replace(posterior, parts=tuple(parts))
    assert isinstance(posterior, BatchNormPosterior)
    found = compare(posterior, x)
    _warn_of_odd_rows(found)
    original = posterior
    if isinstance(posterior, AdaptedPosterior):
        original, found = posterior.original, _with_earlier(posterior.adaptation, found)
    shares = believed(found) if strength is None else np.where(found.known.numpy(), strength, 0.0)
    believed_shares = torch.as_tensor(shares).to(found.shift)
    return AdaptedPosterior.of(original, Adaptation(found.rows, found.shift, found.noise, believed_shares))


def believed(found: Comparison) -> np.ndarray:
    """Return which share of the shift of every part is believed, (2L,); see `adapt`."""
    batches = found.batches
    distances = batches.parts.means(found.standardised).numpy()
    overall = float(batches.parts.distances(found.standardised, found.known)[-1])
    channels = batches.effective_channels(found.size, found.groups)[-1]
    with np.errstate(divide="ignore"):
        shares = np.maximum(0, 1 - 1 / distances)
    return np.where(found.known.numpy(), shares * drift_probability(overall, channels), 0.0)


def drift_probability(distance: float, channels: float) -> float:
    """Return the probability that rows have drifted, given their distance over so many effective channels.

    With u = 1 / (1 + t^2), u k T is a chi-squared variable of k degrees. The density of T is then proportional to
    u^(k/2) exp(-u k T / 2): at u = 1 where there is no drift, and averaged over u from 0 to 1 where there is.
    """
    shape, scaled = channels / 2 + 1, channels * max(distance, 1e-12) / 2
    # The average over u is an incomplete gamma function; logarithms, because its parts are beyond all measure.
    log_average = scipy.special.gammaln(shape) - shape * np.log(scaled) + _log_gammainc(shape, scaled)
    return float(scipy.special.expit(log_average + scaled))


def _log_gammainc(shape: float, scaled: float) -> float:
    below = scipy.special.gammainc(shape, scaled)
    if below > 1e-280:
        return float(np.log(below))
    # Its leading term, far below the bulk.
    return float(shape * np.log(scaled) - scaled - scipy.special.gammaln(shape + 1))


def _with_earlier(before: Adaptation, found: Comparison) -> Comparison:
    """Return what rows show together with those of an earlier adaptation."""
    rows = before.rows + found.rows
    shift = (before.rows * before.shift.to(found.shift) + found.rows * found.shift) / rows
    groups = max(1, round(rows / found.batches.batch_size))
    expected = found.batches.expected(rows / groups, groups)
    return dataclasses.replace(
        found, rows=rows, size=rows / groups, groups=groups, shift=shift, noise=expected.variance, known=expected.known
    )


def _warn_of_odd_rows(found: Comparison) -> None:
    """Warn of rows that a new world can hardly be told from."""
    if found.rows == 1:
        odd = "is one row, whose own content cannot be told from that of the world it comes from"
    elif found.alike:
        odd = f"holds {found.rows} rows that are all the same"
    else:
        return
    warnings.warn(f"x: {odd}; eight or more different rows would work better.", BayesNormWarning, stacklevel=5)
