"""Channels taken out of a trained ResNet: size against error, NLL and doubt, with and without fine-tuning.

What compression does to doubt is rarely shown. A trained CIFAR-10 ResNet loses channels by several criteria, down to
several shares of its multiply-adds; its statistics are estimated anew, and it is fine-tuned for two epochs or not at
all. What MCBN then says of test images and of SVHN is scored: error, NLL, the AUROC with which
doubt tells wrong predictions from right ones, and the one with which it tells SVHN from CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from torch import nn

import bayesnorm as bn
from bayesnorm.compression import prune_channels
from bayesnorm.metrics import auroc
from bayesnorm.nets import load_cifar_resnet
from bayesnorm.plots import style

from .evidence import show_progress, write_numbers, write_picture
from .image_networks.asking import Asked, doubt_scores, load_asked
from .image_networks.recipes import Recipe
from .image_networks.training import Plan
from .options import OUT, FastestDevice, OutFolder, Size, fastest
from .panels import panels, set_figure_title
from .pieces import measured_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CRITERIA = ("signal", "statistics", "scale")
BATCH_SIZE, OUTSIDE = 32, "svhn"


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        depth: The ResNet's.
        shares: Shares of multiply-adds that stay.
        images: Training images; None for all.
        asked: Test images of each kind; None for all.
        states: Batches whose statistics are kept, and draws.
        epochs: Of fine-tuning.
    """

    depth: int
    shares: tuple[float, ...]
    images: int | None
    asked: int | None
    states: int
    epochs: int = 2

    @property
    def plan(self) -> Plan:
        """How images are transformed and networks fine-tuned."""
        recipe = Recipe(self.epochs, batch_size=128, learning_rate=0.02, images=self.images, test_images=self.asked)
        return replace(Plan.of(f"resnet{self.depth}"), recipe=recipe)


PRESETS = {
    Size.quick: Preset(20, (0.75, 0.5), images=1000, asked=200, states=8),
    Size.paper: Preset(32, (0.9, 0.75, 0.6, 0.5, 0.4, 0.3), images=None, asked=None, states=64),
}


def main(
    preset: Annotated[Size, typer.Option(help="A look on two cores, or what results come from.")] = Size.quick,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Size against error, NLL and doubt of a trained ResNet that loses channels.

    \b
    python -m experiments prune-channels --preset paper --out out
    """
    chosen, where = PRESETS[preset], fastest(device)
    rows = measure(chosen, where, out / "prune_channels")
    print(text(rows))
    write_picture(out / "prune_channels.png", draw(rows))
    write_numbers(out / "prune_channels.json", {"preset": asdict(chosen), "rows": rows}, where)


def measure(preset: Preset, device: str, kept: Path) -> list[dict[str, Any]]:
    """Return a row for the network as it is and for each criterion, share and way; each is kept as a file."""
    plan = preset.plan
    pixels, labels = (part.to(device) for part in plan.load("train"))
    x = plan.transform().scaled(pixels)
    asked = load_asked(plan, [OUTSIDE], preset.asked, device)
    model = load_cifar_resnet(preset.depth).to(device)
    posterior = bn.MCBN(BATCH_SIZE, states=preset.states).fit(model, x, bn.Categorical())
    cases = [("none", 1.0)] + [(criterion, share) for criterion in CRITERIA for share in preset.shares]
    rows: list[dict[str, Any]] = []
    for criterion, share in cases:
        show_progress(f"ResNet-{preset.depth}: {criterion}, {share:g} of the multiply-adds")

        def find(criterion: Any = criterion, share: float = share) -> list[dict[str, Any]]:
            if criterion == "none":
                return [_scored(model, x, asked, preset) | {"criterion": criterion, "share": 1.0, "epochs": 0}]
            pruned = prune_channels(posterior, x[:10_000], multiply_adds=share, criterion=criterion)
            report = pruned.report(asked.x[:64])
            assert report.before is not None
            assert report.after is not None
            told = {
                "criterion": criterion,
                "share": report.after.multiply_adds / report.before.multiply_adds,
                "parameters": report.parameters_after / report.parameters_before,
            }
            found = [_scored(pruned.network, x, asked, preset) | told | {"epochs": 0}]
            plan.train(pruned.network, pixels, labels)
            return [*found, _scored(pruned.network, x, asked, preset) | told | {"epochs": preset.epochs}]

        settings = {"preset": asdict(preset), "criterion": criterion, "share": share}
        rows += measured_once(kept / f"{criterion}_{share:g}.json", settings, find)
    show_progress("")
    return rows


def _scored(network: nn.Module, x: torch.Tensor, asked: Asked, preset: Preset) -> dict[str, Any]:
    """Return scores of what MCBN says of a network's predictions."""
    posterior = bn.MCBN(BATCH_SIZE, states=preset.states).fit(network, x, bn.Categorical())
    predict: Any = partial(posterior.predict, engine=bn.MonteCarlo(preset.states))
    scores, inside = doubt_scores(predict, asked), predict(asked.x)
    wrong = inside.label != asked.y
    return {
        "error": 1 - scores["accuracy"],
        "nll": scores["nll"],
        "ece": scores["ece"],
        "auroc of errors": float(auroc(inside.entropy[~wrong], inside.entropy[wrong])),
        f"auroc of {OUTSIDE}": scores["outside"][OUTSIDE]["entropy"]["auroc"],
    }


SCORES = ("error", "nll", "auroc of errors", f"auroc of {OUTSIDE}")


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [f"| criterion | multiply-adds | epochs | {' | '.join(SCORES)} |", "|---" * (3 + len(SCORES)) + "|"]
    for row in rows:
        scores = " | ".join(f"{row[name]:.3f}" for name in SCORES)
        lines.append(f"| {row['criterion']} | {row['share']:.2f} | {row['epochs']} | {scores} |")
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, Any]]) -> Axes:
    """Draw every score against the share of multiply-adds, fine-tuned networks as solid lines."""
    (whole,) = (row for row in rows if row["criterion"] == "none")
    (axes,) = panels(1, len(SCORES))
    for ax, score in zip(axes, SCORES, strict=True):
        for number, criterion in enumerate(CRITERIA):
            colour, _, marker = style.current().look(number)
            for tuned in (False, True):
                own = [row for row in rows if row["criterion"] == criterion and bool(row["epochs"]) == tuned]
                points = sorted((row["share"], row[score]) for row in [whole, *own])
                label = f"{criterion}, fine-tuned" if tuned else criterion
                ax.plot(*zip(*points, strict=True), ls="-" if tuned else ":", marker=marker, color=colour, label=label)
        ax.set_xlabel("share of the multiply-adds")
        ax.set_ylabel(score)
    axes[0].legend()
    set_figure_title(axes[0], "channels taken out of a trained ResNet")
    return axes[0]
