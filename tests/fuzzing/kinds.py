"""One small file of every kind that the package writes, and how each is read and used again."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm import active, tabular
from bayesnorm.compression import load_compressed
from bayesnorm.posterior import BatchNormPosterior, combine, deterministic
from bayesnorm.shift import AdaptiveStream, DriftMonitor
from bayesnorm.training import train


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Args:
        write: Writes one.
        use: Reads one and returns the numbers that come of it, which must be finite.
    """

    write: Callable[[Path], None]
    use: Callable[[Path], list[Tensor]]


def network() -> nn.Sequential:
    """Return a small network whose weights are the same with every version of torch."""
    made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.25), nn.Linear(3, 1)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.sin(1 + torch.arange(parameter.numel(), dtype=torch.float64)).view_as(parameter))
        made[1].running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
        made[1].running_var.copy_(torch.tensor([0.5, 1.0, 1.5]))
    return made


def rows(count: int = 24) -> tuple[Tensor, Tensor]:
    """Return inputs and targets."""
    x = torch.sin(1.7 * torch.arange(2.0 * count)).view(count, 2)
    return x, x.sum(1, keepdim=True).square()


def _posteriors() -> dict[str, Callable[[], Any]]:
    """Return functions that make posteriors by name; each is made once in a process."""
    data, noise = rows(), bn.Gaussian(4.0)
    model = network()
    mcbn = bn.MCBN(batch_size=8, states=4)
    makers = {
        "mcbn": lambda: mcbn.fit(model, data, noise).with_directions(data[0][:4]),
        "gaussian": lambda: bn.GaussianBN(batch_size=8, states=6, rank=2).fit(model, data, bn.Laplace(0.5)),
        "factorised": lambda: bn.GaussianBN(batch_size=8).fit(model, data, bn.StudentT(4.0, (0.5,))),
        "dropout": lambda: bn.MCDropout().fit(model, None, noise),
        "ensemble": lambda: bn.DeepEnsemble(members=2, epochs=1).fit(model, data, noise),
        "bayesian ensemble": lambda: bn.ensemble([mcbn.fit(network(), data, noise) for _ in range(2)], noise),
        "deterministic": lambda: deterministic(model, noise),
        "variational": lambda: bn.BayesByBackprop(epochs=1).fit(model, data, noise),
        "flow": lambda: bn.MNF(epochs=1, flows=1, auxiliary_flows=1, hidden=2).fit(model, data, noise),
        "groups": lambda: bn.GroupHorseshoe(epochs=1).fit(model, data, noise),
        "combined": lambda: combine(mcbn.fit(model, data, noise), bn.MCDropout().fit(model, None, noise)),
        "tasks": lambda: mcbn.fit(model, data, bn.MultiTask({"a": bn.Gaussian(2.0)})),
        "classes": lambda: mcbn.fit(model, data, bn.Categorical()),
        "watching": lambda: bn.MCBN(batch_size=4, states=9).fit(model, data, noise),
        "adapted": lambda: bn.adapt(bn.MCBN(batch_size=4, states=9).fit(model, data, noise), data[0] + 1),
    }
    return {name: functools.cache(make) for name, make in makers.items()}


def _use_posterior(path: Path) -> list[Tensor]:
    x = rows()[0]
    numbers: list[Tensor] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bn.BayesNormWarning)  # of other running statistics
        posterior = bn.load(path, network())
        predictives = [posterior.predict(x)]
        if isinstance(posterior, BatchNormPosterior):
            predictives.append(posterior.predict(x, engine=bn.Delta()))
            if posterior.output_directions.computed:
                predictives.append(posterior.predict(x, engine=bn.SigmaPoints(rank=2)))
        if isinstance(posterior, BatchNormPosterior) and posterior.training_batches is not None:
            predictives.append(bn.adapt(posterior, x + 2).predict(x))
            numbers.append(torch.tensor(bn.drift(posterior, x).p_value))
    for predictive in predictives:
        for part in predictive.values() if isinstance(predictive, bn.MultiTaskPredictive) else [predictive]:
            numbers += [part.probs] if isinstance(part, bn.ClassificationPredictive) else [part.mean, part.variance]
    return numbers


def table(count: int = 40) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table with numbers, text and missing values, and a target."""
    size = np.sin(1.3 * np.arange(count))
    frame = pd.DataFrame({"size": size, "town": np.where(np.arange(count) % 3, "ash", "elm"), "same": 1.0})
    frame.loc[::7, "size"] = np.nan
    return frame, 2 * size + (np.arange(count) % 3)


SETTINGS: dict[str, Any] = {
    "encoding": "plain",
    "hidden": (3, 3),
    "weight_decay": 0.01,
    "folds": 2,
    "members": 2,
    "max_epochs": 2,
    "samples": 4,
    "random_state": 0,
}


@functools.cache
def _estimator(*, classes: bool = False, **options: Any) -> Any:
    """Return a fitted estimator; each is fitted once in a process."""
    x, y = table()
    if classes:
        return tabular.BayesNormClassifier(**SETTINGS | options).fit(x, np.where(y > 1, "yes", "no"))
    return tabular.BayesNormRegressor(**SETTINGS | options).fit(x, y)


def _use_estimator(path: Path) -> list[Tensor]:
    estimator, x = tabular.load(path), table()[0]
    uncertainty = estimator.uncertainty(x).select_dtypes("number").to_numpy()
    if hasattr(estimator, "classes_"):
        assert len(estimator.predict(x)) == len(x)
        return [torch.tensor(estimator.predict_proba(x)), torch.tensor(uncertainty)]
    intervals = np.asarray(estimator.predict_interval(x))
    if estimator.conformal:  # an interval is infinite if there are too few scores for its level
        intervals = np.where(np.isinf(intervals), 0.0, intervals)
    numbers = [*estimator.predict(x, return_std=True), intervals, uncertainty]
    estimator.selection_.table()
    return [torch.tensor(part) for part in numbers]


def _watched() -> Any:
    return bn.MCBN(batch_size=4, states=9).fit(network(), rows(), bn.Gaussian(4.0))


def _write_monitor(path: Path) -> None:
    monitor = DriftMonitor(_watched())
    monitor.update(rows()[0])
    monitor.save(path)


def _use_monitor(path: Path) -> list[Tensor]:
    monitor = DriftMonitor.load(path, _watched())
    return [torch.tensor(monitor.update(rows()[0] + 1).evidence)]


@functools.cache
def _classified() -> Any:
    torch.manual_seed(0)
    head = nn.Linear(8, 3)
    model = nn.Sequential(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.ReLU(), head).eval()
    with torch.no_grad():
        head.bias -= model(rows()[0]).mean(0)  # so that several classes are predicted
    return bn.MCBN(batch_size=4, states=9).fit(model, rows()[0], bn.Categorical())


def _write_stream(path: Path) -> None:
    stream = AdaptiveStream(_classified(), window=8)
    stream.update(3 * rows()[0] + 1)
    stream.save(path)


def _use_stream(path: Path) -> list[Tensor]:
    stream = AdaptiveStream.load(path, _classified())
    probs = stream.update(rows()[0])
    assert stream.decision or not stream.examples
    return [probs, stream.predict(rows()[0]).probs]


def _write_compressed(path: Path) -> None:
    bn.compress(bn.GroupNormalJeffreys(epochs=1).fit(network(), rows(), bn.Gaussian())).save(path)


def _use_compressed(path: Path) -> list[Tensor]:
    return [load_compressed(path, network())(rows()[0]).detach()]


def _learner(path: Path, asked: Callable[[Tensor], Tensor]) -> active.ActiveLearner:
    x, _ = rows()
    return active.ActiveLearner(
        x,
        lambda numbers, _: asked(numbers),
        lambda x, y: bn.MCBN(batch_size=2, states=2).fit(network(), x, bn.Gaussian()),
        active.Random(),
        budget=8,
        batch=4,
        initial=4,
        path=path,
        seed=0,
    )


def _write_labels(path: Path) -> None:
    _learner(path, lambda numbers: rows()[1][numbers]).run()


def _use_labels(path: Path) -> list[Tensor]:
    learner = _learner(path, lambda numbers: rows()[1][numbers])
    learner.run()
    return [learner.labels]


def _train(path: Path, epochs: int) -> list[Tensor]:
    model = network().train()
    train(
        model,
        *rows(),
        loss=bn.Gaussian().loss,
        epochs=epochs,
        batch_size=8,
        checkpoint=path,
        checkpoint_every=0,
        seed=0,
    )
    return [parameter.detach() for parameter in model.parameters()]


@functools.cache
def kinds() -> dict[str, FileKind]:
    """Return all kinds by name."""
    made = {
        name: FileKind(lambda path, make=make: make().save(path), _use_posterior)
        for name, make in _posteriors().items()
    }
    tables: dict[str, dict[str, Any]] = {
        "mcbn": {"encoding": "bins 3", "conformal": True},
        "one member": {"encoding": "waves 2", "conformal": True, "members": 1},
        "gaussian": {"method": "gaussian", "heteroscedastic": False},
        "dropout": {"method": "dropout"},
        "ensemble": {"method": "ensemble"},
        "classes": {"classes": True},
    }
    for name, options in tables.items():
        made[f"table {name}"] = FileKind(lambda path, options=options: _estimator(**options).save(path), _use_estimator)
    made["monitor"] = FileKind(_write_monitor, _use_monitor)
    made["stream"] = FileKind(_write_stream, _use_stream)
    made["compressed"] = FileKind(_write_compressed, _use_compressed)
    made["labels"] = FileKind(_write_labels, _use_labels)
    made["checkpoint"] = FileKind(lambda path: _train(path, 1) and None, lambda path: _train(path, 2))
    return made
