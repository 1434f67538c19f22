"""Train a network on images and store it: weights as safetensors, information about it as JSON."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from bayesnorm.errors import FileFormatError
from bayesnorm.files import read_tensors
from bayesnorm.training import CropAndFlip, History, Teacher, train
from bayesnorm.training.objective import Loss
from bayesnorm.writing import write_bytes

from ..known_names import require_known
from ..machine import machine
from .datasets import image_set, load_images
from .networks import NETWORKS
from .recipes import Recipe, recipe_for, set_up_device

# Images that are scored at once.
SCORED_AT_ONCE = 1000


@dataclass(frozen=True)
class Plan:
    """The network, its data and its training.

    Args:
        network: One of `NETWORKS`.
        data: One of `DATASETS`.
        recipe: The training recipe.
        seed: Determines initial weights, order and transforms.
        compiled: Whether, or in which mode, steps are compiled; "graph" records them, on a GPU.
    """

    network: str
    data: str
    recipe: Recipe
    seed: int = 0
    compiled: bool | str = "graph"

    targets_move: ClassVar[bool] = False
    """Whether targets are transformed together with their images."""

    @classmethod
    def from_preset(
        cls,
        network: str,
        data: str = "cifar10",
        preset: str = "quick",
        seed: int = 0,
        compiled: bool | str = "graph",
        **changes: Any,
    ) -> Plan:
        """Return the plan of a preset, with some entries of its recipe changed; None keeps an entry."""
        require_known("network", [network], NETWORKS)
        image_set(data)
        changed = {name: value for name, value in changes.items() if value is not None}
        return cls(network, data, replace(recipe_for(network, preset), **changed), seed, compiled)

    def new_network(self) -> nn.Module:
        """Return the untrained network."""
        made = image_set(self.data)
        options = {"classes": made.classes, "in_channels": made.channels, "dropout": self.recipe.dropout}
        return NETWORKS[self.network](seed=self.seed, **options)

    def transform(self) -> CropAndFlip:
        """Return the transform of training images."""
        made = image_set(self.data)
        return CropAndFlip(made.padding, made.flip, made.mean, made.std)

    def load(self, split: str) -> tuple[Tensor, Tensor]:
        """Return the recipe's images, as bytes, and targets of "train" or "test"."""
        return load_images(self.data, split, self.recipe.images if split == "train" else self.recipe.test_images)

    def loss(self, y: Tensor) -> Loss:
        """Return the loss to minimise, given the training targets `y`."""
        return self.recipe.loss

    def score(self, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return the score of a network on untransformed images."""
        return score(network, x, y, self)

    def steps(self, images: int) -> int:
        """Return the steps of an epoch; if there are fewer images than a batch, there is one step."""
        return max(1, images // self.recipe.batch_size)

    def train(
        self, network: nn.Module, x: Tensor, y: Tensor, teacher: Teacher | None = None, **options: Any
    ) -> History:
        """Train a network in place by the recipe.

        Args:
            network: The network.
            x: Images, as bytes.
            y: Targets.
            teacher: The network to distil from, instead of targets.
            options: Further options of `bayesnorm.training.train`.
        """
        recipe = self.recipe
        how = {"loss": self.loss(y), "transform": self.transform(), "transform_targets": self.targets_move}
        with teacher.watching(network) if teacher else contextlib.nullcontext():
            return train(
                network,
                x,
                y,
                epochs=recipe.epochs,
                batch_size=recipe.batch_size,
                optimiser=recipe.optimiser,
                schedule=recipe.schedule(recipe.epochs * self.steps(len(x))),
                schedule_every="step",
                seed=self.seed,
                **(teacher.options if teacher else how),
                **options,
            )

    def described(self) -> dict[str, Any]:
        """Return what determines the weights, as JSON values."""
        return {"network": self.network, "data": self.data, "seed": self.seed, "recipe": asdict(self.recipe)}


def trained_network(plan: Plan, out: Path, name: str, device: str = "cpu") -> tuple[nn.Module, dict[str, Any]]:
    """Return a network in evaluation mode, trained now or before, and information about it.

    An interrupted training continues; its checkpoint is `out/{name}.checkpoint`.

    Args:
        plan: What to train.
        out: Folder of `{name}.safetensors` and `{name}.json`; created if needed.
        name: The name of the files.
        device: "cpu" or "cuda".
    """
    numbers, weights = out / f"{name}.json", out / f"{name}.safetensors"
    if numbers.exists() and weights.exists():
        told = json.loads(numbers.read_text())
        if {key: told.get(key) for key in plan.described()} != plan.described():
            raise FileFormatError(f"{numbers} describes another network. Use another name or folder.")
    else:
        out.mkdir(parents=True, exist_ok=True)
        network, told = _train(plan, out / f"{name}.checkpoint", device)
        save_weights(network, weights)
        write_bytes(numbers, json.dumps({"machine": machine(device), **told}, indent=1).encode())
        (out / f"{name}.checkpoint").unlink(missing_ok=True)
    network = plan.new_network()
    read = {key: value.float() for key, value in read_tensors(weights)[0].items()}
    network.load_state_dict({**_counters(network), **read})
    network = network.eval().to(device)
    if device == "cuda":  # convolutions are faster in this layout
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network, told


def train_together(
    plans: Mapping[str, Plan], out: Path, device: str, workers: int, compiled: bool | str | None = None
) -> None:
    """Train the missing networks, with several workers at once, each in its own process.

    Steps of small networks leave most of a GPU idle.

    Args:
        plans: What to train, by the name of its files.
        out: Folder of the files.
        device: "cpu" or "cuda".
        workers: Number of processes.
        compiled: How steps run; None uses the plans' settings.
    """
    missing = {
        name: plan if compiled is None else replace(plan, compiled=compiled)
        for name, plan in plans.items()
        if not (out / f"{name}.json").exists()
    }
    if workers == 1 or not missing:
        for name, plan in missing.items():
            trained_network(plan, out, name, device)
        return
    context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    with ProcessPoolExecutor(min(workers, len(missing)), context, max_tasks_per_child=1) as pool:
        for training in [pool.submit(_train_and_keep, plan, out, name, device) for name, plan in missing.items()]:
            training.result()


def _train_and_keep(plan: Plan, out: Path, name: str, device: str) -> None:
    torch.set_num_threads(1)
    trained_network(plan, out, name, device)


def save_weights(network: nn.Module, path: Path) -> None:
    """Write weights, with kernels and matrices in half precision to make files smaller."""
    counters = _counters(network)
    state = {name: value.detach().cpu() for name, value in network.state_dict().items() if name not in counters}
    half = {name: value.half() if value.dim() >= 2 else value for name, value in state.items()}
    write_bytes(path, to_bytes({name: value.contiguous() for name, value in half.items()}))


def score(network: nn.Module, x: Tensor, y: Tensor, plan: Plan) -> dict[str, float]:
    """Return accuracy and negative log-likelihood on untransformed images."""
    scaled, total, right = plan.transform().scaled, 0.0, 0
    network.eval()
    with torch.no_grad():
        for images, labels in zip(x.split(SCORED_AT_ONCE), y.split(SCORED_AT_ONCE), strict=True):
            logits = network(scaled(images)).float()
            total += F.cross_entropy(logits, labels, reduction="sum").item()
            right += int((logits.argmax(1) == labels).sum())
    return {"accuracy": right / len(x), "nll": total / len(x)}


def _train(plan: Plan, checkpoint: Path, device: str) -> tuple[nn.Module, dict[str, Any]]:
    """Train, and return the network with its measurements."""
    started, recipe = time.perf_counter(), plan.recipe
    set_up_device(device)
    x, y = (part.to(device) for part in plan.load("train"))
    network = plan.new_network().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps, loaded = plan.steps(len(x)), time.perf_counter()
    ends = {0: loaded}
    history = plan.train(
        network,
        x,
        y,
        mixed_precision=True,
        compiled=plan.compiled,
        progress=lambda epoch, _epochs: ends.update({epoch: time.perf_counter()}),
        checkpoint=checkpoint,
        checkpoint_every=30.0,
    )
    trained = time.perf_counter()
    # The weights are read back, so that the stored weights are scored.
    test, labels = (part.to(device) for part in plan.load("test"))
    scores = plan.score(_rounded(network), test, labels)
    # For the epochs before an interruption only the total time is known.
    epochs = [ends[epoch] - ends[epoch - 1] for epoch in ends if epoch - 1 in ends] or [history.seconds / recipe.epochs]
    later, scoring = statistics.median(epochs[1:] or epochs), time.perf_counter() - trained
    told = {
        **plan.described(),
        "compiled": plan.compiled,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "training images": len(x),
        "test images": len(test),
        **scores,
        "seconds": {
            "all": loaded - started + history.seconds + scoring,
            "loading": loaded - started,
            "training": history.seconds,
            "first epoch": epochs[0],
            "later epoch": later,
            "scoring": scoring,
        },
        "steps per second": steps / later,
        "images per second": steps * min(recipe.batch_size, len(x)) / later,
        "losses": history.losses,
    }
    return network, told


def _counters(network: nn.Module) -> dict[str, Tensor]:
    """Return numbers of tracked batches, which nothing depends on."""
    return {name: value for name, value in network.state_dict().items() if name.endswith("num_batches_tracked")}


def _rounded(network: nn.Module) -> nn.Module:
    """Return the network with kernels and matrices rounded to half precision, as `save_weights` stores them."""
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.dim() >= 2:
                value.copy_(value.half().to(value.dtype))
    return network
