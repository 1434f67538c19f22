"""Format the results of one network as tables."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

SHIFTED = {"nll": "NLL", "ece": "ECE", "errors_auroc": "AUROC of errors"}
"""Descriptions of the scores on corrupted images."""


def text(results: dict[str, list[Row]]) -> str:
    """Return all parts as tables."""
    lines = [f"{'sampled':12} {'validation':>10}  {'method':28} {'NLL':>7}  minus one temperature    worst fold"]
    for row in results["rows"]:
        covariate = row.get("listens_to", "logits")
        gain = f"{row['difference']:+.4f} ± {row['standard_error']:.4f}"
        lines.append(
            f"{layers_text(row):12} {row['validation']:10d}  {row['method']:28} {row['nll']:.4f}  {gain:>23}  "
            f"{row['worst_fold']:+10.4f}{'' if covariate == 'logits' else '  by ' + covariate}"
        )
    corrupted = results.get("corrupted", [])
    for score, words in SHIFTED.items() if corrupted else ():
        lines.append(f"corrupted images, mean {words} over corruptions")
        for layers in dict.fromkeys(layers_text(row) for row in corrupted):
            for severity in sorted({row["severity"] for row in corrupted}):
                cells = [row[score] for row in corrupted if (layers_text(row), row["severity"]) == (layers, severity)]
                cells = [cell for cell in cells if cell]
                means = (
                    f"{name} {sum(cell[name] for cell in cells) / len(cells):.4f}"
                    for name in (cells[0] if cells else ())
                )
                lines.append(f"  {layers:10} severity {severity}: {', '.join(means)}")
    for row in results.get("outside", []):
        told = ", ".join(f"{name} {value:.4f}" for name, value in row.items() if name not in ("of", "layers"))
        lines.append(f"AUROC of {row['of']} by entropy, {layers_text(row)}: {told}")
    return "\n".join(lines)


def layers_text(row: Row) -> str:
    """Return a description of the sampled layers."""
    return "all layers" if row["layers"] is None else f"last {row['layers']}"
