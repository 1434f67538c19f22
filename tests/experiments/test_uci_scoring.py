"""Scores of the regression benchmark, many networks at once, against the paper's formulas for one at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal

from experiments.uci.scoring import Asked, Noise, scores

SAMPLES, SPLITS = 7, 2
LENGTHS = 20, 13, 17, 20
"""Rows of the folds of two splits: the first two are one split's."""

BETWEEN = 1e-2, 1e2
EXACT = {"rtol": 1e-9, "atol": 1e-9}
"""Sums of a few hundred numbers in double precision, in another order."""


class Outputs:
    """Stands for networks: returns fixed outputs, (T, E, n, 1), or their moments, and counts the calls."""

    def __init__(self, f):
        self.f, self.runs, self.moments_computed = f, 0, 0

    def outputs(self, n):
        self.runs += 1
        return self.f[:n]

    def moments(self, n):
        self.moments_computed += 1
        return self.f[:n].mean(0), self.f[:n].var(0, correction=0)


def task():
    """Targets about 40, and outputs about them with errors of 2 and samples that differ by 1.5; both also in lists."""
    generator = torch.Generator().manual_seed(1)
    targets = [40 + 5 * torch.randn(n, generator=generator, dtype=torch.float64) for n in LENGTHS]
    y = torch.full((len(LENGTHS), max(LENGTHS), 1), math.nan, dtype=torch.float64)
    f = torch.full((SAMPLES, *y.shape), 1e3, dtype=torch.float64)  # far off where there is no row
    for i, (own, n) in enumerate(zip(targets, LENGTHS, strict=True)):
        y[i, :n, 0] = own
        error = 2 * torch.randn(n, generator=generator, dtype=torch.float64)
        f[:, i, :n, 0] = own + error + 1.5 * torch.randn(SAMPLES, n, generator=generator, dtype=torch.float64)
    networks = Outputs(f)
    asked = Asked.from_outputs(networks.outputs, y, SAMPLES, SPLITS)
    return asked, networks, [f[:, i, :n, 0] for i, n in enumerate(LENGTHS)], targets


def plain_crps(mean, var, y):
    """Of the Gaussian with the moments of the samples and the noise, as in the paper."""
    std = torch.as_tensor(var, dtype=torch.float64).sqrt()
    z, normal = (y - mean) / std, Normal(torch.tensor(0.0).double(), 1.0)
    return (std * (z * (2 * normal.cdf(z) - 1) + 2 * normal.log_prob(z).exp() - math.pi**-0.5)).mean()


def plain_pll(f, precision, y):
    """Of the mixture over samples, as in the paper."""
    exponents = -0.5 * precision * (y - f).square()
    constant = -math.log(len(f)) - 0.5 * math.log(2 * math.pi) + 0.5 * math.log(precision)
    return (exponents.logsumexp(0) + constant).mean()


def plain_scores(f, y, precision, own, constant, constant_own):
    """All scores of one network; precisions by CRPS and by the likelihood, and those of constant uncertainty."""
    mean, var = f.mean(0), f.var(0, correction=0) + 1 / precision
    error = y - mean
    optimal_crps = math.erf(math.sqrt(math.log(2) / 2)) * error.abs().mean()
    optimal_pll = Normal(0.0, error.abs()).log_prob(error).mean()

    def normalised(score, of_constant, optimum):
        return 100 * (score - of_constant) / (optimum - of_constant)

    crps, pll, pll_own = plain_crps(mean, var, y), plain_pll(f, precision, y), plain_pll(f, own, y)
    return {
        "rmse": error.square().mean().sqrt(),
        "crps": crps,
        "pll": pll,
        "pll_own": pll_own,
        "normalised_crps": normalised(crps, plain_crps(mean, 1 / constant, y), optimal_crps),
        "normalised_pll": normalised(pll, plain_pll(mean[None], constant, y), optimal_pll),
        "normalised_pll_own": normalised(pll_own, plain_pll(mean[None], constant_own, y), optimal_pll),
        "coverage_95": (error.abs() <= 1.959964 * var.sqrt()).double().mean(),
        "precision": torch.tensor(precision).double(),
    }


def known_noise(splits=SPLITS):
    values = {
        "crps": [0.4, 0.2],
        "pll": [0.3, 0.6],
        "constant_crps": [0.15, 0.25],
        "constant_pll": [0.1, 0.35],
        "cv_crps": [1.5, 1.25],
    }
    return Noise(**{name: torch.tensor(own[:splits]).double() for name, own in values.items()})


def test_scores_are_the_papers():
    asked, _, outputs, targets = task()
    noise = known_noise()
    found = scores(asked, noise)
    assert len(found["coverage_95"].unique()) > 1, "some rows are outside"
    for i, (f, y) in enumerate(zip(outputs, targets, strict=True)):
        chosen = (getattr(noise, name)[i // 2].item() for name in ("crps", "pll", "constant_crps", "constant_pll"))
        expected = plain_scores(f, y, *chosen) | {"cv_crps": noise.cv_crps[i // 2]}
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name][i], value, **EXACT, msg=f"{name} of network {i}")


def test_noise_is_the_best_of_a_fine_grid():
    """Every split has one precision, which makes the mean over its folds of their mean score best."""
    asked, _, outputs, targets = task()
    noise = Noise.chosen(asked, BETWEEN)
    grid = torch.logspace(-2, 2, 201, dtype=torch.float64).tolist()
    spacing = grid[1] / grid[0]
    kinds = {
        "crps": lambda f, p, y: plain_crps(f.mean(0), f.var(0, correction=0) + 1 / p, y),
        "pll": lambda f, p, y: -plain_pll(f, p, y),
        "constant_crps": lambda f, p, y: plain_crps(f.mean(0), 1 / p, y),
        "constant_pll": lambda f, p, y: -plain_pll(f.mean(0)[None], p, y),
    }
    for name, score in kinds.items():
        for split in range(SPLITS):

            def mean_score(precision, split=split, score=score):
                folds = (2 * split, 2 * split + 1)
                return float(torch.stack([score(outputs[i], precision, targets[i]) for i in folds]).mean())

            reached = [mean_score(precision) for precision in grid]
            best, chosen = min(range(len(grid)), key=reached.__getitem__), float(getattr(noise, name)[split])
            assert 0 < best < len(grid) - 1, "the test is about a minimum inside the range"
            assert grid[best] / spacing < chosen < grid[best] * spacing
            assert mean_score(chosen) <= reached[best] + 1e-12
            if name == "crps":
                assert float(noise.cv_crps[split]) == pytest.approx(mean_score(chosen), rel=1e-9)
    assert abs(noise.crps[0] / noise.crps[1] - 1) > 0.05, "every split has its own"
