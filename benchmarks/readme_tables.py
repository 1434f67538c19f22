"""Write the tables of results/ into the pages of docs/, between the marks that show where each table belongs.

python -m benchmarks.readme_tables
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable

from bayesnorm.words import format_count
from benchmarks import (
    tabular as tabular_sets,
    tabular_class_models,
    tabular_class_sets,
    tabular_classes,
    tabular_models,
)
from benchmarks.advice_tables import pruning_criteria, unusual_inputs
from benchmarks.architectures_table import architectures
from benchmarks.claims_table import claims
from benchmarks.cost_tables import (
    fitting,
    frontier,
    inference,
    inference_exactness,
    peers,
    segmentation,
    shift_cost,
    versions,
)
from benchmarks.deployment_tables import bulk, deployment, export_costs, export_parity, serving_load
from benchmarks.image_tables import (
    atanov_table1,
    compression,
    kendall_segmentation,
    mukhoti_figure1,
    prune_channels,
    teye_figure2,
    teye_table2,
    teye_table2_methods,
    uncertainty_and_data,
)
from benchmarks.markdown import table
from benchmarks.results_files import ROOT, hardware, read
from benchmarks.shift_peer_tables import (
    peer_estimates,
    peer_probabilities,
    peer_sequences,
    peer_streams,
)
from benchmarks.tabular_tables import all_tables
from experiments import teye_tables, uci_luck
from experiments.data import UCI_SETS
from experiments.means import mean_and_error


def methods() -> str:
    """Return the scores, the training time and the speed of every method on small regression sets."""
    results = read("methods.json")
    if results is None:
        return ""
    machine = results["machine"]
    threads = format_count(machine["threads"], "thread")
    where = f"{machine['device']}, {threads}, torch {machine['torch']}, {machine['date']}"
    parts = [f"Means of {results['splits']} splits; gains with standard errors ({where}):"]
    head = [
        "method",
        "RMSE",
        "CRPS",
        "log-likelihood",
        "gain in CRPS (%)",
        "gain in log-likelihood (%)",
        "coverage of 95 % intervals",
        "far / near",
        "training (s)",
        "samples per second",
    ]
    for name in ("toy", "yacht", "concrete", "energy"):
        rows = []
        for method, runs in results.get(name, {}).items():
            columns = {key: [run[key] for run in runs] for key in runs[0]}
            mean = {key: statistics.fmean(values) for key, values in columns.items()}
            gains = [mean_and_error(columns[key], 1) for key in ("gain_crps", "gain_pll")]
            shown = [f"{mean['rmse']:.3f}", f"{mean['crps']:.3f}", f"{mean['pll']:.2f}", *gains]
            shown += [f"{mean['coverage']:.2f}", f"{mean['growth']:.1f}", f"{mean['train_seconds']:.1f}"]
            rows.append([method.replace("M' chosen", "effective batch size chosen"), *shown])
            rows[-1].append(f"{mean['samples_per_second']:,.0f}")
        parts += [f"**{name}**", table(head, rows)]
    return "\n\n".join(parts)


def training() -> str:
    """Return the speed of training many small networks together."""
    parts = []
    for name in ("training_cpu.json", "training_cuda.json"):
        results = read(name)
        if results is not None:
            keys = ["family", "networks", "one by one", "stacked", "ratio"]
            head = ["kind", "networks", "one by one (steps/s)", "together (steps/s)", "ratio"]
            rows = [
                [row["family"], row["networks"], f"{row['one by one']:,}", f"{row['stacked']:,}", f"{row[keys[4]]:,}"]
                for row in results["speed"]
            ]
            parts += [f"{hardware(results['machine'])}:", table(head, rows)]
    return "\n\n".join(parts)


def tabular() -> str:
    """Return the comparison with other models on regression tables."""
    results = read("tabular.json")
    if results is None:
        return ""
    tables = all_tables(results["rows"], tabular_sets.SETS, list(tabular_models.MODELS), tabular_sets.SCORES)
    return "\n\n".join([_over_splits(results["machine"]), *tables])


PARTS = {
    "one network, no samples": "one network, predicted noise only",
    "bayesnorm, one network": "one network, with batch-norm samples",
    "bayesnorm, no samples": "all networks, without samples",
    "bayesnorm, networks only": "all networks, with samples",
    "bayesnorm, fast": "`fast=True`",
}
"""The models that have some of the three sources of uncertainty, and their names in the table of parts."""


def tabular_parts() -> str:
    """Return what each source of uncertainty changes in the CRPS, on the splits that all these models have."""
    results = read("tabular.json")
    if results is None:
        return ""
    scores = {(row["set"], row["model"], row["split"]): row["crps"] for row in results["rows"] if "crps" in row}
    splits = {
        name: [n for n in range(1, 6) if all((name, model, n) in scores for model in PARTS)]
        for name in tabular_sets.SETS
    }
    sets = [name for name, names_of_set in splits.items() if names_of_set]
    rows = [
        [words, *(f"{statistics.fmean(scores[name, model, n] for n in splits[name]):.4g}" for name in sets)]
        for model, words in PARTS.items()
    ]
    return table(["CRPS", *(f"{name} ({format_count(len(splits[name]), 'split')})" for name in sets)], rows)


def tabular_pairs() -> str:
    """Return how much lower bayesnorm's CRPS is than that of boosted quantiles, paired by split."""
    results = read("tabular.json")
    if results is None:
        return ""
    scores = {(row["set"], row["model"], row["split"]): row["crps"] for row in results["rows"] if "crps" in row}
    rows = []
    for model, words in (("bayesnorm", "default"), ("bayesnorm, networks only", "networks only")):
        for name in tabular_sets.SETS:
            both = [n for n in range(1, 6) if (name, model, n) in scores and (name, "boosted quantiles", n) in scores]
            if len(both) < 2:
                continue
            differences = [scores[name, model, n] - scores[name, "boosted quantiles", n] for n in both]
            mean = statistics.fmean(differences)
            error = statistics.stdev(differences) / len(both) ** 0.5
            share = mean / statistics.fmean(scores[name, "boosted quantiles", n] for n in both)
            verdict = "better" if mean < -2 * error else "worse" if mean > 2 * error else "not significant"
            rows.append([words, name, len(both), f"{mean:.4f} ± {error:.4f}", f"{100 * share:.1f}", verdict])
    head = ["bayesnorm", "set", "splits", "difference in CRPS", "difference (%)", "verdict (two standard errors)"]
    return table(head, rows)


def classes() -> str:
    """Return the comparison with other models on classification tables."""
    results = read("tabular_classes.json")
    if results is None:
        return ""
    order = list(tabular_class_models.MODELS)
    sets = list(tabular_class_sets.SETS)
    of_set = {row["set"]: row for row in results["rows"] if "rarest" in row}
    counted = [
        [name, f"{of_set[name]['rows']:,}", of_set[name]["classes"], f"{100 * of_set[name]['rarest']:.1f}"]
        for name in sets
        if name in of_set
    ]
    tables = all_tables(results["rows"], sets, order, tabular_classes.SCORES, ratios=False)
    head = ["set", "training rows", "classes", "share of the rarest class (%)"]
    return "\n\n".join([table(head, counted), _over_splits(results["machine"]), *tables])


def _over_splits(machine: dict) -> str:
    return (
        f"Mean ± standard error over splits ({hardware(machine)}). The best mean is bold. A number in brackets is the "
        "number of splits if a model has fewer than the others. A dash means not measured."
    )


def uci_table() -> str:
    """Return table 1 of the MCBN paper beside our numbers."""
    return teye_tables.markdown(1, teye_tables.read_rows(ROOT / "results" / "uci_paper.csv"))


def uci_verdicts() -> str:
    """Return the verdicts on the tables of the MCBN paper."""
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
        results = read(f"uci_luck_{name}.json")
        if results is None:
            continue
        machines[hardware(results["machine"])] = None
        repeats = {row["repeat"]: [] for row in results["rows"]}
        for row in results["rows"]:
            repeats[row["repeat"]].append(row)
        repeated = [uci_luck.result(those) for those in repeats.values()]
        titles = (("rmse", "RMSE", 4), ("crps", "CRPS", 4), ("normalised_crps", "normalised CRPS (%)", 2))
        for metric, title, digits in titles:
            cell, values = cells[name, metric], [result[metric] for result in repeated]
            error = statistics.fmean(result[f"{metric}_error"] for result in repeated)
            text = ", ".join(f"{value:.{digits}f}" for value in sorted(values))
            summary = (statistics.fmean(values), statistics.stdev(values), error)
            ours, *shown = (f"{value:.{digits}f}" for value in (cell.ours, *summary))
            rows.append([name, title, ours, text, *shown, f"{cell.theirs:g} ± {cell.their_error:g}"])
    head = ["set", "score", "table above", "repeats, sorted", "mean", "standard deviation", "standard error", "paper"]
    return f"MCBN ({'; '.join(machines)}):\n\n" + table(head, rows)


def tabular_size() -> str:
    """Return time and memory for large tables."""
    rows = []
    for device in ("cpu", "cuda"):
        results = read(f"tabular_size_{device}.json")
        for row in results["rows"] if results else ():
            numbers = [row[f"{key} seconds"] for key in ("fit", "predict", "interval")]
            shown = [f"{row['rows']:,} x {row['columns']}", *(f"{value:.1f}" for value in numbers)]
            shown += [f"{row[f'{key} MiB']:,.0f}" for key in ("fit", "predict")]
            rows.append([hardware(results["machine"]), *shown, f"{row['rmse']:.3f}", f"{100 * row['coverage']:.1f}"])
    head = [
        "machine",
        "rows x columns",
        "fit (s)",
        "predict 100,000 rows (s)",
        "the same with intervals (s)",
        "memory of fit (MiB)",
        "memory of predict (MiB)",
        "RMSE",
        "coverage of 90 % intervals (%)",
    ]
    return table(head, rows)


def known_noise() -> str:
    """Return true and estimated noise of tables whose noise is known."""
    results = read("known_noise.json")
    if results is None:
        return ""
    lines = []
    for name, noise, size in dict.fromkeys((row["table"], row["noise"], row["rows"]) for row in results["rows"]):
        names_of_set = [
            row for row in results["rows"] if (row["table"], row["noise"], row["rows"]) == (name, noise, size)
        ]
        mean = {
            key: statistics.fmean(row[key] for row in names_of_set)
            for key in names_of_set[0]
            if isinstance(names_of_set[0][key], float)
        }
        held = [100 * row["coverage"] for row in names_of_set]
        lines.append(
            [
                name,
                f"{size:,}",
                len(names_of_set),
                f"{noise:g}",
                *(f"{mean[key]:.3g}" for key in ("said_noise", "uncertainty", "said_uncertainty")),
                *(f"{100 * mean[key]:.0f}" for key in ("share", "said_share")),
                f"{min(held):.1f} to {max(held):.1f}",
            ]
        )
    head = [
        "table",
        "rows",
        "repeats",
        "true noise",
        "estimated noise",
        "true error of the mean",
        "estimated epistemic uncertainty",
        "true share (%)",
        "estimated share (%)",
        "coverage of 90 % intervals (%)",
    ]
    return f"{hardware(results['machine'])}:\n\n{table(head, lines)}"


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "getting_started/your_architecture.md": {"architectures": architectures},
    "benchmarks/inference.md": {
        "inference-table": inference,
        "exactness-table": inference_exactness,
        "frontier-table": frontier,
        "peers-table": peers,
        "segmentation-table": segmentation,
        "fitting-table": fitting,
        "versions-table": versions,
    },
    "how_to/deploy.md": {
        "deployment": deployment,
        "export-costs": export_costs,
        "export-parity": export_parity,
    },
    "how_to/serve.md": {"serving-load": serving_load},
    "how_to/bulk_prediction.md": {"bulk": bulk},
    "benchmarks/methods.md": {"methods-table": methods},
    "benchmarks/shift.md": {
        "shift-cost": shift_cost,
        "peer-sequences": peer_sequences,
        "peer-streams": peer_streams,
        "peer-probabilities": peer_probabilities,
        "peer-estimates": peer_estimates,
    },
    "benchmarks/mcbn_regression.md": {
        "uci-table1": uci_table,
        "uci-verdicts": uci_verdicts,
        "uci-repeats": uci_repeats,
    },
    "benchmarks/tables.md": {
        "pairs-table": tabular_pairs,
        "tabular-table": tabular,
        "parts-table": tabular_parts,
        "size-table": tabular_size,
        "known-noise": known_noise,
        "classes-table": classes,
    },
    "benchmarks/compression.md": {
        "prune-channels": prune_channels,
        "pruning-criteria": pruning_criteria,
        "compression": lambda: compression("compression.json"),
        "compression-vgg": lambda: compression("compression_vgg.json"),
    },
    "benchmarks/unusual_inputs.md": {"unusual-inputs": unusual_inputs},
    "explanation/how_tables_are_fitted.md": {"training-table": training},
    "benchmarks/papers/teye_table2.md": {
        "teye-table2-paper": teye_table2,
        "teye-table2": teye_table2_methods,
    },
    "benchmarks/papers/teye_figure2.md": {"teye-figure2": teye_figure2},
    "benchmarks/papers/kendall.md": {"kendall-segmentation": kendall_segmentation},
    "benchmarks/papers/mukhoti.md": {"mukhoti-figure1": mukhoti_figure1},
    "benchmarks/papers/atanov.md": {"atanov-table1": atanov_table1},
    "benchmarks/papers/uncertainty_and_data.md": {"uncertainty-and-data": uncertainty_and_data},
    "benchmarks/papers/claims.md": {"claims": claims},
}
"""The marks of every page under docs/, and what is written between them."""


def filled(text: str, mark: str, content: str) -> str:
    """Return a page with new content between the marks `<!-- mark -->` and `<!-- /mark -->`."""
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"The page must have {start} and {end} once each.")
    return re.sub(rf"{start}.*?{end}", lambda _: f"{start}\n{content}\n{end}", text, flags=re.S)


def main() -> None:
    for name, tables in PAGES.items():
        page = ROOT / "docs" / name
        text = page.read_text()
        for mark, content in tables.items():
            text = filled(text, mark, content())
        page.write_text(text)


if __name__ == "__main__":
    main()
