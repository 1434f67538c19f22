"""Make the figure and the table, with the paper's numbers, and judge its claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from ..paper_facts import fact

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MI = "mutual information"
# Accuracy below the paper's by more than this does not hold; our networks differ and have fewer epochs.
LESS_ACCURATE = 0.01
# Accuracies "stay" if those of all batch sizes differ by less than this.
STAYS = 0.02
# An AUROC that falls by less than this from the smallest to the largest size still separates images as well.
SAME_RANKING = 0.05


def text(results: dict[str, Any]) -> str:
    """Return all panels as text."""
    lines = []
    for name, panel in results.items():
        about = panel["panel"]
        lines += [
            "",
            f"{name}: {about['network']} on {panel['training images']:,} images of {about['data']}, outside "
            f"{about['outside']}; {panel['samples']} samples (the paper: {about['paper_network']})",
            f"{'':24}{'accuracy':>9}{'paper':>8}{'NLL':>8}{'MI inside':>11}{'outside':>9}{'AUROC':>10}{'entropy':>9}",
        ]
        for kind, size, scores in rows(panel):
            told = fact(
                "mukhoti2020", 1, about["data"], "MCBN", "accuracy",
                net=about["paper_network"], batch_size=int(size),
            ) if kind == "retrained" and size is not None else None  # fmt: skip
            label = kind if size is None else f"{kind}, M = {size}"
            lines.append(_line(label, scores, "" if told is None else f"{told.value:.4f}"))
        lines += bounds(panel)
    lines += ["", *(f"{claim['verdict']:>14}  {claim['claim']}: {claim['seen']}" for claim in claims(results))]
    return "\n".join(lines[1:])


def rows(panel: dict[str, Any]) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield every posterior of a panel: its kind, its batch size if that varies, and its scores."""
    for kind in ("retrained", "effective"):
        for size, scores in panel[kind].items():
            yield kind, size, scores
    for kind, scores in panel["others"].items():
        yield kind, None, scores


def bounds(panel: dict[str, Any]) -> list[str]:
    """Return a text about the sizes that the ELBO chooses, and whether they have the lowest test NLL."""
    lines = []
    for kind, bound in panel["bounds"].items():
        chosen, (least, scores) = f"{bound['chosen']:g}", min(panel[kind].items(), key=lambda pair: pair[1]["nll"])
        lines.append(
            f"ELBO, {kind}: chooses M = {chosen}, test NLL there {panel[kind][chosen]['nll']:.4f}; "
            f"lowest test NLL {scores['nll']:.4f} at {least}"
        )
    return lines


def _line(name: str, scores: dict[str, Any], paper: str) -> str:
    (outside,) = scores["outside"].values()
    return (
        f"{name:24}{scores['accuracy']:9.4f}{paper:>8}{scores['nll']:8.4f}{scores['inside'][MI][0]:11.4f}"
        f"{outside[MI]['mean'][0]:9.4f}{outside[MI]['auroc']:10.3f}{outside['entropy']['auroc']:9.3f}"
    )


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return the paper's claims with our result and a verdict: holds, partly or does not, by the rules above."""
    told = []
    for name, panel in results.items():
        sizes = sorted(panel["retrained"], key=int)
        few, many = panel["retrained"][sizes[0]], panel["retrained"][sizes[-1]]
        data = f"{name}, M = {sizes[0]} to {sizes[-1]}"
        accuracies = [panel["retrained"][size]["accuracy"] for size in sizes]
        (out_few,), (out_many,) = few["outside"].values(), many["outside"].values()
        fall = [many["inside"][MI][0] / few["inside"][MI][0], out_many[MI]["mean"][0] / out_few[MI]["mean"][0]]
        told += [
            {
                "claim": f"{data}: accuracy stays",
                "seen": ", ".join(f"{value:.4f}" for value in accuracies),
                "verdict": "holds" if max(accuracies) - min(accuracies) < STAYS else "does not",
            },
            {
                "claim": f"{data}: mutual information falls to about 0",
                "seen": f"to {fall[0]:.3f} of what it was inside, to {fall[1]:.3f} outside",
                "verdict": _fell(fall, int(sizes[-1]) / int(sizes[0])),
            },
            {
                "claim": f"{data}: so that inside and outside can no longer be distinguished",
                "seen": f"AUROC of mutual information {out_few[MI]['auroc']:.3f} and {out_many[MI]['auroc']:.3f}",
                "verdict": "does not" if out_few[MI]["auroc"] - out_many[MI]["auroc"] < SAME_RANKING else "holds",
            },
        ]
        for size in sizes:
            about = panel["panel"]
            paper = fact(
                "mukhoti2020", 1, about["data"], "MCBN", "accuracy", net=about["paper_network"], batch_size=int(size)
            )
            if paper is not None:
                ours = panel["retrained"][size]["accuracy"]
                told.append(
                    {
                        "claim": f"table 1, {name}, M = {size}: accuracy {paper.value:.4f}",
                        "seen": f"{ours:.4f}",
                        "verdict": "holds" if ours > paper.value - LESS_ACCURATE else "does not",
                    }
                )
    return told


def _fell(shares: list[float], sizes: float) -> str:
    """Return whether mutual information fell nearly as 1 / M, our criterion for "to about 0" at any size."""
    down = [share < 3 / sizes for share in shares]
    return "holds" if all(down) else "partly" if any(down) or max(shares) < 0.5 else "does not"


def draw(results: dict[str, Any]) -> Axes:
    """Plot mutual information, its AUROC, and bound and test NLL over the batch size; one row per panel."""
    axes = panels(len(results), 3)
    looks = {"retrained": ("-", "o"), "effective": ("--", "s")}
    labels = {"retrained": "retrained", "effective": "one network, effective size"}
    for (size_of_uncertainty, ranking, bound), (name, panel) in zip(axes, results.items(), strict=True):
        outside = panel["panel"]["outside"]
        for kind, (stroke, marker) in looks.items():
            rows = panel[kind]
            sizes = [int(size) for size in rows]
            line: dict[str, Any] = {"ls": stroke, "marker": marker, "ms": 6, "lw": 2}
            strange = [scores["outside"][outside] for scores in rows.values()]
            inside = [scores["inside"][MI][0] for scores in rows.values()]
            size_of_uncertainty.plot(sizes, inside, color=style.BLUE, label=f"inside, {labels[kind]}", **line)
            size_of_uncertainty.plot(
                sizes,
                [s[MI]["mean"][0] for s in strange],
                color=style.VERMILION,
                label=f"outside, {labels[kind]}",
                **line,
            )
            for uncertainty, colour in ((MI, style.GREEN), ("entropy", style.PURPLE)):
                ranking.plot(
                    sizes,
                    [s[uncertainty]["auroc"] for s in strange],
                    color=colour,
                    label=f"{uncertainty}, {labels[kind]}",
                    **line,
                )
            bound.plot(
                sizes, [s["nll"] for s in rows.values()], color=style.BLACK, label=f"test NLL, {labels[kind]}", **line
            )
            chosen = panel["bounds"][kind]["chosen"]
            bound.axvline(chosen, color=style.ORANGE, ls=stroke, lw=1.6, label=f"the ELBO's choice, {labels[kind]}")
        for ax in (size_of_uncertainty, ranking, bound):
            ax.set_xscale("log", base=2)
            every = sorted({int(size) for kind in looks for size in panel[kind]})
            ax.set_xticks(every, [str(size) for size in every])
            ax.minorticks_off()
            ax.set(xlabel="batch size M", title=f"{name}, outside {outside}")
            style.legend_below(ax, 1)
        size_of_uncertainty.set_yscale("log")
        size_of_uncertainty.set_ylabel("mutual information (nats)")
        ranking.set_ylabel("AUROC, outside against inside")
        bound.set_ylabel("NLL (nats)")
    set_figure_title(axes[0][0], "With larger batches, mutual information falls inside and outside alike")
    return axes[0][0]
