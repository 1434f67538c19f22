"""Pictures: each computes a small dataclass first, then draws it."""

from .function_bands import FunctionBands as FunctionBands
