"""Show the results as text and plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bayesnorm.plots import style

from ..data import CAMVID_CLASSES, CAMVID_VOID
from ..panels import panels, set_figure_title
from ..plots import SegmentationMaps, draw_maps
from ..segmentation.pixels import BINS, KEPT, THRESHOLDS, predicted
from ..teye_tables.layout import Section
from .measuring import DROPOUT, ENSEMBLE, FIRST, SOFTMAX, TEMPERATURE, Setup, centred, published
from .verdicts import ALL, EPISTEMIC, Claim

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALEATORIC = "expected entropy"
COLUMNS = ("mean IoU", "accuracy", "nll", "ece")


def text(results: dict[str, dict[str, Any]], told: Sequence[Claim]) -> str:
    """Return a table of all methods, and the claims, as Markdown."""
    columns = ("method", "mean IoU", "accuracy", "NLL", "ECE", "AUROC", "AUPR", "PAvPU", "AUROC of MI", "mean MI")
    rows = []
    for name, scores in results.items():
        by_all, by_mi = scores["doubts"][ALL], scores["doubts"][EPISTEMIC]
        cells = [f"{scores[column]:.3f}" for column in COLUMNS]
        cells += [f"{by_all[column]:.3f}" for column in ("auroc", "aupr", "pavpu at mean uncertainty")]
        rows.append((name, *cells, f"{by_mi['auroc']:.3f}" if "auroc" in by_mi else "", f"{by_mi['mean']:.4f}"))
    title = "Wrong pixels found by entropy (AUROC, AUPR, PAvPU at its mean), and by mutual information (MI)"
    return "\n".join([*Section(title, columns, tuple(rows)).markdown(), *claims_section(told).markdown()])


def claims_section(told: Sequence[Claim]) -> Section:
    """Return claims with our result and a verdict each."""
    rows = tuple((one.words, one.seen, one.verdict) for one in told)
    return Section("What the paper says, and what it leaves open", ("claim or question", "found", "verdict"), rows)


def draw(results: dict[str, dict[str, Any]]) -> Axes:
    """Plot errors of the kept pixels, uncertainty by distance from borders, calibration, and PAvPU."""
    size = next(int(name.split(" = ")[1]) for name in results if name.startswith("MCBN, all"))
    shown = [SOFTMAX, TEMPERATURE, published(FIRST, size), centred("all layers", size), DROPOUT, ENSEMBLE]
    colours = (style.BLACK, style.GREEN, style.SKY, style.BLUE, style.ORANGE, style.VERMILION)
    strokes = ("-", "--", ":", "-", "--", "-.")
    (retention, distance, recall), (calibration, patch, classes) = panels(2, 3)
    for name, colour, stroke in zip(shown, colours, strokes, strict=True):
        scores = results[name]
        look: Any = {"color": colour, "ls": stroke, "lw": 1.8, "label": name}
        retention.plot(KEPT, scores["doubts"][ALL]["error of kept"], **look)
        by_distance = scores["doubts"][EPISTEMIC].get("by distance")
        if by_distance:
            distance.plot(range(len(BINS)), [by_distance[name] for name in BINS], marker="o", ms=4, **look)
        curve = scores["calibration"]
        points = [(c, a) for c, a in zip(curve["confidence"], curve["accuracy"], strict=True) if c is not None]
        calibration.plot(*zip(*points, strict=True), marker="o", ms=3, **look)
        levels = [number / (THRESHOLDS - 1) for number in range(THRESHOLDS)]
        patch.plot(levels, scores["doubts"][ALL]["pavpu"], **look)
        recall.plot(levels, scores["doubts"][ALL]["uncertain if inaccurate"], **look)
        errors = [scores["ece by predicted class"][name] for name in CAMVID_CLASSES]
        classes.plot(
            [math.nan if value is None else value for value in errors],
            range(len(errors)),
            **(look | {"ls": "", "marker": "o"}),
        )
    calibration.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
    recall.set(
        xlabel="threshold of entropy, from least to greatest",
        ylabel="fraction that is uncertain",
        title="Inaccurate patches",
    )
    classes.set_yticks(range(len(CAMVID_CLASSES)), CAMVID_CLASSES)
    classes.set(xlabel="ECE of pixels predicted to be of a class", title="Calibration by class")
    retention.set(
        xlabel="fraction of pixels kept, lowest entropy first",
        ylabel="fraction of errors",
        title="Errors of the kept pixels",
    )
    distance.set_xticks(range(len(BINS)), BINS)
    distance.set(
        xlabel="pixels to the nearest other class",
        ylabel="mutual information (nats)",
        title="Epistemic uncertainty by distance",
        yscale="log",
    )
    calibration.set(xlabel="confidence", ylabel="accuracy", title="Calibration of pixels")
    patch.set(xlabel="threshold of entropy, from least to greatest", ylabel="PAvPU", title="Patches of 4 x 4 pixels")
    retention.legend(frameon=False, fontsize="small")
    distance.legend(frameon=False, fontsize="small")
    set_figure_title(retention, "Is uncertainty where the errors are? Pixels of CamVid's test frames")
    return retention


def draw_frame(setup: Setup, frame: int, *, photos: bool) -> Figure:
    """Plot one image's maps by several methods, with common scales for epistemic and aleatoric uncertainty."""
    size, large = setup.preset.sizes
    shown = [
        SOFTMAX,
        published(FIRST, size),
        centred("all layers", size),
        centred("all layers", large),
        DROPOUT,
        ENSEMBLE,
    ]
    methods, frames = setup.methods(), setup.frames
    x = frames.x[frame : frame + 1]
    image = None
    if photos:
        transform = setup.plan.transform()
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (transform.mean, transform.std))
        image = (x[0].cpu() * std + mean).clamp(0, 1)
    maps = {}
    for name in shown:
        with torch.no_grad():
            said = predicted(methods[name](), x, setup.preset.samples)
        maps[name] = [
            SegmentationMaps.from_predictive(
                image, said, frames.y[frame], uncertainty=uncertainty, classes=CAMVID_CLASSES, ignore_index=CAMVID_VOID
            )
            for uncertainty in ("mutual_information", "expected_entropy")
        ]
    return draw_maps(maps, title="Uncertainty should be high at borders and at errors")
