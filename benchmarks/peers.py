"""Compare bayesnorm with torch-uncertainty (MCBatchNorm and ABNN) and laplace-torch on the same tasks.

    make bench-peers                                # everything, some minutes on two cores
    make bench-peers ARGS="--images 100 --samples 8 --out out/peers.json"   # a quick look
    make bench-peers ARGS="--only laplace --predictions out/peers"  # some methods again; other rows of the file stay

There are two tasks: the trained ResNet-32 on CIFAR-10, and a regression network with two layers of 50 units on Boston
housing, trained here on one thread. Then `peers_probes.py` tests what each library can run. Every method is measured
in its own process:
- Time: `passes` is the median time of a prediction divided by that of one forward pass over the same inputs, measured
  in turns. `fit s` is the time of the fit.
- Memory: the peak that a prediction of one batch, and the fit, add to the process (VmHWM minus VmRSS before).
- Scores: accuracy, NLL and ECE on test images 1000 to 1999; `NLL+T` with a temperature fitted on images 0 to 999.
  `--images` takes fewer of both. For regression RMSE and NLL in the target's units, as means over splits: `NLL` with
  noise from training rows (their mean squared error, or the library's estimate), `NLL+T` with noise fitted on
  validation rows.
- `(val)`: the method itself chose something on validation data, so compare its NLL with the others' NLL+T.
- `--predictions`: writes the class probabilities of the ResNet-32's validation and test images into that folder, for
  `python -m experiments teye-table2`. Methods that chose something on validation images are left out.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from argparse import SUPPRESS, ArgumentParser, Namespace as Options
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesnorm.report import cpu_name
from benchmarks.peers_libraries import LIBRARIES, import_peers
from benchmarks.peers_methods import METHODS, Method, Outputs, Task, boston, cifar, point, test_starts
from benchmarks.peers_probes import probe_table
from experiments.measuring import timed, with_added_mib
from experiments.teye_table2.peers import write_predictions

PACKAGES = (*LIBRARIES, "torch", "torchvision", "numpy", "curvlinops-for-pytorch")


def measure(task: Task, label: str, method: Method, options: Options) -> dict[str, Any]:
    """Return cost and scores of one method on one task, and write its predictions if `--predictions` is given."""
    chosen = "val)" in label  # its noise already comes from validation data

    def over(x: Tensor, done: Any = None) -> Outputs:
        f, variance = zip(*(done or map(fitted.predict, x.split(options.batch))), strict=True)
        return torch.cat(f, 1), torch.cat(variance, 1) if variance[0].dim() else variance[0]

    exact, batches = point(task, options).predict, task.test[0].split(options.batch)
    exact(batches[0][:2])
    (fit_s, fitted), fit_mib = with_added_mib(lambda: timed(lambda: method(task, options)))
    mib = with_added_mib(lambda: fitted.predict(batches[0]))[1]
    exact(batches[0])
    turns = [(timed(lambda x=x: exact(x))[0], *timed(lambda x=x: fitted.predict(x))) for x in batches * task.repeats]
    one, many = (statistics.median(turn[part] for turn in turns) for part in (0, 1))
    test, noise = over(task.test[0], done=[outputs for _, _, outputs in turns[: len(batches)]]), fitted.noise
    if noise is None:
        noise = 1.0 if task.y_std is None else (over(task.train[0])[0].mean(0) - task.train[1]).square().mean()
    best = noise
    if not chosen:
        validation = over(task.validation[0])
        best = task.best_noise(validation, task.validation[1])
        if options.predictions and task.y_std is None:
            probs = torch.cat([task.predictive(outputs, noise).probs for outputs in (validation, test)])
            numbers = torch.cat([torch.arange(options.images) + start for start in test_starts(options)])
            told = {"method": label, "passes": many / one, "versions": versions()}
            write_predictions(Path(options.predictions), task.model, numbers, probs, told)
    cost = {"passes": many / one, "fit_s": fit_s, "fit_mib": fit_mib, "mib": mib, "pass_ms": 1000 * one}
    return cost | task.scores(test, noise) | {"nll_fitted": task.scores(test, best)["nll"], "note": fitted.note}


def versions() -> dict[str, str]:
    """Return the versions of all packages that take part."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def kept_report(options: Options) -> dict[str, Any]:
    """Return the report whose other rows a run with `--only` keeps; refuse rows of other versions."""
    path = Path(options.out)
    if not options.only or not path.exists():
        return {}
    stored, now = json.loads(path.read_text()), versions()
    for network in METHODS:
        for label in (row["method"] for row in stored[network] if options.only not in row["method"]):
            for name in ("torch", *(library for library in LIBRARIES if label.startswith(library))):
                if stored["versions"][name] != now[name]:
                    raise SystemExit(
                        f"--only: {label} in {path} was measured with {name} {stored['versions'][name]}, but "
                        f"{now[name]} is installed. Measure all methods again, or choose another --out."
                    )
    return stored


def worker(options: Options, module: str, *arguments: str) -> Any:
    """Run a module of this folder in a new process; return the JSON that it writes to its last argument."""
    result = Path(options.scratch) / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, str(result)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if not result.exists():
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(result.read_text())


def work(options: Options, scratch: str, network: str, label: str, out: str) -> None:
    """Measure one method in the process that `worker` started; an error is a result, too."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(options.threads if network == "cifar" else 1)
    stored = Path(scratch) / f"{network}.pt"
    if not stored.exists():  # the first process prepares the tasks for all others
        torch.save({"cifar": cifar, "boston": boston}[network](options), stored)
    tasks = torch.load(stored, weights_only=False)
    if label.startswith(LIBRARIES[1:]):
        import_peers()  # so that the import counts neither in time nor in memory
    try:
        rows = [measure(task, label, METHODS[network][label], options) for task in tasks]
        means = {name: statistics.mean(row[name] for row in rows) for name in rows[0] if name != "note"}
        result = means | {"note": rows[0]["note"] if len(rows) == 1 else ""}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    Path(out).write_text(json.dumps({"method": label} | result))


def line(row: dict[str, Any], network: str) -> str:
    """Return one line of the table, or the header if `row` is empty."""
    quality = {"accuracy": "accuracy", "ece": "ECE"} if network == "cifar" else {"rmse": "RMSE"}
    columns = {"passes": "passes", "mib": "MiB", "fit_s": "fit s", "fit_mib": "fit MiB"}
    columns |= {"nll": "NLL", "nll_fitted": "NLL+T"} | quality
    if "error" in row:
        return f"{row['method']:<70}cannot run: {row['error']}"
    digits = {"passes": 2, "fit_s": 1, "mib": 0, "fit_mib": 0}
    cells = (f"{row[key]:9.{digits.get(key, 3)}f}" if row else f"{title:>9}" for key, title in columns.items())
    return f"{row.get('method', ''):<70}" + "".join(cells) + "   " * bool(row.get("note")) + row.get("note", "")


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--images",
        type=int,
        default=1000,
        help="Number of test images for the scores, and as many for choices. [default: 1000]",
    )
    parser.add_argument("--samples", type=int, default=32, help="Samples per prediction. [default: 32]")
    parser.add_argument("--batch", type=int, default=125, help="Inputs per prediction. [default: 125]")
    parser.add_argument("--splits", type=int, default=5, help="Splits of the regression data. [default: 5]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only", default="", help="Measure only methods whose name contains this text; --out keeps the other rows."
    )
    parser.add_argument("--predictions", default="", help="Folder for predictions of images.")
    parser.add_argument("--out", default="results/peers.json")
    parser.add_argument("work", nargs="*", help=SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options, *options.work)
    began, named, stored = time.perf_counter(), sys.argv[1:], kept_report(options)
    run: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m benchmarks.peers", *named]),
        "hardware": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "threads": options.threads,
            "load": os.getloadavg()[0],
        },
        "python": platform.python_version(),
    }
    report = {**(stored or run), "versions": versions()}
    told = report["versions"] | run["hardware"]
    print(", ".join(f"{name} {value}" for name, value in told.items()))
    with tempfile.TemporaryDirectory() as options.scratch:
        for network, title in (
            ("cifar", "ResNet-32, CIFAR-10"),
            ("boston", "regression network with two layers of 50 units, Boston housing"),
        ):
            rows: list[dict[str, Any]] = []
            print(f"\n{title}: {options.samples} samples, {options.batch} inputs per prediction\n{line({}, network)}")
            for label in METHODS[network]:
                if options.only in label:
                    rows.append(worker(options, "peers", *named, options.scratch, network, label))
                    rows[-1] |= {"run": run} if stored else {}
                    print(line(rows[-1], network), flush=True)
                else:
                    rows.extend(row for row in stored.get(network, ()) if row["method"] == label)
            report[network] = rows
        report["probes"] = {name: worker(options, "peers_probes", name) for name in LIBRARIES}
    print("\n" + probe_table(report["probes"]))
    minutes = round((time.perf_counter() - began) / 60, 2)
    if not stored:
        report["minutes"] = minutes
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{minutes} minutes; {options.out}")


if __name__ == "__main__":
    main()
