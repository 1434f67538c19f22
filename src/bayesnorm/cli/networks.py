"""A network with its posterior, as `serve` and `export` read them."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

from ..errors import BayesNormError, quoted
from .ending import UsageError
from .options import option

Model = Annotated[
    str | None,
    option("MODULE:FUNCTION", "Function that returns a network, instead of RUN. This command runs its code."),
]
Weights = Annotated[
    Path | None,
    option("FILE", "Weights of the network: safetensors, or a torch.save file of tensors only.", "FUNCTION's"),
]
PosteriorFile = Annotated[Path | None, option("FILE", "File that `posterior.save` wrote; with --model.")]
Shape = Annotated[str | None, option("N,N,...", "Shape of one example, such as 3,32,32; with --model.")]

# Numbers in the largest example: those of the largest image, with one channel.
MOST_NUMBERS = 2**28


def load_posterior(
    model: str, weights: Path | None, posterior: Path | None, shape: str | None
) -> tuple[Any, tuple[int, ...]]:
    """Return the posterior of a network, and the shape of one example.

    Args:
        model, weights, posterior, shape: The options of these names.
    """
    from ..maps import load_network
    from ..posterior import load

    if posterior is None or shape is None:
        raise UsageError("--model also needs --posterior (a file of posterior.save) and --shape, such as 3,32,32.")
    sizes = [int(size) if re.fullmatch(r"\s*\d{1,9}\s*", size) else 0 for size in shape.split(",")]
    if not 0 < math.prod(sizes) <= MOST_NUMBERS:
        raise UsageError(
            f"--shape must be the sizes of one example, such as 3,32,32, with at most {MOST_NUMBERS:,} numbers "
            f"altogether, got {quoted(shape)}."
        )
    network, _ = load_network(model, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # weights of another network
        try:
            loaded = load(posterior, network)
        except UserWarning as warning:
            raise BayesNormError(f"--posterior: {warning}") from None
    return loaded, tuple(sizes)
