"""Compare active learning by uncertainty with random labelling, on digits, from 20 labels to 150.

The data are scikit-learn's 1,797 handwritten digits of 8x8 pixels. In every round a small batch-normalised network is
trained from scratch on the labelled images, MCBN makes it Bayesian, and an acquisition chooses ten more images from the
pool. All acquisitions of a seed start with the same images and differ in nothing else. 500 images, different ones for
every seed, are only used for scores. The area under a curve is its mean over the number of labels. Each acquisition's
area is compared with that of random labelling, seed by seed. Needs scikit-learn; the plot needs matplotlib.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn.functional import cross_entropy

from bayesnorm.active import Acquisition, ActiveLearner, BatchBALD, Random, bald, entropy
from bayesnorm.engines import MonteCarlo
from bayesnorm.errors import MissingExtraError
from bayesnorm.likelihoods import Categorical
from bayesnorm.methods import MCBN
from bayesnorm.metrics import accuracy, nll
from bayesnorm.plots import style
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import ClassificationPredictive
from bayesnorm.training import train

from .evidence import show_progress, write_numbers, write_picture
from .means import mean_and_error
from .networks import paper_mlp
from .options import OUT, OutFolder
from .panels import panels, set_figure_title
from .significance import Significance, significance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INITIAL, BATCH, BUDGET, TEST_ROWS = 20, 10, 150, 500
HIDDEN, TRAIN_BATCH, STEPS, DRAWS = (64, 64), 10, 200, 64
"""The network, the images per training batch (half of the first labels), steps per training, samples per prediction."""

ACQUISITIONS: dict[str, Acquisition] = {
    "random": Random(),
    "entropy": entropy,
    "BALD": bald,
    "BatchBALD": BatchBALD(),
}
LOOKS = {"random": (style.BLACK, "o", ":"), "entropy": (style.ORANGE, "s", "-."), "BALD": (style.BLUE, "^", "--")}
SCORES = {"accuracy": "test accuracy", "nll": "test NLL (nats)"}


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs of every acquisition.")] = 10, out: OutFolder = OUT
) -> None:
    """Compare labels chosen by uncertainty and at random, on handwritten digits.

    \b
    python -m experiments active-digits --seeds 10 --out out
    """
    torch.set_num_threads(1)  # such small networks only wait for a second core
    started = time.perf_counter()
    curves = learning_curves(seeds, progress=show_progress)
    show_progress("")
    seconds = round(time.perf_counter() - started)
    print(f"{curves.table()}\n\n{seconds} s")
    scores = {score: {name: runs.tolist() for name, runs in getattr(curves, score).items()} for score in SCORES}
    write_numbers(out / "active_digits.json", {"seconds": seconds, "labels": curves.labels.tolist(), **scores})
    write_picture(out / "active_digits.png", curves.draw())


@dataclass(frozen=True)
class LearningCurves:
    """Scores of all acquisitions over the number of labels.

    Args:
        labels: Numbers of labels, (k,).
        accuracy: Fraction of correct test labels by acquisition, (seeds, k).
        nll: Negative log likelihood of the test labels by acquisition, (seeds, k).
    """

    labels: np.ndarray
    accuracy: dict[str, np.ndarray]
    nll: dict[str, np.ndarray]

    def area(self, score: str) -> dict[str, np.ndarray]:
        """Return the mean of a score over the number of labels, by acquisition and seed."""
        steps = np.diff(self.labels) / (self.labels[-1] - self.labels[0])
        return {name: (runs[:, 1:] + runs[:, :-1]) / 2 @ steps for name, runs in getattr(self, score).items()}

    def against_random(self, score: str) -> dict[str, Significance]:
        """Compare each acquisition's area with that of random labelling, seed by seed, by a paired t-test."""
        areas = self.area(score)
        gains = {name: runs - areas["random"] for name, runs in areas.items() if name != "random"}
        return {name: significance(gain.tolist()) for name, gain in gains.items()}

    def table(self) -> str:
        """Return curves at some numbers of labels, and areas, as text: mean ± standard error over seeds."""
        seeds = len(self.accuracy["random"])
        shown = [i for i, count in enumerate(self.labels) if count in {50, 100} or i in {0, len(self.labels) - 1}]
        lines = []
        for score, title in SCORES.items():
            head = "".join(f"{f'{self.labels[i]} labels':>16}" for i in shown)
            lines.append(f"{f'{title}, {seeds} seeds':26}{head}{'area':>16}{'less random':>18}{'p':>9}")
            areas, tests = self.area(score), self.against_random(score) if seeds > 1 else {}
            for name, runs in getattr(self, score).items():
                columns = [*(runs[:, i] for i in shown), areas[name]]
                cells = "".join(f"{mean_and_error(column.tolist(), 3):>16}" for column in columns)
                test = tests.get(name)
                if test is not None:
                    cells += f"{f'{test.mean:+.4f} ± {test.standard_error:.4f}':>18}{test.p_value:9.2g} {test.stars}"
                lines.append(f"  {name:24}{cells}")
            lines.append("")
        return "\n".join(lines).rstrip()

    def draw(self) -> Axes:
        """Plot accuracy and NLL side by side: means over seeds, bands of one standard error."""
        (axes,) = panels(1, 2)
        for ax, (score, title) in zip(axes, SCORES.items(), strict=True):
            for name, runs in getattr(self, score).items():
                colour, marker, line = LOOKS.get(name, (style.GREEN, "D", "-"))
                mean = runs.mean(0)
                error = runs.std(0, ddof=1) / len(runs) ** 0.5 if len(runs) > 1 else np.zeros_like(mean)
                ax.plot(self.labels, mean, color=colour, marker=marker, ms=4, ls=line, lw=1.6, label=name)
                ax.fill_between(self.labels, mean - error, mean + error, color=colour, alpha=0.15, lw=0)
            ax.set_xlabel("labelled images")
            ax.set_ylabel(title)
        axes[0].legend(frameon=False, loc="lower right")
        runs = f"Mean of {len(self.accuracy['random'])} seeds, bands of one standard error"
        set_figure_title(axes[0], f"Digits: which images to label next? {runs}")
        return axes[0]


def learning_curves(
    seeds: int = 10,
    *,
    budget: int = BUDGET,
    acquisitions: dict[str, Acquisition] | None = None,
    steps: int = STEPS,
    progress: Callable[[str], None] | None = None,
) -> LearningCurves:
    """Return the curves of every acquisition over seeds, each with its own split, first images and networks.

    Args:
        seeds: Number of seeds.
        budget: Labels at the end.
        acquisitions: Acquisitions by name, including "random"; None for `ACQUISITIONS`.
        steps: Training steps per round.
        progress: Called with a line of text before every run.
    """
    images, digits = load_digits()
    acquisitions = acquisitions or ACQUISITIONS
    result: dict[str, list[list[tuple[int, float, float]]]] = {name: [] for name in acquisitions}
    for seed in range(seeds):
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(images)))
        test, pool = order[:TEST_ROWS], order[TEST_ROWS:]
        for name, acquisition in acquisitions.items():
            if progress is not None:
                progress(f"seed {seed}: {name}")
            rows = images[pool], digits[pool], images[test], digits[test]
            result[name].append(learning_curve(*rows, acquisition, seed=seed, budget=budget, steps=steps))
    labels = np.array([count for count, _, _ in result["random"][0]])
    return LearningCurves(
        labels,
        {name: np.array([[point[1] for point in run] for run in runs]) for name, runs in result.items()},
        {name: np.array([[point[2] for point in run] for run in runs]) for name, runs in result.items()},
    )


def learning_curve(
    x: Tensor,
    y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    acquisition: Acquisition,
    *,
    seed: int = 0,
    budget: int = BUDGET,
    steps: int = STEPS,
) -> list[tuple[int, float, float]]:
    """Return labels, test accuracy and test NLL after every round of one run; the oracle reads `y`."""
    curve: list[tuple[int, float, float]] = []

    def score(labels: int, posterior: Posterior) -> None:
        predictive = posterior.predict(test_x, MonteCarlo(DRAWS), seed)
        assert isinstance(predictive, ClassificationPredictive)
        curve.append((labels, float(accuracy(predictive, test_y)), float(nll(predictive, test_y))))

    ActiveLearner(
        x,
        oracle=lambda rows, _x: y[rows],
        fit=lambda x, y: fit(x, y, seed=seed, steps=steps),
        acquisition=acquisition,
        budget=budget,
        batch=BATCH,
        initial=INITIAL,
        engine=MonteCarlo(DRAWS),
        seed=seed,
        on_fit=score,
    ).run()
    return curve


def fit(x: Tensor, y: Tensor, *, seed: int, steps: int = STEPS) -> Posterior:
    """Train a network from scratch, and return its MCBN posterior."""
    network = paper_mlp(x.shape[1], 10, HIDDEN, eps=1e-5, seed=seed)
    epochs = max(1, round(steps / (len(x) // TRAIN_BATCH)))
    train(
        network,
        x,
        y,
        loss=cross_entropy,
        epochs=epochs,
        batch_size=TRAIN_BATCH,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=5e-3, fused=True),
        weight_decay=1e-4,
        seed=seed,
    )
    return MCBN(TRAIN_BATCH, states=DRAWS).fit(network, x, Categorical(), seed=seed)


def load_digits() -> tuple[Tensor, Tensor]:
    """Return all 1,797 digits: pixels from 0 to 1, (1797, 64), and classes, (1797,)."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError("The digits need scikit-learn: pip install scikit-learn pandas.") from error
    images, digits = datasets.load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32), torch.tensor(digits, dtype=torch.long)
