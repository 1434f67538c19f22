"""Time predictions and fits with whichever bayesnorm is on the path; `benchmarks.versions` starts one for each version.

It uses only what every version since the first compiled predictions has, and imports nothing else of this checkout.
It reads the name of a case from each line of its input and answers with a line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import bayesnorm as bn

Run = Callable[[], object]


class Residual(nn.Module):
    """Two convolutions with batch norm, and a shortcut that drops pixels and adds empty channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return torch.relu(h + nn.functional.pad(shortcut, (0, 0, 0, 0, 0, h.shape[1] - x.shape[1])))


def resnet(depth: int) -> nn.Module:
    """Return a residual network for images of 32 x 32 pixels, as in the paper on residual networks, untrained."""
    torch.manual_seed(0)
    widths = [16] * (depth // 6) + [32] * (depth // 6) + [64] * (depth // 6)
    blocks = [Residual(before, after) for before, after in zip([16, *widths], widths, strict=False)]
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).eval()


def mlp() -> nn.Module:
    """Return a regression network with two layers of 50 units."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 50), nn.BatchNorm1d(50), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(50, 1)).eval()


def prediction(
    network: nn.Module, train_x: Tensor, batch: int, engine: bn.Engine, **options: object
) -> tuple[Run, Run]:
    """Return a prediction and one forward pass of the same network.

    Args:
        network: The network.
        train_x: Training inputs.
        batch: Number of inputs to predict.
        engine: How to predict.
        options: `layers`, the number of sampled layers; `compiled`, whether both are compiled.
    """
    likelihood = bn.Gaussian(0.1) if train_x.dim() == 2 else bn.Categorical()
    posterior = bn.MCBN(32, states=64).fit(network, train_x, likelihood)
    if "layers" in options:
        posterior = posterior.at_layers(options["layers"])
    if options.get("compiled"):
        posterior = posterior.compile()
        network = torch.compile(network, mode="reduce-overhead", dynamic=False)
    x = train_x[:batch].clone()
    return lambda: posterior.predict(x, engine), lambda: network(x)


def fit(network: nn.Module, train_x: Tensor, method: object) -> tuple[Run, Run]:
    """Return a fit and forward passes over 64 batches of 32."""
    batches = [train_x[torch.arange(start, start + 32) % len(train_x)] for start in range(0, 64 * 32, 32)]
    return lambda: method.fit(network, train_x, bn.Categorical()), lambda: [network(x) for x in batches]


def cases(device: str) -> dict[str, Callable[[], tuple[Run, Run]]]:
    """Return how to make each case by name."""
    images, rows = torch.randn(512, 3, 32, 32, device=device), torch.randn(2048, 8, device=device)
    net = {depth: resnet(depth).to(device) for depth in (32, 56)} | {0: mlp().to(device)}
    samples = bn.MonteCarlo(32)
    made: dict[str, Callable[[], tuple[Run, Run]]] = {}
    for batch in (1, 64):
        made[f"MLP, 32 samples, batch {batch}"] = lambda batch=batch: prediction(net[0], rows, batch, samples)
    for batch in (1, 16):
        at = {"batch": batch, "train_x": images}
        made[f"ResNet-32, 32 samples, batch {batch}"] = lambda at=at: prediction(net[32], engine=samples, **at)
        made[f"ResNet-32, last layer, 32 samples, batch {batch}"] = lambda at=at: prediction(
            net[32], engine=samples, layers=1, **at
        )
        made[f"ResNet-32, SigmaPoints(8), batch {batch}"] = lambda at=at: prediction(
            net[32], engine=bn.SigmaPoints(8), **at
        )
        made[f"ResNet-32, Delta, batch {batch}"] = lambda at=at: prediction(net[32], engine=bn.Delta(), **at)
        if device == "cuda":
            made[f"ResNet-56, last layer, 32 samples, compiled, batch {batch}"] = lambda at=at: prediction(
                net[56], engine=samples, layers=1, compiled=True, **at
            )
    made["ResNet-32, fit of MCBN with 64 batches"] = lambda: fit(net[32], images, bn.MCBN(32, states=64))
    made["ResNet-32, fit of GaussianBN"] = lambda: fit(net[32], images, bn.GaussianBN(32))
    return made


def main() -> None:
    device, turn_seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    clock = time.perf_counter if device == "cuda" else time.process_time  # other processes do not change CPU time
    available, ready = cases(device), {}
    print(json.dumps(list(available)), flush=True)

    def seconds(run: Run) -> float:
        wait()
        start = clock()
        run()
        wait()
        return clock() - start

    with torch.no_grad():
        for line in sys.stdin:
            name = line.strip()
            if name not in ready:
                ready[name] = available[name]()
                for run in ready[name] * 4:
                    run()
            run, baseline = ready[name]
            times, ratios, end = [], [], time.perf_counter() + turn_seconds
            while len(times) < 3 or time.perf_counter() < end:
                passed = seconds(baseline)
                times.append(seconds(run))
                ratios.append(times[-1] / passed)
            print(json.dumps([1e3 * statistics.median(times), statistics.median(ratios)]), flush=True)


if __name__ == "__main__":
    main()
