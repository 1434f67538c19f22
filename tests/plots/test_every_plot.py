"""What holds for every plot: it draws in both themes, into the given axes, with title and labels, without a window."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive
from bayesnorm.theory import diagnose

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
import matplotlib.pyplot as pyplot
from matplotlib.figure import Figure

import bayesnorm.plots as plots
from experiments.plots import BatchSizeCurve, FunctionBands, draw_grid
from experiments.quantile_plot import QQPlot
from experiments.rejections import RejectionPlot
from experiments.sensitivity import SensitivityCurve

from ..marks import takes_long

generator = torch.Generator().manual_seed(0)
REGRESSION = RegressionPredictive(
    torch.randn(4, 40, 1, generator=generator), torch.rand(1, 40, 1, generator=generator) + 0.2
)
REAL = REGRESSION.sample(1)[0]
CLASSES = ClassificationPredictive(torch.randn(4, 40, 3, generator=generator).log_softmax(-1))
NUMBERS = CLASSES.sample(1)[0]
NETWORK = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
DIAGNOSIS = diagnose(NETWORK, torch.randn(60, 2, generator=generator), (4, 8), batches=20)
X = np.linspace(-1, 1, 9)

PUBLIC = {
    "CalibrationPlot": plots.CalibrationPlot.from_predictive(REGRESSION, REAL),
    "CoveragePlot": plots.CoveragePlot.from_predictive(REGRESSION, REAL),
    "DriftLayers": plots.DriftLayers(
        ("1", "4"), np.array([1e-9, 0.4]), np.array([0.8, 0.1]), first_layer="1", overall=1e-8, rows=20
    ),
    "EntropyPlot": plots.EntropyPlot.from_predictives({"in": CLASSES, "out": CLASSES}),
    "ReliabilityDiagram": plots.ReliabilityDiagram.from_predictive(CLASSES, NUMBERS),
    "RetentionPlot": plots.RetentionPlot.from_predictive(REGRESSION, REAL),
    "UncertaintyErrorPlot": plots.UncertaintyErrorPlot.from_predictive(REGRESSION, REAL, 0.7),
}
EVERY = {
    **PUBLIC,
    # Plots of experiments keep the same rules.
    "BatchSizeCurve": BatchSizeCurve(np.array([8, 16]), np.array([-1.0, 0.0]), np.array([0.4, 0.5])),
    "FunctionBands": FunctionBands(X, X, {0.95: (X - 1, X + 1)}, 0.5),
    "QQPlot": QQPlot.of_units(DIAGNOSIS, "1", batch_size=8),
    "RejectionPlot": RejectionPlot.over_batch_sizes(DIAGNOSIS),
    "SensitivityCurve": SensitivityCurve.from_runs({"a": {8: [1.0, 2.0], 16: [0.0, 1.0]}}, baseline=0.0),
}


def test_all_plots_are_here():
    public = {
        name for name, thing in vars(plots).items() if isinstance(thing, type) and dataclasses.is_dataclass(thing)
    }
    assert public == PUBLIC.keys()


@pytest.mark.parametrize("name", EVERY)
def test_contract(name):
    plot = EVERY[name]
    assert dataclasses.fields(plot)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plot.title = "changed"
    windows = pyplot.get_fignums()
    for colours in ("light", "dark"):
        with plots.theme(colours):
            axes = Figure(figsize=(4, 3)).add_subplot()
            assert plot.draw(axes) is axes
            assert axes.get_title()
            assert axes.get_xlabel()
            assert axes.get_ylabel()
            if colours == "dark":
                axes.get_figure().draw_without_rendering()
    assert plots.figure_svg(plot.draw()).startswith("<svg")
    assert pyplot.get_fignums() == windows


@takes_long
def test_all_of_them_in_one_figure():
    figure = draw_grid(EVERY, columns=5)
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == list(EVERY)
    figure.draw_without_rendering()


def test_a_legend_hides_no_line():
    for name in ("BatchSizeCurve", "FunctionBands"):
        ax = EVERY[name].draw()
        ax.get_figure().draw_without_rendering()
        assert ax.get_legend().get_window_extent().y1 <= ax.get_window_extent().y0
