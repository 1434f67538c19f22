"""Engines: how a posterior is propagated through the network."""

from .base import (
    CoordinatePosterior as CoordinatePosterior,
    Engine as Engine,
    Passes as Passes,
    Samplable as Samplable,
    require_finite as require_finite,
)
from .batches import predict_batches as predict_batches, predict_tiles as predict_tiles, predict_whole as predict_whole
from .delta import Delta as Delta
from .monte_carlo import MonteCarlo as MonteCarlo, PassEngine as PassEngine
from .sigma_points import (
    OutputDirections as OutputDirections,
    SigmaPoints as SigmaPoints,
    rounded_for_files as rounded_for_files,
)
