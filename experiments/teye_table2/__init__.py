"""Table 2 of the MCBN paper: the log likelihood of MCBN on CIFAR-10 by number of samples, on a ResNet-32.

In addition to the table, with a verdict for each of its cells (`verdicts.py`), other methods are scored on the same
network (`methods.py`), with their cost in forward passes. Networks (`networks.py`) are the published one and networks
trained here. The first of those is scored by all methods. The table's own cells are repeated on each of them, with
mean and standard deviation over their seeds. Outputs of networks are stored (`gathering.py`), so an interrupted command
continues.

The paper's network differs: it is a pre-activation ResNet-32 with leaky units, trained with M = 32. The published one
has neither, and was trained with M = 128.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from bayesnorm.cli.ending import UsageError
from bayesnorm.network import isolated_torch_randomness
from bayesnorm.training import CropAndFlip

from ..data import IMAGENET_MEAN, IMAGENET_STD, load_cifar10, to_network_input, to_tensor
from ..evidence import show_progress, write_numbers, write_picture
from ..options import OUT, FastestDevice, OutFolder, fastest
from . import showing
from .gathering import Gathering
from .methods import SOFTMAX, UNAUGMENTED, Images, predict_all
from .networks import GIVEN, TRAINED, TrainedNetworks, given_network, trained_networks
from .peers import read_predictions
from .presets import PRESETS, Preset
from .scoring import score_all
from .verdicts import cells, claims


class Size(StrEnum):
    """How much to measure."""

    quick = "quick"
    given_networks = "given"
    paper = "paper"


def main(
    preset: Annotated[
        Size,
        typer.Option(
            help="Images and samples: a short test; 2,000 test images; or 10,000 of them, which needs --networks."
        ),
    ] = Size.quick,
    networks: Annotated[Path | None, typer.Option(help="Folder of networks that were trained here.")] = None,
    skip_given: Annotated[bool, typer.Option("--skip-given", help="Score only the networks of --networks.")] = False,
    peers: Annotated[Path | None, typer.Option(help="Folder of predictions that `make bench-peers` wrote.")] = None,
    outputs: Annotated[Path | None, typer.Option(help="Folder for outputs of networks. [default: in --out]")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Reproduce table 2 of the MCBN paper: log likelihood on CIFAR-10 by samples, and other methods.

    Existing outputs are not computed again. Needs the data folder.

    \b
    python -m experiments teye-table2 --preset quick --out out
    """
    chosen, where = PRESETS[preset], fastest(device)
    if networks is None and (preset is Size.paper or skip_given):
        needed_by = "--skip-given" if skip_given else f"The preset {preset}"
        raise UsageError(f"--networks is missing. {needed_by} needs a folder with trained networks.")
    gathering = Gathering(outputs or out / "teye_table2_outputs", show_progress)
    trained = trained_networks(networks, where)
    result = list(measure(chosen, trained, peers, gathering, where, skip_given=skip_given))
    show_progress("")
    for one in result:
        print(f"{showing.text(one)}\n")
    write_numbers(out / "teye_table2.json", {"preset": asdict(chosen), "networks": result}, where)
    for one in result:
        name = "teye_table2" if one["network"] == GIVEN else "teye_table2_trained"
        write_picture(out / f"{name}.png", showing.draw(one))


def measure(
    preset: Preset,
    trained: TrainedNetworks,
    peers: Path | None,
    gathering: Gathering,
    device: str,
    *,
    skip_given: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the scores of every network as plain values."""
    images = read_images(preset, device)
    networks: dict[str, nn.Module] = {} if skip_given else {GIVEN: given_network().to(device)}
    if trained.members:
        networks[TRAINED] = trained.members[0]
    for name, network in networks.items():
        predicted = predict_all(network, images, preset, gathering)
        left_out = ["MC dropout and a deep ensemble need networks that were trained here (--networks)"]
        by_seed = []
        if name == TRAINED:
            by_several, left_out = trained.predict(images, preset, gathering)
            predicted += by_several
            by_seed = [
                _table_of_seed(seed, member, images, preset, gathering)
                for seed, member in zip(trained.seeds, trained.members, strict=True)
            ]
        if peers is None:
            left_out.append("other libraries: --peers was not given")
        else:
            by_peers, not_read = read_predictions(peers, network, preset.images)
            predicted, left_out = [*predicted, *by_peers], [*left_out, *not_read]
        scores = score_all(predicted, images.labels)
        yield {
            "network": name,
            "images": preset.images,
            "cells": [asdict(cell) for cell in cells(scores)],
            "cells_unaugmented": [asdict(cell) for cell in cells(scores, UNAUGMENTED)],
            "claims": [asdict(claim) for claim in claims(scores)],
            "rows": scores.as_json(),
            "by_seed": by_seed,
            "left_out": left_out,
        }


def _table_of_seed(
    seed: int, network: nn.Module, images: Images, preset: Preset, gathering: Gathering
) -> dict[str, Any]:
    """Return the table of one trained network as plain values."""
    scores = score_all(predict_all(network, images, preset, gathering, table_only=True), images.labels)
    return {
        "seed": seed,
        "accuracy": scores.score(SOFTMAX).accuracy,
        "cells": [asdict(cell) for cell in cells(scores)],
        "cells_unaugmented": [asdict(cell) for cell in cells(scores, UNAUGMENTED)],
        "claims": [asdict(claim) for claim in claims(scores)],
    }


def read_images(preset: Preset, device: str) -> Images:
    """Return the images of a preset."""
    train, _ = load_cifar10("train", preset.train_images)
    test, labels = load_cifar10("test", preset.images)
    x, y = to_network_input(test).to(device), torch.as_tensor(labels).to(device)
    seen = CropAndFlip(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    with isolated_torch_randomness(0):
        augmented = seen(to_tensor(train)).contiguous()  # on a CPU: the same on all devices
    return Images(to_network_input(train).to(device), augmented.to(device), x, y)
