"""Measure epistemic and aleatoric uncertainty with more data and on other data (Gal; Kendall and Gal 2017).

Epistemic uncertainty, which more data can reduce, should fall as a network is trained on more images, and rise on
images of another kind. Aleatoric uncertainty, which is in the images themselves, should do neither. CIFAR-10
classifiers trained on 5 to 100 % of the images are tested on test images, CIFAR-100 and SVHN. Measured are mutual
information, expected entropy and their sum, the entropy, for MCBN and for an ensemble of networks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bayesnorm as bn
from bayesnorm.methods import ensemble
from bayesnorm.plots import style
from bayesnorm.posterior import Posterior

from .data import DataNotFoundError
from .evidence import show_progress, write_numbers, write_picture
from .image_networks.asking import Asked, load_asked, load_outside, uncertainty_scores
from .image_networks.datasets import load_images
from .image_networks.training import Plan, train_together, trained_network
from .options import (
    OUT,
    Compiled,
    CompiledSteps,
    FastestDevice,
    MeasuredSize,
    NetworksFolder,
    OutFolder,
    Size,
    Workers,
    fastest,
)
from .panels import panels, set_figure_title
from .pieces import measured_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DATA, BATCH_SIZE, DRAWS = "cifar10", 32, 20
OUTSIDE = ("cifar100", "svhn")
MCBN, ENSEMBLE = "MCBN", "ensemble"
NAMES = {"mutual information": "epistemic", "expected entropy": "aleatoric", "entropy": "total"}
# Aleatoric uncertainty stays if it changes by less than this fraction.
STAYS = 0.1


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        network: The network.
        recipe: The preset of its recipe.
        counts: Numbers of training images.
        epochs: Epochs of the network with most images.
        most_epochs: Most epochs of networks with few images, which otherwise take as many steps.
        members: Networks of an ensemble.
        asked: Images of each kind that are predicted; None means all.
    """

    network: str
    recipe: str
    counts: tuple[int, ...]
    epochs: int
    most_epochs: int
    members: int
    asked: int | None = None


PRESETS = {
    Size.quick: Preset("resnet20", "quick", (250, 1000, 2000), epochs=3, most_epochs=12, members=2, asked=300),
    Size.paper: Preset(
        "resnet18", "paper", (2500, 5000, 12_500, 25_000, 50_000), epochs=12, most_epochs=120, members=3
    ),
}


def main(
    preset: MeasuredSize = Size.quick,
    networks: NetworksFolder = None,
    workers: Workers = 1,
    compiled: CompiledSteps = Compiled.graph,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Measure epistemic and aleatoric uncertainty by number of training images, and on other images.

    Trains missing networks and continues after an interruption. CIFAR-100 is left out if it is not available.

    \b
    python -m experiments uncertainty-and-data --preset paper --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    rows = measure(chosen, where, networks or out / "networks", out / "uncertainty_and_data", workers, compiled.mode)
    results = {
        "preset": asdict(chosen),
        "samples": DRAWS,
        "batch_size": BATCH_SIZE,
        "rows": rows,
        "claims": claims(rows),
    }
    print(text(rows))
    write_picture(out / "uncertainty_and_data.png", draw(rows))
    write_numbers(out / "uncertainty_and_data.json", results, where)


def measure(
    preset: Preset, device: str, networks: Path, stored: Path, workers: int = 1, compiled: bool | str = "graph"
) -> list[dict[str, Any]]:
    """Return a row for each number of training images and method; each number is stored in a file."""
    plans = {name: plan for count in preset.counts for name, plan in _plans(preset, count).items()}
    train_together(plans, networks, device, workers, compiled)
    asked = load_asked(_plan(preset, preset.counts[0], 0), list(_there(OUTSIDE)), preset.asked, device)
    rows = []
    for count in preset.counts:
        show_progress(f"{preset.network} on {count:,} images of {DATA}")
        settings = {"preset": asdict(preset), "count": count, "outside": list(asked.outside)}
        measured = partial(_of_count, preset, count, asked, networks, device)
        result = measured_once(stored / f"{count}.json", settings, measured)
        rows += [{"images": count, "method": method, **scores} for method, scores in result.items()]
    show_progress("")
    return rows


def _there(names: tuple[str, ...]) -> list[str]:
    """Return the available kinds of images, and print which are missing."""
    results = []
    for name in names:
        try:
            load_outside(name, DATA)
        except DataNotFoundError as error:
            print(f"{name}: left out, {error}")
        else:
            results.append(name)
    return results


def _plan(preset: Preset, count: int, seed: int) -> Plan:
    epochs = min(preset.most_epochs, preset.epochs * max(preset.counts) // count)
    return Plan.from_preset(preset.network, DATA, preset.recipe, seed, images=count, epochs=epochs)


def _plans(preset: Preset, count: int) -> dict[str, Plan]:
    """Return the plans of networks for a number of training images, by name."""
    stem = f"{preset.network}_{DATA}_first{count}"
    return {f"{stem}_{seed}": _plan(preset, count, seed) for seed in range(preset.members)}


def _of_count(preset: Preset, count: int, asked: Asked, networks: Path, device: str) -> dict[str, Any]:
    """Return the scores of both methods on networks that were trained on so many images."""
    plans = _plans(preset, count)
    members = [trained_network(plan, networks, name, device)[0] for name, plan in plans.items()]
    pixels, _ = load_images(DATA, "train", count)
    training = _plan(preset, count, 0).transform().scaled(pixels.to(device))
    posteriors: dict[str, Posterior] = {
        MCBN: bn.MCBN(BATCH_SIZE, states=DRAWS).fit(members[0], training, bn.Categorical()),
        ENSEMBLE: ensemble(members, bn.Categorical()),
    }
    results: dict[str, Any] = {}
    for method, posterior in posteriors.items():
        engine = bn.MonteCarlo(DRAWS if method == MCBN else preset.members)
        results[method] = uncertainty_scores(partial(posterior.predict, engine=engine), asked)  # type: ignore[arg-type]
    return results


def claims(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the four claims for each method with our results: a change by more than two standard errors, or none."""
    told = []
    for method in (MCBN, ENSEMBLE):
        few, *_, many = (row for row in rows if row["method"] == method)
        for uncertainty, name in (("mutual information", "epistemic"), ("expected entropy", "aleatoric")):
            (before, error), (after, other_error) = few["inside"][uncertainty], many["inside"][uncertainty]
            beyond = 2 * (error**2 + other_error**2) ** 0.5
            if name == "epistemic":
                holds = before - after > beyond
            else:
                holds = abs(after - before) < max(beyond, STAYS * before)
            told.append(
                {
                    "claim": f"{method}: {name} uncertainty "
                    f"{'falls' if name == 'epistemic' else 'stays'} with more data",
                    "seen": f"{before:.4f} at {few['images']:,} images, {after:.4f} at {many['images']:,}",
                    "verdict": "holds" if holds else "does not",
                }
            )
            for kind, outside in many["outside"].items():
                mean, error = outside[uncertainty]["mean"]
                beyond = 2 * (error**2 + other_error**2) ** 0.5
                rises = mean - after > beyond
                told.append(
                    {
                        "claim": f"{method}: {name} uncertainty "
                        f"{'rises' if name == 'epistemic' else 'stays'} on {kind}",
                        "seen": f"{after:.4f} inside, {mean:.4f} outside (AUROC {outside[uncertainty]['auroc']:.3f})",
                        "verdict": "holds" if rises == (name == "epistemic") else "does not",
                    }
                )
    return told


def text(rows: list[dict[str, Any]]) -> str:
    """Return the rows and the claims as text."""
    lines = [
        f"{'':22}{'accuracy':>9}{'NLL':>8}   uncertainty inside: {', '.join(NAMES.values())}; AUROC, FPR95 outside"
    ]
    for row in rows:
        inside = "".join(f"{row['inside'][uncertainty][0]:9.4f}" for uncertainty in NAMES)
        lines.append(f"{row['method']:10}{row['images']:>10,}  {row['accuracy']:9.4f}{row['nll']:8.4f}   {inside}")
        for kind, outside in row["outside"].items():
            cells = "".join(f"{outside[d]['auroc']:9.3f}{outside[d]['fpr95']:7.3f}" for d in NAMES)
            lines.append(f"{'':24}{kind:>18}{cells}")
    lines += [f"{claim['verdict']:>10}  {claim['claim']}: {claim['seen']}" for claim in claims(rows)]
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]]) -> Axes:
    """Plot epistemic and aleatoric uncertainty by number of training images, inside and outside; one row per method."""
    axes = panels(2, 2)
    kinds = {"test images": (style.BLUE, "-", "o")}
    kinds |= dict(zip(rows[0]["outside"], [(style.VERMILION, "--", "s"), (style.GREEN, ":", "^")], strict=False))
    for line, method in zip(axes, (MCBN, ENSEMBLE), strict=True):
        of_method = [row for row in rows if row["method"] == method]
        counts = [row["images"] for row in of_method]
        for ax, uncertainty in zip(line, ("mutual information", "expected entropy"), strict=True):
            for kind, (colour, stroke, marker) in kinds.items():
                values = [
                    row["inside"][uncertainty][0]
                    if kind == "test images"
                    else row["outside"][kind][uncertainty]["mean"][0]
                    for row in of_method
                ]
                ax.plot(counts, values, color=colour, ls=stroke, marker=marker, ms=6, lw=2, label=kind)
            ax.set_xscale("log")
            ax.set_xticks(counts, [f"{count:,}" for count in counts])
            ax.minorticks_off()
            ax.set(
                xlabel="training images",
                ylabel=f"{uncertainty} (nats)",
                title=f"{method}: {NAMES[uncertainty]} uncertainty",
            )
            ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
            style.legend_below(ax, 3)
    set_figure_title(
        axes[0][0],
        "Epistemic uncertainty should fall with more data and rise on other data; aleatoric uncertainty should not",
    )
    return axes[0][0]
