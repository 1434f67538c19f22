"""Claims of the lectures about MC dropout: its precision, its bands, and its rates over the width of networks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from scipy import stats
from torch import nn
from torch.nn.functional import mse_loss

from bayesnorm.calibration import calibrate
from bayesnorm.engines import MonteCarlo
from bayesnorm.methods import MCDropout
from bayesnorm.metrics import crps
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.training import train

from ..networks import paper_dropout_mlp
from ..toy_regression import toy_regression
from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column, mean, p_value, significantly_above
from .toy import friedman_rows

ROWS, HELD_OUT, EPOCHS, BATCH_SIZE = 500, 500, 150, 32
DECAYS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
RATE = 0.1
WIDTHS, RATES = (10, 30, 100, 300), (0.005, 0.02, 0.05, 0.1, 0.2, 0.5)
TRIALS, FAR, NEAR, INSIDE = 100, 20.0, 10.0, 3.0
BAND_EPOCHS = 1_500


def measure_precision(seed: int) -> Numbers:
    """Return the precision that held-out rows choose, by lambda in the loss 1/N sum 1/2 (y - f)^2 + lambda |W|^2."""
    return {
        str(decay): float(_dropout_posterior(RATE, 50, decay, seed).likelihood.precision)  # type: ignore[attr-defined]
        for decay in DECAYS
    }


def judge_precision(runs: Sequence[Numbers]) -> Verdict:
    """Judge the slope of log precision over log lambda, which the formula says is -1."""
    precisions = [math.exp(statistics.fmean(map(math.log, column(runs, str(decay))))) for decay in DECAYS]
    slope = float(stats.linregress([math.log(decay) for decay in DECAYS], [math.log(p) for p in precisions]).slope)
    lengths = [math.sqrt(2 * ROWS * decay * p / (1 - RATE)) for decay, p in zip(DECAYS, precisions, strict=True)]
    word = HOLDS if abs(slope + 1) <= 0.25 else PARTLY if slope < -0.5 else FAILS
    return Verdict(
        word,
        f"the best precision goes as lambda to the power of {slope:.2f} (the formula: -1): "
        f"{', '.join(f'{p:.1f}' for p in precisions)} for lambda from {DECAYS[0]:g} to {DECAYS[-1]:g}. The formula "
        f"gives these for length-scales from {max(lengths):.2g} to {min(lengths):.2g}",
    )


def measure_bands(seed: int) -> Numbers:
    """Return the standard deviation of 100 trials within, near and far from the data, with ReLU and with tanh."""
    x, y = toy_regression(seed)
    places = torch.tensor([INSIDE, NEAR, FAR])
    results: Numbers = {}
    for name, activation in (("relu", nn.ReLU), ("tanh", nn.Tanh)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers: list[nn.Module] = [nn.Linear(1, 50), activation(), nn.Dropout(RATE)]
            for _ in range(4):
                layers += [nn.Linear(50, 50), activation(), nn.Dropout(RATE)]
            network = nn.Sequential(*layers, nn.Linear(50, 1))
        train(network, x, y, loss=mse_loss, epochs=BAND_EPOCHS, batch_size=20, seed=seed, weight_decay=1e-5)
        posterior = MCDropout().fit(network, (x, y))
        grid = torch.cat([places, -places])[:, None]
        std = posterior.predict(grid, MonteCarlo(TRIALS), seed=seed).epistemic.sqrt().view(2, 3).mean(0)
        results[name] = {"inside": float(std[0]), "near": float(std[1]), "far": float(std[2])}
    return results


def judge_bands(runs: Sequence[Numbers]) -> Verdict:
    """Judge how the bands grow from |x| = 10 to 20: nearly in proportion with ReLU, hardly with tanh."""
    relu, tanh = (mean(runs, name, "far") / mean(runs, name, "near") for name in ("relu", "tanh"))
    word = HOLDS if relu > 1.3 and tanh < 1.1 else PARTLY if relu > 1.3 or tanh < 1.1 else FAILS
    inside = {name: mean(runs, name, "near") / mean(runs, name, "inside") for name in ("relu", "tanh")}
    return Verdict(
        word,
        f"from {NEAR:.0f} to {FAR:.0f} away from 0 the standard deviation grows by a factor of {relu:.2f} with ReLU "
        f"and {tanh:.2f} with tanh; from {INSIDE:.0f}, among the data, to {NEAR:.0f} by {inside['relu']:.1f} and "
        f"{inside['tanh']:.1f}",
    )


def measure_widths(seed: int) -> Numbers:
    """Return the rate with the best validation score and its scores on new rows, by the width of two hidden layers."""
    x, y, _ = friedman_rows(HELD_OUT, seed + 1_000)
    new, target, _ = friedman_rows(2_000, seed + 2_000)
    results: Numbers = {}
    for width in WIDTHS:
        scored = []
        for rate in RATES:
            posterior = _dropout_posterior(rate, width, 1e-5, seed)
            scored.append((float(crps(posterior.predict(x), y).mean()), rate, posterior))
        _, rate, posterior = min(scored, key=lambda entry: entry[0])
        predictive = posterior.predict(new)
        results[str(width)] = {
            "rate": rate,
            "crps": float(crps(predictive, target).mean()),
            "correlation": float(
                stats.spearmanr(predictive.variance.flatten(), (predictive.mean - target).abs().flatten()).statistic
            ),
        }
    return results


def judge_rates(runs: Sequence[Numbers]) -> Verdict:
    """Judge how the best rate changes with the width."""
    rates = [math.exp(statistics.fmean(map(math.log, column(runs, str(width), "rate")))) for width in WIDTHS]
    differences = [
        math.log(large / small)
        for small, large in zip(
            column(runs, str(WIDTHS[0]), "rate"), column(runs, str(WIDTHS[-1]), "rate"), strict=True
        )
    ]
    higher = rates[-1] >= 2 * rates[0] and significantly_above(differences)
    word = HOLDS if higher and rates == sorted(rates) else PARTLY if higher else FAILS
    shown = ", ".join(f"{rate:.3f} for {width}" for width, rate in zip(WIDTHS, rates, strict=True))
    return Verdict(word, f"best rates by CRPS on validation rows (geometric means over seeds), by width: {shown}")


def judge_widths(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether the widest network has better uncertainty than the narrowest, each at its best rate."""
    better = [
        small - large
        for small, large in zip(
            column(runs, str(WIDTHS[0]), "crps"), column(runs, str(WIDTHS[-1]), "crps"), strict=True
        )
    ]
    ranking = [
        large - small
        for small, large in zip(
            column(runs, str(WIDTHS[0]), "correlation"), column(runs, str(WIDTHS[-1]), "correlation"), strict=True
        )
    ]
    scores = significantly_above(better), significantly_above(ranking)
    word = HOLDS if all(scores) else PARTLY if any(scores) else FAILS
    shown = [
        f"{mean(runs, str(width), 'crps'):.3f} and {mean(runs, str(width), 'correlation'):.2f} for {width}"
        for width in WIDTHS
    ]
    return Verdict(
        word,
        f"CRPS, and rank correlation of variance and absolute error, by width: {'; '.join(shown)} (widest against "
        f"narrowest: p = {p_value(better):.2g} and {p_value(ranking):.2g})",
    )


def _dropout_posterior(rate: float, width: int, decay: float, seed: int) -> Posterior[RegressionPredictive]:
    """Return MC dropout on a network trained on Friedman's function, with the noise that held-out rows choose."""
    x, y, _ = friedman_rows(ROWS, seed)
    network = paper_dropout_mlp(x.shape[1], rate, hidden=(width, width), seed=seed)
    options: dict[str, Any] = {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "learning_rate": 3e-3,
        "weight_decay": 2 * decay,
    }
    train(network, x, y, loss=lambda f, target: 0.5 * mse_loss(f, target), seed=seed, **options)
    held_out = friedman_rows(HELD_OUT, seed + 1_000)[:2]
    return calibrate(MCDropout().fit(network, (x, y)), *held_out, seed=seed)


PRECISION = Claim(
    "dropout-precision",
    "lectures; Gal and Ghahramani (2016)",
    "the precision of MC dropout is l^2 q / (2 N lambda)",
    "holds if the precision chosen on held-out rows goes as 1 / lambda, with an exponent within 0.25 of -1; partly "
    "below -0.5",
    measure_precision,
    judge_precision,
)
BANDS = Claim(
    "dropout-bands",
    "lectures",
    "with five ReLU layers the bands of MC dropout widen away from the data, with tanh they do not",
    "holds if the standard deviation grows by more than 1.3 from |x| = 10 to 20 with ReLU, and by less than 1.1 with "
    "tanh; partly if one is so",
    measure_bands,
    judge_bands,
)
LARGE_RATES = Claim(
    "dropout-rates",
    "lectures",
    "larger models need higher dropout rates",
    "holds if the best rate rises with every width, at least doubles from 10 to 300 units, and the difference is "
    "significant (paired t-test, 5 %); partly without the steady rise",
    measure_widths,
    judge_rates,
)
LARGE_MODELS = Claim(
    "over-parameterised",
    "lectures",
    "over-parameterised models give better uncertainty",
    "holds if 300 units beat 10 in CRPS and in the rank correlation of variance and error, each significantly (paired "
    "t-test, 5 %); partly if in one",
    measure_widths,
    judge_widths,
)
