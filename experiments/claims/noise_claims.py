"""Claims of the lectures about aleatoric uncertainty: the example of logit noise, outliers, and several tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from bayesnorm.likelihoods import (
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticLaplace,
    LearnedNoise,
    Likelihood,
    LogitNoise,
    MultiTask,
)
from bayesnorm.predictive import MultiTaskPredictive
from bayesnorm.training import train

from ..networks import paper_mlp
from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, column, mean, p_value, significantly_above
from .toy import NOISE, friedman_rows

ROWS, NEW_ROWS, EPOCHS, BATCH_SIZE = 500, 2_000, 150, 32
OUTLIERS, OUTLIER_STD = 0.1, 15 * NOISE
TASK_ROWS, TASK_EPOCHS, HARD_NOISE = 300, 300, 1.0


def measure_example(seed: int) -> Numbers:
    """Return the probability of the first class for logits 1 and 2 with noise of variance 0.5."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    exact = float((weights / weights.sum()) @ (1 / (1 + np.exp(1 - nodes))))  # the difference has variance 1
    f = torch.tensor([[1.0, 2.0, math.log(0.5), math.log(0.5)]])
    sampled = LogitNoise(samples=50, seed=seed).predictive(f[None]).probs
    return {"exact": exact, "50 samples": float(sampled[0, 0]), "without noise": 1 / (1 + math.e)}


def judge_example(runs: Sequence[Numbers]) -> Verdict:
    """Judge the exact value and that of 50 samples, rounded to whole per cent."""
    exact, sampled = mean(runs, "exact"), column(runs, "50 samples")
    near = all(abs(value - 0.30) <= 0.01 for value in sampled)
    word = HOLDS if abs(exact - 0.30) <= 0.01 and near else PARTLY if abs(exact - 0.30) <= 0.01 else FAILS
    return Verdict(
        word,
        f"{mean(runs, 'without noise'):.1%} without noise; {exact:.1%} exactly, {min(sampled):.1%} to "
        f"{max(sampled):.1%} with 50 samples",
    )


def measure_outliers(seed: int) -> Numbers:
    """Return the error of the mean against the true function, trained with and without outliers."""
    x, y, _ = friedman_rows(ROWS, seed)
    new, _, truth = friedman_rows(NEW_ROWS, seed + 2_000)
    generator = torch.Generator().manual_seed(seed)
    somewhere = torch.rand(ROWS, 1, generator=generator)
    shift = OUTLIER_STD * torch.randn(ROWS, 1, generator=generator)
    region = x[:, 5:6] > 0.5  # a column that the function does not depend on
    placed = {
        "none": torch.zeros_like(region),
        "anywhere": somewhere < OUTLIERS,
        "one region": region & (somewhere < 4 * OUTLIERS),
    }
    results: Numbers = {}
    for place, chosen in placed.items():
        targets = torch.where(chosen, y + shift, y)
        for name, likelihood in (
            ("squared error", None),
            ("Gaussian", HeteroscedasticGaussian()),
            ("Laplace", HeteroscedasticLaplace()),
        ):
            mean_of_new = _mean_prediction(x, targets, new, likelihood, seed)
            error = float((mean_of_new - truth).square().mean().sqrt())
            results.setdefault(place, {})[name] = error
    return results


def judge_outliers(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether predicted noise lowers the error below that of the squared error, where outliers are."""
    results = {}
    for place in ("anywhere", "one region"):
        for name in ("Gaussian", "Laplace"):
            squared, predicted = column(runs, place, "squared error"), column(runs, place, name)
            gains = [a - b for a, b in zip(squared, predicted, strict=True)]
            results[place, name] = significantly_above(gains), p_value(gains)
    wins = [won for won, _ in results.values()]
    word = HOLDS if all(wins) else PARTLY if any(wins) else FAILS
    names = ("squared error", "Gaussian", "Laplace")
    shown = "; ".join(
        f"outliers {place}: " + ", ".join(f"{mean(runs, place, name):.3f} {name}" for name in names)
        for place in ("none", "anywhere", "one region")
    )
    tests = ", ".join(f"{p:.1g}" for _, p in results.values())
    return Verdict(word, f"error of the mean by loss. {shown} (against the squared error: p = {tests})")


def measure_tasks(seed: int) -> Numbers:
    """Return learned noise of two tasks, and the first task's error with and without the second."""
    x, first, truth = friedman_rows(TASK_ROWS, seed)
    new, _, new_truth = friedman_rows(NEW_ROWS, seed + 2_000)
    generator = torch.Generator().manual_seed(seed)
    related = 0.5 * truth + HARD_NOISE * torch.randn(truth.shape, generator=generator)
    easy_related = -0.5 * truth + NOISE * torch.randn(truth.shape, generator=generator)
    alone = _task_network(x, [first], seed)
    results: Numbers = {"alone": _task_result(alone, new, new_truth)}
    for name, second in (("noisy second task", related), ("precise second task", easy_related)):
        results[name] = _task_result(_task_network(x, [first, second], seed), new, new_truth)
    return results


def judge_weights(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether the learned noise of both tasks tells their weights: the ratio of true noises is 5."""
    noises = [mean(runs, "noisy second task", f"noise {i}") for i in range(2)]
    ratio, truth = noises[1] / noises[0], HARD_NOISE / NOISE
    word = HOLDS if 0.5 * truth <= ratio <= 2 * truth else PARTLY if ratio > 1 else FAILS
    return Verdict(
        word,
        f"learned noise {noises[0]:.2f} and {noises[1]:.2f} (true {NOISE:g} and {HARD_NOISE:g}) on {TASK_ROWS} "
        f"training rows: a ratio of {ratio:.1f} (true {truth:.0f})",
    )


def judge_second_task(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether a second task lowers the first one's noise and its error."""
    parts, wins = [], []
    for name in ("noisy second task", "precise second task"):
        for key, word in (("noise 0", "learned noise"), ("error", "error")):
            gains = [a - b for a, b in zip(column(runs, "alone", key), column(runs, name, key), strict=True)]
            wins.append(significantly_above(gains))
            before, after = mean(runs, "alone", key), mean(runs, name, key)
            parts.append(f"{name}, {word}: {before:.3f} to {after:.3f} (p = {p_value(gains):.1g})")
    return Verdict(HOLDS if all(wins) else PARTLY if any(wins) else FAILS, "; ".join(parts))


def _mean_prediction(x: Tensor, y: Tensor, new: Tensor, likelihood: Likelihood[Any] | None, seed: int) -> Tensor:
    """Return the mean at new rows of a network trained with the loss of a likelihood, or with the squared error."""
    network = paper_mlp(x.shape[1], 1 if likelihood is None else 2, seed=seed, eps=1e-5)
    loss: Any = mse_loss if likelihood is None else likelihood.loss
    train(network, x, y, loss=loss, epochs=EPOCHS, batch_size=BATCH_SIZE, learning_rate=5e-3, seed=seed)
    with torch.no_grad():
        return network(new)[:, :1]


def _task_network(
    x: Tensor, targets: list[Tensor], seed: int
) -> tuple[torch.nn.Module, LearnedNoise[MultiTaskPredictive]]:
    tasks = MultiTask({f"task {i}": Gaussian() for i in range(len(targets))})
    noise = LearnedNoise(tasks)
    network = paper_mlp(x.shape[1], len(targets), seed=seed, eps=1e-5)
    parameters = [*network.parameters(), *noise.parameters()]
    train(
        network,
        x,
        torch.cat(targets, 1),
        loss=noise,
        parameters=parameters,
        epochs=TASK_EPOCHS,
        batch_size=BATCH_SIZE,
        learning_rate=5e-3,
        seed=seed,
    )
    return network, noise


def _task_result(
    trained: tuple[torch.nn.Module, LearnedNoise[MultiTaskPredictive]], new: Tensor, truth: Tensor
) -> Numbers:
    network, noise = trained
    with torch.no_grad():
        f = network(new)
    tasks = noise.likelihood().predictive(f[None])
    return {
        "error": float((f[:, :1] - truth).square().mean().sqrt()),
        **{f"noise {i}": float(task.aleatoric.mean()) ** 0.5 for i, task in enumerate(tasks.values())},
    }


EXAMPLE = Claim(
    "logit-noise-example",
    "lectures; Kendall and Gal (2017)",
    "logits 1 and 2, 27 % and 73 %, become 30 % and 70 % with noise of variance 0.5 and 50 samples",
    "holds if the exact value and 50 samples with every seed are within one point of 30 %; partly if only the exact "
    "one",
    measure_example,
    judge_example,
)
ROBUST = Claim(
    "outliers",
    "lectures; Kendall and Gal (2017)",
    "predicted noise attenuates the loss and makes training robust to outliers",
    "holds if the Gaussian and the Laplace loss with predicted noise beat the squared error significantly (paired "
    "t-test, 5 %), with outliers anywhere and in one region; partly if in some of the four",
    measure_outliers,
    judge_outliers,
)
WEIGHTS = Claim(
    "task-weights",
    "lectures; Kendall, Gal and Cipolla (2018)",
    "learned noise of several tasks weighs them",
    "holds if the ratio of learned noises is within a factor of two of the true ratio of 5; partly if above 1",
    measure_tasks,
    judge_weights,
)
SECOND_TASK = Claim(
    "second-task",
    "lectures",
    "a second task lowers the first one's task-dependent uncertainty",
    "holds if learned noise and error of the first task fall significantly (paired t-test, 5 %) with a noisy and with "
    "a precise second task; partly if in some of the four",
    measure_tasks,
    judge_second_task,
)
