"""The networks: one with published weights, and networks trained here.

Networks trained here are in one folder, as `python -m experiments train-image teye-resnet32` writes them. Those with
dropout are for MC dropout. The others, in the order of their files, are the members of a deep ensemble, and the first
of them is the network of the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

import bayesnorm as bn
from bayesnorm.cli.ending import UsageError

from ..image_networks.recipes import Recipe
from ..image_networks.training import Plan, trained_network
from ..networks import load_cifar_resnet
from .gathering import Gathering
from .methods import Images, Predicted, drawn
from .presets import Preset

NETWORK, DATA = "teye-resnet32", "cifar10"
GIVEN, TRAINED = "ResNet-32, given weights", "ResNet-32, trained here"


@dataclass(frozen=True, eq=False)
class TrainedNetworks:
    """Networks that were trained here.

    Args:
        members: Networks without dropout, each with other initial weights.
        seeds: The seed of each of them.
        dropped: One that was trained with dropout, or None.
    """

    members: Sequence[nn.Module] = ()
    seeds: Sequence[int] = ()
    dropped: nn.Module | None = None

    def predict(self, images: Images, preset: Preset, gathering: Gathering) -> tuple[list[Predicted], list[str]]:
        """Return the predictions of these networks as an ensemble and with dropout, and messages about missing ones."""
        likelihood, result, missing = bn.Categorical(), list[Predicted](), list[str]()
        if self.dropped is None:
            missing.append("MC dropout: no network that was trained with dropout is there")
        else:
            dropout = bn.MCDropout().fit(self.dropped, images.train, likelihood)
            outputs = drawn(gathering, dropout, images.test, preset.other_samples, "MC dropout")
            result.append(Predicted("MC dropout", outputs))
        members = len(self.members)
        if members < 2:
            missing.append(f"deep ensemble: it needs two trained networks, and the folder has {members}")
        else:
            name = f"deep ensemble of {members}"
            together = bn.ensemble(self.members, likelihood)
            result.append(Predicted(name, drawn(gathering, together, images.test, members, name), whole=True))
        return result, missing


def given_network() -> nn.Module:
    """Return the network whose weights are in the data folder."""
    return load_cifar_resnet(32)


def trained_networks(folder: Path | None, device: str) -> TrainedNetworks:
    """Return the networks of a folder, or none without a folder."""
    if folder is None:
        return TrainedNetworks()
    members, seeds, dropped = list[nn.Module](), list[int](), list[nn.Module]()
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        if (told.get("network"), told.get("data")) == (NETWORK, DATA):
            recipe = Recipe(**told["recipe"])
            network, _ = trained_network(Plan(NETWORK, DATA, recipe, told["seed"]), folder, path.stem, device)
            if recipe.dropout:
                dropped.append(network)
            else:
                members.append(network)
                seeds.append(told["seed"])
    if not members:
        raise UsageError(
            f"--networks: {folder} has no {NETWORK} without dropout. Run train-image {NETWORK} to make one."
        )
    return TrainedNetworks(members, seeds, dropped[0] if dropped else None)
