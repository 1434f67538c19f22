"""Put the tables of results/ into README.md and docs/, between the marks that are there for them.

python -m benchmarks.readme_tables
"""

from __future__ import annotations

import re
import statistics

from bayesnorm.data import UCI_SETS
from bayesnorm.report.words import count
from benchmarks import (
    tabular as tabular_sets,
    tabular_class_models,
    tabular_class_sets,
    tabular_classes,
    tabular_models,
)
from benchmarks.image_tables import (
    atanov_table1,
    compression,
    kendall_segmentation,
    mukhoti_figure1,
    prune_channels,
    teye_figure2,
    teye_table2,
    uncertainty_and_data,
)
from benchmarks.markdown import table
from benchmarks.results_files import ROOT, hardware, read
from benchmarks.tabular_tables import all_tables
from experiments import known_noise as made_up, teye_tables, uci_luck
from experiments.means import mean_and_error


def inference() -> str:
    """Return time and exactness of every way of predicting."""
    parts = []
    for name in ("inference_cpu.json", "inference_cuda.json"):
        found = read(name)
        if found is None:
            continue
        speed = {(row["network"], row["batch"], row["engine"]): row["passes"] for row in found["speed"]}
        columns = sorted({key[:2] for key in speed}, key=lambda key: (key[0] != "ResNet-32", key[1]))
        engines = list(dict.fromkeys(key[2] for key in speed))
        rows = [[engine, *(speed.get((*column, engine)) for column in columns)] for engine in engines]
        where = hardware(found["machine"])
        parts.append(
            f"Time in deterministic passes of the same network in the same mode, 32 samples unless said ({where}):"
        )
        parts.append(table(["", *(f"{network}, batch {batch}" for network, batch in columns)], rows))
        if found["exactness"] and (name == "inference_cuda.json" or read("inference_cuda.json") is None):
            keys = ["center", "engine", "passes", "per row", "per logit", "ratio", "MI ranks"]
            parts.append(
                f"Against all samples of the same posterior ({found['machine']['reference']}, ResNet-32, M = 32, default "
                f"centre; the paper's is in `results/{name}`): "
                "correlation of log-variances per row and per logit, median ratio of variances, rank correlation of "
                "mutual information:"
            )
            shown = [row for row in found["exactness"] if row["center"] == "running"]
            parts.append(table(keys[1:], [[row[key] for key in keys[1:]] for row in shown]))
    return "\n\n".join(parts)


def frontier() -> str:
    """Return quality against cost of drawing fewer layers."""
    found = read("frontier.json")
    if found is None:
        return ""
    keys = ["drawn", "M'", "cost, cpu", "cost", "accuracy", "NLL", "ECE", "AUROC SVHN", "NLL, temperature"]
    head = ["drawn", "M'", "cost, CPU", "cost, H200", *keys[4:]]
    machines = [hardware(found[key]) for key in ("machine", "machine, cpu") if key in found]
    text = (
        f"Scores with {found['samples']} samples; cost of 32 samples on 64 rows in deterministic passes "
        f"({'; '.join(machines)}). SVHN digits are cropped from the street photos, so not pixel-identical to the "
        "usual test file:"
    )
    return text + "\n\n" + table(head, [[row.get(key) for key in keys] for row in found["rows"]])


def peers() -> str:
    """Return the comparison with other libraries."""
    found = read("peers.json")
    if found is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in list(found["versions"].items())[:3])
    hardware = f"{found['hardware']['cpu']}, {_threads(found)}"
    rows = [
        [row["method"], *(_number(row.get(key)) for key in ("passes", "accuracy", "nll", "ece", "nll_fitted"))]
        for row in found["cifar"]
    ]
    again: dict[str, list[str]] = {}
    for row in found["cifar"]:
        if "run" in row:
            again.setdefault(f"{_threads(row['run'])}, {row['run']['date'][:10]}", []).append(row["method"])
    later = "".join(f" Measured later ({run}): {'; '.join(methods)}." for run, methods in again.items())
    libraries = list(found["probes"])
    probes = [
        [probe, *("yes" if found["probes"][name][probe]["runs"] else "no" for name in libraries)]
        for probe in found["probes"][libraries[0]]
    ]
    return "\n\n".join(
        [
            f"ResNet-32, 1,000 CIFAR-10 test images, 32 samples ({versions}; {hardware}, {found['date'][:10]}). "
            "Cost in deterministic passes of the same network on 125 rows, each measured beside its own pass. "
            '"(val)": chosen on other test images, as is the temperature of the last column:',
            table(["", "cost", "accuracy", "NLL", "ECE", "NLL, temperature"], rows),
            f"{later} What each can run (reasons in `results/peers.json`):".strip(),
            table(["", *libraries], probes),
        ]
    )


def methods() -> str:
    """Return every method side by side."""
    found = read("methods.json")
    if found is None:
        return ""
    machine = found["machine"]
    where = f"{machine['device']}, {machine['threads']} thread, torch {machine['torch']}, {machine['date']}"
    parts = [f"Means of {found['splits']} splits, gains ± standard errors ({where}):"]
    head = ["", "RMSE", "CRPS", "PLL", "gain CRPS %", "gain PLL %", "95 %", "far/near", "train s", "samples/s"]
    for name in ("toy", "yacht", "concrete", "energy"):
        rows = []
        for method, runs in found.get(name, {}).items():
            columns = {key: [run[key] for run in runs] for key in runs[0]}
            mean = {key: statistics.fmean(values) for key, values in columns.items()}
            gains = [mean_and_error(columns[key], 1) for key in ("gain_crps", "gain_pll")]
            shown = [f"{mean['rmse']:.3f}", f"{mean['crps']:.3f}", f"{mean['pll']:.2f}", *gains]
            shown += [f"{mean['coverage']:.2f}", f"{mean['growth']:.1f}", f"{mean['train_seconds']:.1f}"]
            rows.append([method, *shown, f"{mean['samples_per_second']:.0f}"])
        parts += [f"**{name}**", table(head, rows)]
    return "\n\n".join(parts)


def training() -> str:
    """Return the speed of stacked training."""
    parts = []
    for name in ("training_cpu.json", "training_cuda.json"):
        found = read(name)
        if found is not None:
            head = ["family", "networks", "one by one", "stacked", "ratio"]
            parts += [
                f"{hardware(found['machine'])}:",
                table(head, [[row[key] for key in head] for row in found["speed"]]),
            ]
    return "\n\n".join(parts)


def tabular() -> str:
    """Return the comparison with models for tables of numbers."""
    found = read("tabular.json")
    if found is None:
        return ""
    tables = all_tables(found["rows"], tabular_sets.SETS, list(tabular_models.MODELS), tabular_sets.SCORES)
    return "\n\n".join([_over_splits(found["machine"]), *tables])


PARTS = {
    "one network, no samples": "one network: its predicted noise",
    "bayesnorm, one network": "and batch-norm samples",
    "bayesnorm, no samples": "all members, without samples",
    "bayesnorm": "all members and samples",
    "bayesnorm, fast": "`fast=True`",
}
"""Models that have some of the three places of uncertainty, and what the table of parts calls them."""


def tabular_parts() -> str:
    """Return what each place of uncertainty adds to CRPS, on the splits that all models of it have."""
    found = read("tabular.json")
    if found is None:
        return ""
    scores = {(row["set"], row["model"], row["split"]): row["crps"] for row in found["rows"] if "crps" in row}
    splits = {
        name: [n for n in range(1, 6) if all((name, model, n) in scores for model in PARTS)]
        for name in tabular_sets.SETS
    }
    sets = [name for name, own in splits.items() if own]
    rows = [
        [words, *(f"{statistics.fmean(scores[name, model, n] for n in splits[name]):.4g}" for name in sets)]
        for model, words in PARTS.items()
    ]
    return table(["CRPS", *(f"{name} ({count(len(splits[name]), 'split')})" for name in sets)], rows)


def classes() -> str:
    """Return the comparison with models for tables of classes."""
    found = read("tabular_classes.json")
    if found is None:
        return ""
    order = list(tabular_class_models.MODELS)
    sets = list(tabular_class_sets.SETS)
    of_set = {row["set"]: row for row in found["rows"] if "rarest" in row}
    counted = [
        [name, f"{of_set[name]['rows']:,}", of_set[name]["classes"], f"{of_set[name]['rarest']:.1%}"]
        for name in sets
        if name in of_set
    ]
    tables = all_tables(found["rows"], sets, order, tabular_classes.SCORES, ratios=False)
    return "\n\n".join(
        [table(["", "training rows", "classes", "the rarest"], counted), _over_splits(found["machine"]), *tables]
    )


def _over_splits(machine: dict) -> str:
    return (
        f"Mean ± standard error over splits ({hardware(machine)}; the best in bold; a number in brackets: so many "
        "splits only; –: not measured):"
    )


def uci_table() -> str:
    """Return table 1 of the MCBN paper, ours beside it."""
    return teye_tables.markdown(1, teye_tables.read_rows(ROOT / "results" / "uci_paper.csv"))


def uci_verdicts() -> str:
    """Return what the tables of the MCBN paper come to."""
    return f"```\n{teye_tables.verdicts(teye_tables.read_rows(ROOT / 'results' / 'uci_paper.csv'))}\n```"


def uci_repeats() -> str:
    """Return the results of the whole protocol with other seeds."""
    benchmark = teye_tables.read_rows(ROOT / "results" / "uci_paper.csv")
    cells = {
        (cell.dataset, cell.metric): cell
        for number in (4, 6, 7)
        for cell in teye_tables.compare(number, benchmark)
        if cell.method == "MCBN"
    }
    rows, machines = [], {}
    for name in UCI_SETS:
        found = read(f"uci_luck_{name}.json")
        if found is None:
            continue
        machines[hardware(found["machine"])] = None
        repeats = {row["repeat"]: [] for row in found["rows"]}
        for row in found["rows"]:
            repeats[row["repeat"]].append(row)
        results = [uci_luck.result(those) for those in repeats.values()]
        for metric, title, digits in (("rmse", "RMSE", 4), ("crps", "CRPS", 4), ("normalised_crps", "CRPS %", 2)):
            cell, values = cells[name, metric], [result[metric] for result in results]
            error = statistics.fmean(result[f"{metric}_error"] for result in results)
            each = ", ".join(f"{value:.{digits}f}" for value in sorted(values))
            summary = (statistics.fmean(values), statistics.stdev(values), error)
            ours, *shown = (f"{value:.{digits}f}" for value in (cell.ours, *summary))
            rows.append([name, title, ours, each, *shown, f"{cell.theirs:g} ± {cell.their_error:g}"])
    head = ["", "", "tables above", "again, sorted", "mean", "deviation", "standard error", "paper"]
    return f"MCBN, {'; '.join(machines)}:\n\n" + table(head, rows)


def tabular_size() -> str:
    """Return time and memory of large tables."""
    rows = []
    for device in ("cpu", "cuda"):
        found = read(f"tabular_size_{device}.json")
        for row in found["rows"] if found else ():
            numbers = [row[f"{key} seconds"] for key in ("fit", "predict", "interval")]
            shown = [f"{row['rows']:,} x {row['columns']}", *(f"{value:.1f}" for value in numbers)]
            shown += [f"{row[f'{key} MiB']:,.0f}" for key in ("fit", "predict")]
            rows.append([hardware(found["machine"]), *shown, f"{row['rmse']:.3f}", f"{row['coverage']:.3f}"])
    head = ["", "table", "fit, s", "predict 100,000 rows, s", "with intervals, s", "fit, MiB", "predict, MiB", "RMSE"]
    return table([*head, "90 % intervals hold"], rows)


def known_noise() -> str:
    """Return what fits say of tables whose noise is known."""
    found = read("known_noise.json")
    return f"{hardware(found['machine'])}:\n\n{made_up.summary(found['rows'])}" if found else ""


def _threads(run: dict) -> str:
    """Return the threads of a run in words."""
    return f"{run['hardware']['threads']} thread" + "s" * (run["hardware"]["threads"] > 1)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value:.1f}"


def main() -> None:
    pages = {
        "README.md": {"inference-table": inference(), "frontier-table": frontier(), "peers-table": peers()},
        "docs/methods.md": {"methods-table": methods()},
        "docs/benchmark.md": {"uci-table1": uci_table(), "uci-verdicts": uci_verdicts(), "uci-repeats": uci_repeats()},
        "docs/tabular.md": {
            "tabular-table": tabular(),
            "parts-table": tabular_parts(),
            "size-table": tabular_size(),
            "known-noise": known_noise(),
            "classes-table": classes(),
        },
        "docs/compression.md": {
            "prune-channels": prune_channels(),
            "compression": compression("compression.json"),
            "compression-vgg": compression("compression_vgg.json"),
        },
        "docs/training.md": {"training-table": training()},
        "docs/papers_images.md": {
            "teye-table2": teye_table2("teye_table2.json"),
            "teye-table2-paper": teye_table2("teye_table2_paper.json"),
            "atanov-table1": atanov_table1(),
            "uncertainty-and-data": uncertainty_and_data(),
            "teye-figure2": teye_figure2(),
            "kendall-segmentation": kendall_segmentation(),
            "mukhoti-figure1": mukhoti_figure1(),
        },
    }
    for page, tables in pages.items():
        text = (ROOT / page).read_text()
        for mark, content in tables.items():
            block = f"<!-- {mark} -->\n{content}\n<!-- /{mark} -->"
            text = re.sub(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _, block=block: block, text, flags=re.S)
        (ROOT / page).write_text(text)


if __name__ == "__main__":
    main()
