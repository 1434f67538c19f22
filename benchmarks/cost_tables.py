"""Tables of time and memory for `readme_tables`: milliseconds first, then the ratio to one forward pass."""

from __future__ import annotations

import statistics

from bayesnorm.words import format_count
from benchmarks.markdown import table
from benchmarks.results_files import hardware, read

WAYS = {
    "naive loop": "as in the paper: a training batch before every sample",
    "cached loop": "stored statistics, samples one after another",
    "vectorised": "`MonteCarlo(32)`, all samples together",
    "SigmaPoints(8)": "`SigmaPoints(rank=8)`, 16 points",
    "Delta": "`Delta()`",
    "Delta, one output": "`Delta()` for a network with one output",
    "last block, T = 32": "`MonteCarlo(32)`, last block only",
    "last layer, T = 64": "`MonteCarlo(64)`, last layer only",
    "compiled": "`compile()`, then `MonteCarlo(32)`",
}
"""Ways of predicting in inference_*.json, and their names in the table."""


def inference() -> str:
    """Return the time of every way of predicting, a table for each machine and network."""
    parts = []
    for name in ("inference_cpu.json", "inference_cuda.json"):
        results = read(name)
        for network in dict.fromkeys(row["network"] for row in results["speed"]) if results else ():
            rows = [row for row in results["speed"] if row["network"] == network]
            batches = sorted({row["batch"] for row in rows})
            cells = {(row["engine"], row["batch"]): _ms(row["ms"], row["passes"]) for row in rows}
            passes = [
                [row["ms"] / row["passes"] for row in rows if row["batch"] == batch and row["engine"] != "compiled"]
                for batch in batches
            ]
            lines = [["one forward pass, about", *(f"{_rounded(statistics.median(times))} ms" for times in passes)]]
            lines += [
                [words, *(cells.get((engine, batch), "not measured") for batch in batches)]
                for engine, words in WAYS.items()
                if any((engine, batch) in cells for batch in batches)
                and (network == "ResNet-32" or engine != "Delta, one output")  # the other network has one output anyway
            ]
            what = "image" if network == "ResNet-32" else "row"
            parts.append(f"**{network}, {hardware(results['machine'])}**")
            parts.append(table(["way of predicting", *(format_count(batch, what) for batch in batches)], lines))
    return "\n\n".join(parts)


def inference_exactness() -> str:
    """Return how close every engine and every posterior comes to all samples of MCBN."""
    results = read("inference_cuda.json")
    if results is None:
        return ""
    keys = ["engine", "passes", "per row", "per logit", "ratio", "MI ranks"]
    head = [
        "engine or posterior",
        "forward passes",
        "correlation of log-variances per image",
        "correlation of log-variances per logit",
        "median ratio of variances",
        "rank correlation of mutual information",
    ]
    rows = [[row[key] for key in keys] for row in results["exactness"] if row["center"] == "running"]
    return f"{hardware(results['machine'])}:\n\n{table(head, rows)}"


def frontier() -> str:
    """Return quality and cost when fewer layers are sampled."""
    results = read("frontier.json")
    if results is None:
        return ""
    keys = ["drawn", "M'", "cost, cpu", "cost", "accuracy", "NLL", "NLL, temperature", "ECE", "AUROC SVHN"]
    head = [
        "sampled layers",
        "effective batch size",
        "cost on the CPU",
        "cost on the H200",
        "accuracy",
        "NLL",
        "NLL with temperature",
        "ECE",
        "AUROC of entropy, SVHN",
    ]
    machines = [hardware(results[key]) for key in ("machine", "machine, cpu") if key in results]
    text = (
        f"Scores use {results['samples']} samples. The cost is that of 32 samples for a batch of 64 images, as a "
        f"multiple of one forward pass ({'; '.join(machines)}):"
    )
    names = {"softmax": "none (softmax)", "softmax, temperature": "none (softmax with temperature)"}
    digits = {"M'": 1, "cost, cpu": 2, "cost": 2}
    rows = [
        [
            names.get(row["drawn"], row["drawn"]),
            *("" if row.get(key) is None else format(row[key], f".{digits.get(key, 3)}f") for key in keys[1:]),
        ]
        for row in results["rows"]
    ]
    return text + "\n\n" + table(head, rows)


def peers() -> str:
    """Return the comparison with other libraries."""
    results = read("peers.json")
    if results is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in list(results["versions"].items())[:3])
    rows = [
        [
            row["method"],
            f"{row['passes']:.3g}x" if "run" in row else _ms(row["passes"] * row["pass_ms"], row["passes"]),
            *(f"{row[key]:.3f}" for key in ("accuracy", "nll", "ece", "nll_fitted")),
        ]
        for row in results["cifar"]
    ]
    again: dict[str, list[str]] = {}
    for row in results["cifar"]:
        if "run" in row:
            again.setdefault(f"{_threads(row['run'])}, {row['run']['date'][:10]}", []).append(row["method"])
    later = [
        f"Without milliseconds are methods of another run on a busier machine ({run}): {'; '.join(methods)}."
        for run, methods in again.items()
    ]
    libraries = list(results["probes"])
    probes = [
        [probe, *("yes" if results["probes"][name][probe]["runs"] else "no" for name in libraries)]
        for probe in results["probes"][libraries[0]]
    ]
    where = f"{results['hardware']['cpu']}, {_threads(results)}, {results['date'][:10]}"
    head = ["method", "time for 125 images", "accuracy", "NLL", "ECE", "NLL with temperature"]
    return "\n\n".join(
        [
            f"ResNet-32, 1,000 CIFAR-10 test images ({versions}; {where}):",
            table(head, rows),
            *later,
            "What each library can run (reasons are in `results/peers.json`):",
            table(["network or task", *libraries], probes),
        ]
    )


def segmentation() -> str:
    """Return time and memory of predictions for every pixel of an image."""
    parts = []
    for name in ("segmentation_cpu.json", "segmentation_cuda.json"):
        results = read(name)
        if results is None:
            continue
        rows = [
            [
                _name(row["network"]),
                WAYS_OF_MAPS[row["way"]],
                _ms(1000 * row["seconds"], row["passes"]),
            ]
            for row in results["speed"]
        ]
        parts += [
            f"{hardware(results['machine'])}:",
            table(["network", "way of predicting", "16 samples, one image"], rows),
        ]
        if results.get("memory"):
            memory = []
            for row in results["memory"]:
                images = f"{row['images']} images" if row["images"] > 1 else "1 image"
                what = "one forward pass" if not row["samples"] else f"{row['samples']} samples"
                if row["samples"]:
                    what += ", all kept" if row.get("keep") != "summary" else ', `keep="summary"`'
                if row.get("tile"):
                    what += f", `tile={row['tile']}`"
                size = "{:,} x {:,}".format(*row["size"])
                memory.append([_name(row["network"]), f"{images} of {size}", what, f"{row['added_mib']:,.0f}"])
            parts.append(table(["network", "input", "prediction", "added memory at the peak (MiB)"], memory))
    return "\n\n".join(parts)


WAYS_OF_MAPS = {
    "eager": "eager",
    "compiled": "compiled; ratio to the compiled network",
    "compiled, in eager passes": "compiled; ratio to the eager network",
}
"""Ways of predicting in segmentation_*.json, and their names in the table."""


def fitting() -> str:
    """Return the time of a fit beside that of its forward passes."""
    rows, machines = [], []
    for name in ("fitting_cpu.json", "segmentation_cpu.json"):
        results = read(name)
        for row in results["fits"] if results else ():
            seconds = f"{row['fit_seconds']:.1f} s"
            rows.append([row["network"], row["method"], row["passes"], seconds, f"{row['ratio']:.2f}"])
        machines += [hardware(results["machine"])] if results else []
    head = ["network", "method", "batches", "fit", "ratio to the forward passes of these batches"]
    return f"{'; '.join(dict.fromkeys(machines))}:\n\n{table(head, rows)}"


def versions() -> str:
    """Return the time of predictions and fits with several versions of the package, a table for each results file."""
    parts = []
    for name in ("versions_cuda.json", "versions_cpu.json"):
        results = read(name)
        if results is not None:
            cells = {(row["case"], row["version"]): _ms(row["ms"], row["passes"]) for row in results["speed"]}
            names = list(dict.fromkeys(row["version"] for row in results["speed"]))
            rows = [[case, *(cells[case, name] for name in names)] for case in dict.fromkeys(case for case, _ in cells)]
            parts += [f"**{hardware(results['machine'])}**", table(["prediction or fit", *names], rows)]
    return "\n\n".join(parts)


def shift_cost() -> str:
    """Return the time of `drift` and `adapt`."""
    results = read("shift_cost.json")
    if results is None:
        return ""
    rows = [
        [f"`{row['call']}`", row["rows"], hardware(results[device]["machine"]), _ms(row["ms"], row["passes"])]
        for device in ("cpu", "cuda")
        for row in results[device]["costs"]
    ]
    return table(["call", "images", "machine", "time"], rows)


def _ms(value: float, ratio: float) -> str:
    """Return milliseconds and the ratio to one forward pass, such as "32.0 ms (7.1x)"."""
    return f"{_rounded(value)} ms ({_rounded(ratio)}x)"


def _rounded(value: float) -> str:
    """Return a positive number with about three digits."""
    return format(value, ",.0f" if value >= 100 else ".1f" if value >= 10 else ".2f")


def _name(network: str) -> str:
    return network.replace("UNet", "U-Net")


def _threads(run: dict) -> str:
    """Return the number of threads of a run in words."""
    return f"{run['hardware']['threads']} thread" + "s" * (run["hardware"]["threads"] > 1)
