"""The MCBN paper's claims about its maps, with a verdict each, and questions that it leaves open.

The rules were written before our results were known. Differences are means over test images, with their standard errors
(s.e.) over images. Images of a sequence are seconds apart and similar, so these errors are too small rather than too
large. An image's AUROC says how well uncertainty separates its wrong pixels from its correct ones.

- Maps are "reasonable" if the mean AUROC of mutual information is above 0.7 by more than two s.e.; partly if it is
  above 0.5 by more than two s.e.
- Uncertainty is "high at boundaries" if pixels at most 2 from another class have more than twice the mutual information
  of those more than 8 away; partly if they have more.
- Error grows with uncertainty if each tenth of the pixels, ordered by mutual information, has a higher fraction of
  errors than the one before; partly if at least seven of nine steps go up.
- One method is better than another if the difference is positive by more than two s.e.; partly if it is positive.
- If the paper says nothing, the verdict is better, worse, or no significant difference (within two s.e.).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..segmentation.pixels import BINS, paired
from ..teye_table2.verdicts import DOES_NOT, ERRORS, HOLDS, PARTLY
from .measuring import (
    CENTRED_TEMPERATURE,
    DROPOUT,
    ENSEMBLE,
    FIRST,
    GAUSSIAN,
    SOFTMAX,
    STOCHASTIC,
    TEMPERATURE,
    centred,
    published,
)

REASONABLE, CHANCE = 0.7, 0.5
TWICE = 2.0
UP, PARTLY_UP = 9, 7
NEAR, FAR = BINS[:2], BINS[5:]
EPISTEMIC, ALL = "mutual information", "entropy"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or a question that it leaves open.

    Args:
        words: The claim or question.
        seen: Our result.
        verdict: Whether the claim holds, or the answer to the question.
    """

    words: str
    seen: str
    verdict: str


def claims(result: dict[str, dict[str, Any]]) -> list[Claim]:
    """Return the paper's claims, followed by the questions that it leaves open."""
    small, large = _sizes(result)
    paper = published(FIRST, small)
    told = [_reasonable(result[paper]), _at_boundaries(result[paper]), _grows(result[paper])]
    told += [
        _larger_batches(result, kind(layers, small), kind(layers, large))
        for kind, layers in ((published, FIRST), (published, "all layers"), (centred, "all layers"))
    ]
    ours = centred("all layers", small)
    pairs = [
        (published("all layers", small), paper),
        (ours, published("all layers", small)),
        (ours, DROPOUT),
        (ours, SOFTMAX),
        (ours, TEMPERATURE),
        (CENTRED_TEMPERATURE, TEMPERATURE),
        (ours, centred("last 2 layers", small)),
        (ours, STOCHASTIC),
        (ours, GAUSSIAN),
        (ENSEMBLE, ours),
    ]
    for one, other in pairs:
        told += [_asked_likelihood(result, one, other), _asked_errors(result, one, other)]
    return told


def _sizes(result: dict[str, Any]) -> tuple[int, int]:
    """Return the batch sizes of the fitted MCBN posteriors."""
    sizes = [int(name.split(" = ")[1]) for name in result if name.startswith(published(FIRST, 0)[:-1])]
    return sizes[0], sizes[1]


def _reasonable(scores: dict[str, Any]) -> Claim:
    mean, error = paired(_frames(scores, EPISTEMIC), 0.0)
    beyond = mean - ERRORS * error
    verdict = HOLDS if beyond > REASONABLE else PARTLY if beyond > CHANCE else DOES_NOT
    return Claim(
        "maps are reasonable: uncertainty is where the errors are", f"AUROC {_with_error(mean, error)}", verdict
    )


def _at_boundaries(scores: dict[str, Any]) -> Claim:
    by_distance, pixels = scores["doubts"][EPISTEMIC]["by distance"], scores["pixels by distance"]
    near, far = (
        sum((by_distance[name] or 0) * pixels[name] for name in names) / max(1, sum(pixels[name] for name in names))
        for names in (NEAR, FAR)
    )
    verdict = HOLDS if near > TWICE * far else PARTLY if near > far else DOES_NOT
    seen = f"{near:.4f} nats at most 2 pixels from another class, {far:.4f} more than 8 away"
    return Claim("uncertainty is high at the boundaries of objects", seen, verdict)


def _grows(scores: dict[str, Any]) -> Claim:
    tenths = scores["doubts"][EPISTEMIC]["error of deciles"]
    steps = sum(after > before for before, after in pairwise(tenths))
    verdict = HOLDS if steps >= UP else PARTLY if steps >= PARTLY_UP else DOES_NOT
    seen = f"{steps} of 9 steps up, from {tenths[0]:.3f} to {tenths[-1]:.3f}"
    return Claim("the more uncertainty, the more errors, tenth by tenth", seen, verdict)


def _larger_batches(result: dict[str, Any], small: str, large: str) -> Claim:
    mean, error = paired(_frames(result[large], EPISTEMIC), _frames(result[small], EPISTEMIC))
    verdict = HOLDS if mean > ERRORS * error else PARTLY if mean > 0 else DOES_NOT
    words = f"maps are better with larger batches: {large} against {small.split(', ')[-1]}"
    return Claim(words, f"AUROC {_with_error(mean, error, '+')}", verdict)


def _asked_likelihood(result: dict[str, Any], one: str, other: str) -> Claim:
    mean, error = paired(result[other]["nll of frames"], result[one]["nll of frames"])
    return Claim(
        f"likelihood: {one} against {other}", f"NLL lower by {_with_error(mean, error, '+')}", _told(mean, error)
    )


def _asked_errors(result: dict[str, Any], one: str, other: str) -> Claim:
    """Compare errors found by entropy, which a softmax also has."""
    mean, error = paired(_frames(result[one], ALL), _frames(result[other], ALL))
    words = f"errors found by entropy: {one} against {other}"
    return Claim(words, f"AUROC {_with_error(mean, error, '+')}", _told(mean, error))


def _told(mean: float, error: float) -> str:
    beyond = abs(mean) > ERRORS * error
    return ("better" if mean > 0 else "worse") if beyond else "no telling"


def _frames(scores: dict[str, Any], uncertainty: str) -> list[float | None]:
    frames: list[float | None] = scores["doubts"][uncertainty].get(
        "auroc of frames", [CHANCE] * len(scores["nll of frames"])
    )
    return frames


def _with_error(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.4f} ± {error:.4f}"
