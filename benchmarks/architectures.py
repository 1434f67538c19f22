"""Try architectures of timm and torchvision: does everything that users do work with them?

    python -m benchmarks.architectures [--out results/architectures.json] [--only TEXT] [--processes 1]

The networks are untrained, and the images are random and small: this tests that the code runs and that its numbers
agree, not how good the uncertainty is. Every architecture runs in a process of its own, with limits of time and memory.
Results are written after every architecture; a run that is started again continues. `make bench-architectures` builds
the environment.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.posterior import Posterior
from benchmarks.architectures_networks import Architecture, architectures, import_libraries, network_and_images
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
            raise Failed("all samples are the same")

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
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GIB * 2**30, MEMORY_GIB * 2**30))
    warnings.simplefilter("ignore")
    begun = time.process_time()
    try:
        network, x = network_and_images(architecture.library, architecture.name, ROWS)
        with tempfile.TemporaryDirectory() as folder:
            steps = try_network(network, x, Path(folder))
        answer.send({"pixels": x.shape[-1], "cpu_seconds": round(time.process_time() - begun, 1), "steps": steps})
    except BaseException as error:
        answer.send({"pixels": None, "steps": dict.fromkeys(STEPS, f"{type(error).__name__}: {error}"[:300])})


def outcome(architecture: Architecture) -> dict[str, Any]:
    """Return the result of one architecture."""
    context = multiprocessing.get_context("fork")  # so that every process has the imports already
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(architecture, sender))
    process.start()
    sender.close()
    try:
        row = receiver.recv() if receiver.poll(PROCESS_SECONDS) else None
    except EOFError:
        row = None
    if row is None:
        process.kill()
    process.join()
    row = row or {"pixels": None, "steps": dict.fromkeys(STEPS, f"the process ended with code {process.exitcode}")}
    return asdict(architecture) | row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/architectures.json"), help="Results file.")
    parser.add_argument("--only", default="", help="Try only names that contain this text, again if they are known.")
    parser.add_argument("--processes", type=int, default=1, help="Networks to try at the same time. [default: 1]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    import_libraries()  # once, before processes are forked
    content = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows: dict[str, Any] = {f"{row['library']} {row['name']}": row for row in content.get("architectures", [])}
    chosen = [Architecture(**entry) for entry in content["chosen"]] if "chosen" in content else architectures()
    todo = [entry for entry in chosen if f"{entry.library} {entry.name}" not in rows]
    if options.only:
        todo = [entry for entry in chosen if options.only in entry.name]
    todo.sort(key=lambda entry: entry.parameters)  # the cheap ones first
    with ThreadPoolExecutor(options.processes) as pool:
        for done in as_completed([pool.submit(outcome, entry) for entry in todo]):
            row = done.result()
            rows[f"{row['library']} {row['name']}"] = row
            failures = "; ".join(f"{step}: {text}" for step, text in row["steps"].items() if text != "yes")
            print(f"{row['library']:11s} {row['name']:36s} {failures or 'everything works'}", flush=True)
            write(options.out, chosen, list(rows.values()))
    counts = Counter(step for row in rows.values() for step, text in row["steps"].items() if text == "yes")
    print(f"{len(rows)} architectures: " + ", ".join(f"{step} {counts[step]}" for step in STEPS))


def write(path: Path, chosen: list[Architecture], rows: list[dict[str, Any]]) -> None:
    """Write the results file."""
    made_on = machine("cpu") | {name: version(name) for name in ("timm", "torchvision")}
    made_on["command"] = "make bench-architectures"
    content = {
        "machine": made_on,
        "settings": {"rows": ROWS, "batch_size": BATCH_SIZE, "states": STATES, "samples": SAMPLES},
        "chosen": [asdict(entry) for entry in chosen],
        "architectures": sorted(rows, key=lambda row: (row["library"], row["name"])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
