"""Measure how well the scores of `ood_scores` detect inputs from outside of the training distribution.

    python -m benchmarks.ood [--cases small unseen_digits unseen_images cifar] [--out results/ood_scores.json]

Networks: the CIFAR-10 ResNet-20 and ResNet-32 of the data folder; a perceptron and a small convolutional network for
scikit-learn's digits; a perceptron for scikit-learn's wines; and two small ResNets with projection shortcuts that are
trained without two classes (CIFAR-10, digits), so that those classes are unusual. MCBN with 16 samples. 1,000
in-distribution inputs (300 digits or 600 images without two classes; half of the held-out ones for other digits and
wines) are the reference, others give AUROC, and the rate at which p <= 0.05. `--cases` measures some of them, and keeps
other rows of the file.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor, nn
from torch.nn import functional as F

import bayesnorm as bn
from bayesnorm.metrics import auroc
from bayesnorm.training import train
from benchmarks.pruning import ProjectionBlock, projection_network
from experiments.data import load_camvid, load_cifar10, load_notmnist, load_svhn, to_network_input
from experiments.machine import machine
from experiments.networks import load_cifar_resnet

SAMPLES = 16
IMAGES = 400

Pair = tuple[Tensor, Tensor]
Case = tuple[str, Any, Tensor, Tensor, dict[str, Tensor]]
"""Name, posterior, reference, in-distribution inputs, inputs of other kinds."""


def camvid_crops(count: int) -> Any:
    """Return crops of 32 x 32 pixels of road scenes."""
    frames, _ = load_camvid("test", range(60))
    return [frame[y : y + 32, x : x + 32] for frame in frames for y in (20, 100) for x in (10, 90, 170)][:count]


def cifar_cases() -> Iterator[Case]:
    """Yield the ResNets with other images: digits, letters, road scenes, noise, blur, low contrast."""
    import numpy as np

    train_x = to_network_input(load_cifar10("train")[0][:2000])
    x = to_network_input(load_cifar10("test")[0])
    letters = np.pad(load_notmnist(range(IMAGES))[0], ((0, 0), (2, 2), (2, 2)))
    inside = x[1000 : 1000 + IMAGES]
    generator = torch.Generator().manual_seed(0)
    kernel = torch.ones(3, 1, 5, 5) / 25
    others = {
        "SVHN": to_network_input(load_svhn(range(IMAGES))[0]),
        "notMNIST": to_network_input(np.repeat(letters[..., None], 3, -1)),
        "CamVid crops": to_network_input(np.stack(camvid_crops(IMAGES))),
        "Gaussian noise": torch.randn(inside.shape, generator=generator),
        "blurred CIFAR-10": F.conv2d(F.pad(inside, (2, 2, 2, 2), mode="reflect"), kernel, groups=3),
        "noisy CIFAR-10": inside + 0.3 * torch.randn(inside.shape, generator=generator),
    }
    for depth in (20, 32):
        posterior = bn.MCBN(64, states=32).fit(load_cifar_resnet(depth), train_x, bn.Categorical())
        yield f"ResNet-{depth}, CIFAR-10", posterior, x[:1000], inside, others


def small(name: str, network: nn.Module, x: Tensor, y: Tensor, others: Callable[[Tensor], dict[str, Tensor]]) -> Case:
    """Train a network on a third of the inputs, and use the second third as reference and the last as inside."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    fit, reference, inside = order.chunk(3)
    train(network, x[fit], y[fit], loss=F.cross_entropy, epochs=40, batch_size=32, seed=0)
    posterior = bn.MCBN(32, states=64).fit(network.eval(), x[fit], bn.Categorical())
    return name, posterior, x[reference], x[inside], others(x[inside])


def small_cases() -> Iterator[Case]:
    """Yield networks for digits and for a table."""
    digits, wine = load_digits(), load_wine()
    images, labels = torch.tensor(digits.images / 16).float()[:, None], torch.tensor(digits.target)
    letters = torch.tensor(load_notmnist(range(IMAGES))[0]).float()[:, None] / 255

    def changed(x: Tensor) -> dict[str, Tensor]:
        shape = x.shape
        x = x.reshape(-1, 1, 8, 8)
        kinds = {"inverted": 1 - x, "rotated": x.rot90(1, (2, 3)), "letters": F.adaptive_avg_pool2d(letters, 8)}
        return {kind: value.reshape(-1, *shape[1:]) for kind, value in kinds.items()}

    def layers(before: int, after: int) -> list[nn.Module]:
        return [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]

    torch.manual_seed(0)
    perceptron = nn.Sequential(*layers(64, 64), *layers(64, 64), nn.Linear(64, 10))
    first = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    convolutions = nn.Sequential(*first, *second, nn.Linear(128, 10))
    table = nn.Sequential(*layers(13, 30), *layers(30, 30), nn.Linear(30, 3))
    yield small("perceptron, digits", perceptron, images.flatten(1), labels, changed)
    yield small("CNN, digits", convolutions, images, labels, changed)
    rows = torch.tensor(wine.data).float()
    rows = (rows - rows.mean(0)) / rows.std(0)

    def other_rows(x: Tensor) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        mixed = torch.stack([column[torch.randperm(len(x), generator=generator)] for column in x.T], 1)
        return {"columns shuffled": mixed, "shifted by 1 sd": x + torch.randn(13, generator=generator).sign()}

    yield small("perceptron, wines", table, rows, torch.tensor(wine.target), other_rows)


def unseen_digits() -> Iterator[Case]:
    """Yield a small ResNet that was trained without the digits 8 and 9."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16).float()[:, None], torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    fit, held_out = order[:800], order[800:]
    torch.manual_seed(0)
    stem = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    blocks = ProjectionBlock(16, 32), ProjectionBlock(32, 64)
    network = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 8))
    train, test = (images[fit], labels[fit]), (images[held_out], labels[held_out])
    yield without_two_classes("small ResNet, digits 0 to 7", network, train, test, "digits 8 and 9", {})


def unseen_images() -> Iterator[Case]:
    """Yield a small ResNet that was trained without two classes of CIFAR-10."""
    (x, y), (x_test, y_test) = (
        (to_network_input(pixels), torch.as_tensor(targets).long())
        for pixels, targets in (load_cifar10("train"), load_cifar10("test"))
    )
    torch.manual_seed(0)
    network = projection_network()
    network[-1] = nn.Linear(96, 8)
    others = {"SVHN": to_network_input(load_svhn(range(IMAGES))[0])}
    name = "small ResNet, 8 classes of CIFAR-10"
    yield without_two_classes(name, network, (x, y), (x_test, y_test), "ships and trucks", others)


def without_two_classes(
    name: str, network: nn.Module, fit: Pair, held_out: Pair, unseen: str, others: dict[str, Tensor]
) -> Case:
    """Train a network on classes 0 to 7 for fifteen epochs; held-out inputs of the two others are unusual."""
    (x, y), (x_test, y_test) = fit, held_out
    x, y, usual = x[y < 8], y[y < 8], x_test[y_test < 8]
    train(network, x, y, loss=F.cross_entropy, epochs=15, batch_size=64, seed=0)
    with torch.no_grad():
        right = network.eval()(usual).argmax(1) == y_test[y_test < 8]
    print(f"{name}: accuracy {float(right.double().mean()):.3f}", flush=True)
    posterior = bn.MCBN(64, states=32).fit(network, x, bn.Categorical())
    reference, inside = usual[:600].chunk(2) if len(usual) < 1000 else (usual[:600], usual[600 : 600 + IMAGES])
    return name, posterior, reference, inside, {unseen: x_test[y_test >= 8][:IMAGES], **others}


CASES = {
    "small": small_cases,
    "unseen_digits": unseen_digits,
    "unseen_images": unseen_images,
    "cifar": cifar_cases,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=Path("results/ood_scores.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", bn.BayesNormWarning)
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for cases in options.cases:
        for name, posterior, reference, inside, others in CASES[cases]():
            rows = [row for row in rows if row["network"] != name]
            usual = bn.ood_scores(posterior, inside, reference, samples=SAMPLES)
            for kind, x in others.items():
                unusual = bn.ood_scores(posterior, x, reference, samples=SAMPLES)
                scores = {
                    score: {
                        "auroc": round(float(auroc(usual.scores[score], unusual.scores[score])), 3),
                        "false_alarms": round(float(usual.flagged(score).double().mean()), 3),
                        "detected": round(float(unusual.flagged(score).double().mean()), 3),
                    }
                    for score in usual.scores
                }
                rows.append({"network": name, "other": kind, "scores": scores})
                print(name, kind, {score: value["auroc"] for score, value in scores.items()}, flush=True)
            options.out.write_text(json.dumps({"machine": machine("cpu"), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
