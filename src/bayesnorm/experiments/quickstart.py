"""The main job in small: train a network with batch norm on a real table, make it Bayesian, see how good its doubt is.

The table is scikit-learn's diabetes set (442 patients, 10 measurements, disease progression after a year), which comes
with scikit-learn. Test rows are used once, for the printed scores; epochs, noise and effective batch size are chosen on
validation rows. Run it with `python -m bayesnorm.experiments.quickstart`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from ..engines import MonteCarlo
from ..errors import MissingExtraError
from ..methods import MCBN
from ..metrics import constant_uncertainty, constant_variance, crps, normalised_crps, pll, rmse
from ..nets import Rescaled, paper_mlp
from ..predictive import RegressionPredictive
from ..selection import calibrate
from ..training import train
from .teye_figure1 import figure1

BATCH_SIZE, WEIGHT_DECAY, EPOCHS, SPLITS, DRAWS = 32, 1e-2, 200, 5, 256
Row = dict[str, float]


def diabetes() -> tuple[Tensor, Tensor]:
    """Inputs (442, 10) in their own units, and targets (442, 1)."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise MissingExtraError("quickstart needs scikit-learn: pip install 'bayesnorm[tabular]'.") from error
    x, y = load_diabetes(return_X_y=True, scaled=False)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]


def one_split(seed: int, progress: Callable[[int, int], None] | None = None) -> dict[str, Row]:
    """Train on 60 % of the rows, choose on 20 %, score the other 20 %: scores by method."""
    x, y = diabetes()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    test, validation, rest = order.split([88, 88, len(x) - 176])
    network = Rescaled.of(paper_mlp(x.shape[1], seed=seed), x[rest], y[rest])
    train(
        network.network,
        *network.standardise(x[rest], y[rest]),
        loss=lambda f, target: 0.5 * mse_loss(f, target),
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        weight_decay=WEIGHT_DECAY,
        evaluate=lambda _: float(mse_loss(network(x[validation]), y[validation])),
        evaluate_every=5,
        patience=10,
        seed=seed,
        progress=progress,
    )
    held_out = x[validation], y[validation]
    engine = MonteCarlo(DRAWS)
    published = MCBN(BATCH_SIZE, center="batch").fit(network, x[rest], seed=seed)
    centred = MCBN(BATCH_SIZE).fit(network, x[rest], seed=seed)
    posteriors = {
        "MCBN (paper)": calibrate(published, *held_out, batch_size=False, seed=seed),
        "MCBN, centred": calibrate(centred, *held_out, batch_size=False, seed=seed),
        "MCBN, M' chosen": calibrate(centred, *held_out, seed=seed),
    }
    with torch.no_grad():
        point = RegressionPredictive(network(x[test])[None], torch.ones(()))
        variance = constant_variance(network(x[validation]), y[validation])
    found = {"BN": constant_scores(point, variance, y[test])}
    for name, posterior in posteriors.items():
        predictive = posterior.predict(x[test], engine, seed)
        assert isinstance(predictive, RegressionPredictive)
        variance = constant_variance(posterior.predict(x[validation], engine, seed).mean, y[validation])
        found[name] = constant_scores(predictive, variance, y[test]) | {
            "PLL": float(pll(predictive, y[test])),
            "CRPS": float(crps(predictive, y[test])),
            "gain": float(normalised_crps(predictive, y[test], variance)),
        }
    return found


def constant_scores(predictive: RegressionPredictive, variance: Tensor, y: Tensor) -> Row:
    """Scores of a predictive's mean with one variance for all rows."""
    constant = constant_uncertainty(predictive, variance)
    return {
        "RMSE": float(rmse(predictive, y)),
        "PLL, constant": float(pll(constant, y)),
        "CRPS, constant": float(crps(constant, y)),
    }


def main() -> None:
    """Print the table and the picture's path."""
    parser = argparse.ArgumentParser(prog="python -m bayesnorm.experiments.quickstart", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture (default: out)")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"random splits of the rows (default: {SPLITS})")
    options = parser.parse_args()
    if options.splits < 1:
        parser.error(f"--splits: {options.splits} was given; at least 1 would work.")
    try:
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.progress import Progress
        from rich.table import Table
    except ImportError as error:
        raise MissingExtraError("quickstart needs rich: pip install 'bayesnorm[cli]'.") from error

    torch.set_num_threads(1)  # networks this small gain nothing from more, and wait for them on a busy machine
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    with Progress(console=console) as bars:
        tables = bars.add_task(f"diabetes: {options.splits} splits", total=options.splits * EPOCHS)
        results = []
        for seed in range(options.splits):
            results.append(one_split(seed, lambda _done, _total: bars.advance(tables)))
            bars.update(tables, completed=(seed + 1) * EPOCHS)
        toy = bars.add_task("figure 1: toy function", total=1)
        picture = figure1(progress=lambda done, total: bars.update(toy, completed=done, total=total))
    table = Table(
        title=f"Diabetes progression, mean over {options.splits} splits", box=SIMPLE, padding=(0, 1), pad_edge=False
    )
    table.add_column("", no_wrap=True)
    for column in ("RMSE", "PLL (constant)", "CRPS (constant)", "gain %"):
        table.add_column(column, justify="right", no_wrap=True)
    for method in results[0]:
        mean = {key: _mean([result[method][key] for result in results]) for key in results[0][method]}
        spread = _standard_error([result[method].get("gain", 0.0) for result in results])
        scored = "CRPS" in mean
        table.add_row(
            method,
            f"{mean['RMSE']:.1f}",
            (f"{mean['PLL']:.2f} " if scored else "") + f"({mean['PLL, constant']:.2f})",
            (f"{mean['CRPS']:.2f} " if scored else "") + f"({mean['CRPS, constant']:.2f})",
            f"{mean['gain']:.2f} ± {spread:.2f}" if scored else "",
        )
    console.print(table)
    console.print(
        "RMSE and CRPS: in units of the target, lower is better. PLL: higher is better.\n"
        "(constant): the same mean with one variance for all rows, from validation rows.\n"
        "Gain: share of the way from constant to perfect doubt in CRPS, ± standard error."
    )
    path = options.out / "figure1.png"
    picture.save(path)
    console.print(f"Picture: {path.resolve()}", soft_wrap=True)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _standard_error(values: list[float]) -> float:
    return float(torch.tensor(values).std() / len(values) ** 0.5) if len(values) > 1 else float("nan")


if __name__ == "__main__":
    main()
