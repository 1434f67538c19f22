"""The base class of all predictive distributions, the functions that they share, and a small picture for notebooks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeVar

from ..arguments import require_seed, require_whole
from ..errors import InputError, quoted


class Predictive(ABC):
    """The predicted distribution of the targets: a mixture with one distribution per posterior sample.

    The total variance is split entry by entry: `variance == epistemic + aleatoric`. The epistemic part is the
    variance of the samples' means, and the aleatoric part is the mean of the samples' variances.
    """

    names: ClassVar[tuple[str, ...]] = ("mean", "std", "epistemic", "aleatoric")
    """The properties that `numpy` and `to_dict` contain."""

    weights: Tensor
    """The weight of each sample, (n,). The weights sum to 1."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """The predictive mean, (batch, *out)."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """The variance of the samples' means: uncertainty that more training data could reduce."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """The mean of the samples' variances: noise in the data, which more training data cannot reduce."""

    @property
    def variance(self) -> Tensor:
        """The total variance, epistemic + aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        """The total standard deviation: the square root of `variance`."""
        return self.variance.sqrt()

    @abstractmethod
    def log_prob(self, y: Any) -> Tensor:
        """Return the log density, or the log probability, of the targets `y` under the mixture."""

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> Tensor:
        """Sample n targets per example from the predictive, (n, batch, ...)."""

    def __len__(self) -> int:
        return len(self.mean)

    @abstractmethod
    def __getitem__(self, rows: Any) -> Self:
        """Return the predictive of some examples, with the same samples.

        Args:
            rows: A position, which gives a predictive of one example; a slice; a mask with one entry per example; or a
                list, an array or a tensor of positions.
        """

    def __iter__(self) -> Iterator[Any]:
        """Iterate over predictives of one example each."""
        return (self[row] for row in range(len(self)))

    def numpy(self) -> dict[str, Any]:
        """Return the main values as NumPy arrays by name: see `names`."""
        return {name: getattr(self, name).detach().cpu().numpy() for name in self.names}

    def to_dict(self) -> dict[str, Any]:
        """Return the values of `numpy` as lists of plain numbers, for JSON."""
        return {name: values.tolist() for name, values in self.numpy().items()}

    def __repr__(self) -> str:
        stored = "no samples kept" if isinstance(self, Summary) else f"{len(self.weights)} samples"
        told = "; ".join(f"{name} {_first(values)}" for name, values in self._told().items())
        return f"{type(self).__name__}({tuple(self.mean.shape)}, {stored}: {told})"

    def _repr_html_(self) -> str:
        return picture(repr(self), self[:EXAMPLES]._lines())

    def _lines(self) -> list[Line]:
        """Return the lines of bars that a notebook shows: the intervals of up to two standard deviations."""
        mean, std, epistemic_std = (part.flatten() for part in (self.mean, self.std, self.epistemic.sqrt()))
        one_each = len(mean) == len(self) > 0 and bool(torch.isfinite(mean + std).all())
        return interval_lines(mean, std, epistemic_std) if one_each else []

    def _told(self) -> dict[str, Tensor]:
        """Return the values that `repr` shows, by name."""
        return {"mean": self.mean, "std": self.std, "epistemic std": self.epistemic.sqrt()}


P_co = TypeVar("P_co", bound=Predictive, covariant=True, default=Predictive)
"""The predictive of a likelihood, and so of a posterior."""


class Summary(Predictive):
    """A predictive without samples: it consists of three tensors, each with examples first and pixels last."""

    parts: tuple[Tensor, Tensor, Tensor]

    @abstractmethod
    def with_parts(self, first: Tensor, second: Tensor, third: Tensor) -> Self:
        """Return a summary of the same kind that consists of other tensors."""

    def __getitem__(self, rows: Any) -> Self:
        chosen = chosen_rows(rows, self.parts[0])
        return self.with_parts(*(part[chosen] for part in self.parts))


def chosen_rows(rows: Any, examples: Tensor) -> slice | Tensor:
    """Return the argument of `Predictive.__getitem__` as an index of a tensor of examples, or raise an error."""
    if isinstance(rows, slice):
        return rows
    count, device = len(examples), examples.device
    chosen = number_tensor("rows", rows)
    if chosen.dtype == torch.bool and chosen.shape[:1] == (count,) and chosen.numel() == count:
        return chosen.reshape(-1).to(device)  # masks of predictions (examples, 1) have a second axis
    positions = chosen.long().reshape(-1)
    if chosen.dim() > 1 or isinstance(rows, tuple) or chosen.dtype == torch.bool or bool((positions != chosen).any()):
        raise InputError(
            f"rows has shape {tuple(chosen.shape)} and {chosen.dtype}. Pass a position, a slice, a list of positions "
            f"or a mask of shape ({count},)."
        )
    if bool(((positions < -count) | (positions >= count)).any()):
        raise InputError(f"rows must be positions from {-count} to {count - 1}, got {quoted(rows)}.")
    return (positions % count if len(positions) else positions).to(device)


def _first(values: Tensor, count: int = 3) -> str:
    """Return the first numbers as text."""
    flat = values.flatten()
    shown = [f"{value:.4g}" for value in flat[:count].tolist()]
    return ", ".join([*shown, "..."] if flat.numel() > count else shown)


def as_targets(y: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return targets as a tensor. They may be a tensor, an array, a column of a data frame or a list of numbers."""
    return number_tensor("y", y, device, dtype)


def number_tensor(
    name: str, values: Any, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return numbers of any kind as a tensor. Plain Python numbers keep double precision."""
    try:
        numbers = values if isinstance(values, Tensor) else np.array(values)
        if isinstance(numbers, np.ndarray) and not numbers.dtype.isnative:  # torch has only the machine's byte order
            numbers = numbers.astype(numbers.dtype.newbyteorder("="))
        return torch.as_tensor(numbers, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{type(values).__name__} ({error})"
        raise InputError(f"{name} must be a tensor or an array of numbers, got {what}.") from error


def zero_if_missing(points: Tensor, present: Tensor | None) -> Tensor:
    """Return the scores of the targets that are present, and 0 for missing targets."""
    return points if present is None else torch.where(present, points, 0)


def at_least_single(values: Tensor) -> Tensor:
    """Return half precision as single precision: sums over samples and densities need more digits than outputs have."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def largest_number(dtype: torch.dtype) -> float:
    """Return the largest magnitude for which the squared difference of two numbers is still finite in this dtype."""
    return math.sqrt(torch.finfo(dtype).max) / 2


def normalised_weights(weights: Tensor | None, like: Tensor) -> Tensor:
    """Return normalised weights for the n samples along the first axis of `like`; None means equal weights."""
    if weights is None:
        return torch.full((len(like),), 1 / len(like), dtype=like.dtype, device=like.device)
    checked = not _is_exporting()  # a program cannot depend on values
    if checked and (
        weights.shape != (len(like),) or bool((weights < 0).any()) or not bool(0 < weights.sum() < math.inf)
    ):
        raise InputError(
            f"weights has shape {tuple(weights.shape)} for {len(like)} samples. Pass one finite, non-negative number "
            "per sample. At least one of them must be positive."
        )
    return (weights / weights.sum()).to(like)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean over the first axis.

    The factors must keep full precision, or the small differences between samples are lost. `autocast` would round them
    to half precision. A product of two matrices would round them to 10 bits on GPUs that use TF32.
    """
    if torch.is_autocast_enabled(values.device.type):
        with torch.autocast(values.device.type, enabled=False):
            return weighted_mean(values, weights)
    flat = values.unsqueeze(1).flatten(1)  # of any shape, also of one that is known when a trace runs
    if _is_exporting():  # onnxruntime 1.31 computes the product of a transposed matrix and a vector wrongly
        return torch.matmul(weights, flat).view(values.shape[1:])
    return torch.mv(flat.T, weights).view(values.shape[1:])


_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.6 has only the latter


def mixture_log(log_values: Tensor, weights: Tensor) -> Tensor:
    """Return the logarithm of the weighted mean of exp(values) over the first axis."""
    log_weights = weights.log().view(-1, *[1] * (log_values.dim() - 1))
    return torch.logsumexp(log_values + log_weights, dim=0)


def sampling(n: Any, seed: Any) -> torch.Generator:
    """Return a random generator, or raise an error if `n` or `seed` is not a whole number."""
    require_whole("n", n, error=InputError)
    return torch.Generator().manual_seed(require_seed(seed))


def choose_samples(n: int, weights: Tensor, shape: tuple[int, ...], seed: int) -> tuple[Tensor, torch.Generator]:
    """Choose the posterior sample of each target, (n, *shape); return the indices and the generator for the noise."""
    generator, n = sampling(n, seed), int(n)
    count = n * int(torch.tensor(shape).prod()) if shape else n
    chosen = torch.multinomial(weights.double().cpu(), max(1, count), replacement=True, generator=generator)
    return chosen[:count].view(n, *shape).to(weights.device), generator


# The largest number of examples, and of classes of an example, in a picture.
EXAMPLES, CLASSES = 12, 5

# Sizes in pixels: the column of labels, the column of bars, and a line.
LABELS, BARS, LINE = 150, 330, 18

Line = tuple[str, list[tuple[float, float, str]]]
"""A label, and bars: start and end from 0 to 1, and a colour."""


def picture(text: str, lines: Sequence[Line]) -> str:
    """Return HTML with a text, and one line of bars per example."""
    shapes = []
    for y, (label, bars) in zip(range(0, LINE * len(lines), LINE), lines, strict=True):
        shapes.append(f'<text y="{y + 13}">{escape(label)}</text>')
        for start, end, colour in bars:
            place = f'x="{LABELS + BARS * start:.1f}" y="{y + 3}" width="{BARS * (end - start):.1f}"'
            shapes.append(f'<rect {place} height="{LINE - 6}" fill="{colour}"/>')
    size = f'width="{LABELS + BARS}" height="{LINE * len(lines)}"'
    svg = f'<svg {size} fill="currentColor" font-size="12">{"".join(shapes)}</svg>' if shapes else ""
    return f"<pre>{escape(text)}</pre>{svg}"


def interval_lines(mean: Tensor, std: Tensor, epistemic_std: Tensor) -> list[Line]:
    """Return bars from mean - 2 std to mean + 2 std, with the epistemic part darker; each argument is (examples,)."""
    low, high = float((mean - 2 * std).min()), float((mean + 2 * std).max())
    width = max(high - low, 1e-300)
    lines: list[Line] = []
    for center, total, epistemic in zip(mean.tolist(), std.tolist(), epistemic_std.tolist(), strict=True):
        sides = (2 * total, "#9ec5f4"), (2 * epistemic, "#2f6fc4"), (0.004 * width, "#111")
        bars = [((center - side - low) / width, (center + side - low) / width, colour) for side, colour in sides]
        lines.append((f"{center:.4g} ± {total:.2g}", bars))
    return lines


def class_lines(probs: Tensor) -> list[Line]:
    """Return bars of the most probable classes, side by side, given probabilities (examples, class)."""
    values, classes = probs.topk(min(CLASSES, probs.shape[1]))
    lines: list[Line] = []
    for sizes, ends, numbers in zip(values.tolist(), values.cumsum(1).tolist(), classes.tolist(), strict=True):
        colours = (f"hsl({137 * number % 360} 55% 60%)" for number in numbers)
        bars = [(end - size, end, colour) for size, end, colour in zip(sizes, ends, colours, strict=True)]
        lines.append((f"class {numbers[0]}, {sizes[0]:.3f}", bars))
    return lines
