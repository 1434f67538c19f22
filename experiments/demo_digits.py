"""Train the digits network of the live page, and write its weights: `python -m experiments demo-digits`.

A convolutional network with batch norm on scikit-learn's 1,797 digits of 8 x 8 pixels; notMNIST's letters, which it has
not seen, show what its uncertainty finds. Weights are rounded to 8 bits,
and then MCBN and its temperature are fitted, so that the page and the package have the same network.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm import demo
from bayesnorm.posterior import Empirical
from bayesnorm.training import train

from .data import load_notmnist

WIDTHS = (12, 24, 48)
BATCH_SIZE, STATES, EPOCHS, HELD_OUT = 32, 32, 80, 360
# A smaller effective batch size shows more disagreement; with its own temperature, it scores as well as 32.
EFFECTIVE = 8
# The share of held-out digits whose entropy, or mutual information, is below the page's limit.
TYPICAL = 0.95
# Held-out digits are varied like those of training, because drawings are less tidy than the data; so often each.
COPIES = 5


class DigitsNetwork(nn.Sequential):
    """Three convolutions with batch norm, and a linear layer over 2 x 2 positions."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for number, (inputs, outputs) in enumerate(zip((1, *WIDTHS), WIDTHS, strict=False)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if number else []
        super().__init__(*layers, nn.Flatten(), nn.Linear(4 * WIDTHS[-1], 10))


def digits(seed: int = 0) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return training and held-out digits: images (n, 1, 8, 8) from 0 to 1, and labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = torch.tensor(images[order], dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels[order])
    return (x[HELD_OUT:], y[HELD_OUT:]), (x[:HELD_OUT], y[:HELD_OUT])


def varied(images: Tensor) -> Tensor:
    """Return images that are turned, scaled and shifted a little, with thinner or thicker strokes."""
    count = len(images)
    angle = (torch.rand(count) - 0.5) * math.radians(30)
    scale = 1 + 0.15 * torch.randn(count, 2).clamp(-1.5, 1.5)
    shift = 0.12 * torch.randn(count, 2)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    transform = torch.cat([turn * scale[:, None], shift[:, :, None]], 2)
    moved = F.grid_sample(
        images, F.affine_grid(transform, list(images.shape), align_corners=False), align_corners=False
    )
    return moved.pow(torch.exp(0.35 * torch.randn(count, 1, 1, 1)))


def letters(rows: int = 2_000) -> Tensor:
    """Return printed letters of notMNIST, (rows, 1, 8, 8) from 0 to 1."""
    images = torch.from_numpy(load_notmnist(rows)[0])[:, None].float() / 255
    return F.avg_pool2d(F.pad(images, (2, 2, 2, 2)), 4)


def rounded(weight: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return a weight as whole numbers from -127 to 127 and the scale of each output, (outputs,)."""
    values = weight.detach().double().flatten(1).numpy()
    scale = np.abs(values).max(1) / 127
    return np.round(values / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def text(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def floats(values: Any) -> str:
    return text(np.asarray(values, dtype="<f4").reshape(-1))


def main() -> None:
    """Train the digits network of the live page in about a minute, and write the file that the page contains.

    \b
    python -m experiments demo-digits
    """
    (x, y), (x_held, y_held) = digits()
    torch.manual_seed(0)
    network = DigitsNetwork()
    train(
        *(network, x, y),
        loss=F.cross_entropy,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        learning_rate=3e-3,
        schedule=lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS),
        weight_decay=1e-3,
        transform=varied,
    )
    head = network[-1]
    assert isinstance(head, nn.Linear)
    matrices = [layer for layer in network if isinstance(layer, (nn.Conv2d, nn.Linear))]
    numbers = [rounded(layer.weight) for layer in matrices]
    with torch.no_grad():
        for layer, (whole, scale) in zip(matrices, numbers, strict=True):
            layer.weight.copy_(torch.tensor(whole * scale[:, None]).view_as(layer.weight))
    torch.manual_seed(1)
    x_varied, y_varied = varied(x_held.repeat(COPIES, 1, 1, 1)), y_held.repeat(COPIES)
    posterior = bn.MCBN(BATCH_SIZE, STATES).fit(network, varied(x), bn.Categorical()).at_batch_size(EFFECTIVE)
    posterior = bn.calibrate(posterior, x_varied, y_varied, batch_size=False, evidence=0)
    likelihood, fluctuations = posterior.likelihood, posterior.fluctuations
    assert isinstance(likelihood, bn.Categorical)
    assert isinstance(fluctuations, Empirical)
    prediction = posterior.predict(x_varied, bn.MonteCarlo(STATES))
    errors = [
        float((posterior.predict(images, bn.MonteCarlo(STATES)).label != labels).double().mean())
        for images, labels in ((x_held, y_held), (x_varied, y_varied))
    ]
    limits = [float(score.quantile(TYPICAL)) for score in (prediction.entropy, prediction.mutual_information)]
    unsure = float((posterior.predict(letters(), bn.MonteCarlo(STATES)).entropy > limits[0]).double().mean())
    norms = [layer for layer in network if isinstance(layer, nn.BatchNorm2d)]
    deviations = fluctuations.deviations.double().numpy()
    unit = np.abs(deviations).max(0) / 127
    content = {
        "widths": WIDTHS,
        "matrices": [{"values": text(whole), "scale": floats(scale)} for whole, scale in numbers],
        "bias": floats(head.bias.detach()),
        "norms": [[floats(norm.weight.detach()), floats(norm.bias.detach())] for norm in norms],
        "location": floats(posterior.location),
        "deviations": text(np.round(deviations / unit).astype(np.int8)),
        "unit": floats(unit),
        "batchSize": BATCH_SIZE,
        "effective": EFFECTIVE,
        "temperature": likelihood.temperature,
        "limits": {"entropy": limits[0], "mutualInformation": limits[1]},
        "errors": errors,
        "letters": unsure,
    }
    path = Path(demo.__file__).with_name("digits.json")
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print(f"Held-out errors {errors}, temperature {likelihood.temperature:.3g}.")
    print(f"Limits {limits}; {unsure:.0%} of letters are above that of the entropy.")
    print(f"Wrote {path}: {path.stat().st_size:,} bytes.")
