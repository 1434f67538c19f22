"""Pictures: each computes a small dataclass first, then draws it."""

from .function_bands import FunctionBands as FunctionBands
from .style import save_figure as save_figure
