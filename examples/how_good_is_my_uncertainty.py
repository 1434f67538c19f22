"""How good is the uncertainty of a trained network? Calibrate it, score it on test rows, and check its assumptions.

    python examples/how_good_is_my_uncertainty.py

The table is scikit-learn's diabetes set. Everything is chosen on validation rows. Test rows are scored once.
"""

import torch
from sklearn.datasets import load_diabetes
from torch import nn

import bayesnorm as bn
from bayesnorm.metrics import constant_variance, coverage, crps, normalised_crps, normalised_pll, rmse
from bayesnorm.training import Rescaled, train

x, y = (torch.tensor(part, dtype=torch.float32).view(442, -1) for part in load_diabetes(return_X_y=True, scaled=False))
test, validation, rows = torch.randperm(442, generator=torch.Generator().manual_seed(0)).split([88, 88, 266])
torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Linear(10, 50), nn.BatchNorm1d(50), nn.ReLU()),
    *(nn.Linear(50, 50), nn.BatchNorm1d(50), nn.ReLU()),
    nn.Linear(50, 1),
)  # replace it by your trained network
model = Rescaled.from_data(network, x[rows], y[rows])
seen, held_out = (model.standardise(x[part], y[part]) for part in (rows, validation))
loss = nn.functional.mse_loss
train(model.network, seen, loss=loss, epochs=200, batch_size=32, weight_decay=0.01, validation=held_out, patience=20)

posterior = bn.MCBN(batch_size=32).fit(model, (x[rows], y[rows]))
posterior = bn.calibrate(posterior, x[validation], y[validation])
print(f"noise std {posterior.likelihood.precision**-0.5:.1f}, effective batch size {posterior.batch_size:.0f}")
choice = bn.select_batch_size(posterior, (x[rows], y[rows]), weight_decay=0.01)
print(f"effective batch size by the ELBO, without validation rows: {choice.batch_size:.0f}")

constant = constant_variance(posterior.predict(x[validation]).mean, y[validation])
predictive = posterior.predict(x[test])
print(f"RMSE {rmse(predictive, y[test]):.1f}, CRPS {crps(predictive, y[test]):.1f}")
print(f"95 % intervals contain {coverage(predictive, y[test], 0.95):.0%} of the test rows")
normalised = [float(score(predictive, y[test], constant)) for score in (normalised_crps, normalised_pll)]
print("uncertainty skill (0 %: constant, 100 %: ideal): CRPS {:.1f} %, log-likelihood {:.1f} %".format(*normalised))

print(bn.diagnose(model, (x[rows], y[rows]), batch_sizes=(8, 32)))
