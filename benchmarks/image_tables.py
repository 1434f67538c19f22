"""Tables of the experiments with images, for `readme_tables`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from benchmarks.markdown import table
from benchmarks.results_files import hardware, read
from experiments import compression as compressing
from experiments.kendall_segmentation import showing as kendall
from experiments.mukhoti_figure1 import showing as mukhoti
from experiments.teye_figure2 import showing as figure2, verdicts as figure2_verdicts
from experiments.teye_table2 import showing as table2

DATA_SETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar5": "CIFAR-5 (five classes of CIFAR-10)",
    "fashion-mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "notmnist": "notMNIST",
    "svhn": "SVHN",
}
NETWORKS = {"lenet5": "LeNet-5", "vgg11": "VGG-11", "vgg16": "VGG-16", "resnet18": "ResNet-18"}
"""Names of data sets and networks in results/, and as papers write them."""

PLAIN = {
    "| at dusk |  |": "| epistemic at dusk | aleatoric at dusk |",
    "| found | verdict |": "| measured | verdict |",
    "| does not |": "| does not hold |",
    "| no telling |": "| not significant |",
    "MCBN as published": "MCBN around batch statistics",
    "MCBN about running statistics": "MCBN around running statistics",
    " is likelier than ": " has a lower NLL than ",
    "uncertainty rises on another light": "uncertainty rises at dusk",
    "uncertainty stays on another light": "uncertainty stays the same at dusk",
    "uncertainty stays with more data": "uncertainty stays the same with more data",
    "What the paper says, and what it leaves open": "Claims of the papers, and open questions",
    "Red out of green, from 0 to 1: standard deviations": "Red channel from green channel (values from 0 to 1): "
    "standard deviations",
    "of what it was inside": "of its value on test images",
    " outside (AUROC": " on other images (AUROC",
    " outside": " on other images",
    " inside,": " on test images,",
    "accuracy stays": "accuracy stays the same",
    "M = ": "batch size ",
}
"""Phrases of results/ and of experiments, and what the pages say instead."""


def plain(text: str) -> str:
    """Return a text with the phrases of `PLAIN` replaced."""
    for old, new in PLAIN.items():
        text = text.replace(old, new)
    return text


def verdict(words: str) -> str:
    """Return a verdict as a page writes it."""
    return "does not hold" if words == "does not" else words


def teye_table2() -> str:
    """Return table 2 of the MCBN paper beside our numbers, and the other methods on the same networks."""
    results = read("teye_table2_paper.json")
    if results is None:
        return ""
    parts = []
    for network in results["networks"]:
        made_on = hardware(network.get("machine", results["machine"]))
        where = f"{network['network']}, {network['images']:,} test images ({made_on})"
        tables = table2.tables(network)
        titles = {
            "cells": f"**{where}.** Mean log-likelihood (PLL), batches as in training:",
            "claims": "Claims and open questions (differences of PLL; positive is better):",
            "cells_unaugmented": "Mean log-likelihood (PLL), batches without augmentation (not the paper's procedure):",
            "by_seed": "Mean log-likelihood (PLL), batches as in training, over networks that differ in their seed:",
            "rows": "Every method with its largest number of samples:",
        }
        for kind, title in titles.items():
            head = list(table2.HEADS[kind.removesuffix("_unaugmented")])
            rows = [[*row[:-1], verdict(row[-1])] for row in tables[kind]]
            parts += [title, table(head, rows)] if rows else []
    return "\n\n".join(parts)


def teye_table2_methods() -> str:
    """Return all methods on the network with given weights and 2,000 images, other libraries included."""
    results = read("teye_table2.json")
    if results is None:
        return ""
    (network,) = results["networks"]
    where = f"{network['network']}, {network['images']:,} test images ({hardware(results['machine'])}):"
    return f"{where}\n\n" + table(list(table2.HEADS["rows"]), table2.tables(network)["rows"])


def atanov_table1() -> str:
    """Return table 1 of the stochastic batch norm paper beside our numbers."""
    parts = []
    for network in ("lenet5", "vgg11", "resnet18"):
        results = read(f"atanov_table1_{network}.json")
        if results is None:
            continue
        settings = results["settings"][network]
        cells = {(cell["method"], cell["score"]): cell for cell in results["cells"]}
        rows = []
        for method, scores in settings["methods"].items():
            row = [method]
            for score, digits in (("error_percent", 2), ("nll", 3)):
                mean, error = scores[score]
                cell = cells.get((method, score))
                row.append(f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
                row.append("" if cell is None else f"{cell['paper']:g}: {verdict(cell['verdict'])}")
            rows.append([*row, *(f"{scores[name][0]:.3f}" for name in ("auroc", "auroc mutual information"))])
        data = settings["setting"]
        outside = DATA_SETS.get(data["outside"], data["outside"])
        head = [
            "method",
            "test error (%)",
            "paper's error and verdict",
            "NLL",
            "paper's NLL and verdict",
            "AUROC of entropy",
            "AUROC of mutual information",
        ]
        parts += [
            f"**{NETWORKS[network]} on {DATA_SETS[data['data']]}**, {settings['training images']:,} training images, "
            f"out-of-distribution images: {outside}; {settings['members']} networks, {settings['recipe']['epochs']} "
            f"epochs, batch size {settings['batch_size']}, {settings['samples']} samples "
            f"({hardware(results['machine'])}):",
            table(head, rows),
        ]
    return "\n\n".join(parts)


def uncertainty_and_data() -> str:
    """Return both parts of the uncertainty by number of training images, and on other data sets."""
    results = read("uncertainty_and_data.json")
    if results is None:
        return ""
    rows = [
        [
            row["method"],
            f"{row['images']:,}",
            f"{row['accuracy']:.3f}",
            f"{row['nll']:.3f}",
            *(f"{row['inside'][part][0]:.3f}" for part in ("mutual information", "expected entropy")),
            *(f"{kind['entropy'][score]:.3f}" for kind in row["outside"].values() for score in ("auroc", "fpr95")),
        ]
        for row in results["rows"]
    ]
    others = [
        f"{DATA_SETS[kind]}: {score} of entropy"
        for kind in results["rows"][0]["outside"]
        for score in ("AUROC", "FPR95")
    ]
    head = ["method", "training images", "accuracy", "NLL", "mutual information", "expected entropy", *others]
    claims = [[claim["claim"], claim["seen"], claim["verdict"]] for claim in results["claims"]]
    text = "\n\n".join(
        [
            f"{NETWORKS[results['preset']['network']]}, {results['samples']} samples with batch size "
            f"{results['batch_size']}, ensembles of {results['preset']['members']} ({hardware(results['machine'])}):",
            table(head, rows),
            table(["claim", "measured", "verdict"], claims),
        ]
    )
    for old, new in (("on cifar100", "on CIFAR-100"), ("on svhn", "on SVHN"), (" stays ", " stays the same ")):
        text = text.replace(old, new)
    return plain(text)


def teye_figure2() -> str:
    """Return the scores of uncertainty about pixels by method, and the claims about it."""

    def head(results: dict[str, Any]) -> str:
        ious = ", ".join(f"{network['mean IoU']:.3f}" for network in results["networks"])
        return f"SegNet, {results['preset']['samples']} samples; mean IoU of the three networks: {ious}"

    return _of_pixels("teye_figure2.json", head, lambda results, claims: figure2.text(results["methods"], claims))


def kendall_segmentation() -> str:
    """Return the scores of both parts of the uncertainty about pixels, and how they change with data and light."""

    def head(results: dict[str, Any]) -> str:
        return f"U-Net on up to {results['preset']['frames']} frames, {results['preset']['samples']} samples"

    return _of_pixels("kendall_segmentation.json", head, kendall.text)


def _of_pixels(name: str, head: Callable[..., str], text: Callable[..., str]) -> str:
    """Return the tables of an experiment with pixels, below a line about the networks and the machine."""
    results = read(name)
    if results is None:
        return ""
    claims = [figure2_verdicts.Claim(**claim) for claim in results["claims"]]
    return plain(f"{head(results)} ({hardware(results['machine'])}).\n\n{text(results, claims).strip()}")


def mukhoti_figure1() -> str:
    """Return mutual information by batch size, and the claims about it."""
    results = read("mukhoti_figure1.json")
    if results is None:
        return ""
    parts = []
    kinds = {
        "retrained": "trained with batch size {}",
        "effective": "trained with batch size 128, effective batch size {}",
    }
    for panel in results["panels"].values():
        rows = [
            [
                kinds.get(kind, kind).format(size),
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
        head = [
            "posterior",
            "accuracy",
            "NLL",
            "mutual information, test images",
            f"mutual information, {DATA_SETS[about['outside']]}",
            "AUROC of mutual information",
            "AUROC of entropy",
        ]
        asked = panel["asked"]
        parts += [
            f"**{DATA_SETS[about['data']]}, {NETWORKS[about['network']]}**, {panel['samples']} samples, the first "
            f"{asked['inside']:,} test images and {asked['outside']:,} images of {DATA_SETS[about['outside']]} "
            f"({hardware(results['machine'])}):",
            table(head, rows),
            table(["batch sizes", "chosen by the ELBO", "test NLL there", "size of the lowest test NLL", "that NLL"],
                  [_chosen(panel, kind) for kind in panel["bounds"]]),
        ]  # fmt: skip
    claims = [[plain(claim["claim"]), plain(claim["seen"]), verdict(claim["verdict"])] for claim in results["claims"]]
    for row in claims:
        row[0] = row[0].replace("cifar10", "CIFAR-10").replace("fashion-mnist", "Fashion-MNIST")
        row[0] = re.sub(r"so that .* apart$", "so test images and other images cannot be separated", row[0])
    return "\n\n".join([*parts, table(["claim", "measured", "verdict"], claims)])


def _chosen(panel: dict[str, Any], kind: str) -> list[str]:
    """Return the batch size that the ELBO chooses beside the one with the lowest test NLL."""
    chosen = f"{panel['bounds'][kind]['chosen']:g}"
    best, scores = min(panel[kind].items(), key=lambda pair: pair[1]["nll"])
    return [kind, chosen, f"{panel[kind][chosen]['nll']:.4f}", best, f"{scores['nll']:.4f}"]


def prune_channels() -> str:
    """Return the error and the uncertainty of a network by share of its multiply-adds."""
    results = read("prune_channels.json")
    if results is None:
        return ""
    names = {"none": "not pruned, MCBN", "none, softmax": "not pruned, softmax", "int8, softmax": "int8, softmax"}
    tuned = {"": "no", "labels": "labels", "whole network": "distillation"}
    rows = [
        [
            names.get(row["criterion"], f'`"{row["criterion"]}"`'),
            *(f"{100 * row[name]:.0f}" for name in ("share", "bytes", "time")),
            tuned[row["tuned"]],
            f"{100 * row['error']:.1f}",
            *(f"{row[name]:.3f}" for name in ("nll", "auroc of errors", "auroc of svhn")),
        ]
        for row in results["rows"]
    ]
    head = [
        "criterion",
        "multiply-adds (%)",
        "bytes (%)",
        "time (%)",
        "fine-tuned by",
        "test error (%)",
        "NLL",
        "AUROC of errors",
        "AUROC of SVHN",
    ]
    images = f"{results['preset']['asked']:,} CIFAR-10 test images and as many SVHN images"
    return f"ResNet-{results['preset']['depth']}, {images} ({hardware(results['machine'])}):\n\n" + table(head, rows)


def compression(name: str) -> str:
    """Return sizes and errors of networks trained with sparsity priors, beside the published ones."""
    results = read(name)
    if results is None:
        return ""
    rows: list[list[object]] = []
    for network in dict.fromkeys(row["network"] for row in results["rows"]):
        rows += [
            [network, f"{prior}, published", *[""] * 3, f"{error}", f"{pruned}x", f"{packed}x", *[""] * 5]
            for (name_of_network, prior), (error, pruned, packed) in compressing.PUBLISHED.items()
            if name_of_network == network
        ]
        for row in (row for row in results["rows"] if row["network"] == network):
            settings = (f"{row[key]:g}" for key in ("kl_weight", "tolerance", "taught"))
            errors = f"{100 * row['error'][0]:.2f} to {100 * row['error'][1]:.2f}"
            ratios = {key: row[key][0] / row[key][1] for key in ("numbers", "bytes", "multiply_adds", "milliseconds")}
            ratios["file"] = row["bytes"][0] / (row["bytes"][1] + row["header_bytes"])
            order = ("numbers", "bytes", "file", "multiply_adds", "milliseconds")
            times = [f"{ratios[key]:.1f}x" for key in order]
            rows.append([network, row["prior"], *settings, errors, *times, row["units"], row["bits"]])
    head = [
        "network",
        "prior",
        "KL weight",
        "tolerance",
        "epochs of distillation",
        "test error (%)",
        "fewer weights",
        "smaller tensors",
        "smaller file",
        "fewer multiply-adds",
        "faster",
        "units per layer",
        "bits per layer",
    ]
    return table(head, rows)
