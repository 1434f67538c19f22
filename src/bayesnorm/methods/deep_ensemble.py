"""Deep ensembles (Lakshminarayanan, Pritzel and Blundell, NeurIPS 2017).

K networks of one architecture are trained on the same data, from different initial weights and in different order. They
are treated as K equally weighted samples from a posterior:

    p(y | x)  ~  1/K  sum_k  p(y | f_k(x)).

Notes:
- The cost is K trainings, and K forward passes per prediction. It cannot be derived from one trained network.
- There are only K samples. A prediction uses each of them once; more samples repeat them.
- `method=` makes every member Bayesian as well (Atanov et al., 2018: stochastic batch norm on top of an ensemble).
  Samples then cycle through the members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..arguments import hold_plain_numbers, require_whole
from ..errors import BayesNormError, NetworkError
from ..likelihoods import Likelihood
from ..network import (
    Executable,
    Progress,
    device_of,
    example_rows,
    isolated_torch_randomness,
    own_copy,
    reset_weights,
    unwrap,
)
from ..posterior import EnsemblePosterior, Posterior, derived_seeds, deterministic
from .batchnorm_method import BatchNormMethod
from .fitting import P, checked_seed, fitting_likelihood, require_one_input, require_targets, train_on

Factory = Callable[[int], nn.Module]
"""A function that returns a network with fresh weights for a seed."""


@dataclass(frozen=True)
class DeepEnsemble:
    """Deep ensemble: train several networks from different initial weights and average their predictions.

    Use it if you can afford several trainings; it is a strong baseline. `fit(model, train_data, likelihood)` trains
    new members and returns an `EnsemblePosterior`. For networks that are already trained, use `bn.ensemble(networks)`.

    Reference: Lakshminarayanan et al., "Simple and scalable predictive uncertainty estimation using deep ensembles",
    NeurIPS 2017.

    Args:
        members: Number of networks. Default: 5.
        method: A method that makes each trained member Bayesian, such as `MCBN(batch_size=32)`. Default: None.
        epochs: Number of training epochs of every member. Default: 100.
        batch_size: Examples per training step. Default: None, the batch size of a `DataLoader`, or 32.
        learning_rate: Learning rate of Adam. Default: 0.001.
        weight_decay: lambda in loss + lambda / 2 |W|^2 over the weight matrices. Default: 0.
    """

    members: int = 5
    method: BatchNormMethod | None = None
    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("members", self.members, 2)
        if self.method is not None and (isinstance(self.method, type) or not hasattr(self.method, "fit")):
            raise BayesNormError(f"method must be None, or a method such as MCBN(batch_size=32), got {self.method!r}.")

    @torch.inference_mode(False)
    @torch.enable_grad()
    def fit(
        self,
        model: nn.Module | Factory,
        train_data: Any,
        likelihood: Likelihood[P] | None = None,
        *,
        output: str | int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> EnsemblePosterior[P]:
        """Train the members and return their ensemble.

        Args:
            model: A network, of which only the architecture is used: each member starts from fresh weights. Or a
                function that returns a fresh network for a seed, for members that differ in more than weights.
            train_data: Training data with targets.
            likelihood: Members are trained on its `loss`. Default: None, `Gaussian()` for one real output.
            output: The entry to use if the network returns a dict or a tuple. Default: None.
            seed: Seed of initial weights and training. Default: 0.
            progress: Called with (done, total) after every member. Default: None.
        """
        seed = checked_seed(seed, likelihood, progress)
        networks: list[nn.Module] = []
        made: list[Posterior[P]] = []
        for number, member_seed in enumerate(derived_seeds(seed, self.members)):
            network = _fresh(model, member_seed)
            if any(network is other for other in networks):
                raise NetworkError(
                    "model returned the same network for two seeds. Return a new network for every seed."
                )
            if number == 0:
                # Two examples show problems before the training.
                executable = Executable(network, output)
                require_one_input(executable)
                example = example_rows(train_data, seed)
                likelihood = fitting_likelihood(executable, example, likelihood)
                require_targets(executable, example, train_data, likelihood)
                if isinstance(self.method, BatchNormMethod):
                    self.method.require_fitting(network, train_data, seed)
            assert likelihood is not None
            train_on(
                likelihood,
                network,
                train_data,
                output=output,
                batch_size=self.batch_size,
                epochs=self.epochs,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                seed=member_seed,
            )
            networks.append(network)
            if self.method is None:
                made.append(deterministic(network, likelihood, output=output))
            else:
                made.append(self.method.fit(network, train_data, likelihood, output=output, seed=seed))
            if progress is not None:
                progress(number + 1, self.members)
        assert likelihood is not None
        template = model if isinstance(model, nn.Module) else networks[0]
        return EnsemblePosterior(Executable(template, output), likelihood, tuple(made))


def ensemble(
    members: Iterable[nn.Module | Posterior[P]], likelihood: Likelihood[P] | None = None
) -> EnsemblePosterior[P]:
    """Combine trained networks, or posteriors over them, into an ensemble with equal weights.

    Args:
        members: Two or more networks or posteriors. Architectures may differ, but outputs must have the same shape. The
            networks are not modified.
        likelihood: How outputs become distributions of targets. Required for plain networks. Default: None, the
            likelihood of the first posterior.
    """
    if isinstance(members, nn.Module | Posterior):
        raise BayesNormError(f"members must be a list of networks or posteriors, got {type(members).__name__}.")
    members = list(members)
    if likelihood is None:
        likelihood = next((member.likelihood for member in members if isinstance(member, Posterior)), None)
    if likelihood is None:
        raise BayesNormError("likelihood is needed for plain networks. Pass Gaussian() or Categorical().")
    made = tuple(
        member.with_likelihood(likelihood) if isinstance(member, Posterior) else deterministic(member, likelihood)
        for member in members
    )
    if len(made) < 2:
        raise BayesNormError(f"members must be a list of two or more networks or posteriors, got {len(made)}.")
    return EnsemblePosterior(made[0].executable, likelihood, made)


def _fresh(model: nn.Module | Factory, seed: int) -> nn.Module:
    """Return a network with its own initial weights, by torch's initialisation, without the global random generator."""
    device = device_of(unwrap(model)) if isinstance(model, nn.Module) else None
    with isolated_torch_randomness(seed, device):
        if not isinstance(model, nn.Module):
            return model(seed)
        network = own_copy(unwrap(model))
        reset_weights(network, "a callable seed -> network")
    return network
