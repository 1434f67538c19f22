"""Tables of the ways to deploy and of the load test of the server."""

from __future__ import annotations

from typing import Any

from .markdown import table
from .results_files import hardware, read


def deployment() -> str:
    """Return latency, throughput, memory and size of every way of deploying."""
    results = read("deployment.json")
    if results is None:
        return ""
    parts = []
    for model, words in (
        ("network", "ResNet-20, images of 32 x 32 pixels, last batch-norm layer sampled, 64 samples"),
        ("table", "diabetes of scikit-learn, a run of `bayesnorm fit --fast`"),
    ):
        lines = [
            [
                way["way"],
                f"{way['latency_ms']:.3g}",
                f"{way['per_second']:,.0f}",
                f"{way['cpu_ms']:.2g}" if "cpu_ms" in way else "",
                f"{way['load_seconds']:.2g}",
                f"{way['resident_mib']:.0f}",
                f"{way['megabytes']:.3g}",
            ]
            for way in results["ways"].values()
            if way["model"] == model
        ]
        head = [
            words,
            "latency (ms)",
            "examples per second",
            "CPU time per example (ms)",
            "seconds to load",
            "memory (MiB)",
            "files (MB)",
        ]
        parts.append(table(head, lines))
    where = f"{hardware(results['machine'])}, onnxruntime {results['onnxruntime']}, {_load(results)}"
    return f"{where}:\n\n" + "\n\n".join(parts)


def export_costs() -> str:
    """Return what exported networks cost in onnxruntime, and what the engines of this package cost."""
    part = (read("exporting.json") or {}).get("costs")
    if part is None:
        return ""
    batches = (1, 16, 64)
    lines = [
        [
            entry["name"],
            *(f"{entry[f'onnx_{batch}']:.3g}" for batch in batches),
            *(f"{entry[f'engine_{batch}']:.3g}" for batch in batches),
            f"{100 * (entry['size'] - 1):.1f} %",
            f"{entry['difference']:.0e}",
        ]
        for entry in part["results"]
    ]
    head = [
        "sampled",
        *(f"file, batch of {batch}" for batch in batches),
        *(f"engine, batch of {batch}" for batch in batches),
    ]
    where = f"{hardware(part['machine'])}, onnxruntime {part['versions']['onnxruntime']}"
    return f"{where}:\n\n{table([*head, 'more bytes', 'largest difference'], lines)}"


def export_parity() -> str:
    """Return the largest difference of other exported networks from their posteriors."""
    part = (read("exporting.json") or {}).get("parity")
    if part is None:
        return ""
    lines = [[entry["name"], f"{entry['difference']:.0e}"] for entry in part["results"]]
    packages = ", ".join(f"{name} {version}" for name, version in part["versions"].items())
    return f"{hardware(part['machine'])}, {packages}:\n\n{table(['network', 'largest difference'], lines)}"


def serving_load() -> str:
    """Return the results of the load test as a table."""
    results = read("serving.json")
    if results is None:
        return ""
    one, many = results["throughput"]["1_connections"], results["throughput"]["64_connections"]
    kinds, killed = results["malformed"], results["kills"]
    flood, memory = results["flood"], results["memory"]
    counts = [count for outcomes in kinds["outcomes"].values() for count in outcomes.items()]
    refused, right, late, left = (
        sum(count for status, count in counts if status.startswith(start)) for start in ("4", "2", "503", "closed by")
    )
    one_words, many_words = (
        f"{part['requests_per_second']:.0f} requests per second; p50 {part['p50_ms']:.0f} ms, p99 "
        f"{part['p99_ms']:.0f} ms; {part['server_cpu_ms']:.2g} ms of CPU time per request"
        for part in (one, many)
    )
    lines = [
        ["one connection", one_words],
        [
            "64 connections",
            f"{many_words}; {many['rows_together']:.0f} rows predicted together; {results['throughput']['ratio']:.1f} "
            "times the requests of one connection",
        ],
        [
            f"{flood['in_flight']:,} requests at once",
            f"{flood['right']:,} answered, {flood['429']:,} refused with status 429; the server lived",
        ],
        [
            f"{memory['requests']:,} requests",
            f"memory grew by {memory['growth_mib']:.1f} MiB from the second quarter to the last, to "
            f"{memory['resident_mib'][-1]:.0f} MiB",
        ],
        [
            f"killed {killed['kills']} times under load",
            f"{killed['right']:,} right replies, {killed['lost']:,} lost connections, none wrong",
        ],
        [
            f"{kinds['requests']:,} malformed requests",
            f"{refused:,} refused with status 4xx, {late} with 503 because their body came too slowly, {right} right "
            f"in spite of the change, {left} given up by the client; {kinds['faults']} faults, {kinds['tracebacks']} "
            "tracebacks",
        ],
    ]
    where = f"{hardware(results['machine'])}, {_load(results['throughput'])}"
    return f"{where}:\n\n{table(['test', 'result'], lines)}"


def bulk() -> str:
    """Return the time of each step of predicting a large file, its rows per CPU second, and the memory."""
    results = read("bulk.json")
    if results is None:
        return ""
    now, before = results["steps_us_per_row"]["now"], results["steps_us_per_row"]["before"]
    lines = [[name, f"{before[name]:.3g}", f"{now[name]:.3g}"] for name in now]
    steps = table(["step", "double precision", "as it runs"], lines)
    whole, start, rate = results["predict"], results["start"], results["rows_per_cpu_second"]
    where = f"{hardware(results['machine'])}, model of `{results['fit']}`, microseconds of CPU time per row:"
    speed = f"The whole command predicted {results['rows']:,} rows, {rate:,.0f} per second of CPU time, after"
    memory = f"It took {whole['peak_mib']:.0f} MiB of memory; for 8,192 rows it took {start['peak_mib']:.0f} MiB."
    return f"{where}\n\n{steps}\n\n{speed} {start['cpu_seconds']:.0f} seconds to start. {memory}"


def _load(numbers: dict[str, Any]) -> str:
    """Return how busy the machine was with this and other work."""
    return f"load average {numbers['load_average']:.0f} on two cores that other programs used too"
