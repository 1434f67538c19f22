"""Adapt a posterior over batch statistics to new, unlabelled data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import torch
from torch import nn

from bayesnorm_runtime import MixShift

from ..arguments import require_number
from ..errors import BayesNormError, warn
from ..network import own_copy
from ..posterior import (
    Adaptation,
    AdaptedPosterior,
    BatchNormPosterior,
    CombinedPosterior,
    EnsemblePosterior,
    Posterior,
)
from ..predictive import P_co
from .class_mix import estimate_shift
from .comparison import (
    all_alike,
    compare_with_training,
    inputs_in_memory,
    over_statistics,
    require_batches,
    row_statistics,
)

Adaptable = TypeVar("Adaptable", bound=Posterior)


@overload
def adapt(posterior: BatchNormPosterior[P_co], x: Any, *, strength: float | None = None) -> AdaptedPosterior[P_co]: ...


@overload
def adapt(posterior: Adaptable, x: Any, *, strength: float | None = None) -> Adaptable: ...


def adapt(posterior: Posterior, x: Any, *, strength: float | None = None) -> Posterior:
    """Return a new posterior whose batch statistics are adapted to new, unlabelled data.

    For each layer, and separately for means and log-variances, n new examples show a shift. Let d be its mean square
    in units of the variance that n training examples have by chance. If the true shift has scale t (see
    `posterior/adapted.py`), d is 1 + t^2 on average, so the share max(0, 1 - 1/d) of the observed shift is real.
    This share is multiplied by the probability that the data have drifted at all. For that, the distance T over all
    layers is a scaled chi-squared variable of k effective channels. The prior probability of drift is 1/2, and
    1 / (1 + t^2) is uniform under drift. In-distribution data therefore change the posterior very little.

    A classifier is also adapted to data with another mix of classes than in training, such as images of one class only:
    only the part of the shift counts that the estimated mix does not explain, see `bayesnorm_runtime/class_mix.py`.
    It is left as it is if the estimated error would hardly fall; `adapted.decision` says why. For other networks, such
    as regression and segmentation, other targets than in training look like a shift, and adapting can do harm.

    Adapting an adapted posterior uses the examples of both adaptations. Labels are not used.

    Args:
        posterior: A posterior over batch statistics, a combination that contains one, or an ensemble of these. Each
            member of an ensemble is adapted.
        x: New inputs, (n, ...), like those to be predicted, as a tensor or anything that `fit` takes; n is at least 1.
        strength: Share of the observed shift to apply at every layer, from 0 to 1. [default: estimated per layer]
    """
    if strength is not None:
        strength = require_number("strength", strength, least=0, most=1, requirement="a number from 0 to 1, or None")
    parts = over_statistics(posterior)  # raises an error if the posterior cannot be adapted
    x = inputs_in_memory(parts[0], x)
    return _adapted(posterior, x, strength, {})


def adapt_by(posterior: Posterior, x: Any, shifts: Sequence[MixShift | None]) -> Posterior:
    """Adapt to examples whose shift has been estimated; see `adapt`.

    Args:
        posterior: The posterior.
        x: The examples, as tensors.
        shifts: Their shift for each part over batch statistics, in the order of `over_statistics`.
    """
    parts = over_statistics(posterior)
    return _adapted(posterior, x, None, {id(part): shift for part, shift in zip(parts, shifts, strict=True)})


def adapted_network(posterior: Posterior) -> nn.Module:
    """Return a copy of the network whose running statistics are the centre of the posterior.

    Args:
        posterior: A posterior over batch statistics, or a combination that contains one. For an ensemble, call this
            for each of `posterior.members`.
    """
    parts = over_statistics(posterior)
    if len(parts) > 1:
        raise BayesNormError(
            f"posterior has {len(parts)} networks. Call adapted_network(member) for each of posterior.members."
        )
    network = own_copy(posterior.model)
    buffers = dict(network.named_buffers())
    with torch.no_grad():
        for name, value in parts[0].state(parts[0].location).items():
            buffers[name].copy_(value)
    return network


def _adapted(posterior: Posterior, x: Any, strength: float | None, shifts: Mapping[int, MixShift | None]) -> Posterior:
    """Adapt a posterior; `shifts` has those that were estimated before, by the id of the part."""
    if isinstance(posterior, EnsemblePosterior):
        return dataclasses.replace(
            posterior, members=tuple(_adapted(member, x, strength, shifts) for member in posterior.members)
        )
    if isinstance(posterior, CombinedPosterior):
        parts = (_adapted(p, x, strength, shifts) if isinstance(p, BatchNormPosterior) else p for p in posterior.parts)
        return dataclasses.replace(posterior, parts=tuple(parts))
    assert isinstance(posterior, BatchNormPosterior)
    original, earlier = posterior, None
    if isinstance(posterior, AdaptedPosterior):
        original, earlier = posterior.original, posterior.adaptation
    if original.class_statistics is not None:
        # The shift of an adapted posterior is estimated together with that of the earlier examples.
        shift = shifts.get(id(posterior)) if earlier is None else None
        return _adapted_by_classes(original, x, strength, earlier, shift)
    comparison = compare_with_training(posterior, x)
    _warn_of_odd_rows(comparison.rows, comparison.alike)
    if earlier is not None:
        comparison = comparison.with_earlier(earlier.arrays)
    return AdaptedPosterior.from_original(original, Adaptation.from_shift(comparison.adaptation(strength)))


def _adapted_by_classes(
    original: BatchNormPosterior, x: Any, strength: float | None, earlier: Adaptation | None, mix_shift: MixShift | None
) -> Posterior:
    """Adapt a classifier, with the shift that a changed class mix does not explain."""
    rows = row_statistics(original).input(x)
    require_batches(original)
    _warn_of_odd_rows(len(rows), all_alike(rows))
    mix_shift = mix_shift or estimate_shift(original, rows, strength, earlier)
    shift, decision = mix_shift.decided(strength)
    return AdaptedPosterior.from_original(original, Adaptation.from_shift(shift), decision)


def _warn_of_odd_rows(rows: int, alike: bool) -> None:
    """Warn if there is only one example, or if all examples are the same."""
    if rows == 1:
        odd = "has only one example"
    elif alike:
        odd = f"has {rows} examples that are all the same"
    else:
        return
    warn(
        f"x {odd}, so its own content cannot be separated from a shift of the whole data set. "
        "Use at least eight different examples."
    )
