"""A small picture of the first examples of a predictive, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from torch import Tensor

# The largest number of examples, and of classes of an example, in a picture.
EXAMPLES, CLASSES = 12, 5

# Sizes in pixels: the column of labels, the column of bars, and a line.
LABELS, BARS, LINE = 150, 330, 18

Line = tuple[str, list[tuple[float, float, str]]]
"""A label, and bars: start and end from 0 to 1, and a colour."""


def picture(text: str, lines: Sequence[Line]) -> str:
    """Return HTML with a text, and one line of bars per example."""
    drawn = []
    for y, (label, bars) in zip(range(0, LINE * len(lines), LINE), lines, strict=True):
        drawn.append(f'<text y="{y + 13}">{escape(label)}</text>')
        for start, end, colour in bars:
            place = f'x="{LABELS + BARS * start:.1f}" y="{y + 3}" width="{BARS * (end - start):.1f}"'
            drawn.append(f'<rect {place} height="{LINE - 6}" fill="{colour}"/>')
    size = f'width="{LABELS + BARS}" height="{LINE * len(lines)}"'
    svg = f'<svg {size} fill="currentColor" font-size="12">{"".join(drawn)}</svg>' if drawn else ""
    return f"<pre>{escape(text)}</pre>{svg}"


def interval_lines(mean: Tensor, std: Tensor, epistemic_std: Tensor) -> list[Line]:
    """Return bars from mean - 2 std to mean + 2 std, with the epistemic part darker; each argument is (examples,)."""
    low, high = float((mean - 2 * std).min()), float((mean + 2 * std).max())
    width = max(high - low, 1e-300)
    lines: list[Line] = []
    for center, total, epistemic in zip(mean.tolist(), std.tolist(), epistemic_std.tolist(), strict=True):
        sides = (2 * total, "#9ec5f4"), (2 * epistemic, "#2f6fc4"), (0.004 * width, "#111")
        bars = [((center - side - low) / width, (center + side - low) / width, colour) for side, colour in sides]
        lines.append((f"{center:.4g} ± {total:.2g}", bars))
    return lines


def class_lines(probs: Tensor) -> list[Line]:
    """Return bars of the most probable classes, side by side, given probabilities (examples, class)."""
    values, classes = probs.topk(min(CLASSES, probs.shape[1]))
    lines: list[Line] = []
    for sizes, ends, numbers in zip(values.tolist(), values.cumsum(1).tolist(), classes.tolist(), strict=True):
        colours = (f"hsl({137 * number % 360} 55% 60%)" for number in numbers)
        bars = [(end - size, end, colour) for size, end, colour in zip(sizes, ends, colours, strict=True)]
        lines.append((f"class {numbers[0]}, {sizes[0]:.3f}", bars))
    return lines
