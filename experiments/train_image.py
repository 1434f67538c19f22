"""Train one of the image experiments' networks and store it with accuracy and timings."""

from __future__ import annotations

from typing import Annotated

import typer

from .image_networks.datasets import DATASETS
from .image_networks.networks import NETWORKS
from .image_networks.training import Plan, trained_network
from .options import OUT, Compiled, CompiledSteps, FastestDevice, OutFolder, Size, fastest


def main(
    network: Annotated[str, typer.Argument(help=f"One of {', '.join(NETWORKS)}.")],
    data: Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")] = "cifar10",
    preset: Annotated[
        Size, typer.Option(help="The recipe: a short test on a CPU (quick), or that of the documented results (paper).")
    ] = Size.quick,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and transforms.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Number of epochs. [default: the recipe's]")] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="Images per step. [default: the recipe's]")] = None,
    images: Annotated[
        int | None, typer.Option(min=2, help="Number of training images, the first ones. [default: the recipe's]")
    ] = None,
    dropout: Annotated[float | None, typer.Option(min=0.0, help="Dropout rate. [default: the recipe's]")] = None,
    compiled: CompiledSteps = Compiled.graph,
    name: Annotated[str | None, typer.Option(help="Name of the files. [default: network_data_seed]")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Train a network on images; continue an interrupted training, or show a finished one.

    Writes NAME.safetensors, with kernels and matrices in half precision, and NAME.json. The preset paper needs all
    images.

    \b
    python -m experiments train-image resnet32 --preset paper --out out/networks
    """
    place = fastest(device)
    changes = {"epochs": epochs, "batch_size": batch_size, "images": images, "dropout": dropout}
    plan = Plan.from_preset(network, data, preset, seed, compiled.mode, **changes)
    _, told = trained_network(plan, out, name or f"{network}_{data}_{seed}", place)
    seconds = told["seconds"]
    print(
        f"{network} on {told['training images']:,} images of {data}: accuracy {told['accuracy']:.4f}, "
        f"NLL {told['nll']:.4f} on {told['test images']:,}; {seconds['all']:.0f} s "
        f"({seconds['first epoch']:.1f} s the first epoch, {seconds['later epoch']:.2f} s a later one)"
    )
    print(f"{told['images per second']:,.0f} images per second")
