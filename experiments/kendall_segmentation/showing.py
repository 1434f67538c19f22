"""The numbers as text and as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from ..segmentation.frames import Light
from ..segmentation.pixels import KEPT
from ..segmentation.plans import Task
from ..teye_figure2.verdicts import Claim
from .measuring import ALL, BOTH, DAY, KINDS, SHARES, Networks
from .red import LEVELS, PARTS, ask_red
from .verdicts import ANY, AT_DUSK, BY_DAY, NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, Any] = dict(
    zip(
        ("neither", "epistemic", "aleatoric", "both"),
        (
            {"color": style.BLACK, "ls": "-"},
            {"color": style.BLUE, "ls": "--"},
            {"color": style.ORANGE, "ls": ":"},
            {"color": style.GREEN, "ls": "-."},
        ),
        strict=True,
    )
)


def text(found: dict[str, Any], told: Sequence[Claim]) -> str:
    """Return tables of classes and of the red channel, and the claims."""
    lines = [f"{'classes':18}{'':8}{'mIoU':>7}{'acc':>7}{'NLL':>7}{'ECE':>7}  epistemic, aleatoric (nats); at dusk"]
    for case, kinds in found["classes"].items():
        for kind, lights in kinds.items():
            own, dusk = lights[ANY], lights[AT_DUSK]
            cells = "".join(f"{own[name]:7.3f}" for name in ("mean IoU", "accuracy", "nll", "ece"))
            doubts = "".join(f"{part['doubts'][name]['mean']:9.4f}" for part in (own, dusk) for name in NAMES.values())
            lines.append(f"{kind:18}{case:>8}{cells}{doubts}")
    lines.append(f"{'red':18}{'':8}{'error':>7}  epistemic, aleatoric (deviations); at dusk")
    for case, lights in found["red"].items():
        doubts = "".join(f"{lights[light]['parts'][part]['mean']:9.4f}" for light in (ANY, AT_DUSK) for part in NAMES)
        lines.append(f"{'':18}{case:>8}{lights[ANY]['mean absolute error']:7.4f}{doubts}")
    return "\n".join(lines + [f"{claim.verdict:>10}  {claim.words}: {claim.seen}" for claim in told])


def draw_classes(found: dict[str, Any]) -> Axes:
    """Draw precision against recall, calibration, and both parts of the doubt by frames and light."""
    (precision, calibration), (data, light) = panels(2, 2)
    for kind in KINDS:
        own = found["classes"][ALL][kind][ANY]
        kept = [1 - error for error in own["doubts"]["entropy"]["error of kept"]]
        precision.plot(KEPT, kept, label=kind, lw=2, **LOOKS[kind])
        curve = own["calibration"]
        points = [(c, a) for c, a in zip(curve["confidence"], curve["accuracy"], strict=True) if c is not None]
        calibration.plot(
            *zip(*points, strict=True), label=f"{kind}, ECE {own['ece']:.3f}", marker="o", ms=4, **LOOKS[kind]
        )
    calibration.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
    precision.set(xlabel="recall: share of pixels kept", ylabel="precision", title="Precision against recall by doubt")
    calibration.set(xlabel="confidence", ylabel="accuracy", title="Calibration of pixels")
    both = {case: kinds[BOTH] for case, kinds in found["classes"].items()}
    _draw_parts(data, light, lambda case, at, part: both[case][at]["doubts"][NAMES[part]]["mean"], "mean doubt (nats)")
    for ax in (precision, calibration):
        ax.legend(frameon=False, fontsize="small")
    set_figure_title(precision, "Which doubts do we need? Classes of pixels in CamVid's test frames")
    return precision


def draw_red(found: dict[str, Any]) -> Axes:
    """Draw errors of the pixels kept, calibration, and both parts of the doubt by frames and light."""
    (kept, calibration), (data, light) = panels(2, 2)
    own = found["red"][ALL][ANY]["parts"]
    for part in PARTS:
        kept.plot(KEPT, own[part]["error of kept"], label=f"by {part}", lw=2, **LOOKS[part])
        calibration.plot(LEVELS, own[part]["covered"], label=part, lw=2, **LOOKS[part])
    calibration.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
    kept.set(xlabel="share of pixels kept", ylabel="mean absolute error", title="Most doubtful pixels dropped")
    calibration.set(xlabel="level of the interval", ylabel="share of pixels inside", title="Calibration")
    _draw_parts(data, light, lambda case, at, part: found["red"][case][at]["parts"][part]["mean"], "mean deviation")
    for ax in (kept, calibration):
        ax.legend(frameon=False, fontsize="small")
    set_figure_title(kept, "Both parts of the doubt about a pixel's red, given its green")
    return kept


def _draw_parts(data: Axes, light: Axes, value: Any, label: str) -> None:
    """Draw both parts of the doubt by number of frames, and by light for a network that knows the day only."""
    shares = [case for case in SHARES if case != DAY]
    for part in NAMES:
        data.plot(shares, [value(case, ANY, part) for case in shares], marker="o", lw=2, label=part, **LOOKS[part])
        lights = {"by day": BY_DAY, "at dusk": AT_DUSK}
        light.plot(
            list(lights),
            [value(DAY, at, part) for at in lights.values()],
            marker="o",
            lw=2,
            label=f"{part}, trained by day",
            **LOOKS[part],
        )
        light.plot(
            list(lights),
            [value(ALL, at, part) for at in lights.values()],
            marker="s",
            lw=1,
            alpha=0.6,
            label=f"{part}, trained on both",
            **LOOKS[part],
        )
    data.set(xlabel="training frames", ylabel=label, title="With more data", yscale="log")
    light.set(xlabel="test frames", ylabel=label, title="In another light", yscale="log")
    for ax in (data, light):
        ax.legend(frameon=False, fontsize="small")


def draw_red_maps(made: Networks) -> Figure:
    """Draw error, epistemic and aleatoric deviation of a frame by day and one at dusk, by a network of the day."""
    posterior, plan = made.posterior(Task.red, DAY)
    lights = (Light.day, Light.dusk)
    x, y, rows = made.asked(plan)
    found = []
    for light in lights:
        own = range(len(x))[rows[light]]
        middle = [own[len(own) // 2]]
        with torch.no_grad():
            error, epistemic, aleatoric = ask_red(posterior, x[middle], y[middle], made.preset.draws)
        found.append([part[0].cpu().numpy() for part in (error, epistemic.sqrt(), aleatoric.sqrt())])
    figure = style.new_figure((11, 6))
    grid = figure.subplots(len(lights), 3, squeeze=False)
    for column, name in enumerate(("absolute error", "epistemic deviation", "aleatoric deviation")):
        most = max(float(own[column].max()) for own in found)
        for row, light in enumerate(lights):
            ax = grid[row][column]
            shown = ax.imshow(found[row][column], cmap="magma", vmin=0, vmax=most)
            ax.set_axis_off()
            ax.set_title(f"{name}, {light}", color=style.current().ink, fontsize="small")
            figure.colorbar(shown, ax=ax, shrink=0.8).outline.set_visible(False)
    figure.suptitle("Red out of green, by a network that knows the day only", color=style.current().ink)
    return figure
