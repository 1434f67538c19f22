"""Measure how fast `bayesnorm predict` scores a large file, and how much memory it takes.

    python -m benchmarks.bulk [--rows 1000000] [--fast] [--work FOLDER] [--out results/bulk.json]

A default model, or with --fast one of `bayesnorm fit --fast`, is fitted to 2,000 rows of ten columns: six numbers, of
which one has missing values, a count, two categories and a date. The command then predicts a Parquet file of new rows.
A second part measures each step in one process, and again with networks and quantiles in double precision, as they were
before. One thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import torch

from bayesnorm.cli.file_columns import read_as_in_training
from bayesnorm.cli.output_files import arrow_table, csv_text
from bayesnorm.cli.predictions import round_predictions
from bayesnorm.cli.scoring import CHUNK
from bayesnorm.cli.tables import open_table, read_chunks
from bayesnorm.tabular import estimator, load, prediction_frame
from experiments.machine import machine

TRAINING_ROWS, STEP_CHUNKS, GROUP = 2_000, 6, 100_000

CITIES = ["Oslo", "Rome", "Lima", "Bonn", "Cairo", "Kyoto", "Quito", "Perth"]


def table(rows: int, seed: int) -> pd.DataFrame:
    """Return rows of ten columns, and a target."""
    generator = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"x{number}": generator.normal(size=rows).round(4) for number in range(5)}
    gap = generator.exponential(size=rows).round(4)
    columns["gap"] = np.where(generator.random(rows) < 0.1, np.nan, gap)
    columns["count"] = generator.integers(0, 50, rows)
    columns["city"] = generator.choice(CITIES, rows)
    columns["kind"] = generator.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])
    days = generator.integers(0, 1000, rows)
    columns["day"] = np.datetime64("2022-01-01") + days.astype("timedelta64[D]")
    frame = pd.DataFrame(columns)
    mean = np.sin(2 * frame["x0"]) + frame["x1"] * frame["x2"] + 0.5 * frame["gap"].fillna(0)
    mean += frame["city"] == "Oslo"
    mean += 0.02 * frame["count"] + 0.3 * np.sin(2 * np.pi * days / 365)
    frame["target"] = (mean + generator.normal(size=rows) * (0.3 + 0.2 * frame["x3"].abs())).round(4)
    return frame


def write_rows(path: Path, rows: int) -> None:
    """Write a Parquet file of new rows, group by group."""
    writer = None
    for number, start in enumerate(range(0, rows, GROUP)):
        part = pyarrow.Table.from_pandas(table(min(GROUP, rows - start), 1 + number).drop(columns="target"))
        writer = writer or pyarrow.parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def command(*arguments: object) -> dict[str, float]:
    """Run a command of bayesnorm with one thread; return seconds and its peak memory in MiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "bayesnorm", *map(str, arguments)], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": time.perf_counter() - started, "cpu_seconds": cpu, "peak_mib": usage.ru_maxrss / 1024}


def steps(run: Path, data: Path, *, fast: bool) -> dict[str, float]:
    """Return the median microseconds of CPU time per row of each step.

    Args:
        run: The folder of the model.
        data: The file of new rows.
        fast: Whether networks run in single precision.
    """
    facts, model = json.loads((run / "run.json").read_text()), load(run / "model.bayesnorm")
    file, times = open_table(data, 65_536), dict[str, list[float]]()

    def timed(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        started = time.process_time()
        result = function(*arguments)
        times.setdefault(name, []).append((time.process_time() - started) / CHUNK * 1e6)
        return result

    before, estimator.FAST_ROWS = estimator.FAST_ROWS, 1 if fast else sys.maxsize
    chunks = read_chunks(file, [column["name"] for column in facts["columns"]], CHUNK)
    try:
        for _ in range(STEP_CHUNKS):
            chunk = timed("read", next, chunks)
            values, _ = timed("convert columns", read_as_in_training, chunk, file.source, file.decimal, facts)
            rows = timed("features", model._read, values)
            predictive = timed("networks", model._predictive_of, rows.features)
            timed("quantiles", model.interval_of, predictive)
            started = time.process_time()
            predictive, uncertainty = model.predict_with_uncertainty(values)
            frame = prediction_frame(model, values, predictive, uncertainty, 0.9)
            whole = (time.process_time() - started) / CHUNK * 1e6
            others = sum(times[name][-1] for name in ("features", "networks", "quantiles"))
            times.setdefault("moments, unusual rows", []).append(max(0.0, whole - others))
            frame = timed("round", round_predictions, frame, 4)
            timed("to Parquet", arrow_table, frame)
            timed("to CSV (instead)", csv_text, frame, False)
    finally:
        estimator.FAST_ROWS = before
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fast", action="store_true", help="Fit the model with --fast.")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/bulk.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        training, run, data = work / "training.csv", work / "run", work / f"new_{options.rows}.parquet"
        if not run.exists():
            table(TRAINING_ROWS, 0).to_csv(training, index=False)
            command("fit", training, "--target", "target", "--out", run, *(["--fast"] if options.fast else []))
        if not data.exists():
            write_rows(data, options.rows)
        small = work / "small.parquet"
        write_rows(small, CHUNK)
        results = {
            "machine": machine(),
            "rows": options.rows,
            "fit": "bayesnorm fit --fast" if options.fast else "bayesnorm fit",
            "setting": str(load(run / "model.bayesnorm").selection_.chosen),
            "steps_us_per_row": {"before": steps(run, data, fast=False), "now": steps(run, data, fast=True)},
            "start": command("predict", run, small, "--out", work / "small_out.parquet", "--force"),
            "predict": command("predict", run, data, "--out", work / "predictions.parquet", "--force"),
        }
    whole, start = results["predict"], results["start"]
    cpu = whole["cpu_seconds"] - start["cpu_seconds"]
    results["rows_per_cpu_second"] = (options.rows - CHUNK) / cpu
    results["hours_of_cpu_for_10_million_rows"] = 1e7 / results["rows_per_cpu_second"] / 3600
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
