"""The regression benchmark of Teye et al. (2018): eight UCI sets, cross-validated, five splits, five seeds."""

from .presets import PRESETS as PRESETS, Preset as Preset
from .results import (
    METHODS as METHODS,
    export as export,
    rows as rows,
    summary as summary,
    units as units,
)
