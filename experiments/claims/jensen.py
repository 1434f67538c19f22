"""Claims about what batch norm optimises in training (Atanov et al. 2018).

L is the log likelihood of a row under the mean over batches that contain it, and L_BN the mean of its log likelihoods.
Training follows the gradient of L_BN, a lower bound of L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .claim import FAILS, HOLDS, PARTLY, Claim, Numbers, Verdict, mean
from .toy import NOISE, friedman_rows, gaussian_log_prob, hidden_units, outputs, random_batches, trained

ROWS, ASKED, BATCHES, TRAINED_WITH = 512, 32, 128, 32
SIZES = (8, 32, 128)
EARLY, LATE = 2, 100
"""Epochs of training after which gradients are compared."""
SAME_GRADIENT = 0.1


def measure_bound(seed: int) -> Numbers:
    """Return the gap L - L_BN in nats per row, the share of rows where it is negative, and how gradients differ."""
    x, y, _ = friedman_rows(ROWS, seed)
    results: Numbers = {}
    for epochs in (EARLY, LATE):
        network = trained(x, y, batch_size=TRAINED_WITH, epochs=epochs, seed=seed)
        for size in SIZES:
            values = _log_likelihoods(network, x, y, size, seed)
            bound, whole = values.mean(1), values.logsumexp(1) - math.log(BATCHES)
            gradients = [_gradient(network, part.mean()) for part in (bound, whole)]
            results[_at(epochs, size)] = {
                "gap": float((whole - bound).mean().detach()),
                "negative": float((whole < bound - 1e-6).double().mean()),
                "gradient": float((gradients[1] - gradients[0]).norm() / gradients[0].norm()),
            }
    return results


def judge_bound(runs: Sequence[Numbers]) -> Verdict:
    """Judge the inequality at all rows and sizes; report its gap."""
    negative = max(mean(runs, _at(epochs, size), "negative") for epochs in (EARLY, LATE) for size in SIZES)
    shown = ", ".join(f"{mean(runs, _at(LATE, size), 'gap'):.3f} at M = {size}" for size in SIZES)
    return Verdict(
        HOLDS if negative == 0 else FAILS,
        f"L exceeds its bound by {shown} (nats per row, after training); below its bound: {negative:.0%} of rows",
    )


def judge_gradient(runs: Sequence[Numbers]) -> Verdict:
    """Judge whether following the bound is nearly following L, at the beginning of training and after it."""
    small = [mean(runs, _at(epochs, TRAINED_WITH), "gradient") < SAME_GRADIENT for epochs in (EARLY, LATE)]
    shown = [
        ", ".join(f"{mean(runs, _at(epochs, size), 'gradient'):.0%} at M = {size}" for size in SIZES)
        for epochs in (EARLY, LATE)
    ]
    return Verdict(
        HOLDS if all(small) else PARTLY if any(small) else FAILS,
        f"the gradients of L and of its bound differ by {shown[0]} of the bound's after {EARLY} epochs, and by "
        f"{shown[1]} after {LATE}, where the bound's gradient is small",
    )


def measure_running(seed: int) -> Numbers:
    """Return how far running means are from the mean of batch means, in standard deviations of batch means."""
    x, y, _ = friedman_rows(ROWS, seed)
    network = trained(x, y, batch_size=TRAINED_WITH, epochs=100, seed=seed)
    batches = x[random_batches(ROWS, TRAINED_WITH, 2_000, seed)]
    distances = []
    with torch.no_grad():
        for i, layer in enumerate(network.children()):
            if isinstance(layer, nn.BatchNorm1d):
                means = _inputs(network, batches, i).mean(1)
                assert layer.running_mean is not None
                distances.append((means.mean(0) - layer.running_mean).abs() / means.std(0))
    distance = torch.cat(distances)
    return {"median": float(distance.median()), "largest": float(distance.max())}


def judge_running(runs: Sequence[Numbers]) -> Verdict:
    """Judge the median distance of running means, in standard deviations of batch means."""
    median, largest = mean(runs, "median"), mean(runs, "largest")
    word = HOLDS if median < 0.5 else PARTLY if median < 1 else FAILS
    return Verdict(
        word,
        f"running means (momentum 0.1) are {median:.2f} standard deviations of a batch mean away from the mean over "
        f"batches (median over units; the largest {largest:.1f})",
    )


def _at(epochs: int, size: int) -> str:
    return f"{epochs} epochs, M = {size}"


def _log_likelihoods(network: nn.Module, x: Tensor, y: Tensor, size: int, seed: int) -> Tensor:
    """Return log p(y | x, batch) for rows and batches that contain them, (ASKED, BATCHES)."""
    others = random_batches(ROWS - 1, size - 1, ASKED * BATCHES, seed).view(ASKED, BATCHES, size - 1)
    asked = torch.arange(ASKED)[:, None, None]
    others = others + (others >= asked)  # all rows but the one that is asked
    rows = torch.cat([asked.expand(ASKED, BATCHES, 1), others], 2)
    first = outputs(network, x[rows])[:, :, 0, 0]
    return gaussian_log_prob(first - y[:ASKED], 1 / NOISE**2)


def _gradient(network: nn.Module, value: Tensor) -> Tensor:
    parts = torch.autograd.grad(value, list(network.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in parts])


def _inputs(network: nn.Module, x: Tensor, index: int) -> Tensor:
    """Return the inputs of a layer, where every batch is normalised by its own statistics."""
    return hidden_units(nn.Sequential(*list(network.children())[: index + 1]), x)


BOUND = Claim(
    "jensen-bound",
    "Atanov et al. (2018)",
    "training with batch norm maximises a lower bound L_BN <= L of the log likelihood",
    "holds if no row's L is below its bound (by more than rounding)",
    measure_bound,
    judge_bound,
)
GRADIENT = Claim(
    "jensen-gradient",
    "Atanov et al. (2018)",
    "so its gradients serve to maximise L",
    f"holds if both gradients differ by less than {SAME_GRADIENT:.0%} at M = {TRAINED_WITH}, early and after training; "
    "partly if so at one of these times",
    measure_bound,
    judge_gradient,
)
RUNNING = Claim(
    "running-mean",
    "Atanov et al. (2018)",
    "smoothed statistics are close to the expected statistics of a batch",
    "holds if the median distance is below 0.5 standard deviations of a batch's mean; partly below 1",
    measure_running,
    judge_running,
)
