"""Pictures: each computes a small dataclass first, then draws it."""

from .batch_size_curve import BatchSizeCurve as BatchSizeCurve
from .function_bands import FunctionBands as FunctionBands
from .qq import QQPlot as QQPlot
from .rejections import RejectionPlot as RejectionPlot
from .style import save_figure as save_figure
