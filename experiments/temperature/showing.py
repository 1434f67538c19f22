"""Tables of what was measured of one network."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def text(found: dict[str, list[Row]]) -> str:
    """Return all parts as tables."""
    lines = [f"{'drawn':12} {'validation':>10}  {'method':28} {'NLL':>7}  against one temperature  worst fold"]
    for row in found["rows"]:
        gain = f"{row['difference']:+.4f} ± {row['standard_error']:.4f}"
        lines.append(
            f"{layers_text(row):12} {row['validation']:10d}  {row['method']:28} {row['nll']:.4f}  {gain:>23}  "
            f"{row['worst_fold']:+10.4f}"
        )
    corrupted = found.get("corrupted", [])
    if corrupted:
        lines.append("corrupted images, mean NLL over corruptions")
    for layers in dict.fromkeys(layers_text(row) for row in corrupted):
        for severity in sorted({row["severity"] for row in corrupted}):
            own = [row["nll"] for row in corrupted if (layers_text(row), row["severity"]) == (layers, severity)]
            means = (f"{name} {sum(each[name] for each in own) / len(own):.4f}" for name in own[0])
            lines.append(f"  {layers:10} severity {severity}: {', '.join(means)}")
    return "\n".join(lines)


def layers_text(row: Row) -> str:
    """Return which layers were drawn, in words."""
    return "all layers" if row["layers"] is None else f"last {row['layers']}"
