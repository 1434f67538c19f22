"""Bayesian compression (Louizos, Ullrich and Welling 2017): how small networks become, compared with the paper.

LeNet-300-100 and LeNet-5-Caffe on MNIST and a VGG with batch norm on CIFAR-10 are trained, and then trained further
with the group priors. Units that are noise are removed, and weights are rounded. Thresholds and bits are chosen, for
several tolerances, on 5,000 held-out training images and on 15,000 others, because 5,000 alone remove too much. The
smaller network is then fine-tuned by distillation from the original one, and its weights are rounded again. Error,
sizes and multiply-adds are those of the smaller network on test images, before and after that. Times are for batches of
64 on one CPU core.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

import bayesnorm as bn
from bayesnorm.arguments import require_positive
from bayesnorm.compression import Compressed, prediction_seconds
from bayesnorm.methods import GroupHorseshoe, GroupNormalJeffreys
from bayesnorm.posterior import VariationalPosterior
from bayesnorm.tabular.stacked import one_thread
from bayesnorm.training import CropAndFlip, relative_adam, train

from .data import load_mnist, to_tensor
from .evidence import show_progress, write_numbers, write_picture
from .image_networks.datasets import image_set, load_images
from .image_networks.recipes import set_up_device
from .known_names import require_known
from .networks import VGG, LeNet5
from .options import OUT, FastestDevice, MeasuredSize, OutFolder, Size, fastest
from .panels import panels, set_figure_title
from .pieces import measured_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HELD_OUT, TIMED, COLUMNS = 5000, 64, 5


def lenet_300_100() -> nn.Module:
    """Return LeNet-300-100, which has only linear layers."""
    layers = [nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


NETWORKS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "lenet-300-100": ("mnist", lenet_300_100),
    "lenet-5-caffe": ("mnist", partial(LeNet5, widths=(20, 50, 500), padding=0, batchnorm=False)),
    "vgg": ("cifar10", partial(VGG, 16)),
}
"""The data set of a network, and the function that makes it."""

PRIORS = {"normal-jeffreys": GroupNormalJeffreys, "horseshoe": GroupHorseshoe}

LOOKS = {"mnist": 32, "cifar10": 4}
"""How many groups of a layer are tried one by one, by data set: evaluating VGG takes long."""

PUBLISHED = {
    ("lenet-5-caffe", "sparse VD"): (1.0, 63, 228),
    ("lenet-5-caffe", "normal-jeffreys"): (1.0, 108, 361),
    ("lenet-5-caffe", "horseshoe"): (1.0, 156, 419),
    ("vgg", "normal-jeffreys"): (8.6, 14, 56),
    ("vgg", "horseshoe"): (9.0, 18, 59),
}
"""Error in percent, and compression factors by pruning and with bits."""


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        epochs: Epochs of training the posterior.
        point_epochs: Epochs before, in which the network is trained without uncertainty; the posterior starts from it.
        kl_warmup: Epochs in which the weight of the divergence rises.
        learning_rate: Learning rate of Adam.
        batch_size: Images per step.
        images: Training images, including held-out ones; None for all.
        kl_weight: Weight of the divergence.
        judged_by: Images that choose thresholds and bits: the held-out ones, and the first training images.
        tolerances: How much the loss on these may rise.
    """

    epochs: int
    point_epochs: int
    kl_warmup: int
    learning_rate: float
    batch_size: int = 128
    images: int | None = None
    taught: int = 20  # epochs of distillation from the original network
    kl_weight: float = 1.0
    judged_by: int = 20_000
    tolerances: tuple[float, ...] = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02)


PRESETS = {Size.quick: Preset(12, 3, 6, 2e-3, images=25_000, taught=1), Size.paper: Preset(200, 10, 100, 1e-3)}


def main(
    preset: MeasuredSize = Size.quick,
    network: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(NETWORKS)}. [default: the first]")
    ] = None,
    prior: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(PRIORS)}. [default: both]")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=2, help="Number of epochs; half of them are warm-up. [default: the preset's]")
    ] = None,
    tolerance: Annotated[
        list[float] | None, typer.Option(min=0.0, help="How much the loss may rise. [default: the preset's]")
    ] = None,
    kl_weight: Annotated[float, typer.Option(help="Weight of the divergence: a lower weight keeps more units.")] = 1.0,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Measure how many units and bits networks need with group priors, and the effect on error and time.

    Trains missing posteriors. The folder keeps posteriors, smaller networks and plots of their weights.

    \b
    python -m experiments compression --network lenet-5-caffe --prior horseshoe --preset paper --out out
    """
    require_positive("--kl-weight", kl_weight)
    chosen, where = replace(PRESETS[preset], kl_weight=kl_weight), fastest(device)
    if epochs is not None:
        chosen = replace(chosen, epochs=epochs, kl_warmup=epochs // 2)
    if tolerance:
        chosen = replace(chosen, tolerances=tuple(tolerance))
    networks, priors = network or [next(iter(NETWORKS))], prior or list(PRIORS)
    require_known("--network", networks, NETWORKS)
    require_known("--prior", priors, PRIORS)
    set_up_device(where)
    folder = out / "compression"
    rows: list[dict[str, Any]] = []
    for name in networks:
        for kind in priors:
            rows += Case(chosen, name, kind, folder, where).measured()
    print(text(rows))
    write_numbers(out / "compression.json", {"preset": asdict(chosen), "rows": rows}, where)


@dataclass(frozen=True)
class Case:
    """A network with a prior; results are stored in files.

    Args:
        preset: How much to measure.
        network: One of `NETWORKS`.
        prior: One of `PRIORS`.
        folder: Folder for files.
        device: The device.
    """

    preset: Preset
    network: str
    prior: str
    folder: Path
    device: str

    def measured(self) -> list[dict[str, Any]]:
        """Return the results for each tolerance."""
        settings = {name: value for name, value in asdict(self.preset).items() if name != "tolerances"}
        results = []
        for tolerance in self.preset.tolerances:
            piece = self._file(f"{tolerance}.json")
            results += measured_once(piece, settings | {"tolerance": tolerance}, partial(self._compressed, tolerance))
        show_progress("")
        return results

    def _compressed(self, tolerance: float) -> list[dict[str, Any]]:
        """Compress and distil the network, and return its numbers before and after distillation."""
        preset, transform, posterior = self.preset, transforms(self._data), self._posterior
        self._show(f"compressing with a tolerance of {tolerance}")
        x, y = self._judging
        small = bn.compress(posterior, transform.scaled(x), y, tolerance=tolerance, looks=LOOKS[self._data])
        pixels, labels = images(self._data, "test", None if preset.images is None else HELD_OUT, self.device)
        results = []
        for epochs in (0, preset.taught):
            if epochs:
                small = taught(small, self._seen[0], preset, transform)
            file = self._file(f"{tolerance}{'_taught' if epochs else ''}.safetensors")
            small.save(file)
            told = {"network": self.network, "prior": self.prior, "epochs": preset.epochs}
            told |= {"kl_weight": preset.kl_weight, "tolerance": tolerance, "taught": epochs}
            results.append(told | numbers(small, transform.scaled(pixels), labels, file))
        write_picture(self._file(f"{tolerance}.png"), draw(small, f"{self.network}, {self.prior}"))
        return results

    @cached_property
    def _posterior(self) -> Any:
        """Return the posterior, trained if its file is missing."""
        model = NETWORKS[self.network][1]().to(self.device)
        count = sum(len(x) for x, _ in self._parts)
        path = self._file(f"{self.preset.epochs}x{count}.bayesnorm")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fit(self.preset, model, self.prior, self._seen, transforms(self._data), self._show).save(path)
        return bn.load(path, model)

    @property
    def _data(self) -> str:
        """Return the name of the data set."""
        return NETWORKS[self.network][0]

    @cached_property
    def _parts(self) -> list[tuple[Tensor, Tensor]]:
        """Return the images used in training, and the held-out ones, which are the last."""
        x, y = images(self._data, "train", self.preset.images, self.device)
        count = min(HELD_OUT, len(x) // 5)
        return [(x[:-count], y[:-count]), (x[-count:], y[-count:])]

    @property
    def _seen(self) -> tuple[Tensor, Tensor]:
        return self._parts[0]

    @property
    def _judging(self) -> tuple[Tensor, Tensor]:
        """Return the images that choose thresholds and bits: held-out ones, and some of the training images."""
        (x, y), (own_x, own_y) = self._parts
        more = max(self.preset.judged_by - len(own_x), 0)
        return torch.cat([own_x, x[:more]]), torch.cat([own_y, y[:more]])

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self.network}_{self.prior}_{self.preset.kl_weight:g}_{ending}"

    def _show(self, words: str) -> None:
        show_progress(f"{self.network}, {self.prior}: {words}")


def fit(
    preset: Preset,
    model: nn.Module,
    prior: str,
    rows: tuple[Tensor, Tensor],
    transform: CropAndFlip,
    show: Callable[[str], None],
) -> VariationalPosterior:
    """Train a network, and then a posterior from there."""
    show("training without uncertainty")
    common = _steps(preset, rows[0], transform)
    train(
        model,
        rows,
        loss=cross_entropy,
        epochs=preset.point_epochs,
        optimiser=partial(Adam, lr=1e-3, fused=True),
        seed=0,
        **common,
    )
    method = PRIORS[prior](
        epochs=preset.epochs,
        learning_rate=preset.learning_rate,
        kl_warmup=preset.kl_warmup,
        kl_weight=preset.kl_weight,
        start="trained",
        **common,
    )
    return method.fit(model, rows, bn.Categorical(), progress=lambda done, total: show(f"epoch {done} of {total}"))


def taught(small: Compressed, x: Tensor, preset: Preset, transform: CropAndFlip) -> Compressed:
    """Return a smaller network after distillation from the original one, with its weights rounded again."""
    bn.training.distill(
        small.network,
        small.before,
        x,
        temperature=2.0,
        epochs=preset.taught,
        optimiser=partial(relative_adam, share=0.03, fused=True),
        schedule=partial(CosineAnnealingLR, T_max=preset.taught),
        seed=0,
        **_steps(preset, x, transform),
    )
    return small.rounded(transform.scaled(x[:HELD_OUT]))


def _steps(preset: Preset, x: Tensor, transform: CropAndFlip) -> dict[str, Any]:
    """Return the options of training steps."""
    colours = x.shape[1] > 1  # its convolutions are large; digits take little time
    return {
        "batch_size": preset.batch_size,
        "transform": transform,
        "compiled": "graph",
        "mixed_precision": colours,
    }


def numbers(small: Compressed, x: Tensor, y: Tensor, file: Path) -> dict[str, Any]:
    """Return the numbers of a smaller network; times are for one CPU core."""
    report = small.report(x, y)
    assert report.before is not None
    assert report.after is not None
    weights = [layer for layer in report.layers if len(layer.after) > 1]
    with one_thread():
        networks = [copy.deepcopy(network).cpu() for network in (small.before, small.network)]
        seconds = prediction_seconds(networks, x[:TIMED].cpu())
    return {
        "units": "-".join(str(layer.after[len(layer.after) == 2]) for layer in weights),
        "bits": "-".join(str(layer.bits) for layer in weights),
        "numbers": [report.parameters_before, report.parameters_after],
        "bytes": [report.bytes_before, report.bytes_after],
        "header_bytes": file.stat().st_size - report.bytes_after,
        "multiply_adds": [report.before.multiply_adds, report.after.multiply_adds],
        "milliseconds": [1e3 * time for time in seconds],
        "nll": [report.before.loss, report.after.loss],
        "error": [report.before.error, report.after.error],
        "kept": report.unremovable,
    }


def images(data: str, split: str, count: int | None, device: str) -> tuple[Tensor, Tensor]:
    """Return images as bytes, digits with their 28 x 28 pixels, and labels."""
    if data == "mnist":
        pixels, labels = load_mnist(split, count)
        x, y = to_tensor(pixels), torch.from_numpy(labels).long()
    else:
        x, y = load_images(data, split, count)
    return x.to(device), y.to(device)


def transforms(data: str) -> CropAndFlip:
    """Return the transform of training images; digits are only scaled to 0 to 1."""
    if data == "mnist":
        return CropAndFlip(0, flip=False)
    made = image_set(data)
    return CropAndFlip(made.padding, made.flip, made.mean, made.std)


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of our and published numbers."""
    lines = [
        "| network | prior | KL weight | tolerance | distilled epochs | error, % | pruning | with bits | "
        "multiply-adds | time | units | bits |",
        "|---" * 12 + "|",
    ]
    for network in dict.fromkeys(row["network"] for row in rows):
        for (name, prior), (error, pruned, packed) in PUBLISHED.items():
            if name == network:
                lines.append(f"| {name} | {prior}, published | | | | {error} | {pruned}x | {packed}x | | | | |")
        for row in (row for row in rows if row["network"] == network):
            times = (
                f"{row[key][0] / row[key][1]:.1f}x" for key in ("numbers", "bytes", "multiply_adds", "milliseconds")
            )
            errors = f"{100 * row['error'][0]:.2f} -> {100 * row['error'][1]:.2f}"
            asked = (f"{row[key]:g}" for key in ("kl_weight", "tolerance", "taught"))
            told = (network, row["prior"], *asked, errors, *times, row["units"], row["bits"])
            lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


def draw(small: Compressed, title: str) -> Figure:
    """Plot the absolute weights of every layer before and, below, after compression."""
    from matplotlib.ticker import MaxNLocator

    before, after = (dict(network.named_parameters()) for network in (small.before, small.network))
    names = [name for name, value in after.items() if value.dim() > 1]
    strips = [names[start : start + COLUMNS] for start in range(0, len(names), COLUMNS)]
    rows = panels(2 * len(strips), len(strips[0]))
    for number, row in enumerate(rows):
        weights, when = (after, "after") if number % 2 else (before, "before")
        for ax, name in zip_longest(row, strips[number // 2]):
            if name is None:
                ax.set_visible(False)
                continue
            size = weights[name].detach().abs().flatten(1).cpu().numpy()
            limit = math.sqrt(float(weights[name].detach().square().mean())) * 3
            ax.imshow(size, aspect="auto", cmap="magma", vmin=0, vmax=limit, interpolation="nearest")
            ax.set_title(f"{name} {when}: {size.shape[0]} x {size.shape[1]}")
            ax.set(xlabel="inputs and positions" if weights[name].dim() > 2 else "inputs", ylabel="outputs")
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(5, integer=True))
            ax.grid(False)
    set_figure_title(rows[0][0], f"{title}: absolute weights, brighter is larger")
    figure = rows[0][0].get_figure(root=True)
    assert figure is not None
    return figure
