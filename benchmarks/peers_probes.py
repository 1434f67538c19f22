"""Test what each library can run: small networks and common ways of working with them (a part of `peers`).

    python -m benchmarks.peers_probes torch-uncertainty probes.json

Every probe fits on 512 inputs and predicts 64 others. It passes if the outputs have the right shape, are finite,
differ between samples, and lie around the network's outputs: their mean may differ by OFFSET of the outputs' standard
deviation and three standard errors. The running statistics are exactly those of the probe's data, so a shift is an
error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers_libraries import Library, library

OFFSET, ROWS, QUERIES, DRAWS, BATCH = 0.3, 512, 64, 32, 16


class Failed(Exception):
    """A probe that ran and gave a wrong answer."""


class BatchNormReLU(nn.BatchNorm2d):
    """A batch-norm layer that applies an activation, as in InPlace-ABN and timm."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class Branching(nn.Sequential):
    """A network whose control flow depends on its activations."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
            if float(x.detach().abs().mean()) > 1e3:
                x = x / 1e3
        return x


class DictOutput(nn.Sequential):
    """A network that returns a dict, as detection and segmentation networks do."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": super().forward(x)}


def convolutional(norm: nn.Module, kind: type[nn.Sequential] = nn.Sequential, axes: int = 2) -> nn.Sequential:
    """Return a small convolutional classifier with one batch-norm layer."""
    conv, pool = (nn.Conv2d, nn.AdaptiveAvgPool2d) if axes == 2 else (nn.Conv3d, nn.AdaptiveAvgPool3d)
    return kind(conv(3, 8, 3), norm, nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(8, 3))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm2d": lambda: convolutional(nn.BatchNorm2d(8)),
    "BatchNorm1d perceptron": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(108, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    ),
    "BatchNorm3d": lambda: convolutional(nn.BatchNorm3d(8), axes=3),
    "SyncBatchNorm": lambda: convolutional(nn.SyncBatchNorm(8)),
    "BatchNorm2d subclass with its own activation": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), BatchNormReLU(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    ),
    "affine=False": lambda: convolutional(nn.BatchNorm2d(8, affine=False)),
    "outputs per pixel": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 1)),
    "dict output": lambda: convolutional(nn.BatchNorm2d(8), DictOutput),
    "float64": lambda: convolutional(nn.BatchNorm2d(8)).double(),
    "control flow that depends on the data": lambda: convolutional(nn.BatchNorm2d(8), Branching),
}


@dataclass
class Trial:
    """A network whose running statistics are those of its data, and its own outputs for the queries."""

    model: nn.Module
    x: Tensor
    y: Tensor
    query: Tensor
    exact: Tensor
    output: str | None

    @classmethod
    def make(cls, name: str) -> Trial:
        """Make a network of `NETWORKS` and inputs for it."""
        torch.manual_seed(0)
        model = NETWORKS[name]()
        dtype = next(model.parameters()).dtype
        x = torch.randn(ROWS + QUERIES, 3, *[6] * (3 if "3d" in name else 2)).to(dtype) * torch.rand(1).to(dtype) + 0.5
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = None  # the plain average over forward passes, of which there is one
        with torch.no_grad():
            model.train()(x[:ROWS])
            exact = model.eval()(x)
        output = "out" if isinstance(exact, dict) else None
        exact = exact["out"] if isinstance(exact, dict) else exact
        return cls(model, x[:ROWS], exact[:ROWS].argmax(1), x[ROWS:], exact[ROWS:], output)

    def loader(self) -> DataLoader:
        """Return a loader with shuffled batches."""
        return DataLoader(TensorDataset(self.x, self.y), BATCH, shuffle=True)

    def check(self, f: Tensor, rows: int = QUERIES) -> None:
        """Raise an error if outputs have the wrong shape, are far from the network's, or are all the same."""
        exact = self.exact[:rows]
        if f.shape[1:] != exact.shape or f.dtype != exact.dtype:
            raise Failed(f"outputs {tuple(f.shape)} {f.dtype} for {tuple(exact.shape)} {exact.dtype}")
        offset, error = (f.mean(0) - exact).abs().mean(), (f.var(0) / len(f)).sqrt().mean()
        if not offset < OFFSET * self.exact.std() + 3 * error:
            raise Failed(f"silently wrong: off by {offset / self.exact.std():.1f} of the outputs' standard deviation")
        if not error > 0:
            raise Failed("silently wrong: all samples are the same")


def runs(name: str) -> Callable[[Library], str]:
    """Return a probe that fits and predicts with a network of `NETWORKS`."""

    def probe(peer: Library) -> str:
        trial = Trial.make(name)
        trial.check(peer.outputs(peer.fit(trial.model, trial.loader(), trial.output), trial.query))
        return ""

    return probe


def custom_collate(peer: Library) -> str:
    """Fit with a loader that has a custom collate function."""
    trial = Trial.make("BatchNorm2d")
    rows = [{"image": x, "label": y} for x, y in zip(trial.x, trial.y, strict=True)]

    def collate(items: list[dict[str, Tensor]]) -> tuple[Tensor, ...]:
        return tuple(torch.stack([item[key] for item in items]) for key in ("image", "label"))

    loader = DataLoader(rows, BATCH, shuffle=True, collate_fn=collate)
    trial.check(peer.outputs(peer.fit(trial.model, loader, None), trial.query))
    return ""


def one_row(peer: Library) -> str:
    """Predict a single input."""
    trial = Trial.make("BatchNorm2d")
    trial.check(peer.outputs(peer.fit(trial.model, trial.loader(), None), trial.query[:1]), rows=1)
    return ""


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Return everything of a network that a library might change."""
    result: dict[str, Any] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, module in model.named_modules():
        hooks = {key: len(value) for key, value in vars(module).items() if key.endswith("_hooks")}
        result[f"module {name}"] = type(module), module.training, hooks, sorted(vars(module))
    for name, parameter in model.named_parameters():
        result[f"flags {name}"] = parameter.requires_grad, parameter.grad is None, id(parameter)
    return result


def unchanged(peer: Library) -> str:
    """Compare a network before and after: tensors bit by bit, flags, hooks and attributes."""
    trial = Trial.make("BatchNorm2d")
    trial.model.train()[4].eval()
    before = snapshot(trial.model)
    peer.outputs(peer.fit(trial.model, trial.loader(), None), trial.query)
    after = snapshot(trial.model)
    for name in before | after:
        old, new = before.get(name), after.get(name)
        if not (torch.equal(old, new) if isinstance(old, Tensor) and isinstance(new, Tensor) else old == new):
            raise Failed(f"{name}: {old} became {new}")
    return ""


def reloaded(peer: Library, name: str) -> str:
    """Predict the same outputs in a new process with the network and a file; try every file format of the library."""
    trial = Trial.make("BatchNorm2d")
    fitted = peer.fit(trial.model, trial.loader(), None)
    expected, told = peer.outputs(fitted, trial.query), []
    with tempfile.TemporaryDirectory() as folder:
        for way, (save, _) in peer.files.items():
            path = Path(folder) / "posterior"
            try:
                save(fitted, path)
                command = [sys.executable, "-m", "benchmarks.peers_probes", name, str(path), way]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise Failed(done.stderr.strip().splitlines()[-1].strip()[:120])
                if not torch.equal(torch.load(path.with_suffix(".out")), expected):
                    raise Failed("silently wrong: other outputs than before")
            except Exception as error:
                told.append(f"{way}: {reason(error)}")
                continue
            written = path.read_bytes()
            if any(row.numpy().tobytes() in written for row in trial.x):
                told.append("the file holds training rows")
            return "; ".join(told)
    raise Failed("; ".join(told))


def reason(error: Exception) -> str:
    """Return the reason of a failure in one line."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if isinstance(error, Failed) else f"{type(error).__name__}: {text[:120]}"


def probe_table(result: dict[str, dict[str, Any]]) -> str:
    """Return a table with yes or no by probe and library, and below it the reasons."""
    lines = [f"{'can run':<40}" + "".join(f"{name:>20}" for name in result)]
    for probe in next(iter(result.values())):
        answers = ("yes" if answers[probe]["runs"] else "no" for answers in result.values())
        lines.append(f"{probe:<40}" + "".join(f"{answer:>20}" for answer in answers))
    for name, answers in result.items():
        lines += [f"  {name}, {probe}: {answer['why']}" for probe, answer in answers.items() if answer["why"]]
    return "\n".join(lines)


def main(name: str, path: str, way: str | None = None) -> None:
    """Write the results of all probes for a library; with `way`, load a saved file and write its outputs."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    peer = library(name, DRAWS, BATCH)
    if way is not None:
        trial = Trial.make("BatchNorm2d")
        loaded = peer.files[way][1](Path(path), trial.model)
        torch.save(peer.outputs(loaded, trial.query), Path(path).with_suffix(".out"))
        return
    probes: dict[str, Callable[[Library], str]] = {network: runs(network) for network in NETWORKS}
    probes |= {
        "DataLoader with a custom collate function": custom_collate,
        "prediction for a single input": one_row,
        "network unchanged, bit by bit": unchanged,
        "saved, then loaded in a new process": lambda peer: reloaded(peer, name),
    }
    answers = {}
    for probe, run in probes.items():
        try:
            answers[probe] = {"runs": True, "why": run(peer)}
        except Exception as error:
            answers[probe] = {"runs": False, "why": reason(error)}
    Path(path).write_text(json.dumps(answers, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
