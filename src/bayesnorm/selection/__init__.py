"""Calibration and selection: noise level, temperature, effective batch size and layers."""

from .batch_size import (
    BatchSizeChoice as BatchSizeChoice,
    BatchSizeRow as BatchSizeRow,
    select_batch_size as select_batch_size,
)
from .calibrate import calibrate as calibrate
from .late_layers import (
    LayerOption as LayerOption,
    LayerSuggestion as LayerSuggestion,
    suggest_layers as suggest_layers,
)
from .search import minimise_on_log_scale as minimise_on_log_scale
