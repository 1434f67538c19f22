"""Tables of the experiments with images, for `readme_tables`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.markdown import table
from benchmarks.results_files import hardware, read
from experiments import compression as compressing
from experiments.kendall_segmentation import showing as kendall
from experiments.mukhoti_figure1 import showing as mukhoti
from experiments.prune_channels import showing as prune
from experiments.teye_figure2 import showing as figure2, verdicts as figure2_verdicts
from experiments.teye_table2 import showing as table2


def teye_table2(name: str) -> str:
    """Return table 2 of the MCBN paper, ours beside it, and what else passes buy."""
    found = read(name)
    if found is None:
        return ""
    parts = []
    for network in found["networks"]:
        where = f"{network['network']}, {network['images']:,} test images ({hardware(found['machine'])})"
        tables = table2.tables(network)
        titles = {
            "cells": f"**{where}.** Mean log probability (PLL) by samples T of MCBN with M = 32:",
            "claims": "What it says, and beneath that what it leaves open (differences of PLL; above 0 is better):",
            "rows": "Every method at its most samples:",
        }
        for kind, title in titles.items():
            parts += [title, table(list(table2.HEADS[kind]), [list(row) for row in tables[kind]])]
        if network["left_out"]:
            parts.append("Left out: " + "; ".join(network["left_out"]) + ".")
    return "\n\n".join(parts)


def atanov_table1() -> str:
    """Return table 1 of the stochastic batch norm paper, ours beside it, for the networks that were measured."""
    parts = []
    for network in ("lenet5", "vgg11", "resnet18"):
        found = read(f"atanov_table1_{network}.json")
        if found is None:
            continue
        told = found["settings"][network]
        cells = {(cell["method"], cell["score"]): cell for cell in found["cells"]}
        rows = []
        for method, scores in told["methods"].items():
            row = [method]
            for score, digits in (("error_percent", 2), ("nll", 3)):
                mean, error = scores[score]
                cell = cells.get((method, score))
                row.append(f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
                row.append("" if cell is None else f"{cell['paper']:g}: {cell['verdict']}")
            rows.append([*row, *(f"{scores[name][0]:.3f}" for name in ("auroc", "auroc mutual information"))])
        recipe, data = told["recipe"], told["setting"]
        parts += [
            f"**{network} on {told['training images']:,} images of {data['data']}**, asked about {data['outside']}; "
            f"{told['members']} networks, {recipe['epochs']} epochs, M = {told['batch_size']}, {told['samples']} samples "
            f"({hardware(found['machine'])}):",
            table(["", "error %", "paper", "NLL", "paper", "AUROC, entropy", "AUROC, mutual information"], rows),
        ]
    return "\n\n".join(parts)


def uncertainty_and_data() -> str:
    """Return what becomes of uncertainty with more data and on other data."""
    found = read("uncertainty_and_data.json")
    if found is None:
        return ""
    rows = [
        [
            row["method"],
            f"{row['images']:,}",
            f"{row['accuracy']:.3f}",
            f"{row['nll']:.3f}",
            *(f"{row['inside'][uncertainty][0]:.3f}" for uncertainty in ("mutual information", "expected entropy")),
            *(f"{kind['entropy']['auroc']:.3f}, {kind['entropy']['fpr95']:.3f}" for kind in row["outside"].values()),
        ]
        for row in found["rows"]
    ]
    outside = [f"{kind}: AUROC, FPR95 of entropy" for kind in found["rows"][0]["outside"]]
    head = ["", "images", "accuracy", "NLL", "epistemic", "aleatoric", *outside]
    told = [[claim["claim"], claim["seen"], claim["verdict"]] for claim in found["claims"]]
    return "\n\n".join(
        [
            f"{found['preset']['network']}, {found['samples']} samples with M = {found['batch_size']}, ensembles of "
            f"{found['preset']['members']} ({hardware(found['machine'])}):",
            table(head, rows),
            table(["claim", "seen", "verdict"], told),
        ]
    )


def teye_figure2() -> str:
    """Return what uncertainty about pixels is worth, by method, and the claims about it."""

    def head(found: dict[str, Any]) -> str:
        ious = ", ".join(f"{network['mean IoU']:.3f}" for network in found["networks"])
        return f"SegNet, {found['preset']['samples']} samples; mean IoU of the three networks {ious}"

    return _of_pixels("teye_figure2.json", head, lambda found, told: figure2.text(found["methods"], told))


def kendall_segmentation() -> str:
    """Return both kinds of uncertainty about pixels: what they are worth, and how they go with data and light."""

    def head(found: dict[str, Any]) -> str:
        return f"U-Net on up to {found['preset']['frames']} frames, {found['preset']['samples']} samples"

    return _of_pixels("kendall_segmentation.json", head, kendall.text)


def _of_pixels(name: str, head: Callable[..., str], text: Callable[..., str]) -> str:
    """Return an experiment with claims about pixels, under a line that says what was measured and on what."""
    found = read(name)
    if found is None:
        return ""
    told = [figure2_verdicts.Claim(**claim) for claim in found["claims"]]
    return f"{head(found)} ({hardware(found['machine'])}).\n\n{text(found, told)}"


def mukhoti_figure1() -> str:
    """Return what becomes of mutual information with the batch size, and the claims about it."""
    found = read("mukhoti_figure1.json")
    if found is None:
        return ""
    parts = []
    for name, panel in found["panels"].items():
        rows = [
            [
                kind if size is None else f"{kind}, M = {size}",
                f"{scores['accuracy']:.4f}",
                f"{scores['nll']:.4f}",
                f"{scores['inside'][mukhoti.MI][0]:.4f}",
                f"{outside[mukhoti.MI]['mean'][0]:.4f}",
                f"{outside[mukhoti.MI]['auroc']:.3f}",
                f"{outside['entropy']['auroc']:.3f}",
            ]
            for kind, size, scores in mukhoti.rows(panel)
            for outside in scores["outside"].values()
        ]
        about = panel["panel"]
        head = ["", "accuracy", "NLL", "MI inside", f"MI of {about['outside']}", "AUROC of MI", "AUROC of entropy"]
        parts += [
            f"**{name}** ({about['network']}, {panel['samples']} samples; {hardware(found['machine'])}):",
            table(head, rows),
            "; ".join(mukhoti.bounds(panel)) + ".",
        ]
    told = [[claim["claim"], claim["seen"], claim["verdict"]] for claim in found["claims"]]
    return "\n\n".join([*parts, table(["claim", "seen", "verdict"], told)])


def prune_channels() -> str:
    """Return what is left of a network and of its uncertainty as channels go."""
    found = read("prune_channels.json")
    if found is None:
        return ""
    asked = f"{found['preset']['asked']:,} test images and as many of SVHN"
    return f"ResNet-{found['preset']['depth']}, {asked} ({hardware(found['machine'])}):\n\n" + prune.text(found["rows"])


def compression(name: str) -> str:
    """Return how small networks become under group priors, beside what was published."""
    found = read(name)
    return "" if found is None else compressing.text(found["rows"])
