"""Engines: how a posterior is propagated through the network."""

from .base import Drawable as Drawable, Engine as Engine, Passes as Passes
from .batches import predict_batches as predict_batches, predict_whole as predict_whole
from .delta import Delta as Delta
from .finite import require_finite as require_finite
from .monte_carlo import MonteCarlo as MonteCarlo
from .sigma_points import (
    OutputDirections as OutputDirections,
    SigmaPoints as SigmaPoints,
    rounded_for_files as rounded_for_files,
)
from .tiling import predict_tiles as predict_tiles
