"""The tables of docs/getting_started/your_architecture.md, from results/architectures.json."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from benchmarks.markdown import table
from benchmarks.results_files import hardware, read

# What a message begins with, and the explanation on the page.
EXPLANATIONS = {
    "no channel that can be pruned": "no removable channel",
    "is left after removing": "too few removable channels",
    "called more than once": "a shared batch-norm layer",
    "times in one forward pass": "a shared batch-norm layer",
    "entries for": "entries are not examples",
    "cannot be vectorised": "samples run one by one",
    "takes more than": "too slow here",
    "the same output": "constant outputs",
    "no posterior": "not fitted",
    "no prediction": "not predicted",
}


def architectures() -> str:
    """Return the number of architectures with which each step works, every architecture, and every failure."""
    results = read("architectures.json")
    if results is None:
        return ""
    rows = results["architectures"]
    steps = list(rows[0]["steps"])
    works = {step: sum(row["steps"][step] == "yes" for row in rows) for step in steps}
    counts = Counter(row["machine"] for row in rows)
    made_on = [
        f"{counts[position]} with timm {machine['timm']} and torchvision {machine['torchvision']} ({hardware(machine)})"
        for position, machine in enumerate(results["machines"])
        if counts[position]
    ]
    parts = [
        f"{len(rows)} architectures: {', '.join(made_on)}.",
        table(["", *steps], [["works with", *(f"{works[step]} of {len(rows)}" for step in steps)]]),
    ]
    reasons: dict[str, list[str]] = defaultdict(list)
    lines = []
    for row in rows:
        cells = []
        for step in steps:
            text = row["steps"][step]
            cells.append("yes" if text == "yes" else short(text))
            if text != "yes" and text not in ("no posterior", "no prediction"):
                reasons[f"{step}: {_message(text)}"].append(row["name"])
        pixels = row["pixels"] or "-"
        lines.append([row["name"], row["library"], f"{row['parameters'] / 1e6:.1f}", pixels, *cells])
    parts.append("What does not work, and the message:")
    ranked = sorted(reasons.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    parts.append(table(["step and message", "architectures"], [[why, ", ".join(names)] for why, names in ranked]))
    parts.append("All architectures:")
    parts.append(table(["name", "library", "parameters (millions)", "pixels", *steps], lines))
    return "\n\n".join(parts)


def short(text: str) -> str:
    """Return the explanation of a message in a few words."""
    return next((words for beginning, words in EXPLANATIONS.items() if beginning in text), "no")


def _message(text: str) -> str:
    """Return a message without what differs between networks, so that equal reasons are counted together."""
    text = re.sub(r"share of [\d.]+", "share of s", text)
    text = re.sub(r"\(most frequent reason: \S+( \([^)]*\))?", r"(most frequent reason: an operation\1", text)
    text = re.sub(r"layer '[^']+'", "layer L", text)
    return text.replace("|", "/").replace("<", "&lt;")
