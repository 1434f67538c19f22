"""Networks of timm and torchvision for `architectures`: the smallest variant of every family with batch norm."""

from __future__ import annotations

import importlib
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 60_000_000
# fmt: off
SIZE_WORDS = {
    "atto", "femto", "pico", "nano", "micro", "tiny", "small", "base", "medium", "large", "xlarge", "huge", "zepto",
    "focus", "lite", "pruned", "rmlp", "rw", "cc", "bn", "tf", "xxs", "xs", "s", "m", "l", "xl", "x", "t", "c",
}
# fmt: on
# Families without batch norm, or with hundreds of variants that have none.
WITHOUT = ("beit", "deit", "eva", "swin_transformer", "swin_transformer_v2", "vision_transformer")
IMAGE_SIZES = (32, 64, 96, 128, 160, 192, 224, 256, 331, 384)


@dataclass(frozen=True)
class Architecture:
    """An architecture to test.

    Args:
        library: "timm" or "torchvision".
        family: The family that it stands for.
        name: Its name in the library.
        parameters: Number of its parameters.
    """

    library: str
    family: str
    name: str
    parameters: int


def architectures() -> list[Architecture]:
    """Return the architectures to test: of every family, the one with the fewest parameters, up to `LARGEST`.

    A family is a module of the library and the name of a network up to its first digit, without words for sizes. For
    torchvision, whose modules are families, it is the module alone.
    """
    smallest: dict[str, Architecture] = {}
    for entry in [*_of_timm(), *_of_torchvision()]:
        key = f"{entry.library} {entry.family}"
        if entry.parameters <= LARGEST and (key not in smallest or entry.parameters < smallest[key].parameters):
            smallest[key] = entry
    return sorted(smallest.values(), key=lambda entry: (entry.library, entry.name))


def exists(architecture: Architecture) -> bool:
    """Return whether the installed version of the library has this architecture."""
    library = import_libraries() if architecture.library == "timm" else torchvision().models
    return architecture.name in library.list_models()


def build(library: str, name: str, **options: Any) -> nn.Module:
    """Return an untrained network in evaluation mode."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if library == "timm":
            network: nn.Module = import_libraries().create_model(name, **options)
        else:
            if name in _SEGMENTATION:
                options = {"weights_backbone": None} | options
            network = torchvision().models.get_model(name, weights=None, **options)
    return network.eval()


def network_and_images(library: str, name: str, rows: int) -> tuple[nn.Module, Tensor]:
    """Return a network and random images of the smallest size that it takes, (rows, 3, size, size)."""
    errors = []
    for size in IMAGE_SIZES:
        for options in ({}, {"img_size": size}) if library == "timm" else ({},):
            shape = (3, 16, size, size) if name in _VIDEO else (3, size, size)
            try:
                torch.manual_seed(0)
                network = build(library, name, **options)
                x = torch.randn(rows, *shape, generator=torch.Generator().manual_seed(0))
                with torch.no_grad():
                    network(x[:2])
            except Exception as error:
                errors.append(f"{size}: {error}")
            else:
                return network, x
    raise RuntimeError(f"no size of images works: {errors[-1]}")


def import_libraries() -> Any:
    """Import torchvision, then timm, which imports it too, and return timm."""
    torchvision()
    return importlib.import_module("timm")


def torchvision() -> Any:
    """Import torchvision, also without its compiled operators, which the networks of this benchmark do not use."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # its compiled operators belong to another build of torch
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torchvision.operators = library  # type: ignore[attr-defined]  # they exist as long as this object
        return importlib.import_module("torchvision")


_SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")
_VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d")
_OTHERS = _SEGMENTATION + _VIDEO


def _of_timm() -> Iterator[Architecture]:
    """Yield every network of timm with batch norm; they are built without memory for weights."""
    timm = import_libraries()
    from timm.models._registry import _model_to_module

    for name in timm.list_models():
        module = _model_to_module[name]
        if module in WITHOUT or name.startswith("test_"):
            continue
        with torch.device("meta"):
            network = build("timm", name)
        if _has_batchnorm(network):
            words = re.split(r"\d", name)[0].strip("_").split("_")
            stem = "_".join(word for word in words if word not in SIZE_WORDS)
            size = sum(parameter.numel() for parameter in network.parameters())
            yield Architecture("timm", f"{module}: {stem}", name, size)


def _of_torchvision() -> Iterator[Architecture]:
    """Yield networks of torchvision with batch norm: the smallest classifier of every module, and `_OTHERS`."""
    models = torchvision().models
    by_module: dict[str, list[tuple[int, str]]] = {}
    for name in models.list_models(models):
        module = models.get_model_builder(name).__module__.rpartition(".")[2]
        size = models.get_model_weights(name).DEFAULT.meta["num_params"]
        by_module.setdefault(module, []).append((size, name))
        if module == "vgg" and "bn" not in name:
            by_module[module].pop()
    for module, sizes in by_module.items():
        size, name = min(sizes)
        if _has_batchnorm(build("torchvision", name)):
            yield Architecture("torchvision", module, name, size)
    for name in _OTHERS:
        yield Architecture("torchvision", name, name, models.get_model_weights(name).DEFAULT.meta["num_params"])


def _has_batchnorm(network: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())
