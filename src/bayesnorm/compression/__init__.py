"""Compression: remove units or channels that a network does not need, and store weights with fewer bits."""

from .channels import prune_channels as prune_channels
from .compress import compress as compress
from .compressed import Compressed as Compressed, load_compressed as load_compressed
from .report import (
    CompressionReport as CompressionReport,
    LayerReport as LayerReport,
    Measured as Measured,
    prediction_seconds as prediction_seconds,
)
