"""A posterior made of others with equal weights: a deep ensemble, or an ensemble of Bayesian networks.

Samples cycle through the members in random order, so that every member has nearly the same number of them. Members of
one architecture are one state to be overridden. Members of different architectures run one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..arguments import require_whole
from ..engines import Passes
from ..errors import BayesNormError, FileFormatError
from ..files import grouped, prefixed, under
from ..likelihoods import Likelihood
from ..network import Executable, State, tensors_of
from ..predictive import P_co
from ..schema import Array, arrays_like, listed, record
from .base import PART, Config, Move, Posterior, Tensors, derived_seeds, effective_batch_size, tensor_shapes
from .deterministic import DeterministicPosterior


@dataclass(frozen=True, eq=False, repr=False)
class EnsemblePosterior(Posterior[P_co]):
    """A mixture of several posteriors with equal weights, each with its own network.

    Args:
        executable: A network of the members' architecture; its weights are not used. If architectures differ, that of
            the first member.
        members: At least two posteriors with the same likelihood.
    """

    kind: ClassVar[str] = "ensemble"
    schema = record(members=listed(PART, 2, 10_000))

    members: tuple[Posterior[P_co], ...]

    @property
    def network(self) -> nn.Module:
        """A network with all the state that a member samples. Its own weights are not used: samples override them."""
        return self.members[0].network

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset(tensors_of(self.model))

    @property
    def alike(self) -> bool:
        """Whether all members' networks have the same architecture."""
        first = tensor_shapes(self.model)
        return all(tensor_shapes(member.model) == first for member in self.members)

    @property
    def certain(self) -> bool:
        """Whether every member is a single network."""
        return all(isinstance(member, DeterministicPosterior) for member in self.members)

    @property
    def default_samples(self) -> int:
        if self.certain:
            return len(self.members)
        return max(member.default_samples for member in self.members)

    @property
    def batch_size(self) -> float | None:
        """The members' effective batch size, or None if they differ."""
        sizes = {effective_batch_size(member) for member in self.members}
        return sizes.pop() if len(sizes) == 1 else None

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the ensemble with every member at another effective batch size."""
        return self._with_members(lambda member: member.at_batch_size(batch_size))

    def with_likelihood(self, likelihood: Likelihood[Any]) -> Self:
        changed = self._with_members(lambda member: member.with_likelihood(likelihood))
        return replace(changed, likelihood=likelihood)

    def compile(self, *, dtype: torch.dtype | None = None, tf32: bool = True, mode: str = "reduce-overhead") -> Self:
        return self._with_members(lambda member: member.compile(dtype=dtype, tf32=tf32, mode=mode))

    def over(self, move: Move) -> Self:
        return super().over(move)._with_members(lambda member: member.over(move))

    def sample(self, n: int, seed: int = 0) -> State:
        if not self.alike:
            raise BayesNormError(
                "sample needs members of one architecture, but these members have different ones. Use "
                "posterior.members[i].sample, or predict."
            )
        first: State | None = None
        for member, rows, member_seed in self._shares(n, seed):
            samples = member.sample(len(rows), member_seed)
            tensors = tensors_of(member.network)
            whole = {name: value.detach().expand(len(rows), *value.shape) for name, value in tensors.items()}
            if first is None:
                first = {name: value.new_empty(n, *value.shape[1:]) for name, value in whole.items()}
            for name, value in (whole | samples).items():
                first[name][rows] = value.to(first[name])
        assert first is not None
        return first

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        if self.certain and self._stackable:
            chosen = shuffled_rounds(len(self.members), n, seed)
            used, sources = chosen.unique(return_inverse=True)
            return [
                Passes(self.executable, {name: value[used] for name, value in self._stacked.items()}, None, sources)
            ]
        passes = []
        for member, places, member_seed in self._shares(n, seed):
            for part in member.passes(len(places), member_seed):
                samples = places if part.places is None else places[part.places]
                passes.append(replace(part, places=samples))
        return passes

    @property
    def _stackable(self) -> bool:
        """Whether running members together is faster than one by one, which is not so for convolutions."""
        convolves = any(isinstance(module, nn.modules.conv._ConvNd) for _, module in self.model.named_modules())
        return self.alike and not convolves

    @property
    def _stacked(self) -> State:
        """All members' current tensors, each with a leading axis of members."""
        parts = [tensors_of(member.model) for member in self.members]
        return {name: torch.stack([part[name].detach() for part in parts]) for name in parts[0]}

    def _shares(self, n: int, seed: int) -> list[tuple[Posterior[P_co], Tensor, int]]:
        """Return members with the positions of their samples and the seeds of these samples."""
        chosen, seeds = shuffled_rounds(len(self.members), n, seed), derived_seeds(seed, len(self.members))
        shares = [(member, (chosen == i).nonzero()[:, 0], seeds[i]) for i, member in enumerate(self.members)]
        return [share for share in shares if len(share[1])]

    def _with_members(self, change: Callable[[Posterior[P_co]], Posterior[P_co]]) -> Self:
        return replace(self, members=tuple(change(member) for member in self.members))

    def tensors(self) -> Tensors:
        parts: dict[str, Tensor] = {}
        for i, member in enumerate(self.members):
            parts |= prefixed(f"{i}.network.", tensors_of(member.model))
            parts |= prefixed(f"{i}.posterior.", member.tensors())
        return parts

    def config(self) -> Config:
        return {"members": [member.part() for member in self.members]}

    @classmethod
    def require_network(cls, model: nn.Module, expected: dict[str, list[int]]) -> None:
        if not isinstance(model, nn.ModuleList):  # `restored` compares the networks of a list with their members
            super().require_network(model, expected)

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        members, parts = config["members"], grouped(tensors)
        if parts.keys() != {str(i) for i in range(len(members))}:
            raise FileFormatError(
                f"path: the file has tensors of {len(parts)} members, but describes {len(members)}. Save it again."
            )
        for i, (member, network) in enumerate(zip(members, _networks(model, len(members)), strict=True)):
            arrays |= prefixed(f"{i}.network.", arrays_like(tensors_of(network)))
            arrays |= prefixed(
                f"{i}.posterior.", Posterior.part_arrays(member, network, under("posterior.", parts[str(i)]))
            )
        return arrays

    @classmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        networks, parts = _networks(executable.model, len(config["members"])), grouped(tensors)
        settings = executable.output, executable.forward_kwargs
        members = []
        for i, (member, network) in enumerate(zip(config["members"], networks, strict=True)):
            trained = Executable(_with_tensors(network, under("network.", parts[str(i)])), *settings)
            members.append(Posterior.restored_part(member, trained, likelihood, under("posterior.", parts[str(i)])))
        return cls(Executable(networks[0], *settings), likelihood, tuple(members))


def _networks(model: nn.Module, count: int) -> list[nn.Module]:
    """Return the network of each member: one for all, or those of an `nn.ModuleList`."""
    networks = list(model) if isinstance(model, nn.ModuleList) else [model] * count
    if len(networks) != count:
        raise FileFormatError(
            f"model has {len(networks)} networks, but the file has {count} members. Pass one for each."
        )
    return networks


def _with_tensors(network: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    """Return a copy of a network with the given parameters and buffers."""
    copied = copy.deepcopy(network)
    with torch.no_grad():
        for name, value in tensors_of(copied).items():
            value.copy_(tensors[name])
    return copied


def shuffled_rounds(count: int, n: int, seed: int) -> Tensor:
    """Return the member of each of n samples, among `count` members: rounds over all of them, each in random order."""
    generator = torch.Generator().manual_seed(derived_seeds(seed, 1)[0])
    rounds = [torch.randperm(count, generator=generator) for _ in range(-(-require_whole("n", n) // count))]
    return torch.cat(rounds)[:n]
