"""A posterior: a distribution over part of a network's state, ready to predict, save and load."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from .. import files
from ..arguments import require_seed, require_whole
from ..engines import Engine, MonteCarlo, Passes, predict_tiles
from ..errors import BayesNormError, FileFormatError, NetworkError
from ..likelihoods import Likelihood, likelihood_from, require_likelihood
from ..network import Executable, State
from ..predictive import Predictive
from ..schema import (
    Array,
    Check,
    anything,
    either,
    listed,
    mapping,
    one_of,
    optional,
    record,
    require_tensors,
    text,
    whole,
)

_KINDS: dict[str, type[Posterior]] = {}

_FILE = record(
    kind=text,
    posterior=anything,
    likelihood=anything,
    output=optional(either(str, text, whole(-1000, 1000))),
    network=mapping(listed(whole())),
)
"""What the JSON of a file consists of; its posterior and its likelihood say themselves what they consist of."""


@dataclass(frozen=True, eq=False)
class Posterior(ABC):
    """A distribution over part of a network's state. Immutable: every change gives a new posterior.

    Args:
        executable: The network, seen through a private copy that shares its weights.
        likelihood: Turns network outputs into distributions of targets.
    """

    kind: ClassVar[str]
    schema: ClassVar[Check] = record()
    """What `config()` consists of."""

    executable: Executable = dataclasses.field(repr=False)
    likelihood: Likelihood

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):  # the others are not written to files
            _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        require_likelihood(self.likelihood, networks=not isinstance(self.executable, Executable))

    @property
    def model(self) -> nn.Module:
        """The user's network."""
        return self.executable.model

    @property
    def network(self) -> nn.Module:
        """The network whose state a draw overrides: `functional_call(posterior.network, draw, x)` is its meaning.

        The user's own wherever it has that state; else a private copy, e.g. one whose dropout layers take a seed.
        """
        return self.executable.network

    @property
    def default_samples(self) -> int:
        """How many samples a prediction takes where no engine is given."""
        return MonteCarlo.samples

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> State:
        """Draw n states: overrides by parameter or buffer name, each (n, *shape)."""

    def passes(self, n: int, seed: int) -> Sequence[Passes]:
        """Say which passes of which network give n samples; an engine runs them."""
        return [Passes(self.executable, self.drawn(n, seed))]

    def outputs(self, n: int, x: Any, seed: int = 0) -> Tensor:
        """Run the network under n samples: outputs (n, batch, *out)."""
        return MonteCarlo(require_samples(n)).outputs(self, x, seed)

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What `save` writes as tensors."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What `save` writes as JSON."""

    @classmethod
    def require_network(cls, model: nn.Module, expected: dict[str, list[int]]) -> None:
        """Refuse a network of another architecture than the one that a file was written for."""
        require_architecture(model, expected)

    @classmethod
    def arrays(cls, model: nn.Module, config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        """Describe what `tensors()` consists of for a network, or refuse a `config()` that does not fit it.

        Args:
            model: The network.
            config: What has passed `schema`.
            tensors: What is there, for sizes that neither of them tells.
        """
        return {}

    @classmethod
    @abstractmethod
    def restored(
        cls,
        executable: Executable,
        likelihood: Likelihood,
        tensors: dict[str, Tensor],
        config: dict[str, Any],
    ) -> Self:
        """Return the posterior that `tensors()` and `config()` described; both have passed `schema` and `arrays`."""

    def predict(
        self,
        x: Any,
        engine: Engine | None = None,
        seed: int = 0,
        *,
        keep: Literal["samples", "summary"] = "samples",
        tile: int | tuple[int, int] | None = None,
        overlap: int | None = None,
    ) -> Predictive:
        """Predict the distribution of the targets at `x`.

        Args:
            x: Inputs, (batch, ...): a tensor or array; brought to the network's device and dtype.
            engine: How to push the posterior through the network; None means `MonteCarlo()` with 64 samples, or as many
                as there are.
            seed: Same seed, same result.
            keep: "samples" keeps the outputs of all samples. "summary" adds them up as they come, for outputs as large as
                images: of classes everything is there but the samples, of regression the mean and both variances.
            tile: Predict images in tiles of so many pixels, one number or (height, width), where whole ones do not fit
                the memory; with keep="summary". See `bayesnorm.engines.tiling` for when maps are those of the whole.
            overlap: How many pixels neighbouring tiles share; None for a quarter of the tile's shorter side.
        """
        if engine is not None and not isinstance(engine, Engine):
            raise BayesNormError(f"engine must be MonteCarlo(samples=256), got {engine!r}.")
        if keep not in ("samples", "summary"):
            raise BayesNormError(f'keep: {keep!r} was given; "samples" or "summary" would work.')
        engine, seed = engine or MonteCarlo(self.default_samples), require_seed(seed)
        if tile is not None or overlap is not None:
            if tile is None or keep == "samples":
                given = "overlap without tile" if tile is None else 'keep="samples"'
                raise BayesNormError(f'tile: {given} was given; keep="summary" with tile=256 would work.')
            return predict_tiles(lambda part: engine.summary(self, part, seed), self.executable.input(x), tile, overlap)
        return engine.predict(self, x, seed) if keep == "samples" else engine.summary(self, x, seed)

    def compile(self, *, dtype: torch.dtype | None = None, tf32: bool = True, mode: str = "reduce-overhead") -> Self:
        """Return the same posterior over a compiled copy of the network: `torch.compile`, with CUDA graphs on a GPU.

        The first prediction of every shape (samples and batch) compiles for some seconds; further ones of that shape
        only run. Weights are frozen at this point. Where a network cannot be compiled, it runs as before and that is
        said once.

        Args:
            dtype: Precision of the copy, e.g. torch.bfloat16; None keeps the network's own.
            tf32: Let convolutions on a GPU use TF32.
            mode: Passed to `torch.compile`.
        """
        raise BayesNormError(
            f"compile: is for posteriors over batch-norm statistics, and this is {type(self).__name__}; it predicts "
            "without compiling."
        )

    def drawn(self, n: int, seed: int) -> State:
        """Draw as `sample` does, and keep the samples: predicting again with the same seed then costs no drawing."""
        key = n, seed, self.executable.device
        kept: tuple[Any, State] | None = self.__dict__.get("_drawn")
        if kept is None or kept[0] != key:
            kept = key, self.sample(n, seed)
            object.__setattr__(self, "_drawn", kept)
        return kept[1]

    def with_likelihood(self, likelihood: Likelihood) -> Self:
        """Return the same posterior under another likelihood."""
        changed = dataclasses.replace(self, likelihood=likelihood)
        shape = getattr(self.executable, "output_shape", None)
        if shape is not None:  # a likelihood that outputs do not fit is refused here, not after a prediction's passes
            likelihood.predictive(torch.zeros(1, 1, *shape, dtype=self.executable.dtype))
        return changed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior (not the network's weights, and no training data) as one safetensors file."""
        files.write(
            files.as_path(path),
            tensors=self.tensors(),
            config={
                "kind": self.kind,
                "posterior": self.config(),
                "likelihood": self.likelihood.config(),
                "output": self.executable.output,
                "network": architecture(self.model),
            },
        )


def load(path: str | os.PathLike[str], model: nn.Module) -> Posterior:
    """Read a posterior that `save` wrote, for the network that it was fitted on.

    Args:
        path: The file.
        model: The network with its weights; the file holds only the posterior. Where a method trained networks of its
            own (an ensemble, weights with a distribution), the file holds their weights and only the architecture of
            `model` counts; for members of several architectures it is an `nn.ModuleList` of them.
    """
    if isinstance(path, nn.Module):
        raise BayesNormError(f"path: a network ({type(path).__name__}) was given first; load(path, model) would work.")
    tensors, config = files.read(files.as_path(path))
    if "kind" not in config or "likelihood" not in config:  # such as a tabular model
        raise FileFormatError(f"path: {path} holds no posterior alone; one that posterior.save wrote would work.")
    try:
        _FILE(config, "config")
        likelihood = likelihood_from(config["likelihood"])
        executable = Executable(model, config["output"])
        kind_named(config["kind"]).require_network(executable.model, config["network"])
        placed = {name: tensor.to(executable.device) for name, tensor in tensors.items()}
        return restored_posterior(config["kind"], executable, likelihood, placed, config["posterior"])
    except (FileFormatError, NetworkError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        told = str(error).removeprefix("path: ") if isinstance(error, BayesNormError) else repr(error)
        raise FileFormatError(f"path: {path} does not hold a whole posterior ({told}); save it again.") from error


def restored_posterior(
    kind: str, executable: Executable, likelihood: Likelihood, tensors: dict[str, Tensor], config: dict[str, Any]
) -> Posterior:
    """Return a posterior of any kind from what its `tensors()` and `config()` gave, or refuse it before it is built."""
    require_tensors(tensors, posterior_arrays(kind, executable.model, config, tensors))
    return kind_named(kind).restored(executable, likelihood, tensors, config)


def posterior_arrays(
    kind: str, model: nn.Module, config: dict[str, Any], tensors: dict[str, Tensor]
) -> dict[str, Array]:
    """Describe the tensors of a posterior of any kind, from a `config()` that is checked first."""
    named = kind_named(kind)
    named.schema(config, "posterior")
    return named.arrays(model, config, tensors)


def kind_named(kind: str) -> type[Posterior]:
    """Return the class of posteriors that files call `kind`."""
    one_of(*sorted(_KINDS))(kind, "kind")
    return _KINDS[kind]


def architecture(model: nn.Module) -> dict[str, list[int]]:
    """Names and shapes of a network's parameters and buffers: what a posterior must find again."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: list(tensor.shape) for name, tensor in named.items()}


def require_architecture(model: nn.Module, expected: dict[str, list[int]]) -> None:
    """Refuse a network, naming the first difference between a network and the one a posterior was fitted on."""
    found = architecture(model)
    for name in [*expected, *found]:
        there, here = expected.get(name), found.get(name)
        if there != here:
            raise FileFormatError(
                f"model: does not match the network that the posterior was fitted on: {name} is "
                f"{'absent' if there is None else tuple(there)} there and {'absent' if here is None else tuple(here)} "
                "here. Load it for a network of the same architecture."
            )


def require_samples(n: Any) -> int:
    """Return a number of samples, or refuse what is none."""
    return require_whole("n", n)


def derived_seeds(seed: int, count: int) -> list[int]:
    """Seeds for the parts of a posterior, all different and all from one."""
    generator = torch.Generator().manual_seed(require_seed(seed))
    return torch.randint(2**62, (count,), generator=generator).tolist()
