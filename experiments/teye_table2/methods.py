"""Predict with one trained network by all methods, and measure their cost in forward passes.

A method that runs the network once per sample costs as many forward passes as samples. Other methods (derivatives, late
layers) are timed in turns with a forward pass over the same images.

Choices are made on other images than those they are used on: images with even numbers use those with odd numbers, and
vice versa.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.calibration import calibrate, minimise_on_log_scale
from bayesnorm.engines import Delta, MonteCarlo, SigmaPoints
from bayesnorm.methods import BatchNormMethod
from bayesnorm.posterior import BatchNormPosterior, Posterior

from ..measuring import timed
from .gathering import Gathering
from .presets import BATCH_SIZE, Preset

SOFTMAX, TEMPERATURE = "softmax", "softmax, temperature"
PUBLISHED, UNAUGMENTED = "MCBN as published, batches as in training", "MCBN, batches without augmentation"
MCBN, MCBN_TEMPERATURE = "MCBN", "MCBN, temperature"
TABLE = (PUBLISHED, UNAUGMENTED, MCBN)
"""The methods over batch statistics that the table's cells and claims need."""
TIMED_IMAGES, REPEATS = 64, 5
CHOOSING_IMAGES, CHOOSING_DRAWS = 500, 32
"""Images and samples that choose an effective batch size."""


@dataclass(frozen=True, eq=False)
class Predicted:
    """The predictions of a method.

    Args:
        method: Its name.
        outputs: Logits under every sample, (samples, images, classes), or log probabilities.
        passes: Cost of one sample, in forward passes.
        whole: Whether only all samples together are a prediction.
    """

    method: str
    outputs: Tensor
    passes: float = 1.0
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Images:
    """Images as network input, on the network's device.

    Args:
        train: Training images without augmentation.
        augmented: The same images as in training, randomly cropped and mirrored.
        test: The scored images.
        labels: Their labels.
    """

    train: Tensor
    augmented: Tensor
    test: Tensor
    labels: Tensor


def batchnorm_methods(preset: Preset) -> dict[str, tuple[BatchNormMethod, int]]:
    """Return methods over batch statistics by name, and their numbers of samples."""
    states = preset.states
    return {
        PUBLISHED: (bn.MCBN(BATCH_SIZE, states, center="batch"), preset.samples),
        UNAUGMENTED: (bn.MCBN(BATCH_SIZE, states, center="batch"), preset.samples),
        MCBN: (bn.MCBN(BATCH_SIZE, states), preset.centred_samples),
        "GaussianBN": (bn.GaussianBN(BATCH_SIZE, states), preset.other_samples),
        f"GaussianBN, rank {states // 4}": (bn.GaussianBN(BATCH_SIZE, states, rank=states // 4), preset.other_samples),
        "StochasticBN": (bn.StochasticBN(BATCH_SIZE, states), preset.other_samples),
    }


def predict_all(
    network: nn.Module, images: Images, preset: Preset, gathering: Gathering, *, table_only: bool = False
) -> list[Predicted]:
    """Return the predictions of every method that needs only this network, or of the table's methods alone."""
    likelihood = bn.Categorical()
    point = bn.deterministic(network, likelihood)
    one = gathering.outputs(point, images.test, "point", lambda x: point.executable.point(x)[None], SOFTMAX)
    results = [
        Predicted(SOFTMAX, one),
        Predicted(TEMPERATURE, tempered(one, images.labels)),
    ]
    for name, (method, samples) in batchnorm_methods(preset).items():
        if table_only and name not in TABLE:
            continue
        posterior = method.fit(network, images.augmented if name == PUBLISHED else images.train, likelihood)
        results.append(Predicted(name, drawn(gathering, posterior, images.test, samples, name)))
        if name == MCBN and not table_only:
            results.append(Predicted(MCBN_TEMPERATURE, tempered(results[-1].outputs, images.labels), whole=True))
            results += [_sigma_points(gathering, posterior, images, preset.rank), _delta(gathering, posterior, images)]
            results += [_late(gathering, posterior, images, *late) for late in preset.late_samples]
    return results


def drawn(gathering: Gathering, posterior: Posterior, x: Tensor, samples: int, name: str) -> Tensor:
    """Return the outputs of all images under the same samples, (samples, images, classes)."""
    engine = MonteCarlo(samples)
    return gathering.outputs(posterior, x, repr(engine), lambda part: engine.outputs(posterior, part), name)


def tempered(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return outputs divided by the temperature that is best for the other half of the images."""
    likelihood, y = bn.Categorical(), labels.cpu()
    result = torch.empty_like(outputs)
    for half, other in halves(len(y)):

        def loss(level: Tensor, other: Tensor = other) -> Tensor:
            return -likelihood.with_noise(level).predictive(outputs[:, other]).log_prob(y[other]).mean()

        between = likelihood.noise_range(outputs[:, other], y[other])
        result[:, half] = outputs[:, half] / float(minimise_on_log_scale(loss, *between)[0])
    return result


def halves(count: int) -> list[tuple[Tensor, Tensor]]:
    """Return indices of images, and those of the other half, for both halves."""
    even, odd = torch.arange(0, count, 2), torch.arange(1, count, 2)
    return [(even, odd), (odd, even)]


def _sigma_points(gathering: Gathering, posterior: BatchNormPosterior, images: Images, rank: int) -> Predicted:
    engine = SigmaPoints(rank)
    name = f"SigmaPoints({rank})"
    outputs = gathering.outputs(posterior, images.test, repr(engine), lambda x: engine.outputs(posterior, x), name)
    return Predicted(name, outputs, whole=True)


def _delta(gathering: Gathering, posterior: BatchNormPosterior, images: Images) -> Predicted:
    engine = Delta()

    def ask(x: Tensor) -> Tensor:
        predictive = engine.predict(posterior, x)
        assert isinstance(predictive, bn.ClassificationPredictive)
        return (predictive.log_probs.logsumexp(0) - math.log(len(predictive.log_probs)))[None]

    outputs = gathering.outputs(posterior, images.test, repr(engine), ask, "Delta")
    return Predicted("Delta", outputs, measured_passes(posterior, engine.predict, images.test), whole=True)


def _late(gathering: Gathering, posterior: BatchNormPosterior, images: Images, layers: int, samples: int) -> Predicted:
    """Sample only the last layers, at the effective batch size that is best for the other half of the images."""
    name = f"last {layers} layers" if layers > 1 else "last layer"
    late, x, y = posterior.at_layers(layers), images.test, images.labels
    parts, places = [], []
    for half, other in halves(len(y)):
        mine, rest = half.to(y.device), other[:CHOOSING_IMAGES].to(y.device)

        def chosen_size(rest: Tensor = rest) -> Tensor:
            chosen = calibrate(late, x[rest], y[rest], noise=False, samples=CHOOSING_DRAWS)
            return torch.tensor([chosen.batch_size])

        how = f"effective batch size, {CHOOSING_DRAWS} samples"
        size = float(gathering.cached(late, x[rest], how, chosen_size, f"{name}: effective batch size"))
        parts.append(drawn(gathering, late.at_batch_size(size), x[mine], samples, name))
        places.append(half)
    outputs = torch.cat(parts, 1)[:, torch.cat(places).argsort()]
    cost = measured_passes(late, MonteCarlo(samples).predict, x)
    return Predicted(f"{name}, T = {samples}", outputs, cost / samples, whole=True)


def measured_passes(posterior: Posterior, predict: Callable[[Posterior, Tensor], object], x: Tensor) -> float:
    """Return the time of a prediction divided by that of one forward pass over the same images, timed in turns."""
    x = x[:TIMED_IMAGES]

    def seconds(call: Callable[[], object]) -> float:
        def finished() -> None:
            call()
            if x.is_cuda:
                torch.cuda.synchronize(x.device)

        return timed(finished)[0]

    calls = (lambda: predict(posterior, x), lambda: posterior.executable.point(x))
    for call in calls:
        call()
    return statistics.median(seconds(calls[0]) / seconds(calls[1]) for _ in range(REPEATS))
