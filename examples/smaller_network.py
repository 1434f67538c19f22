"""Make a network 58 times smaller in ten lines: remove the units that are noise under a sparsity posterior.

    python examples/smaller_network.py

The images are scikit-learn's digits, 8 x 8 pixels. Validation images choose thresholds and bits; test images are
scored once.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import bayesnorm as bn
from bayesnorm.training import train

x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
x = x.float() / 16
test, validation, rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split([400, 300, 1097])
torch.manual_seed(0)
hidden = [nn.Linear(64, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 100), nn.BatchNorm1d(100), nn.ReLU()]
model = nn.Sequential(*hidden, nn.Linear(100, 10))  # replace it by your trained network
train(model, x[rows], y[rows], loss=nn.functional.cross_entropy, epochs=20, batch_size=64)

method = bn.GroupNormalJeffreys(epochs=40, kl_warmup=20, learning_rate=0.01, batch_size=64, start="trained")
posterior = method.fit(model, (x[rows], y[rows]), bn.Categorical())
small = bn.compress(posterior, x[validation], y[validation])
print(small.report(x[test], y[test]))

# The result is an ordinary network, so it gets uncertainty like any other.
predictive = bn.MCBN(batch_size=32).fit(small.network, x[rows], bn.Categorical()).predict(x[test])
entropy, wrong = predictive.entropy, predictive.label != y[test]
print(f"mean entropy of wrong answers {entropy[wrong].mean():.2f}, of right answers {entropy[~wrong].mean():.2f}")
