"""The base class of posteriors: a distribution over part of a network's state that can predict, save and load."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Literal, Self

import torch
from torch import Tensor, nn

from .. import files
from ..arguments import require_seed, require_whole
from ..engines import Engine, MonteCarlo, Passes, predict_batches, predict_tiles, predict_whole
from ..errors import BayesNormError, FileFormatError
from ..likelihoods import Likelihood, require_likelihood
from ..network import Executable, State, is_in_memory, own_copy, weight_digests
from ..predictive import P_co
from ..schema import (
    Array,
    Check,
    anything,
    one_of,
    record,
    require_tensors,
    text,
)
from ..words import ShortRepr

Tensors = dict[str, Tensor]
"""Tensors of a file, by name."""

Config = dict[str, Any]
"""JSON values of a file, by name."""

Move = Callable[[Executable], Executable]
"""A function that returns an executable over a moved copy of its network, the same copy for the same network."""

PART = record(kind=text, posterior=anything)
"""The schema of `part()`. The posterior has its own schema."""

_KINDS: dict[str, type[Posterior[Any]]] = {}


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(ShortRepr, Generic[P_co], ABC):
    """A distribution over part of a network's state. It is immutable: every change returns a new posterior.

    Args:
        executable: The network, as a private copy that shares its weights.
        likelihood: Turns network outputs into distributions of targets.
    """

    kind: ClassVar[str]
    schema: ClassVar[Check] = record()
    """The schema of `config()`."""

    executable: Executable = dataclasses.field(repr=False)
    likelihood: Likelihood[P_co]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):  # classes without a kind are not written to files
            _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        require_likelihood(self.likelihood)

    @property
    def model(self) -> nn.Module:
        """The user's network."""
        return self.executable.model

    @property
    def network(self) -> nn.Module:
        """The network whose state a sample overrides. A sample means `functional_call(posterior.network, sample, x)`.

        It is the user's network if that has the state; otherwise a private copy, e.g. with seeded dropout layers.
        """
        return self.executable.network

    @property
    def default_samples(self) -> int:
        """The number of samples of a prediction without an engine."""
        return MonteCarlo.samples

    @property
    def replaced(self) -> frozenset[str]:
        """The names of the network's tensors whose values do not matter, because every sample replaces them."""
        return frozenset()

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> State:
        """Sample n states: overrides by parameter or buffer name, each (n, *shape)."""

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        """Return the forward passes for n samples, which an engine runs."""
        return [Passes(self.executable, self.stored_samples(n, seed))]

    def outputs(self, n: int, x: Any, seed: int = 0) -> Tensor:
        """Run the network under n samples and return the outputs, (n, batch, *out)."""
        return MonteCarlo(require_whole("n", n)).outputs(self, x, seed)

    def tensors(self) -> Tensors:
        """Return the tensors that `save` writes. Default: none."""
        return {}

    def config(self) -> Config:
        """Return the JSON values that `save` writes. Default: none."""
        return {}

    @classmethod
    def require_network(cls, model: nn.Module, expected: dict[str, list[int]]) -> None:
        """Raise an error that names the first difference between a network and the one that a file was written for."""
        shapes = tensor_shapes(model)
        for name in [*expected, *shapes]:
            there, here = expected.get(name), shapes.get(name)
            if there != here:
                raise FileFormatError(
                    f"model does not match the network that the posterior was fitted on: {name} is "
                    f"{'absent' if there is None else tuple(there)} there and "
                    f"{'absent' if here is None else tuple(here)} here. Load it for a network of the same architecture."
                )

    @classmethod
    def arrays(cls, model: nn.Module, config: Config, tensors: Tensors) -> dict[str, Array]:
        """Describe the tensors of `tensors()` for a network, or raise an error if `config()` does not fit it.

        Args:
            model: The network.
            config: A `config()` that fits `schema`.
            tensors: The tensors of the file, for sizes that depend on neither.
        """
        return {}

    @classmethod
    @abstractmethod
    def restored(cls, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors, config: Config) -> Self:
        """Return the posterior that `tensors()` and `config()` described, both checked by `schema` and `arrays`."""

    def part(self) -> Config:
        """Return the JSON values of a part of a file that describes a posterior of any kind."""
        return {"kind": self.kind, "posterior": self.config()}

    @staticmethod
    def part_arrays(part: Config, model: nn.Module, tensors: Tensors) -> dict[str, Array]:
        """Describe the tensors of a posterior of any kind, given its `part()`, which is checked first."""
        kind = kind_named(part["kind"])
        kind.schema(part["posterior"], "posterior")
        return kind.arrays(model, part["posterior"], tensors)

    @staticmethod
    def restored_part(
        part: Config, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors
    ) -> Posterior[Any]:
        """Return the posterior that `part()` and `tensors()` described, both already checked."""
        return kind_named(part["kind"]).restored(executable, likelihood, tensors, part["posterior"])

    def predict(
        self,
        x: Any,
        engine: Engine | None = None,
        seed: int = 0,
        *,
        samples: int | None = None,
        keep: Literal["samples", "summary"] = "samples",
        tile: int | tuple[int, int] | None = None,
        overlap: int | None = None,
    ) -> P_co:
        """Return the predicted distribution of the targets at `x`.

        Args:
            x: Inputs, (batch, ...), which are moved to the network's device and dtype: a tensor, an array, or anything
                that `fit` takes, such as a `DataLoader`. Targets are ignored. A loader that shuffles is read in the
                order of its data set.
            engine: How to propagate the posterior through the network. Default: None, `MonteCarlo()` with 64 samples,
                or with one per network for deterministic networks and ensembles of them.
            seed: Seed of the samples; the same seed gives the same result. Default: 0.
            samples: Number of samples, short for engine=MonteCarlo(samples). Default: None.
            keep: "samples" keeps the outputs of all samples. "summary" only accumulates results, which saves memory for
                outputs as large as images. A classification summary has everything except the samples; a regression
                summary has mean, epistemic and aleatoric variance. Default: "samples".
            tile: Size of tiles in pixels, one number or (height, width), for images that are too large for the memory.
                It needs keep="summary". `bayesnorm.engines.batches` says when the result equals that of whole images.
                Default: None, whole images.
            overlap: Number of pixels that neighbouring tiles share. Default: None, a quarter of the shorter side.
        """
        predict = self._predictor(engine, seed, samples, keep, tile, overlap)
        if isinstance(x, Tensor):
            return predict(x)
        if is_in_memory(x, self.executable.form):
            return predict(self.executable.input(x))
        return predict_whole(predict, self.executable.reader(x, seed))

    def predict_batches(
        self,
        x: Any,
        engine: Engine | None = None,
        seed: int = 0,
        *,
        samples: int | None = None,
        keep: Literal["samples", "summary"] = "samples",
        tile: int | tuple[int, int] | None = None,
        overlap: int | None = None,
    ) -> Iterator[P_co]:
        """Return an iterator over the predictives of the batches of `x`, for data or results that exceed the memory.

        Args:
            x: Data as for `predict`. A `DataLoader` determines the batches; others are read 256 examples at a time.
            engine, seed, samples, keep, tile, overlap: As for `predict`.
        """
        predict = self._predictor(engine, seed, samples, keep, tile, overlap)
        return predict_batches(predict, self.executable.reader(x, seed))

    def _predictor(
        self, engine: Engine | None, seed: int, samples: int | None, keep: str, tile: Any, overlap: int | None
    ) -> Callable[[Any], P_co]:
        """Return the function that predicts inputs in memory; refuse invalid arguments."""
        if engine is not None and not isinstance(engine, Engine):
            raise BayesNormError(f"engine must be an object such as MonteCarlo(samples=256), got {engine!r}.")
        if samples is not None:
            if engine is not None:
                raise BayesNormError(
                    f"samples={samples!r} and engine={engine!r} both say how to sample. Pass one of them."
                )
            engine = MonteCarlo(samples)
        if keep not in ("samples", "summary"):
            raise BayesNormError(f'keep must be "samples" or "summary", got {keep!r}.')
        chosen, seed = engine or MonteCarlo(self.default_samples), require_seed(seed)
        if tile is not None or overlap is not None:
            if tile is None or keep == "samples":
                mistake = "overlap is given without tile" if tile is None else 'tile is given with keep="samples"'
                raise BayesNormError(f'{mistake}. Use tile=256 together with keep="summary".')
            summary = partial(chosen.summary, self, seed=seed)
            predict: Any = lambda x: predict_tiles(summary, self.executable.input(x), tile, overlap)  # noqa: E731
        else:
            predict = partial(chosen.predict if keep == "samples" else chosen.summary, self, seed=seed)
        return predict  # the likelihood determines the class of the result

    def compile(self, *, dtype: torch.dtype | None = None, tf32: bool = True, mode: str = "reduce-overhead") -> Self:
        """Return the same posterior over a compiled copy of the network: `torch.compile`, with CUDA graphs on a GPU.

        The first prediction of every shape (samples and batch) takes some seconds to compile; later ones are faster.
        The copy keeps the current weights. If a network cannot be compiled, it runs uncompiled, with one warning.

        Args:
            dtype: Precision of the copy, e.g. torch.bfloat16. Default: None, the network's precision.
            tf32: Whether convolutions on a GPU may use TF32. Default: True.
            mode: Mode of `torch.compile`. Default: "reduce-overhead".
        """
        raise BayesNormError(
            f"compile supports posteriors over batch-norm statistics, but this is a {type(self).__name__}. Call "
            "predict without compile."
        )

    def at_batch_size(self, batch_size: float) -> Self:
        """Return the posterior with another effective batch size M', which only batch-norm statistics have."""
        raise BayesNormError(
            f"{type(self).__name__} has no effective batch size; only posteriors over batch-norm statistics do. "
            "Fit MCBN, GaussianBN or StochasticBN, or leave the batch size out."
        )

    def to(
        self, device: torch.device | str | int | torch.dtype | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """Return the posterior over a copy of the network on another device or in another precision.

        The user's network stays as it is. Without a copy: a posterior follows its network, so after `model.to(device)`
        it predicts there.

        Args:
            device: The device, such as "cuda"; or the dtype, as in `to(torch.bfloat16)`. Default: None, keeps it.
            dtype: The floating dtype of the network. Default: None, keeps it.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        if dtype is not None and not dtype.is_floating_point:
            raise BayesNormError(f"dtype must be a floating dtype such as torch.bfloat16, got {dtype}.")
        networks: dict[nn.Module, nn.Module] = {}

        def move(executable: Executable) -> Executable:
            model = executable.model
            if model not in networks:
                try:
                    networks[model] = own_copy(model).to(device=device, dtype=dtype)
                except (AssertionError, RuntimeError, TypeError) as error:
                    raise BayesNormError(f"device={device!r} cannot be used: {error}. Pass one like 'cpu'.") from error
            return executable.over(networks[model])

        return self.over(move)

    def over(self, move: Move) -> Self:
        """Return the posterior over moved networks, with its own tensors on their device."""
        return dataclasses.replace(self, executable=move(self.executable))

    def stored_samples(self, n: int, seed: int) -> State:
        """Return `sample(n, seed)`, stored so that another prediction with the same seed need not sample again."""
        key = n, seed, self.executable.device
        stored: tuple[Any, State] | None = self.__dict__.get("_stored_samples")
        if stored is None or stored[0] != key:
            stored = key, self.sample(n, seed)
            object.__setattr__(self, "_stored_samples", stored)
        return stored[1]

    def with_likelihood(self, likelihood: Likelihood[Any]) -> Self:
        """Return the same posterior with another likelihood."""
        changed = dataclasses.replace(self, likelihood=likelihood)
        shape = getattr(self.executable, "output_shape", None)
        if shape is not None:  # check now that outputs fit the likelihood, not after a prediction's forward passes
            likelihood.predictive(torch.zeros(1, 1, *shape, dtype=self.executable.dtype))
        return changed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior as one safetensors file, without training data and without the network's weights.

        Posteriors of methods that train networks (ensembles, distributions over weights) include these weights.
        """
        files.write(
            files.as_path(path),
            tensors=self.tensors(),
            config={
                **self.part(),
                "likelihood": self.likelihood.config(),
                "output": self.executable.output,
                "network": tensor_shapes(self.model),
                "forward_kwargs": sorted(self.executable.forward_kwargs),
                "weights": weight_digests(self.model, without=self.replaced),
            },
        )


def restored_posterior(
    part: Config, executable: Executable, likelihood: Likelihood[Any], tensors: Tensors
) -> Posterior[Any]:
    """Return the posterior that `part()` and `tensors()` described, or raise an error if they are invalid."""
    require_tensors(tensors, Posterior.part_arrays(part, executable.model, tensors))
    return Posterior.restored_part(part, executable, likelihood, tensors)


def kind_named(kind: str) -> type[Posterior[Any]]:
    """Return the class of posteriors that is called `kind` in files."""
    one_of(*sorted(_KINDS))(kind, "kind")
    return _KINDS[kind]


def tensor_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Return names and shapes of a network's parameters and buffers, which must agree when a posterior is loaded."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: list(tensor.shape) for name, tensor in named.items()}


def effective_batch_size(posterior: Posterior) -> float | None:
    """Return a posterior's effective batch size, or None if it has none."""
    size: float | None = getattr(posterior, "batch_size", None)
    return size


def derived_seeds(seed: int, count: int) -> list[int]:
    """Return different seeds for the parts of a posterior, all derived from one seed."""
    generator = torch.Generator().manual_seed(require_seed(seed))
    return torch.randint(2**62, (count,), generator=generator).tolist()
