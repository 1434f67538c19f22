"""Tables for `readme_tables` on what is recommended: pruning criteria, and scores of unusual inputs."""

from __future__ import annotations

import statistics

from benchmarks.markdown import table
from benchmarks.results_files import hardware, read


def pruning_criteria() -> str:
    """Return the accuracy before and after pruning, by network, share and criterion."""
    results = read("pruning_criteria.json")
    if results is None:
        return ""
    cells = {(row["network"], row["share"], row["criterion"]): row for row in results["rows"]}
    criteria = list(dict.fromkeys(row["criterion"] for row in results["rows"]))
    lines = []
    for network, share in dict.fromkeys((row["network"], row["share"]) for row in results["rows"]):
        after = [f"{cells[network, share, criterion]['after']:.3f}" for criterion in criteria]
        lines.append([network, f"{share:.0%}", f"{cells[network, share, criteria[0]]['before']:.3f}", *after])
    head = ["network", "multiply-adds", "accuracy before", *(f'`"{criterion}"`' for criterion in criteria)]
    return f"{table(head, lines)}\n\n*{hardware(results['machine'])}*"


def unusual_inputs() -> str:
    """Return the AUROC of every score for every network and kind of input, the best in bold, and their means."""
    results = read("ood_scores.json")
    if results is None:
        return ""
    names = list(results["rows"][0]["scores"])
    lines = []
    for row in results["rows"]:
        values = [row["scores"][name]["auroc"] for name in names]
        cells = [f"**{value:.3f}**" if value == max(values) else f"{value:.3f}" for value in values]
        lines.append([row["network"], row["other"], *cells])
    for label, key, reduce in (
        ("mean AUROC", "auroc", statistics.mean),
        ("lowest AUROC", "auroc", min),
        ("detected at p <= 0.05, mean", "detected", statistics.mean),
        ("false alarms at p <= 0.05, mean", "false_alarms", statistics.mean),
    ):
        values = [reduce([row["scores"][name][key] for row in results["rows"]]) for name in names]
        lines.append([label, "", *(f"{value:.3f}" for value in values)])
    return f"{table(['network', 'unusual inputs', *names], lines)}\n\n*{hardware(results['machine'])}*"
