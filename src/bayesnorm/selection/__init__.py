"""The choices that training left open, made on validation data."""

from .calibrate import calibrate as calibrate
from .layers import LayerOption as LayerOption, LayerSuggestion as LayerSuggestion, suggest_layers as suggest_layers
