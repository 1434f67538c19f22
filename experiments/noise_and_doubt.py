"""Noise in the data and doubt about the network, told apart (Kendall and Gal 2017): four pictures of evidence.

    python -m bayesnorm.experiments.noise_and_doubt gap | size | shift | retention   [--out out]

Networks predict a mean and a log-variance (`HeteroscedasticGaussian`); the posterior over them is MCBN's, or that of
five networks from different weights. Aleatoric doubt is what the log-variance says, epistemic what the draws disagree
about.

- gap: one input, noise that depends on it, and a gap in the data. Aleatoric should follow the noise, epistemic the gap.
- size: a quarter, half and all of the training rows (power, protein). Epistemic should fall, aleatoric should not.
- shift: rows of another distribution. Epistemic should rise.
- retention: error of the rows that are kept when the most doubtful are dropped, and calibration, with each part alone.

Targets of power and protein are in standard deviations of the training rows; the sets need the data folder
(BAYESNORM_DATA).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesnorm.data import load_uci, paper_split
from bayesnorm.engines import MonteCarlo
from bayesnorm.files import write_bytes
from bayesnorm.likelihoods import HeteroscedasticGaussian
from bayesnorm.methods import MCBN, ensemble
from bayesnorm.metrics import aurc, crps, quantile_coverage, retention_curve
from bayesnorm.nets import paper_mlp
from bayesnorm.plots import save_figure, style
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.selection import calibrate
from bayesnorm.training import train

from .machine import machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH_SIZE, STEPS, MEMBERS, DRAWS, MOST_ROWS = 32, 3000, 5, 100, 8000
SETS = ("power", "protein")
LEVELS = [number / 20 for number in range(1, 20)]

Rows = tuple[Tensor, Tensor]


def posteriors(rows: Rows, validation: Rows, *, seed: int = 0, steps: int = STEPS) -> dict[str, Posterior]:
    """MCBN of one heteroscedastic network, the same at its calibrated batch size, and five networks."""
    likelihood = HeteroscedasticGaussian()
    epochs = max(1, math.ceil(steps / (len(rows[0]) // BATCH_SIZE)))

    def trained(part: torch.nn.Module, rows: Rows, validation: Rows, seed: int) -> None:
        train(
            part,
            rows,
            loss=likelihood.loss,
            epochs=epochs,
            batch_size=BATCH_SIZE,
            optimiser=lambda parameters: torch.optim.Adam(parameters, lr=5e-3),
            schedule=lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs),
            weight_decay=1e-5,
            validation=validation,
            evaluate_every=max(1, epochs // 20),
            seed=seed,
        )

    def network(number: int) -> torch.nn.Module:
        model = paper_mlp(rows[0].shape[1], 2, eps=1e-5, seed=number)
        trained(model, rows, validation, number)
        # Trained under batch norm, the noise holds the jitter of batches as well: the head learns it once more without.
        with torch.no_grad():
            seen, held_out = ((model[:-1](x), y) for x, y in (rows, validation))
        trained(model[-1], seen, held_out, number)
        return model

    networks = [network(1000 * seed + number) for number in range(MEMBERS)]
    mcbn = MCBN(BATCH_SIZE, states=DRAWS).fit(networks[0], rows, likelihood)
    return {
        "MCBN": mcbn,
        "MCBN, M' chosen": calibrate(mcbn, *validation, noise=False, samples=DRAWS),
        f"{MEMBERS} networks": ensemble(networks, likelihood),
    }


def predicted(posterior: Posterior, x: Tensor) -> RegressionPredictive:
    """A prediction with as many draws as there are."""
    draws = min(DRAWS, posterior.default_samples) if posterior.default_samples < 64 else DRAWS
    predictive = posterior.predict(x, MonteCarlo(draws))
    assert isinstance(predictive, RegressionPredictive)
    return predictive


def parts(posterior: Posterior, x: Tensor) -> tuple[float, float]:
    """Medians over rows of epistemic and aleatoric standard deviations.

    Not means: on rows of another distribution a predicted log-variance may be anything, and one row outweigh all.
    """
    predictive = predicted(posterior, x)
    return float(predictive.epistemic.sqrt().median()), float(predictive.aleatoric.sqrt().median())


# --- gap --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """Along one input: the true noise, and both parts of each posterior's doubt as standard deviations."""

    x: list[float]
    seen: list[bool]
    noise: list[float]
    points: tuple[list[float], list[float]]
    mean: list[float]
    aleatoric: dict[str, list[float]]
    epistemic: dict[str, list[float]]

    def follows_noise(self, name: str) -> float:
        """Correlation of aleatoric doubt and true noise where there are data."""
        pairs = zip(self.aleatoric[name], self.noise, self.seen, strict=True)
        found, true = zip(*[(a, b) for a, b, seen in pairs if seen], strict=True)
        return statistics.correlation(found, true)

    def gap_ratio(self, name: str) -> float:
        """Mean epistemic doubt in the gap over that where there are data."""
        inside = [value for value, x in zip(self.epistemic[name], self.x, strict=True) if abs(x) < 0.75]
        outside = [value for value, seen in zip(self.epistemic[name], self.seen, strict=True) if seen]
        return statistics.fmean(inside) / statistics.fmean(outside)

    def table(self) -> str:
        lines = ["gap: aleatoric against true noise (correlation), epistemic in the gap over that at the data"]
        return "\n".join(
            [*lines, *(f"{n:18} {self.follows_noise(n):6.2f} {self.gap_ratio(n):6.2f}" for n in self.epistemic)]
        )

    def draw(self) -> Axes:
        left, right = _panels(2)
        left.scatter(*self.points, s=6, color=style.BLACK, alpha=0.35, label="training points")
        left.plot(self.x, self.mean, color=style.BLUE, label="predictive mean, MCBN")
        left.legend(frameon=False, fontsize="small")
        left.set(xlabel="x", ylabel="y", title="Noise grows with x; no data between -1 and 1")
        right.plot(self.x, self.noise, color=style.BLACK, ls=":", label="true noise")
        colours = (style.BLUE, style.ORANGE, style.GREEN)
        for (name, aleatoric), colour in zip(self.aleatoric.items(), colours, strict=True):
            right.plot(self.x, aleatoric, color=colour, ls="--", label=f"aleatoric, {name}")
            right.plot(self.x, self.epistemic[name], color=colour, label=f"epistemic, {name}")
        right.axvspan(-1, 1, color="0.92", zorder=0)
        right.set(
            xlabel="x", ylabel="standard deviation", title="Both parts of the doubt", yscale="log", ylim=(1e-3, 20)
        )
        right.legend(frameon=False, fontsize="small", ncols=2, loc="upper left")
        return left


def gap(seed: int = 0, steps: int = STEPS, rows: int = 1000) -> Gap:
    """y = sin(2 x) with noise from .05 to .4, seen on [-4, -1] and [1, 4]."""

    def noise(x: Tensor) -> Tensor:
        return 0.05 + 0.35 * torch.sigmoid(2 * x)

    def sample(number: int, seed: int) -> Rows:
        generator = torch.Generator().manual_seed(seed)
        side = torch.randint(2, (number, 1), generator=generator) * 2.0 - 1
        x = side * (1 + 3 * torch.rand(number, 1, generator=generator))
        return x, torch.sin(2 * x) + noise(x) * torch.randn(number, 1, generator=generator)

    train_rows, validation = sample(rows, 2 * seed), sample(rows // 4, 2 * seed + 1)
    grid = torch.linspace(-4, 4, 321)[:, None]
    found = {
        name: predicted(posterior, grid)
        for name, posterior in posteriors(train_rows, validation, seed=seed, steps=steps).items()
    }
    return Gap(
        x=grid[:, 0].tolist(),
        seen=(grid[:, 0].abs() >= 1).tolist(),
        noise=noise(grid)[:, 0].tolist(),
        points=(train_rows[0][:, 0].tolist(), train_rows[1][:, 0].tolist()),
        mean=found["MCBN"].mean[:, 0].tolist(),
        aleatoric={name: p.aleatoric.sqrt()[:, 0].tolist() for name, p in found.items()},
        epistemic={name: p.epistemic.sqrt()[:, 0].tolist() for name, p in found.items()},
    )


# --- real data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Standardised rows of a set."""

    train: Rows
    validation: Rows
    test: Rows


def standardised(name: str, seed: int, most: int = MOST_ROWS) -> Split:
    """The paper's split of a set, at most `most` training rows of it, standardised by them."""
    x, y = (torch.tensor(part, dtype=torch.float32) for part in load_uci(name))
    rows, test = (torch.as_tensor(part) for part in paper_split(len(x), seed + 1))
    rows, test = rows[: most * 5 // 4], test[: most // 2]
    held = len(rows) // 5
    (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(part[rows[held:]], dim=0, correction=0) for part in (x, y))

    def part(chosen: Tensor) -> Rows:
        return (x[chosen] - x_mean) / x_std.clamp_min(1e-6), ((y[chosen] - y_mean) / y_std)[:, None]

    return Split(part(rows[held:]), part(rows[:held]), part(test))


@dataclass(frozen=True)
class Parts:
    """Epistemic and aleatoric standard deviation of several runs, by set, posterior and case."""

    title: str
    axis: str
    found: dict[str, dict[str, dict[str, list[tuple[float, float]]]]]

    def ratio(self, dataset: str, name: str, part: int) -> float:
        """Mean over runs of the last case's standard deviation over the first's; part 0 is epistemic, 1 aleatoric."""
        cases = list(self.found[dataset][name].values())
        return statistics.fmean(last[part] / first[part] for first, last in zip(cases[0], cases[-1], strict=True))

    def table(self) -> str:
        lines = [self.title]
        for dataset, methods in self.found.items():
            for name, cases in methods.items():
                for part, label in enumerate(("epistemic", "aleatoric")):
                    means = [statistics.fmean(run[part] for run in runs) for runs in cases.values()]
                    shown = "  ".join(f"{case} {mean:.4f}" for case, mean in zip(cases, means, strict=True))
                    lines.append(
                        f"{dataset:8} {name:16} {label:10} {shown}  ratio {self.ratio(dataset, name, part):.2f}"
                    )
        return "\n".join(lines)

    def draw(self) -> Axes:
        panels = _panels(len(self.found))
        for ax, (dataset, methods) in zip(panels, self.found.items(), strict=True):
            colours = (style.BLUE, style.ORANGE, style.GREEN)
            for (name, cases), colour in zip(methods.items(), colours, strict=True):
                for part, line, label in ((0, "-", "epistemic"), (1, "--", "aleatoric")):
                    means = [statistics.fmean(run[part] for run in runs) for runs in cases.values()]
                    ax.plot(list(cases), means, line, marker="o", color=colour, label=f"{label}, {name}")
            ax.set(title=dataset, xlabel=self.axis, ylabel="median standard deviation", yscale="log")
        panels[0].legend(frameon=False, fontsize="small")
        return panels[0]


def size(seeds: int = 2, steps: int = STEPS, most: int = MOST_ROWS) -> Parts:
    """A quarter, half and all of the training rows."""
    found: dict[str, Any] = {name: {} for name in SETS}
    for dataset in SETS:
        for seed in range(seeds):
            split = standardised(dataset, seed, most)
            for label, share in (("1/4", 4), ("1/2", 2), ("all", 1)):
                rows = len(split.train[0]) // share
                few = split.train[0][:rows], split.train[1][:rows]
                for name, posterior in posteriors(few, split.validation, seed=seed, steps=steps).items():
                    runs = found[dataset].setdefault(name, {}).setdefault(label, [])
                    runs.append(parts(posterior, split.test[0]))
    return Parts("size: more training rows", "training rows", found)


def shift(seeds: int = 2, steps: int = STEPS, most: int = MOST_ROWS) -> Parts:
    """Trained on rows near the middle of the inputs' first principal component, asked about the others too."""
    found: dict[str, Any] = {name: {} for name in SETS}
    for dataset in SETS:
        for seed in range(seeds):
            split = standardised(dataset, seed, most)
            direction = torch.linalg.svd(split.train[0], full_matrices=False)[2][0]
            near = (split.train[0] @ direction).abs().quantile(0.5)

            def inner(rows: Rows, direction: Tensor = direction, near: Tensor = near) -> Tensor:
                return (rows[0] @ direction).abs() <= near

            chosen, held = inner(split.train), inner(split.validation)
            made = posteriors(
                (split.train[0][chosen], split.train[1][chosen]),
                (split.validation[0][held], split.validation[1][held]),
                seed=seed,
                steps=steps,
            )
            inside = inner(split.test)
            for name, posterior in made.items():
                for label, rows in (("like the training rows", inside), ("others", ~inside)):
                    runs = found[dataset].setdefault(name, {}).setdefault(label, [])
                    runs.append(parts(posterior, split.test[0][rows]))
    return Parts("shift: another distribution", "test rows", found)


@dataclass(frozen=True)
class Retention:
    """With each part of the doubt alone, and both: errors of the rows kept, and how often quantiles hold."""

    kept: list[float]
    error: dict[str, dict[str, list[float]]]
    area: dict[str, dict[str, float]]
    covered: dict[str, dict[str, list[float]]]
    crps: dict[str, dict[str, float]]

    def table(self) -> str:
        lines = ["retention: mean absolute error over all shares kept (AURC), and CRPS"]
        for dataset, areas in self.area.items():
            lines += [
                f"{dataset:8} {name:10} AURC {area:.4f}  CRPS {self.crps[dataset][name]:.4f}"
                for name, area in areas.items()
            ]
        return "\n".join(lines)

    def draw(self) -> Axes:
        panels = _panels(2 * len(self.error), 2)
        colours = dict(zip(("epistemic", "aleatoric", "both"), (style.BLUE, style.ORANGE, style.GREEN), strict=True))
        for number, dataset in enumerate(self.error):
            left, right = panels[2 * number : 2 * number + 2]
            for name, error in self.error[dataset].items():
                width = 4 if name == "aleatoric" else 1.6  # where noise is nearly all, both lie on it
                left.plot(self.kept, error, color=colours[name], lw=width, label=f"by {name}")
                right.plot(LEVELS, self.covered[dataset][name], color=colours[name], lw=width, label=name)
            right.plot([0, 1], [0, 1], color=style.BLACK, lw=0.8)
            left.set(
                title=f"{dataset}: most doubtful dropped", xlabel="share of rows kept", ylabel="mean absolute error"
            )
            right.set(title=f"{dataset}: calibration", xlabel="quantile level", ylabel="share of targets below")
            left.legend(frameon=False, fontsize="small")
            right.legend(frameon=False, fontsize="small")
        return panels[0]


def retention(seed: int = 0, steps: int = STEPS, most: int = MOST_ROWS) -> Retention:
    """MCBN at its calibrated batch size, each part of its doubt alone and both together."""
    shares = [number / 50 for number in range(3, 51)]
    found = Retention(shares, {}, {}, {}, {})
    for dataset in SETS:
        split = standardised(dataset, seed, most)
        posterior = posteriors(split.train, split.validation, seed=seed, steps=steps)["MCBN, M' chosen"]
        whole, y = predicted(posterior, split.test[0]), split.test[1]
        error = (whole.mean - y).abs().flatten()
        variances = {"epistemic": whole.epistemic, "aleatoric": whole.aleatoric, "both": whole.variance}
        for name, variance in variances.items():
            curve = retention_curve(variance.flatten(), error)
            at = [curve.error[max(0, round(share * len(error)) - 1)].item() for share in shares]
            alone = RegressionPredictive(whole.mean[None], variance.sqrt()[None])
            found.error.setdefault(dataset, {})[name] = at
            found.area.setdefault(dataset, {})[name] = float(aurc(variance.flatten(), error))
            found.covered.setdefault(dataset, {})[name] = quantile_coverage(alone, y, LEVELS).tolist()
            found.crps.setdefault(dataset, {})[name] = float(crps(alone, y))
    return found


EVIDENCE: dict[str, Callable[[], Gap | Parts | Retention]] = {
    "gap": gap,
    "size": size,
    "shift": shift,
    "retention": retention,
}


def _panels(count: int, columns: int | None = None) -> list[Axes]:
    """Axes side by side in one new figure."""
    from matplotlib.figure import Figure

    columns = columns or count
    rows = -(-count // columns)
    figure = Figure(figsize=(5.6 * columns, 4.2 * rows), layout="constrained")
    return [style.axes(figure.add_subplot(rows, columns, number + 1)) for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=EVIDENCE)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # networks this small only wait for a second core
    found = EVIDENCE[options.figure]()
    print(found.table())
    options.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), **asdict(found)}
    write_bytes(options.out / f"noise_{options.figure}.json", json.dumps(content).encode())
    save_figure(found.draw(), options.out / f"noise_{options.figure}.png")


if __name__ == "__main__":
    main()
