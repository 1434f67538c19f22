"""Record in a posterior how a classifier does on validation data, which `drift` and `adapt` estimate errors from."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..likelihoods import Likelihood
from ..posterior import BatchNormPosterior, CombinedPosterior, EnsemblePosterior, Validation
from ..predictive import as_targets
from .sampled_outputs import SampledOutputs


def with_validation(posterior: Any, network: SampledOutputs, likelihood: Likelihood) -> Any:
    """Return the posterior with the record of its network on validation data, if each example has one class.

    Args:
        posterior: The posterior, or an ensemble or a combination that contains posteriors over batch statistics.
        network: The outputs of the network without sampling, and the targets.
        likelihood: The likelihood with the temperature that fits these outputs best.
    """
    probs = torch.cat([likelihood.predictive(f).mean for f in network.outputs]).cpu()
    y = torch.cat([as_targets(targets, torch.device("cpu")).reshape(-1) for targets in network.targets])
    if probs.dim() != 2 or y.shape != probs.shape[:1]:
        return posterior
    seen = (y >= 0) & (y < probs.shape[1])  # others are missing targets
    if not bool(seen.any()):
        return posterior
    return _recorded(posterior, Validation.from_probabilities(probs[seen], y[seen], float(likelihood.noise)))


def _recorded(posterior: Any, validation: Validation) -> Any:
    if isinstance(posterior, EnsemblePosterior):
        return dataclasses.replace(posterior, members=tuple(_recorded(part, validation) for part in posterior.members))
    if isinstance(posterior, CombinedPosterior):
        return dataclasses.replace(posterior, parts=tuple(_recorded(part, validation) for part in posterior.parts))
    if isinstance(posterior, BatchNormPosterior):
        return dataclasses.replace(posterior, validation=validation)
    return posterior
