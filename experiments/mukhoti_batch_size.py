"""The batch size as a variational parameter (Mukhoti et al. 2020), on a ResNet-32 that was trained with M = 128.

The ELBO is computed over batch sizes for the same network: with real batches of every size, and with effective sizes
(the scaled fluctuations of batches of 32). For comparison there are the negative log likelihood on test images, on
which nothing was chosen, and the agreement of real and effective sizes. Needs the data folder (BAYESNORM_DATA).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from bayesnorm.calibration import BatchSizeChoice, select_batch_size
from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import Categorical
from bayesnorm.methods import MCBN

from .data import load_cifar10, to_network_input
from .evidence import write_numbers, write_picture
from .networks import load_cifar_resnet
from .options import OUT, FastestDevice, OutFolder, fastest
from .plots import BatchSizeCurve

FITTED, TRAIN_ROWS, WEIGHT_DECAY = 32, 50_000, 1e-4


def main(
    out: OutFolder = OUT,
    device: FastestDevice = None,
    images: Annotated[int, typer.Option(min=1, help="Number of training images for the bound.")] = 5000,
    samples: Annotated[int, typer.Option(min=2, help="Samples of every posterior.")] = 40,
) -> None:
    """Compute the ELBO over batch sizes of a trained ResNet-32 (Mukhoti et al. 2020).

    Needs the data folder.

    \b
    python -m experiments mukhoti-batch-size --samples 160
    """
    place = fastest(device)

    def rows(split: str, part: slice) -> tuple[Tensor, Tensor]:
        pixels, labels = load_cifar10(split, 5000 if split == "train" else 2000)
        return to_network_input(pixels[part]).to(place), torch.as_tensor(labels[part]).to(place)

    network = load_cifar_resnet(32).to(place)
    result = compare(network, rows("train", slice(images)), rows("test", slice(None)), samples=samples)
    print(result.table())
    settings = {"samples": samples, "training images": images}
    write_numbers(out / "batch_size.json", {**settings, **result.as_json()}, place)
    ax = BatchSizeCurve.from_choice(result.real).draw()
    ax.set_title("ResNet-32, trained with M = 128: the bound and test NLL")
    write_picture(out / "batch_size.png", ax)


@dataclass(frozen=True)
class Comparison:
    """A network under real and under effective batch sizes.

    Args:
        real: The curves with batches of every size.
        effective: The curves with scaled fluctuations of batches of 32.
        variance_ratio: Median over test logits of effective over real variance, by batch size.
    """

    real: BatchSizeChoice
    effective: BatchSizeChoice
    variance_ratio: dict[float, float]

    def table(self) -> str:
        """Return both curves and the ratios as text."""
        lines = ["real batches", self.real.table(), "", f"effective sizes, from batches of {FITTED}"]
        lines += [self.effective.table(), "", "logit variance, effective / real"]
        return "\n".join([*lines, *(f"{size:>8g} {ratio:8.3f}" for size, ratio in self.variance_ratio.items())])

    def as_json(self) -> dict[str, Any]:
        """Return plain values, for a results file."""
        return {
            "real": [asdict(row) for row in self.real.rows],
            "effective": [asdict(row) for row in self.effective.rows],
            "variance ratio": self.variance_ratio,
        }


def compare(
    network: nn.Module,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    batch_sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024),
    samples: int = 40,
    train_rows: int = TRAIN_ROWS,
) -> Comparison:
    """Compare real and effective batch sizes of a classifier's posterior, as published (`center="batch"`).

    Args:
        network: The trained classifier.
        train: Training images for batches and for the bound, and their labels.
        test: Images and labels on which nothing is chosen.
        batch_sizes: Batch sizes to compare.
        samples: Samples of every posterior.
        train_rows: Number of images that the network was trained on; `train` may be a part of them.
    """

    def real(size: int) -> Any:
        return MCBN(size, states=max(samples, 64), center="batch").fit(network, train[0], Categorical())

    options: dict[str, Any] = {
        "batch_sizes": batch_sizes,
        "weight_decay": WEIGHT_DECAY,
        "train_rows": train_rows,
        "validation": test,
        "samples": samples,
    }
    fitted = real(FITTED)
    ratios = {}
    for size in batch_sizes:
        variances = [
            MonteCarlo(max(samples, 64)).outputs(posterior, test[0]).var(0)
            for posterior in (fitted.at_batch_size(size), real(size))
        ]
        ratios[float(size)] = float((variances[0] / variances[1]).median())
    return Comparison(
        real=select_batch_size(real, train, **options),
        effective=select_batch_size(fitted, train, **options),
        variance_ratio=ratios,
    )
