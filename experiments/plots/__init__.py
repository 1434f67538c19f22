"""Plots that only experiments use; those for users are in `bayesnorm.plots`."""

from .batch_size_curve import BatchSizeCurve as BatchSizeCurve
from .compared_maps import SegmentationMaps as SegmentationMaps, draw_maps as draw_maps
from .function_bands import FunctionBands as FunctionBands
from .grid import draw_grid as draw_grid
