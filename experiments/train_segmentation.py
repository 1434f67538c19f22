"""Train a network on CamVid's road scenes, and store it with its mean IoU, published ones, and timings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .image_networks.training import trained_network
from .options import OUT, Compiled, CompiledSteps, FastestDevice, OutFolder, Size, fastest
from .segmentation.frames import Light
from .segmentation.plans import NETWORKS, SegmentationPlan, Task

# Published global accuracy and mean IoU on the same 233 test images, trained on the same 367, all at 360 x 480.
PUBLISHED = {
    "SegNet from scratch (github.com/toimcio/SegNet-tensorflow)": (0.813, 0.425),
    "Bayesian SegNet from scratch (github.com/toimcio/SegNet-tensorflow)": (0.827, 0.475),
    "FC-DenseNet103 from scratch (Jégou et al. 2017)": (0.915, 0.669),
}


def main(
    network: Annotated[str, typer.Argument(help=f"One of {', '.join(NETWORKS)}.")] = "small-unet",
    task: Annotated[Task, typer.Option(help="The task: classes, classes with noise of logits, or red from green.")] = (
        Task.classes
    ),
    light: Annotated[Light, typer.Option(help="The light of the training images.")] = Light.any,
    preset: Annotated[
        Size,
        typer.Option(
            help="The recipe: a short test on a CPU at 90 x 120 (quick), or the documented results at 180 x 240 "
            "(paper)."
        ),
    ] = Size.quick,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and transforms.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Number of epochs. [default: the recipe's]")] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="Images per step. [default: the recipe's]")] = None,
    images: Annotated[int | None, typer.Option(min=2, help="Number of training images, evenly spaced.")] = None,
    dropout: Annotated[float | None, typer.Option(min=0.0, help="Dropout rate. [default: the recipe's]")] = None,
    compiled: CompiledSteps = Compiled.no,
    name: Annotated[str | None, typer.Option(help="Name of the files. [default: network_task_seed]")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Train a segmentation network on CamVid; continue an interrupted training, or show a finished one.

    Writes NAME.safetensors, with kernels and matrices in half precision, and NAME.json.

    \b
    python -m experiments train-segmentation segnet --dropout 0.5 --preset paper --out out/networks
    """
    place = fastest(device)
    changes = {"epochs": epochs, "batch_size": batch_size, "images": images, "dropout": dropout}
    plan = SegmentationPlan.from_preset(
        network, preset, seed, task=task, light=light, compiled=compiled.mode, **changes
    )
    _, told = trained_network(plan, out, name or f"{network}_{task}_{seed}", place)
    print(text(told))


def text(told: dict[str, Any]) -> str:
    """Return information about a network as text, with published results for the same images."""
    seconds = told["seconds"]
    origin = f"{told['network']} on {told['training images']} frames: "
    spent = (
        f"NLL {told['nll']:.3f} on {told['test images']}; {seconds['all']:.0f} s, {seconds['later epoch']:.2f} an epoch"
    )
    if "mean IoU" not in told:
        return f"{origin}mean absolute error {told['mean absolute error']:.4f}, {spent}"
    lines = [
        f"{origin}mean IoU {told['mean IoU']:.3f}, accuracy {told['accuracy']:.3f}, class accuracy "
        f"{told['class accuracy']:.3f}, {spent}",
        "published, at 360 x 480:",
    ]
    lines += [f"  {name}: mean IoU {iou:.3f}, accuracy {right:.3f}" for name, (right, iou) in PUBLISHED.items()]
    return "\n".join(lines)
