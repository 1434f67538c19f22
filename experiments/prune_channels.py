"""Channels taken out of a trained ResNet: size against error, NLL and doubt, with and without fine-tuning.

What compression does to doubt is rarely shown. A trained CIFAR-10 ResNet loses channels by several criteria, down to
several shares of its multiply-adds; its statistics are estimated anew, and it is fine-tuned for two epochs or not at
all: by labels, and by what the whole network says. How each is done (`Way`) is chosen at one share on training images
that this training does not see. What MCBN then says of test images and of SVHN is scored: error, NLL, the AUROC with
which doubt tells wrong predictions from right ones, and the one with which it tells SVHN from CIFAR-10.

Beside them stand the whole network as a plain softmax, and its int8 quantisation by torch's own tools, whose doubt is
that of its softmax too: batch norm is folded away in it. Times are those of 64 images on one CPU core.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import bayesnorm as bn
from bayesnorm.compression import Compressed, prune_channels
from bayesnorm.compression.measuring import prediction_seconds
from bayesnorm.metrics import auroc
from bayesnorm.nets import load_cifar_resnet
from bayesnorm.plots import style
from bayesnorm.posterior import BatchNormPosterior
from bayesnorm.stacked import one_thread
from bayesnorm.training import Teacher

from .evidence import show_progress, write_numbers, write_picture
from .image_networks.asking import Asked, doubt_scores, load_asked
from .image_networks.recipes import Recipe, set_up_device
from .image_networks.training import Plan, score as score_network
from .known_names import require_known
from .options import OUT, FastestDevice, OutFolder, Size, fastest
from .panels import panels, set_figure_title
from .pieces import measured_once

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CRITERIA = ("signal", "statistics", "scale")
WHOLE, SOFTMAX, INT8 = "none", "none, softmax", "int8, softmax"
LABELS, TEACHER = "labels", "whole network"
BATCH_SIZE, OUTSIDE, TIMED = 32, "svhn", 64


@dataclass(frozen=True)
class Way:
    """How a smaller network is fine-tuned.

    Args:
        learning_rate: The highest one.
        temperature: At which the whole network teaches it; None where labels do.
        batch_size: Images per step.
        weight_decay: On kernels and matrices.
        hints: How much the outputs of stages count, which are to be the whole network's, where that teaches.
        blocks: Whether the outputs of all blocks count so, not those of stages alone.
    """

    learning_rate: float
    temperature: float | None = None
    batch_size: int = 128
    weight_decay: float = 5e-4
    hints: float = 0.0
    blocks: bool = False

    @property
    def tuned_by(self) -> str:
        """Who tells the smaller network what is right."""
        return LABELS if self.temperature is None else TEACHER


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        depth: The ResNet's.
        shares: Shares of multiply-adds that stay.
        images: Training images; None for all.
        asked: Test images of each kind; None for all.
        states: Batches whose statistics are kept, and draws.
        ways: How networks may be fine-tuned.
        epochs: Of fine-tuning.
        chosen_at: The share at which one of the ways is chosen.
    """

    depth: int
    shares: tuple[float, ...]
    images: int | None
    asked: int | None
    states: int
    ways: tuple[Way, ...]
    epochs: int = 2
    chosen_at: float = 0.5

    @property
    def plan(self) -> Plan:
        """How images are loaded and transformed."""
        recipe = Recipe(self.epochs, images=self.images, test_images=self.asked)
        return replace(Plan.of(f"resnet{self.depth}"), recipe=recipe)


PRESETS = {
    Size.quick: Preset(20, (0.75, 0.5), images=1000, asked=200, states=8, ways=(Way(0.02), Way(0.02, temperature=4))),
    Size.paper: Preset(
        32,
        (0.9, 0.75, 0.6, 0.5, 0.4, 0.3),
        images=None,
        asked=5000,
        states=32,
        ways=(
            *(Way(rate) for rate in (0.01, 0.02, 0.05)),
            *(Way(rate, temperature=4) for rate in (0.002, 0.005, 0.01)),
            *(Way(0.005, temperature, weight_decay=0) for temperature in (2, 4)),
            *(Way(rate, 4, 64, weight_decay=0) for rate in (0.002, 0.005)),
            *(Way(rate, 4, weight_decay=0, hints=hints) for rate in (0.005, 0.01, 0.02) for hints in (50, 200)),
            *(Way(rate, 4, 64, weight_decay=0, hints=200) for rate in (0.005, 0.01)),
            *(
                Way(rate, 4, weight_decay=0, hints=hints, blocks=True)
                for rate in (0.005, 0.01, 0.02)
                for hints in (10, 50)
            ),
            *(Way(rate, 4, 64, weight_decay=0, hints=50, blocks=True) for rate in (0.005, 0.01)),
        ),
    ),
}


def main(
    preset: Annotated[Size, typer.Option(help="A look on two cores, or what results come from.")] = Size.quick,
    criterion: Annotated[list[str] | None, typer.Option(help="Criteria to measure; all by default.")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Size against error, NLL and doubt of a trained ResNet that loses channels.

    \b
    python -m experiments prune-channels --preset paper --out out
    """
    chosen, where = PRESETS[preset], fastest(device)
    require_known("--criterion", criterion or (), CRITERIA)
    set_up_device(where)
    ways, rows = measure(chosen, where, out / "prune_channels", criterion or CRITERIA)
    print(text(rows))
    write_picture(out / "prune_channels.png", draw(rows))
    write_numbers(out / "prune_channels.json", {"preset": asdict(chosen), "ways": ways, "rows": rows}, where)


@dataclass(frozen=True)
class Whole:
    """The network that loses channels, and the training images that it is pruned by.

    Args:
        network: The network.
        plan: How its images are transformed.
        states: Batches whose statistics are kept.
        pixels, labels: Training images, as bytes, and their classes.
    """

    network: nn.Module
    plan: Plan
    states: int
    pixels: Tensor
    labels: Tensor

    @cached_property
    def x(self) -> Tensor:
        """The images as the network gets them."""
        return self.plan.transform().scaled(self.pixels)

    def posterior(self, network: nn.Module) -> BatchNormPosterior:
        """Return MCBN of a network."""
        return bn.MCBN(BATCH_SIZE, states=self.states).fit(network, self.x, bn.Categorical())

    def pruned(self, share: float, criterion: Any) -> Compressed:
        """Return a network with a share of the multiply-adds."""
        return prune_channels(self.posterior(self.network), self.x[:10_000], multiply_adds=share, criterion=criterion)

    def fine_tuned(self, network: nn.Module, way: Way) -> nn.Module:
        """Return a pruned network after fine-tuning."""
        changed = replace(
            self.plan.recipe,
            batch_size=way.batch_size,
            learning_rate=way.learning_rate,
            weight_decay=way.weight_decay,
        )
        teacher = None
        if way.temperature is not None:
            hinted = _hinted(self.network, network, way.blocks) if way.hints else ()
            teacher = Teacher(self.network, self.plan.transform(), way.temperature, hinted, way.hints)
        replace(self.plan, recipe=changed).train(network, self.pixels, self.labels, teacher, compiled="graph")
        return network


def _hinted(whole: nn.Module, small: nn.Module, blocks: bool) -> list[str]:
    """Return names of the stages or blocks of a ResNet whose outputs are as wide in one that lost channels."""
    stages = [name for name, stage in whole.named_children() if isinstance(stage, nn.Sequential)]
    found = {name: [f"{name}.{block}" for block, _ in whole.get_submodule(name).named_children()] for name in stages}
    if blocks:
        names = [block for own in found.values() for block in own]
        return [name for name in names if _width(whole, name) == _width(small, name)]
    return [stage for stage, own in found.items() if _width(whole, own[-1]) == _width(small, own[-1])]


def _width(network: nn.Module, block: str) -> int:
    """Return how many channels a block adds to the residual stream: those of its last kernel."""
    return [len(value) for value in network.get_submodule(block).parameters() if value.dim() == 4][-1]


def scored_ways(whole: Whole, preset: Preset, kept: Path) -> list[dict[str, Any]]:
    """Return what each way gives on every tenth training image, which it does not see: the most accurate first."""
    held = torch.arange(len(whole.pixels), device=whole.pixels.device) % 10 == 9
    rest = replace(whole, pixels=whole.pixels[~held], labels=whole.labels[~held])

    @cache
    def pruned() -> nn.Module:
        return rest.pruned(preset.chosen_at, "statistics").network

    def scored(way: Way) -> dict[str, Any]:
        tuned = rest.fine_tuned(copy.deepcopy(pruned()), way)
        return asdict(way) | score_network(tuned, whole.pixels[held], whole.labels[held], whole.plan)

    rows: list[dict[str, Any]] = []
    for way in preset.ways:
        show_progress(f"ResNet-{preset.depth}: {way}")
        settings = {"preset": _told(preset), "way": asdict(way)}
        name = "_".join(str(value) for value in asdict(way).values())
        rows.append(measured_once(kept / "ways" / f"{name}.json", settings, partial(scored, way)))
    return sorted(rows, key=lambda row: (-row["accuracy"], row["nll"]))


def _told(preset: Preset) -> dict[str, Any]:
    """Return what decides a piece: other ways do not change those that are there."""
    return {name: value for name, value in asdict(preset).items() if name not in ("ways", "shares")}


def measure(
    preset: Preset, device: str, kept: Path, criteria: Sequence[str] = CRITERIA
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the ways of fine-tuning, the best first, and rows: the network as it is, then each criterion and share.

    Each is kept as a file.
    """
    plan = preset.plan
    pixels, labels = (part.to(device) for part in plan.load("train"))
    asked = load_asked(plan, [OUTSIDE], preset.asked, device)
    model = load_cifar_resnet(preset.depth).to(device)
    networks = Whole(model, plan, preset.states, pixels, labels)
    x = networks.x
    ways = scored_ways(networks, preset, kept)
    best: dict[str, Way] = {}
    for row in ways:
        own = Way(**{field.name: row[field.name] for field in fields(Way)})
        best.setdefault(own.tuned_by, own)

    def whole() -> list[dict[str, Any]]:
        own = {"share": 1.0, "epochs": 0, "tuned": ""}
        small = quantised(model, x[: preset.images or 1000])
        times = seconds([copy.deepcopy(model).cpu(), small], asked.x[:TIMED])
        return [
            _scored(networks.posterior(model), asked, preset) | own | {"criterion": WHOLE, "bytes": 1.0, "time": 1.0},
            _as_softmax(model, asked) | own | {"criterion": SOFTMAX, "bytes": 1.0, "time": 1.0},
            _as_softmax(small, asked)
            | own
            | {"criterion": INT8, "bytes": _bytes(small) / _bytes(model), "time": times[1] / times[0]},
        ]

    @lru_cache(maxsize=1)
    def pruned(criterion: Any, share: float) -> tuple[nn.Module, dict[str, Any]]:
        small = networks.pruned(share, criterion)
        report = small.report(asked.x[:TIMED])
        assert report.before is not None
        assert report.after is not None
        times = seconds([copy.deepcopy(network).cpu() for network in (model, small.network)], asked.x[:TIMED])
        return small.network, {
            "criterion": criterion,
            "share": report.after.multiply_adds / report.before.multiply_adds,
            "bytes": report.bytes_after / report.bytes_before,
            "time": times[1] / times[0],
        }

    def smaller(criterion: Any, share: float, way: Way | None) -> list[dict[str, Any]]:
        network, told = pruned(criterion, share)
        own = {"epochs": preset.epochs if way else 0, "tuned": way.tuned_by if way else ""}
        if way is not None:
            network = networks.fine_tuned(copy.deepcopy(network), way)
        return [_scored(networks.posterior(network), asked, preset) | told | own]

    cases: dict[tuple[str, float, Way | None], Callable[[], list[dict[str, Any]]]] = {(WHOLE, 1.0, None): whole}
    for case in product(criteria, preset.shares, (None, *(best[who] for who in (LABELS, TEACHER) if who in best))):
        cases[case] = partial(smaller, *case)
    rows: list[dict[str, Any]] = []
    for (criterion, share, way), find in cases.items():
        tuned = f", {way.tuned_by}" if way else ""
        show_progress(f"ResNet-{preset.depth}: {criterion}, {share:g} of the multiply-adds{tuned}")
        settings = {"preset": _told(preset), "criterion": criterion, "share": share, "way": way and asdict(way)}
        name = f"{criterion}_{share:g}{tuned}".replace(", ", "_").replace(" ", "_")
        rows += measured_once(kept / f"{name}.json", settings, find)
    show_progress("")
    return ways, rows


def quantised(network: nn.Module, x: Tensor) -> nn.Module:
    """Return a network of 8-bit weights and activations for a CPU, batch norm folded into convolutions.

    Args:
        network: The network.
        x: Training rows, from which ranges of activations are taken.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will move its tools to a package of their own
        engine, rows = torch.backends.quantized.engine, x.cpu()
        watched = prepare_fx(copy.deepcopy(network).cpu().eval(), get_default_qconfig_mapping(engine), (rows[:1],))
        with torch.no_grad():
            watched(rows)
        return convert_fx(watched)


def seconds(networks: Sequence[nn.Module], x: Tensor) -> list[float]:
    """Return the time of each network's prediction on one CPU core."""
    with one_thread():
        return prediction_seconds(networks, x.cpu())


def _bytes(network: nn.Module) -> int:
    """Return the bytes of all tensors; those of quantised layers are packed in one entry for weight and bias."""
    total = 0
    for value in network.state_dict().values():
        for tensor in value if isinstance(value, tuple) else (value,):
            total += tensor.nbytes if isinstance(tensor, Tensor) else 0
    return total


def _scored(posterior: BatchNormPosterior, asked: Asked, preset: Preset) -> dict[str, Any]:
    """Return scores of what MCBN says."""
    return _scores(partial(posterior.predict, engine=bn.MonteCarlo(preset.states)), asked)


@torch.no_grad()
def _as_softmax(network: nn.Module, asked: Asked) -> dict[str, Any]:
    """Return scores of a network's predictions as they are."""
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))

    def predict(x: Tensor) -> Any:
        logits = torch.cat([network(part.to(device)) for part in x.split(500)])
        return bn.Categorical().predictive(logits[None].to(x.device))

    return _scores(predict, asked)


def _scores(predict: Any, asked: Asked) -> dict[str, Any]:
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
    head = ("criterion", "multiply-adds", "bytes", "time", "epochs", "tuned by", *SCORES)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        scores = " | ".join(f"{row[name]:.3f}" for name in SCORES)
        sizes = " | ".join(f"{row[name]:.2f}" for name in ("share", "bytes", "time"))
        lines.append(f"| {row['criterion']} | {sizes} | {row['epochs']} | {row['tuned']} | {scores} |")
    return "\n".join(lines)


LINES = {"": "-", LABELS: ":", TEACHER: "-"}


def draw(rows: Sequence[dict[str, Any]]) -> Axes:
    """Draw every score against the share of multiply-adds, networks as they were cut above fine-tuned ones."""
    (whole,) = (row for row in rows if row["criterion"] == WHOLE)
    others = [row for row in rows if row["criterion"] in (SOFTMAX, INT8)]
    above, below = panels(2, len(SCORES))
    for axes, tunings in ((above, ("",)), (below, (TEACHER, LABELS))):
        for ax, score in zip(axes, SCORES, strict=True):
            for (number, criterion), tuned in product(enumerate(CRITERIA), tunings):
                colour, _, marker = style.current().look(number)
                own = [row for row in rows if row["criterion"] == criterion and row["tuned"] == tuned]
                points = sorted((row["share"], row[score]) for row in [whole, *own])
                label = f"{criterion}, by {tuned}" if tuned else criterion
                ax.plot(*zip(*points, strict=True), ls=LINES[tuned], marker=marker, color=colour, label=label)
            for number, row in enumerate(others, len(CRITERIA)):
                colour, _, marker = style.current().look(number)
                ax.plot(row["share"], row[score], ls="", marker=marker, color=colour, label=row["criterion"])
            ax.set_xlabel("share of the multiply-adds")
            ax.set_ylabel(f"{score}, fine-tuned" if axes is below else f"{score}, as cut")
        axes[0].legend()
    set_figure_title(above[0], "channels taken out of a trained ResNet")
    return above[0]
