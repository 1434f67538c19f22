"""Figures 3, 7 and 8 of the MCBN paper: are the batch statistics of a network in training normal?

The paper's regression network is trained on its first split of yacht with batches of 32. Figure 3 shows units after
training, against the normals of the paper's appendix 1.3. Figures 7 (batch means) and 8 (batch standard deviations)
show one unit per layer over batch sizes and over epochs. The paper shows some units. Here they are those with the
smallest, median and largest distance, together with the fraction of all units that a test rejects. Needs the data
folder (BAYESNORM_DATA).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bayesnorm.theory import Diagnosis, diagnose
from bayesnorm.theory.diagnosis import Normality
from bayesnorm.training import Rescaled, train

from .evidence import write_picture
from .networks import paper_mlp
from .normality import rejected_by_chance
from .options import OUT, OutFolder
from .panels import panels, set_figure_title
from .quantile_plot import NAMES, QQPlot, Statistic, statistic_of
from .rejections import RejectionPlot
from .splits import paper_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH_SIZE, WEIGHT_DECAY, BATCHES = 32, 1e-3, 500
BATCH_SIZES, EPOCHS = (16, 32, 64, 128), (1, 10, 100, 400)
LAYERS = ("batchnorm_1", "batchnorm_2")
CLOSE = 0.1
"""A normal nearly holds if every probability of every unit is right up to this number."""


def main(out: OutFolder = OUT) -> None:
    """Reproduce figures 3, 7 and 8 of the MCBN paper: are batch statistics normal?

    Needs the data folder.

    \b
    python -m experiments teye-figure3 --out out
    """
    torch.set_num_threads(1)  # such small networks do not benefit from more
    train_rows, _ = paper_rows("yacht", 1)
    result = figure3(*train_rows, epochs=EPOCHS, batch_sizes=BATCH_SIZES, batches=BATCHES)
    print(f"{result.trained}\n\n{result.verdict()}")
    for name, ax in result.draw().items():
        write_picture(out / f"{name}.png", ax)


@dataclass(frozen=True)
class Figure3:
    """Data of the figures.

    Args:
        trained: The trained network at every batch size.
        epochs: The network in training at `BATCH_SIZE`, by epoch.
    """

    trained: Diagnosis
    epochs: dict[int, Diagnosis]

    def draw(self) -> dict[str, Axes]:
        """Plot figures 3, 7 and 8, by name."""
        return {
            "teye_figure3": self._units(),
            "teye_figure7": self._over("mean"),
            "teye_figure8": self._over("std"),
        }

    def verdict(self) -> str:
        """Return a text that summarises the numbers at `BATCH_SIZE`."""
        size = self.trained.at(BATCH_SIZE)
        lines = [f"Trained network, M = {BATCH_SIZE}, {size.batches} batches:"]
        for layer in size.layers:
            for result, name in ((layer.mean, NAMES["mean"]), (layer.std, NAMES["std"])):
                variance = float(result.variance_ratio.nanmedian())
                lines += [
                    f"- {layer.name}, {name}",
                    f"  shape: {_judged(result, fitted=True)}",
                    f"  theory: {_judged(result, fitted=False)}; variance {variance:.2f} times the theoretical one",
                ]
        dependence, lost = size.dependence, size.variance_lost
        independent = dependence.within < 1.1 * dependence.chance
        lines += [
            f"- Sampling batches without replacement from {size.rows} rows alone lowers variances to "
            f"{size.without_replacement:.2f} times the theoretical ones.",
            f"- Statistics are {'' if independent else 'not '}independent: mean |correlation| in a layer "
            f"{dependence.within:.2f}, {dependence.chance:.2f} by chance.",
            f"  Independent samples would {'lose' if lost >= 0 else 'add'} {abs(lost):.0%} of the outputs' variance.",
        ]
        return "\n".join(lines)

    def _units(self) -> Axes:
        """Plot layers by statistics: the closest, median and farthest unit of each, all others in the background."""
        axes = panels(2, 2)
        for row, layer in zip(axes, LAYERS, strict=True):
            QQPlot.of_units(self.trained, layer, "mean", batch_size=BATCH_SIZE).draw(row[0])
            QQPlot.of_units(self.trained, layer, "std", batch_size=BATCH_SIZE).draw(row[1])
        return self._titled(axes[0][0], "Batch statistics after training")

    def _over(self, statistic: Statistic) -> Axes:
        """Plot one unit of each layer, and all units' rejections, over batch sizes (above) and epochs (below)."""
        axes = panels(2, 3)
        for column, layer in enumerate(LAYERS):
            unit = _median_unit(statistic_of(self.trained.at(BATCH_SIZE), layer, statistic))
            QQPlot.over_batch_sizes(self.trained, layer, unit, statistic).draw(axes[0][column])
            QQPlot.over_epochs(self.epochs, layer, unit, statistic).draw(axes[1][column])
        RejectionPlot.over_batch_sizes(self.trained, statistic).draw(axes[0][2])
        RejectionPlot.over_epochs(self.epochs, statistic).draw(axes[1][2])
        return self._titled(axes[0][0], f"{NAMES[statistic].capitalize()} over batch sizes and epochs")

    def _titled(self, ax: Axes, title: str) -> Axes:
        set_figure_title(
            ax,
            f"{title}: {self.trained.sizes[0].batches} batches against the normal of the central limit theorem\nOn "
            "the diagonal: as in theory. Flatter: less variation. A straight line: normal in shape.",
        )
        return ax


def figure3(
    x: Tensor,
    y: Tensor,
    *,
    epochs: tuple[int, ...] = EPOCHS,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
    batches: int = BATCHES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Figure3:
    """Train the paper's network on rows in their own units, and diagnose it during and after training.

    Args:
        x: Training inputs, (N, d).
        y: Targets, (N, 1).
        epochs: Epochs to diagnose; training ends with the last.
        batch_sizes: Batch sizes to diagnose after training, including `BATCH_SIZE`.
        batches: Number of batches per diagnosis.
        seed: Seed of the weights, of training and of the batches.
        progress: Called with (epoch, epochs).
    """
    network = named_mlp(x.shape[1], seed)
    x, y = Rescaled.from_data(network, x, y).standardise(x, y)
    diagnoses: dict[int, Diagnosis] = {}

    def look(epoch: int, network: nn.Module) -> None:
        if epoch in epochs:
            diagnoses[epoch] = diagnose(network, x, BATCH_SIZE, batches=batches, seed=seed)

    train(
        network,
        x,
        y,
        loss=lambda f, target: 0.5 * mse_loss(f, target),
        epochs=max(epochs),
        batch_size=BATCH_SIZE,
        weight_decay=WEIGHT_DECAY,
        seed=seed,
        on_epoch=look,
        progress=progress,
    )
    return Figure3(diagnose(network, x, batch_sizes, batches=batches, seed=seed), diagnoses)


def named_mlp(in_features: int, seed: int) -> nn.Sequential:
    """Return `paper_mlp` with layer names that are readable in a plot."""
    names = ("linear_1", LAYERS[0], "relu_1", "linear_2", LAYERS[1], "relu_2", "linear_3")
    return nn.Sequential(OrderedDict(zip(names, paper_mlp(in_features, seed=seed), strict=True)))


def _judged(result: Normality, fitted: bool) -> str:
    """Return whether a layer's units are normal (with any moments, or the theoretical ones), with numbers."""
    share, distance = (result.fitted_rejected, result.fitted_distance) if fitted else (result.rejected, result.distance)
    chance, largest = rejected_by_chance(result, fitted), float(distance.nan_to_num(0).max())
    word = "holds" if share <= chance else "nearly holds" if largest < CLOSE else "does not hold"
    return (
        f"the normal {word}; {share:.0%} of units rejected (up to {chance:.0%} expected by chance); probabilities "
        f"differ by at most {largest:.2f}"
    )


def _median_unit(result: Normality) -> int:
    order = result.distance.argsort()[: result.units]
    return int(order[len(order) // 2])
