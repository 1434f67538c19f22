"""Show the results as text tables and plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from .images import (
    ADAPT,
    ALL_CLASSES,
    BLEND,
    MCBN,
    ONE_CLASS,
    PREDICTION_TIME,
    SCORES,
    SOFTMAX,
    TEMPERATURE,
    Row,
    best_blend,
    corrupted,
    mean_scores,
)
from .networks import CLEAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"error": "test error", "nll": "NLL (nats)", "ece": "ECE"}
LABELS = {
    TEMPERATURE: "not adapted, temperature",
    MCBN: "not adapted, MCBN + temperature",
    PREDICTION_TIME: "batch norm by the new batch",
    BLEND: "blend, weight with the best test score",
    ADAPT: "bayesnorm: adapt",
}

# Size of a panel in inches; text is readable if a figure with two panels is shown 800 pixels wide.
READABLE_PANEL = (4.2, 3.6)
STAY = (SOFTMAX, TEMPERATURE, MCBN)
LOOKS = {
    TEMPERATURE: (style.BLACK, ":", "o"),
    MCBN: (style.ORANGE, "-.", "s"),
    PREDICTION_TIME: (style.PURPLE, (0, (1, 1)), "v"),
    BLEND: (style.VERMILION, "--", "^"),
    ADAPT: (style.BLUE, "-", "D"),
}
SHOWN_ROWS = 32
"""n of the curves over severity."""


def image_means(rows: list[Row]) -> list[Row]:
    """Return mean scores on corrupted and on clean images, for every network, kind of targets, n and method.

    For each score, the blend has the N that is best on the scored corrupted images. Targets of one class are shown with
    the scores of unchanged networks on the same images.
    """
    means: list[Row] = []
    for network in dict.fromkeys(row["network"] for row in rows):
        of_network = [row for row in rows if row["network"] == network]
        clean = [row for row in of_network if row["corruption"] == CLEAN]
        for kind, count in [
            (ALL_CLASSES, 0),
            *((part, n) for part in (ALL_CLASSES, ONE_CLASS) for n in rows_of(of_network, part)),
        ]:
            here = _same_images(corrupted(of_network), kind)
            chosen = {"rows": count, "of": kind}

            def note(method: str, scores: list[np.ndarray], **more: Any) -> None:
                named = [dict(zip(SCORES, np.round(values, 4).tolist(), strict=True)) for values in scores]
                head = {"network": network, "of": kind, "rows": count, "method": method}  # noqa: B023
                means.append({**head, **more, "corrupted": named[0], "clean": named[1]})

            if count == 0 or kind == ONE_CLASS:
                for method in STAY:
                    note(method, [mean_scores(group, method=method) for group in (here, clean)])
            if count:
                for method in (PREDICTION_TIME, ADAPT):
                    note(method, [mean_scores(group, method=method, **chosen) for group in (here, clean)])
                best = [best_blend(here, score, **chosen)[0] for score in SCORES]
                by_score = [
                    [mean_scores(g, method=BLEND, pseudo_count=n, **chosen)[i] for i, n in enumerate(best)]
                    for g in (here, clean)
                ]
                note(BLEND, [np.array(values) for values in by_score], pseudo_counts=best)
    return means


def images_text(rows: list[Row]) -> str:
    """Return `image_means` as text."""
    head = "".join(f"{name:>9}" for name in ("error", "NLL", "ECE")) * 2
    lines = [f"{'':58}{'corrupted':>27}{'clean':>27}", f"{'':58}{head}"]
    for row in image_means(rows):
        name = row["method"] + (
            f", best N {'/'.join(map(str, row['pseudo_counts']))}" if "pseudo_counts" in row else ""
        )
        targets = (f"n = {row['rows']}" + (", one class" if row["of"] == ONE_CLASS else "")) if row["rows"] else ""
        cells = "".join(f"{row[group][score]:9.4f}" for group in ("corrupted", "clean") for score in SCORES)
        lines.append(f"{row['network']:10}{targets:19}{name:29}{cells}")
    return "\n".join(lines)


def rows_of(rows: list[Row], kind: str) -> list[int]:
    """Return the measured values of n."""
    return sorted({row["rows"] for row in rows if row["of"] == kind and row["rows"]})


def _same_images(rows: list[Row], kind: str) -> list[Row]:
    """Return the rows of those severities that were measured with targets of this kind."""
    severities = {row["severity"] for row in rows if row["of"] == kind}
    return [row for row in rows if row["severity"] in severities]


def draw_over_rows(rows: list[Row], network: str | None = None) -> Axes:
    """Plot mean error and NLL on corrupted images against the number of unlabelled images, for one network."""
    network = network or _deepest(rows)
    of_network = corrupted([row for row in rows if row["network"] == network])
    counts = rows_of(of_network, ALL_CLASSES)
    (axes,) = panels(1, 2, READABLE_PANEL)
    for ax, score in zip(axes, ("error", "nll"), strict=True):
        place, unit = SCORES.index(score), 100 if score == "error" else 1
        for method, (colour, stroke, marker) in LOOKS.items():
            label = LABELS.get(method, method)
            if method in STAY:
                level = unit * mean_scores(of_network, method=method)[place]
                ax.axhline(level, color=colour, ls=stroke, lw=1.8, label=label)
                continue
            chosen = {"of": ALL_CLASSES}
            if method == BLEND:
                values = [best_blend(of_network, score, rows=count, **chosen)[1] for count in counts]
            else:
                values = [mean_scores(of_network, method=method, rows=count, **chosen)[place] for count in counts]
            scaled = [unit * value for value in values]
            ax.plot(counts, scaled, color=colour, ls=stroke, marker=marker, ms=5, lw=2, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(counts, [str(count) for count in counts])
        ax.set(
            xlabel="number of unlabelled new images",
            ylabel=TITLES[score] + " (%)" * (unit == 100),
            ylim=(0, unit * _top(of_network, place)),
        )
    axes[1].legend(frameon=False, fontsize="small", loc="lower left", borderaxespad=0.1)
    kinds = len({row["corruption"] for row in of_network})
    set_figure_title(axes[0], f"{network} on CIFAR-10 with {kinds} corruptions (mean)")
    return axes[0]


def _deepest(rows: list[Row]) -> str:
    """Return the name of the network with the largest number in it."""
    return str(max((row["network"] for row in rows), key=lambda name: int(name.rpartition("-")[2])))


def draw_over_severity(rows: list[Row], count: int = SHOWN_ROWS) -> Axes:
    """Plot the three mean scores over severity at one n, one row of panels per network; severity 0 is clean."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    axes = panels(len(networks), 3)
    for line, network in zip(axes, networks, strict=True):
        of_network = [row for row in rows if row["network"] == network]
        severities = sorted({row["severity"] for row in of_network})
        for place, (ax, score) in enumerate(zip(line, SCORES, strict=True)):
            pseudo, _ = best_blend(corrupted(of_network), score, rows=count, of=ALL_CLASSES)
            for method, (colour, stroke, marker) in LOOKS.items():
                chosen: dict[str, Any] = {"method": method}
                if method not in STAY:
                    chosen |= {"rows": count, "of": ALL_CLASSES}
                if method == BLEND:
                    chosen["pseudo_count"] = pseudo
                values = [mean_scores(of_network, severity=severity, **chosen)[place] for severity in severities]
                label = f"blend, N = {pseudo} with the best test score" if method == BLEND else method
                ax.plot(severities, values, color=colour, ls=stroke, marker=marker, ms=6, lw=2, label=label)
            ax.set(xlabel="severity (0: clean)", ylabel=TITLES[score], title=network, xticks=severities)
            ax.set_ylim(bottom=0)
        line[1].legend(frameon=False, fontsize="small")
    set_figure_title(axes[0][0], f"CIFAR-10-C over severity, n = {count} unlabelled new images")
    return axes[0][0]


def _top(rows: list[Row], place: int) -> float:
    """Return the upper limit of an axis that shows unchanged networks, but not everything that is worse."""
    return 1.25 * float(max(mean_scores(rows, method=method)[place] for method in (TEMPERATURE, MCBN)))


def alarms_text(rows: list[Row], streams: list[Row]) -> str:
    """Return alarm rates: on clean images with standard errors, on corrupted ones by severity, and on streams."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        of_network = [row for row in rows if row["network"] == network]
        for row in of_network:
            if row["corruption"] == CLEAN:
                lines.append(f"{network} clean, n = {row['rows']}: {rate_text(row['alarms'], row['batches'])}")
        shifted = [row for row in of_network if row["corruption"] != CLEAN]
        severities = sorted({row["severity"] for row in shifted})
        for count in sorted({row["rows"] for row in shifted}):
            lines.append(f"{network}, power at n = {count:3d}" + "".join(f"{f'severity {s}':>12}" for s in severities))
            for corruption in dict.fromkeys(row["corruption"] for row in shifted):
                cells = "".join(f"{_rate(shifted, corruption, s, count):12.2f}" for s in severities)
                lines.append(f"  {corruption:24}{cells}")
        watched = [row for row in streams if row["network"] == network]
        quiet = [row for row in watched if row["corruption"] == CLEAN]
        rang = sum(row["alarm"] is not None for row in quiet)
        lines.append(f"{network}, monitor: false alarms in {rate_text(rang, len(quiet))} of clean streams")
        for corruption in dict.fromkeys(row["corruption"] for row in watched):
            if corruption != CLEAN:
                alarms = [row["alarm"] for row in watched if row["corruption"] == corruption]
                change = next(row["change"] for row in watched if row["corruption"] == corruption)
                delays = ", ".join("none" if alarm is None else str(alarm - change) for alarm in alarms)
                lines.append(f"  {corruption:24} batches until the alarm: {delays}")
    return "\n".join(lines)


def _rate(rows: list[Row], corruption: str, severity: int, count: int) -> float:
    matching = [r for r in rows if (r["corruption"], r["severity"], r["rows"]) == (corruption, severity, count)]
    return sum(row["alarms"] for row in matching) / sum(row["batches"] for row in matching)


def draw_alarms(rows: list[Row], network: str | None = None) -> Axes:
    """Plot how often `drift` raises an alarm over severity, one line per corruption and one panel per n."""
    network = network or _deepest(rows)
    of_network = [row for row in rows if row["network"] == network and row["corruption"] != CLEAN]
    counts = sorted({row["rows"] for row in of_network})
    (axes,) = panels(1, len(counts))
    names = list(dict.fromkeys(row["corruption"] for row in of_network))
    colours = (style.BLUE, style.ORANGE, style.GREEN, style.VERMILION, style.PURPLE, style.SKY, style.BLACK)
    for ax, count in zip(axes, counts, strict=True):
        for number, name in enumerate(names):
            severities = sorted({row["severity"] for row in of_network})
            rates = [_rate(of_network, name, severity, count) for severity in severities]
            stroke, marker = ("-", "o") if number < len(colours) else ("--", "s")
            label, colour = name.replace("_", " "), colours[number % len(colours)]
            ax.plot(severities, rates, color=colour, ls=stroke, marker=marker, ms=5, label=label)
        ax.axhline(0.05, color=style.current().faint, ls=":", lw=1.5)
        ax.set(xlabel="severity", title=f"n = {count} images", xticks=severities, ylim=(-0.03, 1.03))
        style.percent_axis(ax.yaxis)
    axes[0].set_ylabel("fraction of batches with an alarm")
    axes[-1].legend(frameon=False, fontsize="small", ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
    set_figure_title(axes[0], f"drift on CIFAR-10-C, {network} (level 0.05, dotted)")
    return axes[0]


def simulated_text(rows: list[Row], streams: list[Row]) -> str:
    """Return false-alarm rates on simulated rows, over all networks of a kind."""
    lines = ["false-alarm rates at level 0.05 on new rows of the training distribution"]
    for kind in dict.fromkeys(row["network"] for row in rows):
        for count in sorted({row["rows"] for row in rows}):
            matching = [row for row in rows if (row["network"], row["rows"]) == (kind, count)]
            rate = rate_text(sum(row["alarms"] for row in matching), sum(row["batches"] for row in matching))
            lines.append(f"{kind:28} n = {count:3d}: {rate}")
    rang = sum(row["alarm"] is not None for row in streams)
    length = streams[0]["length"]
    lines.append(f"monitor, {len(streams)} streams of {length} batches: {rate_text(rang, len(streams))}")
    return "\n".join(lines)


def rate_text(alarms: int, batches: int) -> str:
    """Return a rate with its binomial standard error, "0.051 ± 0.007 (51 of 1000)"."""
    rate = alarms / batches
    error = (rate * (1 - rate) / batches) ** 0.5
    return f"{rate:.3f} ± {error:.3f} ({alarms} of {batches})"
