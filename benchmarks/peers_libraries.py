"""One interface to bayesnorm, torch-uncertainty and laplace-torch, for `peers` and `peers_probes`."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import bayesnorm as bn

LIBRARIES = ("bayesnorm", "torch-uncertainty", "laplace-torch")
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


@functools.cache
def import_peers() -> tuple[Any, Any, Any]:
    """Return the classes MCBatchNorm, Laplace and ABNN.

    If torchvision's compiled operators cannot be loaded, it can still be imported once two of them are declared.
    """
    try:
        torch.ops.load_library(Path(importlib.util.find_spec("torchvision").origin).parent / "_C.so")
    except OSError:
        for name in ("nms", "qnms"):
            OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from laplace import Laplace
    from torch_uncertainty.post_processing import MCBatchNorm
    from torch_uncertainty.post_processing.abnn import ABNN

    return MCBatchNorm, Laplace, ABNN


@dataclass(frozen=True)
class Library:
    """Functions of a library: fit, predict outputs (n, batch, ...), and save and load, by name of the file format."""

    fit: Callable[[nn.Module, DataLoader, str | None], Any]
    outputs: Callable[[Any, Tensor], Tensor]
    files: dict[str, tuple[Callable[[Any, Path], None], Callable[[Path, nn.Module], Any]]]


def library(name: str, samples: int, batch_size: int) -> Library:
    """Return the functions of a library.

    Args:
        name: One of `LIBRARIES`.
        samples: Number of samples per prediction.
        batch_size: Batch size whose statistics are sampled.
    """
    if name == "bayesnorm":
        method = bn.MCBN(batch_size, states=samples)
        return Library(
            lambda model, loader, output: method.fit(model, loader, bn.Categorical(), output=output),
            lambda fitted, x: bn.MonteCarlo(samples).outputs(fitted, x),
            {"save": (lambda fitted, path: fitted.save(path), bn.load)},
        )
    MCBatchNorm, Laplace, _ = import_peers()

    def made(model: nn.Module) -> Any:
        if name == "torch-uncertainty":
            return MCBatchNorm(model, num_estimators=samples, mc_batch_size=batch_size)
        return Laplace(model, "classification", "last_layer", "kron")

    def fit(model: nn.Module, loader: DataLoader, output: str | None) -> Any:
        fitted = made(model)
        fitted.fit(loader)
        return fitted.eval() if isinstance(fitted, nn.Module) else fitted

    def outputs(fitted: Any, x: Tensor) -> Tensor:
        if name == "torch-uncertainty":
            with torch.no_grad():
                return fitted(x).unflatten(0, (samples, len(x)))
        torch.manual_seed(0)  # it samples from the global generator
        return fitted.functional_samples(x, pred_type="glm", n_samples=4 * samples)

    def from_state(path: Path, model: nn.Module, **how: bool) -> Any:
        fitted = made(model)
        fitted.load_state_dict(torch.load(path), **how)
        return fitted.eval() if isinstance(fitted, nn.Module) else fitted

    def write_state(fitted: Any, path: Path) -> None:
        torch.save(fitted.state_dict(), path)

    files = {"state_dict": (write_state, from_state)}
    if name == "torch-uncertainty":
        files |= {
            "state_dict, strict=False": (write_state, lambda path, model: from_state(path, model, strict=False)),
            "pickle": (torch.save, lambda path, model: torch.load(path, weights_only=False)),
        }
    return Library(fit, outputs, files)
