"""Plots: every plot is a dataclass that first computes its numbers, and then draws itself.

`plot = UncertaintyErrorPlot.from_predictive(predictive, y)` computes. `plot.draw()` draws into a new figure, and
`plot.draw(ax)` into existing axes. `with style.theme("dark"):` changes the colours, `save_figure` writes a PNG file,
and `figure_svg` returns an SVG for a web page.
"""

from . import style as style
from .calibration import (
    CHANCE as CHANCE,
    CalibrationPlot as CalibrationPlot,
    CoveragePlot as CoveragePlot,
    binomial_band as binomial_band,
)
from .classification import EntropyPlot as EntropyPlot, ReliabilityDiagram as ReliabilityDiagram
from .drift_layers import DriftLayers as DriftLayers
from .retention import RetentionPlot as RetentionPlot
from .saving import figure_svg as figure_svg, save_figure as save_figure
from .style import CLASS_COLOURS as CLASS_COLOURS, Plot as Plot, spread_out as spread_out, theme as theme
from .uncertainty_error import QUANTILES as QUANTILES, UncertaintyErrorPlot as UncertaintyErrorPlot
