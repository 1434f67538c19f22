"""The regression benchmark of Teye et al. (2018): eight UCI sets, cross-validated, five splits, five seeds."""

from .presets import PRESETS as PRESETS, Preset as Preset
from .results import (
    EXPERIMENT as EXPERIMENT,
    METHODS as METHODS,
    export as export,
    note_run as note_run,
    rows as rows,
    summary as summary,
    units as units,
)
