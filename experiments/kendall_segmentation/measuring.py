"""What networks that differ in task, number of frames and light say about test frames of both lights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
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
"""Which frames networks are trained on, and what their number is divided by."""

NEITHER, EPISTEMIC, ALEATORIC, BOTH = "neither", "epistemic", "aleatoric", "both"
KINDS = (NEITHER, EPISTEMIC, ALEATORIC, BOTH)
TASKS = {
    NEITHER: Task.classes,
    EPISTEMIC: Task.classes,
    ALEATORIC: Task.noisy_logits,
    BOTH: Task.noisy_logits,
}


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        network: One of the segmentation networks.
        recipe: The preset of its recipe.
        frames: Training frames of the largest networks, or as many as there are.
        epochs: Passes over all frames; networks on fewer frames take as many steps.
        draws: T.
        states: Batches whose statistics are kept.
        asked: Test frames; None means all.
    """

    network: str
    recipe: str
    frames: int
    epochs: int
    draws: int
    states: int
    asked: int | None


PRESETS = {
    Size.quick: Preset("small-unet", "quick", frames=48, epochs=10, draws=8, states=16, asked=16),
    Size.paper: Preset("unet", "paper", frames=FRAMES["train"], epochs=80, draws=20, states=36, asked=None),
}


@dataclass(frozen=True)
class Networks:
    """The networks, trained when they are needed.

    Args:
        preset: How much is measured.
        folder: Where they are kept.
        device: Where they run.
    """

    preset: Preset
    folder: Path
    device: str

    def plan(self, task: Task, case: str) -> SegmentationPlan:
        """Return how the network of a task and a case is trained."""
        light = Light.day if case == DAY else Light.any
        count = self.preset.frames // SHARES[case]
        epochs = self.preset.epochs * self.preset.frames // count
        return SegmentationPlan.of(
            self.preset.network, self.preset.recipe, task=task, light=light, images=count, epochs=epochs
        )

    def name(self, task: Task, case: str) -> str:
        """Return what a network's files are called."""
        return f"{self.preset.network}_{task}_{case.replace('/', '_')}"

    def train_missing(self, workers: int) -> None:
        """Train several networks at once, where that is asked for."""
        plans = {self.name(task, case): self.plan(task, case) for task in Task for case in SHARES}
        train_together(plans, self.folder, self.device, workers)

    def trained(self, task: Task, case: str) -> tuple[nn.Module, SegmentationPlan]:
        """Return a network and its plan."""
        show_progress(f"{self.name(task, case)}: training, unless it was")
        plan = self.plan(task, case)
        return trained_network(plan, self.folder, self.name(task, case), self.device)[0], plan

    def posterior(self, task: Task, case: str, *, drawn: bool = True) -> tuple[Posterior, SegmentationPlan]:
        """Return a network under MCBN, or as it is, and its plan."""
        network, plan = self.trained(task, case)
        if not drawn:
            return bn.point(network, plan.likelihood), plan
        x, _ = plan.load("train")
        size = min(plan.recipe.batch_size, len(x) - 1)
        inputs = plan.transform().scaled(x.to(self.device))
        return bn.MCBN(size, self.preset.states).fit(network, inputs, plan.likelihood), plan

    def asked(self, plan: SegmentationPlan) -> tuple[Tensor, Tensor, dict[Light, slice]]:
        """Return test frames, as the network takes them, their targets, and which are of which light."""
        x, y = plan.frames("test", self.preset.asked)
        return plan.transform().scaled(x.to(self.device)), y.to(self.device), lights_of("test", self.preset.asked)


def measure(made: Networks, kept: Path) -> dict[str, Any]:
    """Return scores of classes by frames, kind of doubt and light, and of the red channel by frames and light."""
    found: dict[str, Any] = {"classes": {}, "red": {}}
    for case in SHARES:
        for kind in KINDS:
            path, settings = kept / f"{made.name(TASKS[kind], case)}_{kind}.json", {**asdict(made.preset), "kind": kind}
            own = measured_once(path, settings, partial(_of_classes, made, case, kind))
            found["classes"].setdefault(case, {})[kind] = own
        path = kept / f"{made.name(Task.red, case)}.json"
        found["red"][case] = measured_once(path, asdict(made.preset), partial(_of_red, made, case))
    return found


@torch.no_grad()
def _of_classes(made: Networks, case: str, kind: str) -> dict[str, Any]:
    posterior, plan = made.posterior(TASKS[kind], case, drawn=kind in (EPISTEMIC, BOTH))
    x, y, lights = made.asked(plan)
    frames = Frames.of(x, y)
    said = ask(posterior, frames, made.preset.draws)
    return {str(light): scores(said.part(rows), frames.part(rows)) for light, rows in lights.items()}


@torch.no_grad()
def _of_red(made: Networks, case: str) -> dict[str, Any]:
    posterior, plan = made.posterior(Task.red, case)
    x, y, lights = made.asked(plan)
    said = ask_red(posterior, x, y, made.preset.draws)
    return {str(light): red_scores(*(part[rows] for part in said)) for light, rows in lights.items()}
