"""Measure networks that differ in task, number of training images and light, on test images of both lights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.posterior import Posterior

from ..evidence import show_progress
from ..image_networks.training import train_together, trained_network
from ..options import Size
from ..pieces import measured_once
from ..segmentation.frames import FRAMES, Light, lights_of
from ..segmentation.pixels import Frames, ask, scores
from ..segmentation.plans import SegmentationPlan, Task
from .red import ask_red, red_scores

QUARTER, HALF, ALL, DAY = "1/4", "1/2", "all", "day"
SHARES = {QUARTER: 4, HALF: 2, ALL: 1, DAY: 1}
"""The training images of networks, and the divisor of their number."""

MCBN, DROPOUT = "MCBN", "dropout"
METHODS = (MCBN, DROPOUT)
"""Sources of epistemic uncertainty, on the same networks: MC dropout as in Kendall and Gal, and MCBN."""

NEITHER, EPISTEMIC, ALEATORIC, BOTH = "neither", "epistemic", "aleatoric", "both"


def kind_name(uncertainty: str, method: str) -> str:
    """Return the name of a kind of uncertainty with the source of its epistemic part."""
    return f"{uncertainty}, {method}"


KINDS: dict[str, tuple[Task, str | None]] = {
    NEITHER: (Task.classes, None),
    **{kind_name(EPISTEMIC, method): (Task.classes, method) for method in METHODS},
    ALEATORIC: (Task.noisy_logits, None),
    **{kind_name(BOTH, method): (Task.noisy_logits, method) for method in METHODS},
}
"""Kinds of uncertainty about classes: the task of the network, and how it is sampled."""


@dataclass(frozen=True)
class Preset:
    """How much to measure.

    Args:
        network: One of the segmentation networks.
        recipe: The preset of its recipe.
        dropout: Dropout rate.
        frames: Number of training images of the largest networks; None for all.
        epochs: Epochs with all images; networks with fewer images take as many steps.
        samples: T, the number of samples.
        states: Number of batches whose statistics are kept.
        asked: Number of test images; None means all.
    """

    network: str
    recipe: str
    dropout: float
    frames: int
    epochs: int
    samples: int
    states: int
    asked: int | None


PRESETS = {
    Size.quick: Preset("small-unet", "quick", 0.1, frames=48, epochs=8, samples=8, states=16, asked=12),
    Size.paper: Preset("unet", "paper", 0.2, frames=FRAMES["train"], epochs=80, samples=20, states=36, asked=None),
}


@dataclass(frozen=True)
class Networks:
    """The networks, trained when they are needed.

    Args:
        preset: How much to measure.
        folder: Folder for trained networks.
        device: The device.
    """

    preset: Preset
    folder: Path
    device: str

    def plan(self, task: Task, case: str) -> SegmentationPlan:
        """Return the training plan of the network for a task and a case."""
        light = Light.day if case == DAY else Light.any
        count = self.preset.frames // SHARES[case]
        epochs = self.preset.epochs * self.preset.frames // count
        changes: dict[str, Any] = {"images": count, "epochs": epochs, "dropout": self.preset.dropout}
        return SegmentationPlan.from_preset(self.preset.network, self.preset.recipe, task=task, light=light, **changes)

    def name(self, task: Task, case: str) -> str:
        """Return the file name of a network."""
        return f"{self.preset.network}_{task}_{case.replace('/', '_')}"

    def train_missing(self, workers: int) -> None:
        """Train several networks at once, if requested."""
        plans = {self.name(task, case): self.plan(task, case) for task in Task for case in SHARES}
        train_together(plans, self.folder, self.device, workers)

    def trained(self, task: Task, case: str) -> tuple[nn.Module, SegmentationPlan]:
        """Return a network and its plan."""
        show_progress(f"{self.name(task, case)}: training, unless already trained")
        plan = self.plan(task, case)
        return trained_network(plan, self.folder, self.name(task, case), self.device)[0], plan

    def posterior(self, task: Task, case: str, method: str | None) -> tuple[Posterior, SegmentationPlan]:
        """Return a network with one of `METHODS`, or deterministic, and its plan."""
        network, plan = self.trained(task, case)
        if method is None:
            return bn.deterministic(network, plan.likelihood), plan
        if method == DROPOUT:
            return bn.MCDropout().fit(network, likelihood=plan.likelihood), plan
        x, _ = plan.load("train")
        size = min(plan.recipe.batch_size, len(x) - 1)
        inputs = plan.transform().scaled(x.to(self.device))
        return bn.MCBN(size, self.preset.states).fit(network, inputs, plan.likelihood), plan

    @cached_property
    def frames(self) -> tuple[Frames, dict[Light, slice]]:
        """Return the test images with their labels, the same for all classification networks, and their light."""
        x, y, lights = self.asked(self.plan(Task.classes, ALL))
        return Frames.with_distances(x, y), lights

    def asked(self, plan: SegmentationPlan) -> tuple[Tensor, Tensor, dict[Light, slice]]:
        """Return test images as network input, their targets, and their light."""
        x, y = plan.frames("test", self.preset.asked)
        return plan.transform().scaled(x.to(self.device)), y.to(self.device), lights_of("test", self.preset.asked)


def measure(made: Networks, stored: Path) -> dict[str, Any]:
    """Return scores of classes and of red by training images and light, for each uncertainty and method."""
    results: dict[str, Any] = {"classes": {}, "red": {}}
    for case in SHARES:
        for kind, (task, method) in KINDS.items():
            path = stored / f"{made.name(task, case)}_{method}.json"
            scores = measured_once(path, asdict(made.preset), partial(_of_classes, made, task, case, method))
            results["classes"].setdefault(case, {})[kind] = scores
        for method in METHODS:
            path = stored / f"{made.name(Task.red, case)}_{method}.json"
            scores = measured_once(path, asdict(made.preset), partial(_of_red, made, case, method))
            results["red"].setdefault(case, {})[method] = scores
    return results


@torch.no_grad()
def _of_classes(made: Networks, task: Task, case: str, method: str | None) -> dict[str, Any]:
    posterior, _ = made.posterior(task, case, method)
    frames, lights = made.frames
    said = ask(posterior, frames, made.preset.samples)
    return {str(light): scores(said.part(rows), frames.part(rows)) for light, rows in lights.items()}


@torch.no_grad()
def _of_red(made: Networks, case: str, method: str) -> dict[str, Any]:
    posterior, plan = made.posterior(Task.red, case, method)
    x, y, lights = made.asked(plan)
    said = ask_red(posterior, x, y, made.preset.samples)
    return {str(light): red_scores(*(part[rows] for part in said)) for light, rows in lights.items()}
