"""Plots: every plot is a dataclass that first computes its numbers, and then draws itself.

`plot = UncertaintyErrorPlot.of(predictive, y)` computes; `plot.draw()` draws into a new figure, `plot.draw(ax)` into
existing axes. `draw_grid` draws several plots into one figure. `with style.theme("dark"):` changes the colours,
`save_figure` writes a PNG file, and `figure_svg` returns an SVG for a web page.
"""

from . import style as style
from .batch_size_curve import BatchSizeCurve as BatchSizeCurve
from .calibration import CalibrationPlot as CalibrationPlot, PITHistogram as PITHistogram
from .compared_maps import draw_maps as draw_maps
from .coverage import CoveragePlot as CoveragePlot
from .drift_layers import DriftLayers as DriftLayers
from .entropy_cdf import EntropyPlot as EntropyPlot
from .function_bands import FunctionBands as FunctionBands
from .grid import Plot as Plot, draw_grid as draw_grid
from .reliability import ReliabilityDiagram as ReliabilityDiagram
from .retention import RetentionPlot as RetentionPlot
from .saving import figure_svg as figure_svg, save_figure as save_figure
from .segmentation_maps import SegmentationMaps as SegmentationMaps
from .style import theme as theme
from .uncertainty_error import UncertaintyErrorPlot as UncertaintyErrorPlot
