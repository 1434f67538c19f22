"""Figure 1 of the MCBN paper: a toy function with MCBN's bands and constant uncertainty.

The network has three hidden layers of 30, with 500 samples, as in the paper. The paper gives neither its points nor its
training, so those are ours. The noise, and the constant baseline's variance, minimise CRPS on a second set of points of
the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from torch.nn.functional import mse_loss

from bayesnorm.calibration import calibrate
from bayesnorm.engines import MonteCarlo
from bayesnorm.methods import MCBN
from bayesnorm.metrics import constant_variance
from bayesnorm.posterior import Posterior
from bayesnorm.training import Rescaled, train

from .evidence import write_picture
from .networks import paper_mlp
from .options import OUT, OutFolder
from .plots import FunctionBands
from .toy_regression import toy_regression

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH_SIZE, EPOCHS, DRAWS = 16, 400, 500


@dataclass(frozen=True)
class Figure1:
    """The data of the figure.

    Args:
        bands: Mean and intervals of the predictions from -6 to 6.
        points: The training rows.
        posterior: The posterior of the predictions.
    """

    bands: FunctionBands
    points: tuple[torch.Tensor, torch.Tensor]
    posterior: Posterior

    def draw(self) -> Axes:
        """Plot the bands and the training points."""
        ax = self.bands.draw(points=self.points)
        ax.set_title("Monte Carlo Batch Normalization on toy data, 500 samples")
        return ax


def main(
    out: OutFolder = OUT,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs on the 20 points.")] = EPOCHS,
) -> None:
    """Reproduce figure 1 of the MCBN paper: a toy function with MCBN's bands and constant uncertainty.

    \b
    python -m experiments teye-figure1 --out out
    """
    write_picture(out / "teye_figure1.png", figure1(epochs).draw())


def figure1(epochs: int = EPOCHS, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> Figure1:
    """Train the toy network, fit MCBN, choose its noise, and predict from -6 to 6."""
    x, y = toy_regression(seed)
    validation = toy_regression(seed + 1)
    network = Rescaled.from_data(paper_mlp(1, hidden=(30, 30, 30), seed=seed), x, y)
    train(
        network.network,
        *network.standardise(x, y),
        loss=mse_loss,
        epochs=epochs,
        batch_size=BATCH_SIZE,
        learning_rate=5e-3,
        seed=seed,
        progress=progress,
    )
    posterior = MCBN(BATCH_SIZE, center="batch").fit(network, (x, y), seed=seed)
    posterior = calibrate(posterior, *validation, batch_size=False, seed=seed)
    engine = MonteCarlo(DRAWS)
    mean = posterior.predict(validation[0], engine, seed).mean
    constant_std = float(constant_variance(mean, validation[1])) ** 0.5
    grid = torch.linspace(-6, 6, 401)
    bands = FunctionBands.from_posterior(posterior, grid, constant_std=constant_std, engine=engine, seed=seed)
    return Figure1(bands, (x, y), posterior)
