"""Which layers to draw? Quality against cost, on a ResNet-32 and real images.

    python benchmarks/frontier.py [--device cuda] [--out results/frontier.json] [--picture docs/frontier.png]

Effective batch size (and, in a second column, the temperature) are chosen on CIFAR-10 test images 0-999; scores are
those of images 1000-1999, and the AUROC of predictive entropy against SVHN digits (cropped from the street photos, so
not pixel-identical to the usual test_32x32 file). Cost: one prediction of 64 rows in deterministic passes, on this
device.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from inference import machine, resnet

import bayesnorm as bn
from bayesnorm.data import load_cifar10, load_svhn, to_network_input
from bayesnorm.metrics import accuracy, auroc, ece, nll
from bayesnorm.plots import save_figure, style
from bayesnorm.selection.layers import prediction_cost
from bayesnorm.selection.search import minimise_on_log_scale

CHOICES = {
    "all layers": None,
    "last stage": lambda name, _: name.startswith("layer3"),
    "last two blocks": 4,
    "last block": 2,
    "last layer": 1,
    "first two layers": ["bn1", "layer1.0.bn1"],
}


def scored(predictive: bn.ClassificationPredictive, y: torch.Tensor, outside: bn.ClassificationPredictive) -> dict:
    return {
        "accuracy": round(float(accuracy(predictive, y)), 4),
        "NLL": round(float(nll(predictive, y)), 4),
        "ECE": round(float(ece(predictive, y)), 4),
        "AUROC SVHN": round(float(auroc(predictive.entropy, outside.entropy)), 4),
    }


def frontier(device: str, draws: int, digits: int) -> list[dict]:
    network, train_x, queries, likelihood = resnet(device)
    labels = torch.as_tensor(load_cifar10("test")[1]).to(device)
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
    engine = bn.MonteCarlo(draws)
    for label, layers in CHOICES.items():
        posterior = joint.at_layers(layers)
        chosen = bn.calibrate(posterior, *validation, noise=False, samples=draws)
        both = bn.calibrate(posterior, *validation, samples=draws)
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


def draw(rows: list[dict], path: Path, device: str) -> None:
    ax = style.axes(None)
    for row in rows:
        is_point = row["layers"] == 0
        ax.scatter(row["cost"], row["NLL"], s=45, color=style.VERMILION if is_point else style.BLUE, zorder=3)
        ax.annotate(
            row["drawn"], (row["cost"], row["NLL"]), xytext=(6, 5), textcoords="offset points", fontsize="small"
        )
    ax.set_xscale("log")
    ax.set_xlabel(f"time of one prediction, in deterministic passes (32 draws, 64 rows, {device})")
    ax.set_ylabel("NLL on test images (lower is better)")
    ax.set_title("ResNet-32 on CIFAR-10: which layers are drawn")
    ax.margins(x=0.25)
    save_figure(ax, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--draws", type=int, default=96)
    parser.add_argument("--digits", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("results/frontier.json"))
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    rows = frontier(options.device, options.draws, options.digits)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    header = machine(options.device)
    options.out.write_text(json.dumps({"machine": header, "draws": options.draws, "rows": rows}, indent=1))
    if options.picture:
        draw(rows, options.picture, header["device"])
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
