"""From a trained network to predictions with uncertainty: the ten lines between the two rules are all you need.

    python examples/your_network.py

The network stands for yours. It was trained on x from -2 to 2, and predicts outside that range as well.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import bayesnorm as bn


def data(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy points of y = sin(2 x), x between -2 and 2."""
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(rows, 1, generator=generator) - 2
    return x, torch.sin(2 * x) + 0.1 * torch.randn(rows, 1, generator=generator)


def your_network(x: torch.Tensor, y: torch.Tensor, batch_size: int) -> nn.Module:
    """Return a network with batch norm, trained in the usual way."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1, 50, bias=False), nn.BatchNorm1d(50), nn.ReLU(),
        nn.Linear(50, 50, bias=False), nn.BatchNorm1d(50), nn.ReLU(),
        nn.Linear(50, 1),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1000)
    for _ in range(1000):
        rows = torch.randperm(len(x))[:batch_size]
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
        optimiser.step()
        schedule.step()
    return model.eval()


x_train, y_train = data(100, seed=1)
x_val, y_val = data(100, seed=2)
x_new = torch.tensor([[-1.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
model = your_network(x_train, y_train, batch_size=16)
file = Path(tempfile.mkdtemp()) / "net.bayesnorm"

# ----------------------------------------------------------------------------------------------------------------------
posterior = bn.MCBN(batch_size=16).fit(model, (x_train, y_train))  # the batch size that the network was trained with
posterior = bn.calibrate(posterior, x_val, y_val)  # noise and effective batch size, from validation data
predictive = posterior.predict(x_new)  # 64 samples of the network's batch statistics, vectorised
mean, std = predictive.mean, predictive.std
lower, upper = predictive.interval(0.95)
epistemic_std = predictive.epistemic.sqrt()  # more data could reduce this part; the rest of the variance is noise
posterior.save(file)  # only the posterior: no weights, no training data
again = bn.load(file, model).predict(x_new)
assert torch.equal(again.mean, mean)
# ----------------------------------------------------------------------------------------------------------------------

print(f"noise std {posterior.likelihood.precision**-0.5:.2f}, effective batch size {posterior.batch_size:.0f}")
print(f"{'x':>5} {'mean':>7} {'std':>6} {'epistemic':>9}   95 % interval")
for row in torch.cat([x_new, mean, std, epistemic_std, lower, upper], dim=1).tolist():
    print("{:5.1f} {:7.2f} {:6.2f} {:9.2f}   {:.2f} to {:.2f}".format(*row))
print(f"saved in {file.stat().st_size // 1024} KiB and loaded again: same predictions")
file.unlink()
file.parent.rmdir()
