"""Posteriors over all networks of a stack: samples (n, E, ...), outputs (n, E, rows, outputs).

The methods and their own posteriors define a sample; this module only adds an axis of networks.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from ..arguments import require_whole
from ..errors import BayesNormError, NetworkError
from ..likelihoods import Gaussian, Likelihood
from ..methods import BatchNormMethod, Collected, MCDropout
from ..network import State
from ..posterior import (
    BatchNormPosterior,
    DeterministicPosterior,
    Posterior,
    mask_seeds,
    require_samples,
    shuffled_rounds,
)
from .collecting import stacked_moments, stacked_statistics
from .executable import OwnRowsExecutable, StackedExecutable
from .rows import StackedRows
from .stack import Stack

P = TypeVar("P", bound=Posterior)


def fit_stacked(
    method: BatchNormMethod | MCDropout,
    stack: Stack,
    rows: StackedRows,
    likelihood: Likelihood | None = None,
    *,
    executable: StackedExecutable | None = None,
    seed: int | Sequence[int] = 0,
) -> StackedBatchNormPosterior | StackedDropoutPosterior:
    """Fit a method on every network of a stack, as `method.fit` would fit it on each with the same seed.

    Only the factorised `GaussianBN` differs: it uses random batches instead of one pass over the rows.

    Args:
        method: A batch-norm method (with `layers=None`), or MC dropout with the networks' own rates.
        stack: The trained networks.
        rows: Their training rows, which also define the units of predictions.
        likelihood: How outputs become distributions of targets; `Gaussian(precision=[...], axis=0)` has a noise for
            each network. None means `Gaussian()` for networks with one real output.
        executable: How networks are run; None gives outputs in the units of the rows' targets.
        seed: Determines the rows of each batch; one for all networks, or one for each.
    """
    stack.require_rows(rows, "rows")
    likelihood = _default_likelihood(stack) if likelihood is None else likelihood
    if isinstance(method, MCDropout):
        if method.p is not None:
            raise BayesNormError(
                f"method must have p=None for a stack, which uses the networks' own dropout rates, got {method!r}."
            )
        if not stack.drops:
            raise NetworkError(
                "stack: its networks have no nn.Dropout, so there are no masks to sample. Use networks with dropout, "
                "or MCBN."
            )
        asked = executable or StackedExecutable.of(stack, rows, consistent=method.consistent)
        return StackedDropoutPosterior(asked, likelihood, dict(stack.rates))  # type: ignore[arg-type]
    if not isinstance(method, BatchNormMethod):
        raise BayesNormError(
            f"method must be MCBN(batch_size=32), GaussianBN or MCDropout() for a stack, got {method!r}."
        )
    if method.batch_size is None or method.layers is not None:
        raise BayesNormError(f"method must have a batch_size and layers=None for a stack, got {method!r}.")
    collected: Collected
    if method.from_batches:
        collected = stacked_statistics(stack, rows, method.batch_size, method.states, seed)
    else:
        collected = stacked_moments(stack, rows, method.batch_size, seed)
    return learned_posterior(method, collected, executable or StackedExecutable.of(stack, rows), likelihood)


def _default_likelihood(stack: Stack) -> Likelihood:
    """Return a Gaussian for networks with one real output; with more outputs, the caller must choose."""
    if stack.widths[-1] != 1:
        raise BayesNormError(
            f"likelihood=None, but the networks have {stack.widths[-1]} outputs. Pass Categorical() for classes, or "
            "Gaussian() for several real targets."
        )
    return Gaussian()


def learned_posterior(
    method: BatchNormMethod, collected: Collected, executable: StackedExecutable, likelihood: Likelihood
) -> StackedBatchNormPosterior:
    """Return the posterior of a method from collected statistics, which several methods may share."""
    learned = method.learned(collected)
    sizes = torch.full((len(executable.stack),), learned.pop("batch_size"), dtype=torch.float64)
    return StackedBatchNormPosterior(
        executable=executable,  # type: ignore[arg-type]
        likelihood=likelihood,
        batch_size=sizes,  # type: ignore[arg-type]
        **learned,
    )


def by_own_rows(posterior: P) -> P:
    """Return the posterior that predicts each row with its own network: outputs (n, all rows, outputs)."""
    return dataclasses.replace(posterior, executable=OwnRowsExecutable(posterior.executable))  # type: ignore[arg-type]


class _OfManyNetworks:
    """Operations that posteriors over a stack refuse: files, and `model`, because there are many networks."""

    @property
    def model(self) -> nn.Module:
        raise NetworkError("model: a stack has several networks. Use stack.network(i) for one of them.")

    @property
    def network(self) -> nn.Module:
        return self.model

    def save(self, path: str | os.PathLike[str]) -> None:
        raise BayesNormError("save: a stack cannot be saved. Fit a method on stack.network(i), and save that.")

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restored(cls, *_: Any) -> Any:
        raise BayesNormError("path: a stack cannot be loaded from a file. Fit a method on stack.network(i).")


@dataclass(frozen=True, eq=False)
class StackedPoint(_OfManyNetworks, DeterministicPosterior):
    """The networks of a stack without uncertainty about their weights."""


def stacked_point(stack: Stack, rows: StackedRows | None, likelihood: Likelihood) -> StackedPoint:
    """Return a posterior that consists of a stack's networks themselves, without epistemic uncertainty.

    Args:
        stack: The networks.
        rows: Their training rows, which define the units of predictions; None leaves the networks' own.
        likelihood: How outputs become distributions of targets.
    """
    return StackedPoint(StackedExecutable.of(stack, rows), likelihood)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class StackedBatchNormPosterior(_OfManyNetworks, BatchNormPosterior):
    """`BatchNormPosterior` of E networks: coordinates (E, 2C), and an effective batch size for each, (E,)."""

    @property
    def spread(self) -> Tensor:  # type: ignore[override]
        """Return the factors of fluctuations for the effective batch sizes, (E, 1)."""
        return (self.fitted_batch_size / self.batch_size).sqrt().to(self.running)[:, None]  # type: ignore[attr-defined]

    def at_batch_size(self, batch_size: float | Sequence[float] | Tensor) -> Self:
        """Return a posterior with another effective batch size M', one for all networks or one for each."""
        networks = len(self.running)
        try:
            sizes = torch.as_tensor(batch_size, dtype=torch.float64).cpu()
        except (TypeError, ValueError):
            sizes = torch.zeros(())
        good = bool((torch.isfinite(sizes) & (sizes > 0)).all())
        if sizes.dim() > 1 or sizes.numel() not in (1, networks) or not good:
            raise BayesNormError(
                f"batch_size must be a positive number, or one for each of {networks} networks, got {batch_size!r}."
            )
        return dataclasses.replace(self, batch_size=sizes.expand(networks))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class StackedDropoutPosterior(_OfManyNetworks, Posterior):
    """Random masks in the dropout layers of E networks.

    Args:
        rates: The rate of each network by dropout layer, (E,).
    """

    rates: dict[str, Tensor]

    def sample(self, n: int, seed: int = 0) -> State:
        n, names, rates = require_samples(n), list(self.rates), torch.stack(list(self.rates.values()), 1)
        drawn: State = {f"{name}.seed": torch.full((n, len(rates)), -1) for name in names}
        different, which = rates.unique(dim=0, return_inverse=True)
        for number, own in enumerate(different.tolist()):
            for name, seeds in mask_seeds(dict(zip(names, own, strict=True)), n, seed).items():
                drawn[f"{name}.seed"][:, which == number] = seeds[:, None]
        return drawn


class _MembersExecutable(StackedExecutable):
    """Runs networks that form an ensemble together: a sample is one of its members."""

    def __init__(self, stack: Stack, members: int, rows: StackedRows | None) -> None:
        whole = StackedExecutable.of(stack, rows)
        super().__init__(stack, *(None if part is None else part[:, 0] for part in (whole.scale, whole.shift)))
        self.members = members

    def run(self, states: State, x: Any, **_: Any) -> Tensor:
        f = self.point(x)
        return f.view(-1, self.members, *f.shape[1:]).movedim(1, 0)[states["member"]]

    def moments(self, states: State, x: Any) -> tuple[Tensor, Tensor]:
        f = self.run(states, x)
        return f.mean(0), f.var(0, correction=0)


@dataclass(frozen=True, eq=False)
class StackedEnsemble(_OfManyNetworks, Posterior):
    """Ensembles of each `members` consecutive networks of a stack: outputs (n, E / members, ...)."""

    members: int = 2

    @classmethod
    def of(cls, stack: Stack, members: int, rows: StackedRows | None, likelihood: Likelihood) -> Self:
        """Return ensembles of a stack's networks.

        Args:
            stack: The networks, those of an ensemble one after the other.
            members: Number of networks in an ensemble.
            rows: Their training rows, which define the units of predictions.
            likelihood: How outputs become distributions of targets.
        """
        members = require_whole("members", members)
        if len(stack) % members:
            raise BayesNormError(
                f"members={members}, but the stack has {len(stack)} networks. Use a divisor of {len(stack)}."
            )
        return cls(_MembersExecutable(stack, members, rows), likelihood, members)  # type: ignore[arg-type]

    @property
    def default_samples(self) -> int:
        return self.members

    def sample(self, n: int, seed: int = 0) -> State:
        return {"member": shuffled_rounds(self.members, n, seed).to(self.executable.device)}
