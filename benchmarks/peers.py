"""The same work with bayesnorm and with its peers, side by side: torch-uncertainty's MCBatchNorm and laplace-torch.

    make bench-peers                                # all of it, some minutes on two cores
    make bench-peers ARGS="--images 100 --draws 8"  # a quick look

Two jobs: the trained ResNet-32 on CIFAR-10, and the MCBN paper's 50-50 perceptron on Boston housing, trained here (one
thread). Then what each library can run at all (`peers_probes.py`). Each method is measured in a process of its own:
- time: `passes` is the median time of a prediction over the median time of one deterministic pass over the same rows,
  the two taken in turns; `fit s` is what happens once.
- memory: what predicting one batch, and fitting, add to the process at the peak (resident set: Linux's VmHWM less VmRSS
  before).
- scores: accuracy, NLL and ECE on test images 1000-1999; `NLL+T` with a temperature fitted on images 0-999 (`--images`
  takes fewer of both). For the perceptron RMSE and NLL in the target's units, mean over splits: `NLL` with noise from
  training rows (their mean squared error, or the library's own estimate), `NLL+T` with noise fitted on validation rows.
- `(val)`: the method itself chose something on validation rows, so that its NLL stands beside the others' NLL+T.
"""

from __future__ import annotations

import ctypes
import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from argparse import SUPPRESS, ArgumentParser, Namespace as Options
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peers_probes import LIBRARIES, import_peers, probe_table
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.data import load_cifar10, load_uci, paper_split, to_network_input
from bayesnorm.nets import load_cifar_resnet, paper_mlp
from bayesnorm.training import train

PACKAGES = (*LIBRARIES, "torch", "torchvision", "numpy", "curvlinops-for-pytorch")
Outputs = tuple[Tensor, Tensor]  # draws (n, batch, ...), and a variance about each


@dataclass
class Task:
    """A trained network and its rows, each part (inputs, targets); regression is in standardised units."""

    model: nn.Module
    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    y_std: float | None = None  # None: classes
    repeats: int = 1

    def loader(self, batch_size: int) -> DataLoader:
        order = torch.Generator().manual_seed(0)
        return DataLoader(TensorDataset(*self.train), batch_size, shuffle=True, generator=order)

    def predictive(self, outputs: Outputs, noise: Any) -> Any:
        """The predictive with a temperature (classes) or a noise variance."""
        if self.y_std is None:
            return bn.ClassificationPredictive(torch.log_softmax(outputs[0] / noise, dim=2))
        return bn.RegressionPredictive(outputs[0], (outputs[1] + noise).sqrt())

    def scores(self, outputs: Outputs, noise: Any) -> dict[str, float]:
        predictive, y = self.predictive(outputs, noise), self.test[1]
        nll = -float(predictive.log_prob(y).mean())
        if self.y_std is not None:
            rmse = self.y_std * float(metrics.rmse(predictive, y))
            return {"rmse": rmse, "nll": nll + float(torch.tensor(self.y_std).log())}
        return {"nll": nll} | {name: float(getattr(metrics, name)(predictive, y)) for name in ("accuracy", "ece")}

    def best_noise(self, outputs: Outputs, y: Tensor) -> float:
        """The temperature (.05 to 20) or noise variance (1e-4 to 10) of the smallest NLL, to 3 %."""
        grid = torch.logspace(-1.3, 1.3, 201) if self.y_std is None else torch.logspace(-4, 1, 401)
        return min(grid.tolist(), key=lambda noise: -float(self.predictive(outputs, noise).log_prob(y).mean()))


def cifar(options: Options) -> list[Task]:
    """ResNet-32; methods are fitted on the data folder's 5,000 training images."""

    def part(split: str, start: int, count: int) -> tuple[Tensor, Tensor]:
        images, labels = load_cifar10(split, slice(start, start + count))
        return to_network_input(images), torch.from_numpy(labels)

    tests = (part("test", start, options.images) for start in (0, 1000))
    return [Task(load_cifar_resnet(32), part("train", 0, 5000), *tests)]


def boston(options: Options) -> list[Task]:
    """50-50 perceptrons on the paper's splits, trained here."""
    x, y = (torch.from_numpy(values).float() for values in load_uci("boston"))
    tasks = []
    for split in range(1, options.splits + 1):
        rest, test = (torch.from_numpy(rows) for rows in paper_split(len(x), split))
        validation, rows = rest[:80], rest[80:]
        (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(v[rows], dim=0, correction=0) for v in (x, y))
        xs, ys, model = (x - x_mean) / x_std, ((y - y_mean) / y_std)[:, None], paper_mlp(x.shape[1], seed=split)
        train(model, xs[rows], ys[rows], loss=F.mse_loss, epochs=200, batch_size=32, weight_decay=2e-3, seed=split)
        parts = ((xs[part], ys[part]) for part in (rows, validation, test))
        tasks.append(Task(model, *parts, y_std=float(y_std), repeats=50))
    return tasks


@dataclass
class Fitted:
    """How to predict, and the temperature or noise variance where the method has its own."""

    predict: Callable[[Tensor], Outputs]
    noise: Any = None
    note: str = ""


Method = Callable[[Task, Options], Fitted]


def point(task: Task, options: Options) -> Fitted:
    """One deterministic pass."""
    return Fitted(torch.no_grad()(lambda x: (task.model(x)[None], torch.zeros(()))))


def tempered(task: Task, options: Options) -> Fitted:
    """One deterministic pass, with the temperature or noise that validation rows ask for."""
    predict = point(task, options).predict
    outputs = torch.cat([predict(x)[0] for x in task.validation[0].split(options.batch)], 1), torch.zeros(())
    return Fitted(predict, task.best_noise(outputs, task.validation[1]))


def torch_uncertainty(task: Task, options: Options) -> Fitted:
    """MCBatchNorm with M = 32."""
    wrapper = import_peers()[0](task.model, num_estimators=options.draws, mc_batch_size=32)
    wrapper.fit(task.loader(32))
    wrapper.eval()
    return Fitted(torch.no_grad()(lambda x: (wrapper(x).unflatten(0, (options.draws, len(x))), torch.zeros(()))))


def laplace(structure: str) -> Method:
    """Last-layer Laplace; prior and noise by marginal likelihood, and the closed-form (probit) predictive."""

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
    """bayesnorm's MCBN with M = `size`: all layers or the `last` few, at effective batch size `at`.

    `calibrate=(rows, samples)` chooses noise and M' on validation rows; `draws` multiplies the draws.
    """

    def fit(task: Task, options: Options) -> Fitted:
        engine = bn.MonteCarlo(extra.get("draws", 1) * options.draws)
        method = bn.MCBN(size, states=max(64, engine.samples), center=center)
        posterior = method.fit(task.model, task.train, bn.Gaussian() if task.y_std else bn.Categorical())
        posterior = posterior.at_layers(last) if last else posterior
        posterior = posterior.at_batch_size(at or size)
        noise, note = None, ""
        if "calibrate" in extra:
            rows, samples = extra["calibrate"]
            x, y = (values[:rows] for values in task.validation)
            posterior = bn.calibrate(posterior, x, y, samples=samples, score="pll" if task.y_std else "nll")
            noise = 1 / posterior.likelihood.precision if task.y_std else posterior.likelihood.temperature
            note = f"M' = {posterior.batch_size:.3g}, noise {noise:.3g}"
        return Fitted(lambda x: (engine.outputs(posterior, x), torch.zeros(())), noise, note)

    return fit


COMMON: dict[str, Method] = {
    "torch-uncertainty MCBatchNorm, M = 32": torch_uncertainty,
    "laplace-torch, last layer, Kronecker": laplace("kron"),
    "bayesnorm MCBN as published, M = 32": mcbn(32, "batch"),
    "bayesnorm MCBN centred, M = 32": mcbn(32),
    "bayesnorm MCBN centred, M = 16": mcbn(16),
}
METHODS: dict[str, dict[str, Method]] = {
    "cifar": {"softmax": point, "softmax with temperature (val)": tempered}
    | COMMON
    | {
        "bayesnorm centred, last block, M' = 2": mcbn(32, last=2, at=2),
        "bayesnorm centred, last layer, M' = 1, 2 T": mcbn(32, last=1, at=1, draws=2),
        "bayesnorm last block, calibrated (val)": mcbn(32, last=2, calibrate=(1000, 32)),
        "bayesnorm all layers, calibrated (200 val)": mcbn(32, calibrate=(200, 16)),
    },
    "boston": {"point network": point, "point network with noise (val)": tempered}
    | COMMON
    | {
        "laplace-torch, last layer, full": laplace("full"),
        "bayesnorm centred, last layer, M' = 8": mcbn(32, last=1, at=8),
        "bayesnorm all layers, calibrated (val)": mcbn(32, calibrate=(80, 64)),
    },
}


def peak_mib(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a call gives, and the MiB that it adds to the process at its peak (NaN where the system does not tell)."""

    def read(field: str) -> float:
        return float(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024

    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed must not hide what is taken
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = read("VmRSS")
    except (OSError, AttributeError):
        return call(*arguments), float("nan")
    result = call(*arguments)
    return result, read("VmHWM") - before


def seconds(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """How long a call takes, and what it gives."""
    start = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - start, result


def measure(task: Task, method: Method, chosen: bool, options: Options) -> dict[str, Any]:
    """Cost and scores of one method on one task; `chosen`: it has had its noise from validation rows."""

    def over(x: Tensor, done: Any = None) -> Outputs:
        f, variance = zip(*(done or map(fitted.predict, x.split(options.batch))), strict=True)
        return torch.cat(f, 1), torch.cat(variance, 1) if variance[0].dim() else variance[0]

    exact, batches = point(task, options).predict, task.test[0].split(options.batch)
    exact(batches[0][:2])
    (fit_s, fitted), fit_mib = peak_mib(seconds, method, task, options)
    mib = peak_mib(fitted.predict, batches[0])[1]
    exact(batches[0])
    turns = [(seconds(exact, x)[0], *seconds(fitted.predict, x)) for x in batches * task.repeats]
    one, many = (statistics.median(turn[part] for turn in turns) for part in (0, 1))
    test, noise = over(task.test[0], done=[outputs for _, _, outputs in turns[: len(batches)]]), fitted.noise
    if noise is None:
        noise = 1.0 if task.y_std is None else (over(task.train[0])[0].mean(0) - task.train[1]).square().mean()
    best = noise if chosen else task.best_noise(over(task.validation[0]), task.validation[1])
    cost = {"passes": many / one, "fit_s": fit_s, "fit_mib": fit_mib, "mib": mib, "pass_ms": 1000 * one}
    return cost | task.scores(test, noise) | {"nll_fitted": task.scores(test, best)["nll"], "note": fitted.note}


def worker(options: Options, script: str, *arguments: str) -> Any:
    """What a script of this folder, run in a process of its own, writes as JSON to its last argument."""
    result = Path(options.scratch) / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments, str(result)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if not result.exists():
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(result.read_text())


def work(options: Options, scratch: str, network: str, label: str, out: str) -> None:
    """The other end of `worker`: measure one method; an error is a result too."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(options.threads if network == "cifar" else 1)
    stored = Path(scratch) / f"{network}.pt"
    if not stored.exists():  # the first process prepares the tasks for all
        torch.save({"cifar": cifar, "boston": boston}[network](options), stored)
    tasks = torch.load(stored, weights_only=False)
    if label.startswith(LIBRARIES[1:]):
        import_peers()  # counts neither in time nor in memory
    try:
        rows = [measure(task, METHODS[network][label], "val)" in label, options) for task in tasks]
        means = {name: statistics.mean(row[name] for row in rows) for name in rows[0] if name != "note"}
        found = means | {"note": rows[0]["note"] if len(rows) == 1 else ""}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    Path(out).write_text(json.dumps({"method": label} | found))


def line(row: dict[str, Any], network: str) -> str:
    """One row of the table; the header where `row` is empty."""
    quality = {"accuracy": "accuracy", "ece": "ECE"} if network == "cifar" else {"rmse": "RMSE"}
    columns = {"passes": "passes", "mib": "MiB", "fit_s": "fit s", "fit_mib": "fit MiB"}
    columns |= {"nll": "NLL", "nll_fitted": "NLL+T"} | quality
    if "error" in row:
        return f"{row['method']:<45}cannot run: {row['error']}"
    digits = {"passes": 2, "fit_s": 1, "mib": 0, "fit_mib": 0}
    cells = (f"{row[key]:9.{digits.get(key, 3)}f}" if row else f"{title:>9}" for key, title in columns.items())
    return f"{row.get('method', ''):<45}" + "".join(cells) + "   " * bool(row.get("note")) + row.get("note", "")


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1000, help="test images to score, and to choose on")
    parser.add_argument("--draws", type=int, default=32, help="T, network draws per prediction")
    parser.add_argument("--batch", type=int, default=125, help="rows per prediction")
    parser.add_argument("--splits", type=int, default=5, help="train/test splits of the perceptron's data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="only methods whose name holds this")
    parser.add_argument("--out", default="results/peers.json")
    parser.add_argument("work", nargs="*", help=SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options, *options.work)
    began, named = time.perf_counter(), sys.argv[1:]
    listed = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    cpu = re.findall(r"model name\s*: (.*)", listed) or [platform.processor()]
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["benchmarks/peers.py", *named]),
        "hardware": {"cpu": cpu[0], "cores": os.cpu_count(), "threads": options.threads, "load": os.getloadavg()[0]},
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    print(", ".join(f"{name} {value}" for part in ("versions", "hardware") for name, value in report[part].items()))
    with tempfile.TemporaryDirectory() as options.scratch:
        for network, title in (("cifar", "ResNet-32, CIFAR-10"), ("boston", "50-50 perceptron, Boston housing")):
            rows = report[network] = []
            print(f"\n{title}: {options.draws} draws, {options.batch} rows per prediction\n{line({}, network)}")
            for label in METHODS[network]:
                if options.only in label:
                    rows.append(worker(options, "peers.py", *named, options.scratch, network, label))
                    print(line(rows[-1], network), flush=True)
        report["probes"] = {name: worker(options, "peers_probes.py", name) for name in LIBRARIES}
    print("\n" + probe_table(report["probes"]))
    report["minutes"] = round((time.perf_counter() - began) / 60, 2)
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{report['minutes']} minutes; {options.out}")


if __name__ == "__main__":
    main()
