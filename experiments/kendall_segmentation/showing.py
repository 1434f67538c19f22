"""Show the results as text and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from ..segmentation.frames import Light
from ..segmentation.pixels import KEPT
from ..segmentation.plans import Task
from ..teye_figure2.showing import claims_section
from ..teye_figure2.verdicts import Claim
from ..teye_tables.layout import Section
from .measuring import (
    ALEATORIC,
    ALL,
    BOTH,
    DAY,
    DROPOUT,
    EPISTEMIC,
    KINDS,
    MCBN,
    METHODS,
    NEITHER,
    SHARES,
    Networks,
    kind_name,
)
from .red import LEVELS, PARTS, ask_red
from .verdicts import ANY, AT_DUSK, BY_DAY, NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, Any] = {
    NEITHER: {"color": style.BLACK, "ls": "-"},
    kind_name(EPISTEMIC, MCBN): {"color": style.BLUE, "ls": "--"},
    kind_name(EPISTEMIC, DROPOUT): {"color": style.SKY, "ls": "--"},
    ALEATORIC: {"color": style.ORANGE, "ls": ":"},
    kind_name(BOTH, MCBN): {"color": style.GREEN, "ls": "-."},
    kind_name(BOTH, DROPOUT): {"color": style.PURPLE, "ls": "-."},
}


def text(results: dict[str, Any], told: Sequence[Claim]) -> str:
    """Return tables of classes and of the red channel, and the claims, as Markdown."""
    head = ("frames", "uncertainty", "mean IoU", "accuracy", "NLL", "ECE", "epistemic", "aleatoric", "at dusk", "")
    rows = []
    for case, kinds in results["classes"].items():
        for kind, lights in kinds.items():
            anywhere, dusk = lights[ANY], lights[AT_DUSK]
            cells = [f"{anywhere[name]:.3f}" for name in ("mean IoU", "accuracy", "nll", "ece")]
            cells += [f"{part['doubts'][name]['mean']:.4f}" for part in (anywhere, dusk) for name in NAMES.values()]
            rows.append((case, kind, *cells))
    red, red_head = [], ("frames", "method", "mean error", "epistemic", "aleatoric", "at dusk", "")
    for case, methods in results["red"].items():
        for method, lights in methods.items():
            doubts = [f"{lights[light]['parts'][part]['mean']:.4f}" for light in (ANY, AT_DUSK) for part in NAMES]
            red.append((case, method, f"{lights[ANY]['mean absolute error']:.4f}", *doubts))
    sections = (
        Section("Classes: uncertainty in nats", head, tuple(rows)),
        Section("Red out of green, from 0 to 1: standard deviations", red_head, tuple(red)),
        claims_section(told),
    )
    return "\n".join(line for section in sections for line in section.markdown())


def draw_classes(results: dict[str, Any]) -> Axes:
    """Plot precision against recall, calibration, and both parts of the uncertainty by number of images and light."""
    (precision, calibration), (data, light) = panels(2, 2)
    for kind in KINDS:
        scores = results["classes"][ALL][kind][ANY]
        precisions = [1 - error for error in scores["doubts"]["entropy"]["error of kept"]]
        precision.plot(KEPT, precisions, label=kind, lw=2, **LOOKS[kind])
        curve, label = scores["calibration"], f"{kind}, ECE {scores['ece']:.3f}"
        points = [(c, a) for c, a in zip(curve["confidence"], curve["accuracy"], strict=True) if c is not None]
        calibration.plot(*zip(*points, strict=True), label=label, marker="o", ms=4, **LOOKS[kind])
    calibration.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
    precision.set(
        xlabel="recall: fraction of pixels kept", ylabel="precision", title="Precision against recall by uncertainty"
    )
    calibration.set(xlabel="confidence", ylabel="accuracy", title="Calibration of pixels")

    def value(case: str, at: str, part: str, method: str) -> float:
        mean: float = results["classes"][case][kind_name(BOTH, method)][at]["doubts"][NAMES[part]]["mean"]
        return mean

    _draw_parts(data, light, value, "mean uncertainty (nats)")
    for ax in (precision, calibration):
        ax.legend(frameon=False, fontsize="small")
    set_figure_title(precision, "Which uncertainties are needed? Classes of pixels in CamVid's test images")
    return precision


def draw_red(results: dict[str, Any]) -> Axes:
    """Plot errors of the kept pixels, calibration, and both parts of the uncertainty by number of images and light."""
    (retention, calibration), (data, light) = panels(2, 2)
    for method in METHODS:
        parts = results["red"][ALL][method][ANY]["parts"]
        for part in PARTS if method == MCBN else (EPISTEMIC, BOTH):
            kind = part if part == ALEATORIC else kind_name(part, method)
            retention.plot(KEPT, parts[part]["error of kept"], label=f"by {kind}", lw=2, **LOOKS[kind])
            calibration.plot(LEVELS, parts[part]["covered"], label=kind, lw=2, **LOOKS[kind])
    calibration.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
    retention.set(
        xlabel="fraction of pixels kept", ylabel="mean absolute error", title="The most uncertain pixels are dropped"
    )
    calibration.set(xlabel="level of the interval", ylabel="fraction of pixels inside", title="Calibration")

    def value(case: str, at: str, part: str, method: str) -> float:
        mean: float = results["red"][case][method][at]["parts"][part]["mean"]
        return mean

    _draw_parts(data, light, value, "mean standard deviation")
    for ax in (retention, calibration):
        ax.legend(frameon=False, fontsize="small")
    set_figure_title(retention, "Both parts of the uncertainty of a pixel's red, given its green")
    return retention


def _draw_parts(data: Axes, light: Axes, value: Callable[[str, str, str, str], float], label: str) -> None:
    """Plot both parts of the uncertainty by number of images, and by light for networks trained by day and on both."""
    shares = [case for case in SHARES if case != DAY]
    lights = {"by day": BY_DAY, "at dusk": AT_DUSK}
    for method, part in ((MCBN, EPISTEMIC), (DROPOUT, EPISTEMIC), (MCBN, ALEATORIC)):
        kind = part if part == ALEATORIC else kind_name(part, method)
        levels = [value(case, ANY, part, method) for case in shares]
        data.plot(levels, "o-", lw=2, label=kind, **_colour(kind))
        for trained_on, marker, width in ((DAY, "o-", 2), (ALL, "s:", 1)):
            levels = [value(trained_on, at, part, method) for at in lights.values()]
            words = f"{kind}, trained {'by day' if trained_on == DAY else 'on both'}"
            light.plot(levels, marker, lw=width, label=words, **_colour(kind))
    data.set(xlabel="training frames", ylabel=label, title="With more data", yscale="log")
    light.set(xlabel="test frames", ylabel=label, title="In another light", yscale="log")
    for ax, names in ((data, shares), (light, list(lights))):
        ax.set_xticks(range(len(names)), names)
        style.legend_below(ax, 2, fontsize="small")


def _colour(kind: str) -> Any:
    return {"color": LOOKS[kind]["color"]}


def draw_red_maps(made: Networks) -> Figure:
    """Plot error, epistemic and aleatoric standard deviation by day and at dusk, for a network trained by day."""
    posterior, plan = made.posterior(Task.red, DAY, MCBN)
    lights = (Light.day, Light.dusk)
    x, y, rows = made.asked(plan)
    maps = []
    for light in lights:
        frames = range(len(x))[rows[light]]
        middle = [frames[len(frames) // 2]]
        with torch.no_grad():
            error, epistemic, aleatoric = ask_red(posterior, x[middle], y[middle], made.preset.samples)
        maps.append([part[0].cpu().numpy() for part in (error, epistemic.sqrt(), aleatoric.sqrt())])
    figure = style.new_figure((11, 6))
    grid = figure.subplots(len(lights), 3, squeeze=False)
    for column, name in enumerate(("absolute error", "epistemic deviation", "aleatoric deviation")):
        most = max(float(row_maps[column].max()) for row_maps in maps)
        for row, light in enumerate(lights):
            ax = grid[row][column]
            shown = ax.imshow(maps[row][column], cmap="magma", vmin=0, vmax=most)
            ax.set_axis_off()
            ax.set_title(f"{name}, {light}", color=style.current().ink, fontsize="small")
            figure.colorbar(shown, ax=ax, shrink=0.8).outline.set_visible(False)
    figure.suptitle("Red from green, by a network that was trained by day only", color=style.current().ink)
    return figure
