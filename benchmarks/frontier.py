"""Measure quality and cost when only some layers are sampled, on a ResNet-32 and CIFAR-10 images.

    python -m benchmarks.frontier [--device cuda] [--out results/frontier.json] [--picture docs/frontier.png]

The effective batch size, and in a second column the temperature, are chosen on CIFAR-10 test images 0 to 999. Scores
are those of images 1000 to 1999, and the AUROC of the predictive entropy against SVHN digits. The digits are cropped
from the street photos, so they are not pixel-identical to the usual test_32x32 file. The cost is the time of one
prediction for 64 images, as a multiple of one forward pass on this device.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import bayesnorm as bn
from bayesnorm.calibration import minimise_on_log_scale
from bayesnorm.calibration.late_layers import prediction_cost
from bayesnorm.metrics import accuracy, auroc, ece, nll
from bayesnorm.plots import save_figure, style
from benchmarks.inference import resnet
from experiments.data import load_cifar10, load_svhn, to_network_input
from experiments.machine import machine

CHOICES = {
    "all layers": None,
    "last stage": lambda name, _: name.startswith("layer3"),
    "last two blocks": 4,
    "last block": 2,
    "last layer": 1,
    "first two layers": ["bn1", "layer1.0.bn1"],
}


def scored(predictive: bn.ClassificationPredictive, y: torch.Tensor, outside: bn.ClassificationPredictive) -> dict:
    """Return the scores of test images, and how well entropy separates them from images of another data set."""
    return {
        "accuracy": round(float(accuracy(predictive, y)), 4),
        "NLL": round(float(nll(predictive, y)), 4),
        "ECE": round(float(ece(predictive, y)), 4),
        "AUROC SVHN": round(float(auroc(predictive.entropy, outside.entropy)), 4),
    }


def frontier(device: str, samples: int, digits: int) -> list[dict]:
    """Return the scores of the network alone, and of MCBN with each choice of layers."""
    network, train_x, queries, likelihood = resnet(device)
    labels = torch.as_tensor(load_cifar10("test", 2000)[1]).to(device)
    svhn = to_network_input(load_svhn(rows=digits)[0]).to(device)
    validation, test = (queries[:1000], labels[:1000]), (queries[1000:2000], labels[1000:2000])
    with torch.no_grad():
        logits = [network(x)[None] for x in (validation[0], test[0], svhn)]

    def temperature_loss(level: torch.Tensor) -> torch.Tensor:
        return nll(likelihood.with_noise(level).predictive(logits[0]), validation[1])

    temperature, _ = minimise_on_log_scale(temperature_loss, *likelihood.noise_range(logits[0], validation[1]))
    rows = []
    for label, chosen in {"softmax": likelihood, "softmax, temperature": likelihood.with_noise(temperature)}.items():
        scores = scored(chosen.predictive(logits[1]), test[1], chosen.predictive(logits[2]))
        rows.append({"drawn": label, "layers": 0, "M'": None, "cost": 1.0, **scores})
        print(rows[-1], flush=True)
    joint = bn.MCBN(32).fit(network, train_x, likelihood)
    engine = bn.MonteCarlo(samples)
    for label, layers in CHOICES.items():
        posterior = joint.at_layers(layers)
        chosen = bn.calibrate(posterior, *validation, noise=False, samples=samples)
        both = bn.calibrate(posterior, *validation, batch_size=True, samples=samples, evidence=0)
        scores = scored(chosen.predict(test[0], engine), test[1], chosen.predict(svhn, engine))
        rows.append(
            {
                "drawn": label,
                "layers": len(posterior.layers),
                "M'": round(chosen.batch_size, 1),
                "cost": round(prediction_cost(chosen, test[0][:64], 32), 2),
                **scores,
                "NLL, temperature": round(float(nll(both.predict(test[0], engine), test[1])), 4),
            }
        )
        print(rows[-1], flush=True)
    return rows


def add_costs(rows: list[dict], device: str) -> None:
    """Add the cost of each choice on this device to the rows of a results file."""
    network, train_x, queries, likelihood = resnet(device)
    joint = bn.MCBN(32).fit(network, train_x, likelihood)
    for row in rows:
        if row["layers"]:
            posterior = joint.at_layers(CHOICES[row["drawn"]]).at_batch_size(row["M'"])
            row[f"cost, {device}"] = round(prediction_cost(posterior, queries[:64], 32), 2)
            print(row["drawn"], row[f"cost, {device}"], flush=True)
        else:
            row[f"cost, {device}"] = 1.0


def draw(rows: list[dict], path: Path, cost: str) -> None:
    """Plot NLL against cost, one dot for each choice."""
    ax = style.axes(None)
    for number, row in enumerate(sorted(rows, key=lambda row: (row[cost], row["NLL"]))):
        colour = style.BLUE if row["layers"] else style.VERMILION
        ax.scatter(row[cost], row["NLL"], s=45, color=colour, zorder=3)
        beside = [other["NLL"] for other in rows if 0.8 < other[cost] / row[cost] < 1.25]
        above = row["NLL"] > min(beside) if len(beside) > 1 else number % 2 == 0
        offset, align = ((0, 9), "bottom") if above else ((0, -9), "top")
        label = f"{row['drawn']}"
        ax.annotate(
            label, (row[cost], row["NLL"]), offset, textcoords="offset points", ha="center", va=align, fontsize="small"
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("cost of 32 samples for 64 images, as a multiple of one forward pass")
    ax.set_ylabel("NLL on test images (lower is better)")
    ax.set_title(
        "ResNet-32 on CIFAR-10: sampling fewer layers is cheaper;\nsoftmax with temperature has the lowest NLL"
    )
    ax.margins(x=0.2, y=0.12)
    save_figure(ax, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--digits", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("results/frontier.json"))
    parser.add_argument(
        "--costs", action="store_true", help="Measure only the costs on this device, and add them to --out."
    )
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.costs:
        result = json.loads(options.out.read_text())
        add_costs(result["rows"], options.device)
        result[f"machine, {options.device}"] = machine(options.device)
    else:
        rows = frontier(options.device, options.samples, options.digits)
        result = {"machine": machine(options.device), "samples": options.samples, "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))
    if options.picture:
        cost = f"cost, {options.device}"
        draw(result["rows"], options.picture, cost if cost in result["rows"][-1] else "cost")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
