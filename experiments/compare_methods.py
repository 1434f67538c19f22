"""Compare all methods on small regression sets: the quality of their uncertainty, and their cost.

All methods and sets use one network shape (two hidden layers of 50) and the same training settings; nothing is tuned
per method. A fifth of the training rows are validation rows: they choose the best epoch of a deterministic network, and
each method's noise by CRPS. Test rows are scored once. Each method is compared with constant uncertainty with *its own*
mean: 0 % is one variance for all rows, chosen on validation rows; 100 % is the best variance for every single row.
Below 0 % the method's uncertainty is worse than constant. UCI sets need the data folder (BAYESNORM_DATA).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bayesnorm.calibration import calibrate
from bayesnorm.engines import MonteCarlo
from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import MCBN, MNF, BayesByBackprop, GaussianBN, MCDropout, StochasticBN, ensemble
from bayesnorm.metrics import constant_variance, coverage, crps, normalised_crps, normalised_pll, pll, rmse
from bayesnorm.network import add_dropout
from bayesnorm.posterior import Posterior, combine, deterministic
from bayesnorm.predictive import RegressionPredictive
from bayesnorm.training import Rescaled, train

from .evidence import show_progress, write_numbers
from .known_names import require_known
from .means import mean_and_error
from .measuring import median_seconds
from .networks import paper_mlp, plain_mlp
from .options import OUT, OutFolder
from .splits import Split, validated_split
from .toy_regression import toy_regression

SETS = ("toy", "yacht", "concrete", "energy")
BATCH_SIZE, STEPS, WEIGHT_DECAY, DROPOUT, MEMBERS, DRAWS = 32, 4000, 1e-3, 0.05, 5, 200
FAR = 3.0
"""Inputs far from the data are test inputs, moved this many times as far from the training mean."""


def main(
    sets: Annotated[list[str] | None, typer.Option("--set", help="Only this set; may be repeated.")] = None,
    count: Annotated[int, typer.Option("--splits", min=1, help="Number of splits of each set.")] = 3,
    out: OutFolder = OUT,
) -> None:
    """Compare all methods and their cost on small regression sets.

    All sets but the toy need the data folder.

    \b
    python -m experiments compare-methods --set toy --set yacht --splits 3 --out results
    """
    require_known("--set", sets or (), SETS)
    torch.set_num_threads(1)  # such small networks only wait for a second core
    result: dict[str, object] = {"splits": count}
    for name in sets or SETS:
        outcome = compare(name, count, progress=show_progress)
        show_progress("")
        print(f"{table(name, outcome)}\n", flush=True)
        result[name] = {method: [asdict(run) for run in runs] for method, runs in outcome.items()}
        write_numbers(out / "methods.json", result)


@dataclass(frozen=True)
class Score:
    """The scores and costs of one method on one split.

    Args:
        rmse, crps, pll: Scores of test rows, in the target's units.
        gain_crps, gain_pll: Percent of the difference between constant and perfect uncertainty.
        coverage: Fraction of test rows in 95 % intervals.
        growth: Epistemic standard deviation far from the data, divided by that at test rows; 0 if there is none.
        train_seconds: Time to make the posterior.
        predict_ms: Time to predict the test rows.
        samples_per_second: Samples per second for 256 rows.
    """

    rmse: float
    crps: float
    pll: float
    gain_crps: float
    gain_pll: float
    coverage: float
    growth: float
    train_seconds: float
    predict_ms: float
    samples_per_second: float


class TrainedNetworks:
    """The networks that methods need on one split, each trained once, and their training times."""

    def __init__(self, split: Split, steps: int = STEPS) -> None:
        self.split = split
        self.batch_size = min(BATCH_SIZE, len(split.train[0]) // 2)
        self.epochs = -(-steps // (len(split.train[0]) // self.batch_size))
        self.seconds: dict[str, float] = {}

    @cached_property
    def normalised(self) -> Rescaled:
        """Return the MCBN paper's network."""
        return self._trained("normalised", paper_mlp(self._features, seed=self.split.number))

    @cached_property
    def dropped(self) -> Rescaled:
        """Return the same shape with dropout before every linear layer but the first, and no batch norm."""
        return self._trained("dropped", add_dropout(self._plain(), DROPOUT, "linear"))

    @cached_property
    def both(self) -> Rescaled:
        """Return the same shape with batch norm and dropout."""
        return self._trained("both", add_dropout(paper_mlp(self._features, seed=self.split.number), DROPOUT, "linear"))

    @cached_property
    def members(self) -> list[nn.Module]:
        """Return the networks of a deep ensemble."""
        seeds = [100 * self.split.number + number for number in range(MEMBERS)]
        made = [self._trained(f"member {seed}", paper_mlp(self._features, seed=seed), seed) for seed in seeds]
        self.seconds["members"] = sum(self.seconds[f"member {seed}"] for seed in seeds)
        return list(made)

    @cached_property
    def noise(self) -> Gaussian:
        """Return the noise for training variational methods: the validation error of the deterministic network."""
        x, y = self.split.validation
        with torch.no_grad():
            return Gaussian(1 / float(mse_loss(self.normalised(x), y)))

    def weights(self, method: type[BayesByBackprop | MNF]) -> Posterior:
        """Return a posterior over the weights of a network without batch norm."""
        network = Rescaled.from_data(self._plain(), *self.split.train)
        return method(epochs=self.epochs, batch_size=self.batch_size).fit(network, self.split.train, self.noise)

    def _plain(self) -> nn.Module:
        """Return the same shape without batch norm, but with biases."""
        return plain_mlp(self._features, seed=self.split.number)

    @property
    def _features(self) -> int:
        return self.split.train[0].shape[1]

    def _trained(self, name: str, inner: nn.Module, seed: int | None = None) -> Rescaled:
        network = Rescaled.from_data(inner, *self.split.train)
        started = time.perf_counter()
        train(
            inner,
            network.standardise(*self.split.train),
            loss=lambda f, y: 0.5 * mse_loss(f, y),
            epochs=self.epochs,
            batch_size=self.batch_size,
            weight_decay=WEIGHT_DECAY,
            validation=network.standardise(*self.split.validation),
            evaluate_every=max(1, self.epochs // 20),
            seed=self.split.number if seed is None else seed,
        )
        self.seconds[name] = time.perf_counter() - started
        return network.eval()


Maker = Callable[[TrainedNetworks], Posterior]


def makers() -> dict[str, tuple[tuple[str, ...], Maker]]:
    """Return methods by name: the trained networks that each needs, and how it makes its posterior."""

    def of_normalised(method: Callable[..., object], **options: object) -> Maker:
        return lambda networks: method(networks.batch_size, **options).fit(networks.normalised, networks.split.train)  # type: ignore[attr-defined]

    def with_dropout(networks: TrainedNetworks) -> Posterior:
        statistics = MCBN(networks.batch_size).fit(networks.both, networks.split.train)
        return combine(statistics, MCDropout().fit(networks.both, networks.split.train))

    def of_members(networks: TrainedNetworks) -> Posterior:
        return ensemble([MCBN(networks.batch_size).fit(member, networks.split.train) for member in networks.members])

    return {
        "constant": (("normalised",), lambda networks: deterministic(networks.normalised, Gaussian())),
        "MCBN (paper)": (("normalised",), of_normalised(MCBN, center="batch")),
        "MCBN": (("normalised",), of_normalised(MCBN)),
        "MCBN, M' chosen": (("normalised",), of_normalised(MCBN)),
        "GaussianBN": (("normalised",), of_normalised(GaussianBN)),
        "GaussianBN, rank 16": (("normalised",), of_normalised(GaussianBN, rank=16)),
        "StochasticBN": (("normalised",), of_normalised(StochasticBN)),
        "MC dropout": (("dropped",), lambda networks: MCDropout().fit(networks.dropped, networks.split.train)),
        "MCBN + dropout": (("both",), with_dropout),
        "deep ensemble": (("members",), lambda networks: ensemble(networks.members, Gaussian())),
        "ensemble of MCBN": (("members",), of_members),
        "Bayes by Backprop": ((), lambda networks: networks.weights(BayesByBackprop)),
        "MNF": ((), lambda networks: networks.weights(MNF)),
    }


def splits(name: str, count: int) -> Iterator[Split]:
    """Yield the first splits of a UCI set, or as many samples of the toy function."""
    for number in range(1, count + 1):
        if name == "toy":
            train_part, held_part, test_part = (toy_regression(10 * number + part) for part in range(3))
            yield Split(train_part, held_part, test_part, number)
        else:
            yield validated_split(name, number)


def score(name: str, networks: TrainedNetworks, needs: tuple[str, ...], maker: Maker) -> Score:
    """Fit, calibrate on validation rows, and score test rows once."""
    for need in needs:
        getattr(networks, need)
    started = time.perf_counter()
    posterior = maker(networks)
    seconds = time.perf_counter() - started + sum(networks.seconds[need] for need in needs)
    if not needs:
        networks.noise  # noqa: B018
        seconds += networks.seconds["normalised"]
    split = networks.split
    posterior = calibrate(posterior, *split.validation, batch_size=name.endswith("chosen"))
    samples = posterior.default_samples if posterior.default_samples < 64 else DRAWS
    engine = MonteCarlo(samples)
    constant = constant_variance(posterior.predict(split.validation[0], engine).mean, split.validation[1])
    predictive, y = posterior.predict(split.test[0], engine), split.test[1]
    assert isinstance(predictive, RegressionPredictive)
    near, far = (
        float(posterior.predict(x, engine).epistemic.mean().sqrt()) for x in (split.test[0], far_inputs(split))
    )
    many = split.test[0].repeat(-(-256 // len(split.test[0])), 1)[:256]
    return Score(
        rmse=float(rmse(predictive, y)),
        crps=float(crps(predictive, y)),
        pll=float(pll(predictive, y)),
        gain_crps=float(normalised_crps(predictive, y, constant)),
        gain_pll=float(normalised_pll(predictive, y, constant)),
        coverage=float(coverage(predictive, y, 0.95)),
        growth=far / near if near else 0.0,
        train_seconds=seconds,
        predict_ms=1e3 * median_seconds(lambda: posterior.predict(split.test[0], engine).std, 5)[0],
        samples_per_second=samples / median_seconds(lambda: engine.outputs(posterior, many), 5)[0],
    )


def far_inputs(split: Split) -> Tensor:
    """Return the test inputs, moved away from the training rows."""
    mean = split.train[0].mean(0)
    return mean + FAR * (split.test[0] - mean)


def compare(
    name: str, count: int, steps: int = STEPS, progress: Callable[[str], None] | None = None
) -> dict[str, list[Score]]:
    """Score all methods on some splits of a set."""
    results: dict[str, list[Score]] = {}
    for split in splits(name, count):
        networks = TrainedNetworks(split, steps)
        for method, (needs, maker) in makers().items():
            if progress is not None:
                progress(f"{name}, split {split.number}: {method}")
            results.setdefault(method, []).append(score(method, networks, needs, maker))
    return results


def table(name: str, scores: dict[str, list[Score]]) -> str:
    """Return means over splits, gains with their standard errors, as text."""
    lines = [
        f"{name}, mean of {len(next(iter(scores.values())))} splits",
        f"{'':20} {'RMSE':>7} {'CRPS':>7} {'PLL':>7} {'gain CRPS %':>14} {'gain PLL %':>16} {'95 %':>5} "
        f"{'far/near':>8} {'train s':>8} {'samples/s':>8}",
    ]
    for method, runs in scores.items():
        mean = {key: statistics.fmean(getattr(run, key) for run in runs) for key in asdict(runs[0])}
        gains = [mean_and_error([getattr(run, key) for run in runs], 1) for key in ("gain_crps", "gain_pll")]
        lines.append(
            f"{method:20} {mean['rmse']:7.3f} {mean['crps']:7.3f} {mean['pll']:7.2f} {gains[0]:>14} {gains[1]:>16} "
            f"{mean['coverage']:5.2f} {mean['growth']:8.1f} {mean['train_seconds']:8.1f} "
            f"{mean['samples_per_second']:8.0f}"
        )
    return "\n".join(lines)
