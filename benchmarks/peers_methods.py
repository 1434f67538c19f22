"""Tasks and methods of `peers`: trained networks with their data, and the methods of each library."""

from __future__ import annotations

import contextlib
import tempfile
from argparse import Namespace as Options
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.training import train
from benchmarks.peers_libraries import import_peers
from experiments.data import load_cifar10, to_network_input
from experiments.networks import load_cifar_resnet, paper_mlp
from experiments.splits import paper_rows, take

Outputs = tuple[Tensor, Tensor]
"""Samples (n, batch, ...), and a variance around each of them."""


@dataclass
class Task:
    """A trained network and its data, each part (inputs, targets); regression targets are standardised."""

    model: nn.Module
    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    y_std: float | None = None  # None for classification
    repeats: int = 1

    def loader(self, batch_size: int) -> DataLoader:
        """Return a loader of the training data, in the same order every time."""
        order = torch.Generator().manual_seed(0)
        return DataLoader(TensorDataset(*self.train), batch_size, shuffle=True, generator=order)

    def predictive(self, outputs: Outputs, noise: Any) -> Any:
        """Return the predictive with a temperature (classification) or a noise variance (regression)."""
        if self.y_std is None:
            return bn.ClassificationPredictive(torch.log_softmax(outputs[0] / noise, dim=2))
        return bn.RegressionPredictive(outputs[0], (outputs[1] + noise).sqrt())

    def scores(self, outputs: Outputs, noise: Any) -> dict[str, float]:
        """Return the scores on test data, in the target's units."""
        predictive, y = self.predictive(outputs, noise), self.test[1]
        nll = -float(predictive.log_prob(y).mean())
        if self.y_std is not None:
            rmse = self.y_std * float(metrics.rmse(predictive, y))
            return {"rmse": rmse, "nll": nll + float(torch.tensor(self.y_std).log())}
        return {"nll": nll} | {name: float(getattr(metrics, name)(predictive, y)) for name in ("accuracy", "ece")}

    def best_noise(self, outputs: Outputs, y: Tensor) -> float:
        """Return the temperature (0.05 to 20) or noise variance (0.0001 to 10) with the smallest NLL, to 3 %."""
        grid = torch.logspace(-1.3, 1.3, 201) if self.y_std is None else torch.logspace(-4, 1, 401)
        return min(grid.tolist(), key=lambda noise: -float(self.predictive(outputs, noise).log_prob(y).mean()))


def cifar(options: Options) -> list[Task]:
    """Return the task with ResNet-32; methods are fitted on the 5,000 training images of the data folder."""

    def part(split: str, start: int, count: int) -> tuple[Tensor, Tensor]:
        images, labels = load_cifar10(split, slice(start, start + count))
        return to_network_input(images), torch.from_numpy(labels)

    tests = (part("test", start, options.images) for start in test_starts(options))
    return [Task(load_cifar_resnet(32), part("train", 0, 5000), *tests)]


def test_starts(options: Options) -> tuple[int, int]:
    """Return the index of the first test image for choices, and of the first for scores."""
    return 0, max(1000, options.images)


def boston(options: Options) -> list[Task]:
    """Return networks with two layers of 50 units on the MCBN paper's splits, trained here."""
    tasks = []
    for split in range(1, options.splits + 1):
        rest, test = paper_rows("boston", split)
        validation, rows = take(rest, slice(80)), take(rest, slice(80, None))
        (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(values, dim=0, correction=0) for values in rows)
        parts = [((x - x_mean) / x_std, (y - y_mean) / y_std) for x, y in (rows, validation, test)]
        model = paper_mlp(rows[0].shape[1], seed=split)
        train(model, *parts[0], loss=F.mse_loss, epochs=200, batch_size=32, weight_decay=2e-3, seed=split)
        tasks.append(Task(model, *parts, y_std=float(y_std), repeats=50))
    return tasks


@dataclass
class Fitted:
    """A fitted method.

    Args:
        predict: Returns outputs for inputs.
        noise: Temperature or noise variance, if the method chooses it itself.
        note: What the method chose, as text.
    """

    predict: Callable[[Tensor], Outputs]
    noise: Any = None
    note: str = ""


Method = Callable[[Task, Options], Fitted]


def point(task: Task, options: Options) -> Fitted:
    """Predict with one forward pass."""
    return Fitted(torch.no_grad()(lambda x: (task.model(x)[None], torch.zeros(()))))


def tempered(task: Task, options: Options) -> Fitted:
    """Predict with one forward pass and the temperature or noise with the lowest validation NLL."""
    predict = point(task, options).predict
    outputs = torch.cat([predict(x)[0] for x in task.validation[0].split(options.batch)], 1), torch.zeros(())
    return Fitted(predict, task.best_noise(outputs, task.validation[1]))


def torch_uncertainty(task: Task, options: Options) -> Fitted:
    """Fit torch-uncertainty's MCBatchNorm with batch size 32."""
    wrapper = import_peers()[0](task.model, num_estimators=options.samples, mc_batch_size=32)
    wrapper.fit(task.loader(32))
    wrapper.eval()
    return Fitted(torch.no_grad()(lambda x: (wrapper(x).unflatten(0, (options.samples, len(x))), torch.zeros(()))))


def abnn(task: Task, options: Options) -> Fitted:
    """Fit torch-uncertainty's ABNN ("Make me a BNN", CVPR 2024): noise in all batch-norm layers, and fine-tuning.

    A quarter of the samples comes from the network with noise, and a quarter from each of three copies that are
    fine-tuned on training images. The library has no default values for these settings.
    """
    samples = max(1, options.samples // 4)
    wrapper = import_peers()[2](10, 2.0, 0.1, 3, samples, 1e-3, "cpu", max_epochs=1, model=task.model)
    with (
        tempfile.TemporaryDirectory() as scratch,
        contextlib.chdir(scratch),
    ):  # it writes logs of its training into the working folder
        wrapper.fit(task.loader(128))
    wrapper.eval()
    return Fitted(torch.no_grad()(lambda x: (wrapper(x).unflatten(0, (4 * samples, len(x))), torch.zeros(()))))


def laplace(structure: str) -> Method:
    """Return a method that fits a last-layer Laplace approximation: prior and noise by marginal likelihood."""

    def fit(task: Task, options: Options) -> Fitted:
        kind = "classification" if task.y_std is None else "regression"
        approximation = import_peers()[1](task.model, kind, "last_layer", structure)
        approximation.fit(task.loader(100))
        if task.y_std is None:
            approximation.optimize_prior_precision(method="marglik", pred_type="glm", link_approx="probit")
            return Fitted(torch.no_grad()(lambda x: (approximation(x).log()[None], torch.zeros(()))))
        log_prior, log_sigma = (torch.zeros(1, requires_grad=True) for _ in range(2))
        optimiser = torch.optim.Adam([log_prior, log_sigma], lr=0.1)
        for _ in range(200):
            optimiser.zero_grad()
            (-approximation.log_marginal_likelihood(log_prior.exp(), log_sigma.exp())).backward()
            optimiser.step()
        predict = torch.no_grad()(lambda x: tuple(value.reshape(1, -1, 1) for value in approximation(x)))
        return Fitted(predict, approximation.sigma_noise.detach().square())

    return fit


def mcbn(size: int, center: Any = "running", last: int | None = None, at: float | None = None, **extra: Any) -> Method:
    """Return a method that fits bayesnorm's MCBN: all layers or the `last` few, at effective batch size `at`.

    `calibrate=(examples, samples)` chooses noise and effective batch size on validation data; `samples` multiplies the
    number of samples.
    """

    def fit(task: Task, options: Options) -> Fitted:
        engine = bn.MonteCarlo(extra.get("samples", 1) * options.samples)
        method = bn.MCBN(size, states=max(64, engine.samples), center=center)
        posterior = method.fit(task.model, task.train, bn.Gaussian() if task.y_std else bn.Categorical())
        posterior = posterior.at_layers(last) if last else posterior
        posterior = posterior.at_batch_size(at or size)
        noise, note = None, ""
        if "calibrate" in extra:
            rows, samples = extra["calibrate"]
            x, y = (values[:rows] for values in task.validation)
            score: Any = "pll" if task.y_std else "nll"
            posterior = bn.calibrate(posterior, x, y, batch_size=True, samples=samples, score=score, evidence=0)
            noise = 1 / posterior.likelihood.precision if task.y_std else posterior.likelihood.temperature
            note = f"M' = {posterior.batch_size:.3g}, noise {noise:.3g}"
        return Fitted(lambda x: (engine.outputs(posterior, x), torch.zeros(())), noise, note)

    return fit


def calibrated_mcbn(size: int, last: int) -> Method:
    """Return a method that fits MCBN for the `last` few layers and lets `calibrate` search the effective batch size."""

    def fit(task: Task, options: Options) -> Fitted:
        engine = bn.MonteCarlo(options.samples)
        posterior = bn.MCBN(size, states=max(64, engine.samples)).fit(task.model, task.train, bn.Categorical())
        posterior = bn.calibrate(posterior.at_layers(last), *task.validation, batch_size=True)
        noted = f"M' = {posterior.batch_size:.3g}, {posterior.likelihood}"
        # Its probabilities count as one sample, because the temperature may differ between inputs.
        return Fitted(lambda x: (posterior.predict(x, engine).probs.log()[None], torch.zeros(())), 1.0, noted)

    return fit


COMMON: dict[str, Method] = {
    "torch-uncertainty MCBatchNorm, batch size 32": torch_uncertainty,
    "laplace-torch, last layer, Kronecker": laplace("kron"),
    "bayesnorm MCBN around batch statistics, batch size 32": mcbn(32, "batch"),
    "bayesnorm MCBN (default), batch size 32": mcbn(32),
    "bayesnorm MCBN (default), batch size 16": mcbn(16),
}
METHODS: dict[str, dict[str, Method]] = {
    "cifar": {"softmax": point, "softmax with temperature (val)": tempered}
    | COMMON
    | {
        "torch-uncertainty ABNN, 3 fine-tuned copies": abnn,
        "bayesnorm MCBN, last block, effective batch size 2": mcbn(32, last=2, at=2),
        "bayesnorm MCBN, last layer, effective batch size 1, twice the samples": mcbn(32, last=1, at=1, samples=2),
        "bayesnorm MCBN, last block, best score (val)": mcbn(32, last=2, calibrate=(1000, 32)),
        "bayesnorm MCBN, all layers, best score (200 val)": mcbn(32, calibrate=(200, 16)),
        "bayesnorm MCBN, last 3 layers, calibrate's default (val)": calibrated_mcbn(32, last=3),
    },
    "boston": {"point network": point, "point network with noise (val)": tempered}
    | COMMON
    | {
        "laplace-torch, last layer, full": laplace("full"),
        "bayesnorm MCBN, last layer, effective batch size 8": mcbn(32, last=1, at=8),
        "bayesnorm MCBN, all layers, best score (val)": mcbn(32, calibrate=(80, 64)),
    },
}
