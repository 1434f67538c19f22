"""Try architectures of timm and torchvision: does everything that users do work with them?

    python -m benchmarks.architectures [--out results/architectures.json] [--start-from FILE] [--only TEXT]
                                       [--processes 1] [--minutes N]

The networks are untrained, and the images are random and small: this tests that the code runs and that its numbers
agree, not how good the uncertainty is. Every architecture runs in a process of its own, with limits of time and memory.
Nothing is downloaded. Results are written after every architecture; a run that is started again continues, also on
another machine: every result says which machine and versions it comes from. `make bench-architectures` builds the
environment.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.posterior import Posterior
from bayesnorm.writing import write_bytes
from benchmarks.architectures_networks import Architecture, architectures, exists, import_libraries, network_and_images
from experiments.machine import machine

STEPS = ("fit", "predict", "vectorised", "drift", "adapt", "prune", "save/load")
ROWS, BATCH_SIZE, STATES, SAMPLES = 32, 4, 8, 3
STEP_SECONDS, PROCESS_SECONDS, MEMORY_GIB = 40, 900, 8


class Failed(Exception):
    """A step that ran and gave a wrong answer."""


def try_network(network: torch.nn.Module, x: Tensor, folder: Path) -> dict[str, str]:
    """Return the outcome of every step, "yes" or why not."""
    with torch.no_grad():
        output = network(x[:2])
    if isinstance(output, dict):
        entry = next(name for name, value in output.items() if isinstance(value, Tensor))
    elif isinstance(output, tuple | list):
        entry = 0
    else:
        entry = None
    likelihood = bn.Categorical()
    steps: dict[str, str] = {}
    posterior: Posterior | None = None
    generator = torch.Generator().manual_seed(1)
    fresh = torch.randn(BATCH_SIZE, *x.shape[1:], generator=generator)
    engine = bn.MonteCarlo(samples=SAMPLES)

    def fit() -> None:
        nonlocal posterior
        posterior = bn.MCBN(BATCH_SIZE, states=STATES).fit(network, x, likelihood, output=entry)

    def predict() -> None:
        assert posterior is not None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            predictive = posterior.predict(fresh[:2], engine=engine)
        loops = [str(w.message) for w in caught if "cannot be vectorised" in str(w.message)]
        steps["vectorised"] = loops[0] if loops else "yes"
        plain = posterior.predict(fresh[:2], engine=bn.MonteCarlo(samples=SAMPLES, vectorize=False))
        difference = float((predictive.probs - plain.probs).abs().max())
        if not difference < 1e-3:
            raise Failed(f"vectorised samples differ from plain ones by {difference:.1g}")
        # Equal logits in all samples would mean that nothing is sampled.
        if not float(predictive.mutual_information.abs().sum()) > 0:
            point = bn.deterministic(network, likelihood, output=entry).predict(fresh).probs
            constant = float(point.std(0).max()) < 1e-6
            raise Failed(
                "the untrained network gives all images the same output" if constant else "all samples are the same"
            )

    def drift() -> None:
        if not bn.drift(posterior, fresh).p_value > 1e-4:
            raise Failed(f"p = {bn.drift(posterior, fresh).p_value:.0e} for data of the training distribution")

    def adapt() -> None:
        adapted = bn.adapt(posterior, 1.5 * fresh + 0.5)
        if not bool(torch.isfinite(adapted.predict(fresh[:2], engine=engine).probs).all()):
            raise Failed("predictions are not finite")

    def prune() -> None:
        small = bn.compression.prune_channels(posterior, x[:16], multiply_adds=0.9).network
        with torch.no_grad():
            outputs = small(fresh[:2])
        outputs = outputs if entry is None else outputs[entry]
        if not bool(torch.isfinite(outputs).all()):
            raise Failed("outputs are not finite")

    def save_and_load() -> None:
        assert posterior is not None
        posterior.save(folder / "posterior")
        loaded = bn.load(folder / "posterior", network)
        pairs = [p.predict(fresh[:2], engine=engine).probs for p in (posterior, loaded)]
        if not torch.equal(*pairs):
            raise Failed("a loaded posterior predicts other numbers")

    actions = (fit, predict, drift, adapt, prune, save_and_load)
    for name, action in zip((step for step in STEPS if step != "vectorised"), actions, strict=True):
        steps[name] = "no posterior" if posterior is None and name != "fit" else _outcome(action)
    return {name: steps.get(name, "no prediction") for name in STEPS}


def _outcome(action: Callable[[], None]) -> str:
    try:
        with _time_limit(STEP_SECONDS):
            action()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        refused = isinstance(error, bn.BayesNormError | Failed)
        return lines[0] if refused else f"{type(error).__name__}: {lines[0]}"
    return "yes"


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """Raise a `Failed` in this process when the CPU time is over."""

    def stop(*_: Any) -> None:
        raise Failed(f"takes more than {seconds} s of CPU time")

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _run(architecture: Architecture, answer: Connection) -> None:
    """Try one architecture, in a process of its own."""
    torch.set_num_threads(1)
    # The libraries of CUDA alone can fill several GiB of addresses, so the limit counts what comes on top.
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = addresses + MEMORY_GIB * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("ignore")
    begun = time.process_time()
    try:
        network, x = network_and_images(architecture.library, architecture.name, ROWS)
        with tempfile.TemporaryDirectory() as folder:
            steps = try_network(network, x, Path(folder))
        answer.send({"pixels": x.shape[-1], "cpu_seconds": round(time.process_time() - begun, 1), "steps": steps})
    except BaseException as error:
        answer.send({"pixels": None, "steps": dict.fromkeys(STEPS, f"{type(error).__name__}: {error}"[:300])})


def outcome(architecture: Architecture, deadline: float) -> dict[str, Any] | None:
    """Return the result of one architecture, or None if it did not end before the deadline.

    Args:
        architecture: What to try.
        deadline: The time by `time.monotonic` at which the whole run ends.
    """
    seconds = min(PROCESS_SECONDS, deadline - time.monotonic())
    if seconds <= 0:
        return None
    context = multiprocessing.get_context("fork")  # so that every process has the imports already
    with _STARTING:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(architecture, sender))
        process.start()
        sender.close()
    ready = wait([receiver], seconds)
    try:
        row = receiver.recv() if ready else None
    except EOFError:
        row = None
    if row is None:
        process.kill()
    process.join()
    if not ready and seconds < PROCESS_SECONDS:
        return None
    row = row or {"pixels": None, "steps": dict.fromkeys(STEPS, f"the process ended with code {process.exitcode}")}
    return asdict(architecture) | row


# A process that starts while another one does would hold its pipe open, and its end would not be seen.
_STARTING = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/architectures.json"), help="Results file.")
    parser.add_argument("--start-from", type=Path, help="Results file to continue from, if it is not that of --out.")
    parser.add_argument("--only", default="", help="Try only names that contain this text, again if they are known.")
    parser.add_argument("--processes", type=int, default=1, help="Networks to try at the same time. [default: 1]")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="Stop after this time. [default: no limit]")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    torch.set_num_threads(1)
    import_libraries()  # once, before processes are forked
    source = options.start_from or options.out
    content = json.loads(source.read_text()) if options.start_from or source.exists() else {}
    rows: dict[str, Any] = {f"{row['library']} {row['name']}": row for row in content.get("architectures", [])}
    machines = content.get("machines", [])
    made_on = machine("cpu") | {name: version(name) for name in ("timm", "torchvision")}
    made_on["command"] = "make bench-architectures"
    if made_on not in machines:
        machines.append(made_on)
    chosen = [Architecture(**entry) for entry in content["chosen"]] if "chosen" in content else architectures()
    todo = [entry for entry in chosen if f"{entry.library} {entry.name}" not in rows]
    if options.only:
        todo = [entry for entry in chosen if options.only in entry.name]
    for entry in todo:
        if not exists(entry):
            print(f"{entry.library:11s} {entry.name:36s} not in this version of {entry.library}", flush=True)
    todo = [entry for entry in todo if exists(entry)]
    todo.sort(key=lambda entry: entry.parameters)  # the cheap ones first
    write(options.out, machines, chosen, list(rows.values()))
    with ThreadPoolExecutor(options.processes) as pool:
        for done in as_completed([pool.submit(outcome, entry, deadline) for entry in todo]):
            row = done.result()
            if row is None:
                continue
            rows[f"{row['library']} {row['name']}"] = row | {"machine": machines.index(made_on)}
            failures = "; ".join(f"{step}: {text}" for step, text in row["steps"].items() if text != "yes")
            print(f"{row['library']:11s} {row['name']:36s} {failures or 'everything works'}", flush=True)
            write(options.out, machines, chosen, list(rows.values()))
    counts = Counter(step for row in rows.values() for step, text in row["steps"].items() if text == "yes")
    print(f"{len(rows)} architectures: " + ", ".join(f"{step} {counts[step]}" for step in STEPS))


def write(path: Path, machines: list[dict[str, Any]], chosen: list[Architecture], rows: list[dict[str, Any]]) -> None:
    """Write the results file; the entry `machine` of a row is a position in `machines`."""
    content = {
        "machines": machines,
        "settings": {"rows": ROWS, "batch_size": BATCH_SIZE, "states": STATES, "samples": SAMPLES},
        "chosen": [asdict(entry) for entry in chosen],
        "architectures": sorted(rows, key=lambda row: (row["library"], row["name"])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
