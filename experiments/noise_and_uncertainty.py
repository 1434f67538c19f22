"""Test whether the noise of a regression should rise with the samples' variance, as a softmax's temperature does.

log noise(x) = a + b z(x), where z is the standardised logarithm of the variance of MCBN's samples, from 0 to 2 or from
-2 to 2. a and b are fitted on validation rows by the likelihood, b with and without the prior that `calibrate` uses for
a classifier's slope. The comparison is one constant noise. In all cases the predictive is N(mean, variance of the
samples + noise^2). Networks are small ones on the UCI sets, split as in the MCBN paper; scores are on test rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import bayesnorm as bn
from bayesnorm.calibration.sampled_outputs import PRIOR
from bayesnorm.predictive import gaussian_crps

from .cosine_training import train_steps
from .data import UCI_SETS
from .evidence import show_progress, write_numbers
from .kendall_uncertainty.posteriors import standardised as standardised_split
from .networks import paper_mlp
from .options import OUT, OutFolder, Size
from .temperature.uncertainty import minimised, standardised

BATCH_SIZE, DRAWS, MOST_ROWS = 32, 100, 8000
STEPS = {Size.quick: 200, Size.paper: 3000}
SPLITS = {Size.quick: 1, Size.paper: 5}
CONSTANT = "constant noise"
FORMS = {"rising": (0.0, PRIOR), "rising, no prior": (0.0, math.inf), "both ways, no prior": (-2.0, math.inf)}
"""The smallest z and the prior's standard deviation of b, by name."""


def main(
    preset: Annotated[
        Size, typer.Option(help="How much to measure: a short test (quick), or five splits of every set (paper).")
    ] = Size.quick,
    sets: Annotated[list[str] | None, typer.Option("--set", help="UCI sets. [default: all]")] = None,
    out: OutFolder = OUT,
) -> None:
    """Compare noise that rises with uncertainty with constant noise, on the UCI sets.

    \b
    python -m experiments noise-and-uncertainty --preset paper --out out
    """
    rows = []
    for name in sets or UCI_SETS:
        values = []
        for split in range(SPLITS[preset]):
            show_progress(f"{name}, split {split + 1}")
            values.append(measure(name, split, STEPS[preset]))
        show_progress("")
        rows += [summary(name, form, values) for form in (CONSTANT, *FORMS)]
        for row in rows[-len(FORMS) :]:
            print(text(row))
    write_numbers(out / "noise_and_uncertainty.json", {"preset": str(preset), "rows": rows})


def measure(name: str, split: int, steps: int) -> dict[str, dict[str, Any]]:
    """Return for every form the NLL and CRPS of every test row, and the slope."""
    rows = standardised_split(name, split, MOST_ROWS)
    network = paper_mlp(rows.train[0].shape[1], 1, eps=1e-5, seed=split)
    loss = torch.nn.functional.mse_loss
    train_steps(network, rows.train, loss, steps=steps, batch_size=BATCH_SIZE, validation=rows.validation, seed=split)
    posterior = bn.MCBN(BATCH_SIZE, states=DRAWS).fit(network, rows.train[0], bn.Gaussian(1.0), seed=split)

    def drawn(x: Tensor) -> tuple[Tensor, Tensor]:
        f = bn.MonteCarlo(DRAWS).outputs(posterior, x)[..., 0].double()
        return f.mean(0), f.var(0)

    (mean, variance), y = drawn(rows.validation[0]), rows.validation[1][:, 0].double()
    (test_mean, test_variance), target = drawn(rows.test[0]), rows.test[1][:, 0].double()
    center, spread = float(variance.log().mean()), float(variance.log().std())
    results = {}
    for form, (least, prior) in {CONSTANT: (0.0, 0.0), **FORMS}.items():
        z, test_z = (standardised(v.log(), center, spread, least) for v in (variance, test_variance))
        weight = 0.0 if prior in (0.0, math.inf) else 1 / (2 * prior**2 * len(y))
        free = 0.0 if form == CONSTANT else 1.0

        def objective(p: Tensor, z: Tensor = z, weight: float = weight, free: float = free) -> Tensor:
            total = variance + (2 * (p[0] + free * p[1] * z)).exp()
            return _nll(mean, total, y).mean() + weight * p[1].square()

        level, slope = minimised(objective, [math.log(float((y - mean).square().mean().sqrt())), 0.0])
        total = test_variance + (2 * (level + free * slope * test_z)).exp()
        results[form] = {
            "nll": _nll(test_mean, total, target),
            "crps": gaussian_crps(target, test_mean, total.sqrt()),
            "slope": slope,
        }
    return results


def _nll(mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
    return 0.5 * ((y - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def summary(name: str, form: str, splits: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return mean scores, and their differences from constant noise with the standard error over test rows."""

    def over_rows(read: Callable[[dict[str, dict[str, Any]]], Tensor]) -> Tensor:
        return torch.cat([read(split) for split in splits])

    results: dict[str, Any] = {"set": name, "form": form, "slopes": [round(s[form]["slope"], 3) for s in splits]}
    for score in ("nll", "crps"):
        gain = over_rows(lambda s, score=score: s[form][score] - s[CONSTANT][score])  # type: ignore[misc]
        values = over_rows(lambda s, score=score: s[form][score])  # type: ignore[misc]
        results[score] = round(float(values.mean()), 5)
        results[f"{score}_difference"] = round(float(gain.mean()), 5)
        results[f"{score}_standard_error"] = round(float(gain.std()) / len(gain) ** 0.5, 5)
    return results


def text(row: dict[str, Any]) -> str:
    """Return a line of text for a row."""
    scores = (
        f"{score.upper()} {row[score]:8.4f} ({row[f'{score}_difference']:+.4f} ± {row[f'{score}_standard_error']:.4f})"
        for score in ("nll", "crps")
    )
    return f"{row['set']:10} {row['form']:20} {'  '.join(scores)}  slopes {row['slopes']}"
