"""The tutorial on regression: `python docs/tutorials/regression.py`."""

# %% [markdown]
# # Regression with intervals
#
# A network predicts how a disease of diabetes patients progresses in a year. A single number is not enough here: is it 150 give or take 10, or give or take 100?
# This tutorial adds prediction intervals to the network, checks them on test rows, and shows what they cannot know.

# %% [markdown]
# ## 1. A trained network
#
# The table is scikit-learn's diabetes set: 442 patients, ten columns. `Rescaled` wraps a network so that it takes and returns values in their own units.
# The network stands for yours.

# %%
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_diabetes
from torch import nn

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.training import Rescaled, train

table, progress = load_diabetes(return_X_y=True, scaled=False)
x, y = torch.tensor(table).float(), torch.tensor(progress).float().unsqueeze(1)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
x_test, x_val, x_train = x[order].split([100, 100, 242])
y_test, y_val, y_train = y[order].split([100, 100, 242])

torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(10, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 1)
)
model = Rescaled.from_data(network, x_train, y_train)
scaled = model.standardise(x_train, y_train)
train(model.network, scaled, loss=nn.functional.mse_loss, epochs=30, batch_size=32, weight_decay=0.01)

# %% [markdown]
# ## 2. Fit, calibrate, predict
#
# Before calibration the noise has a standard deviation of 1, whatever the units of the target. `calibrate` chooses the noise and the effective batch size on validation rows.

# %%
posterior = bn.MCBN(batch_size=32).fit(model, (x_train, y_train))
posterior = bn.calibrate(posterior, x_val, y_val)
prediction = posterior.predict(x_test)
lower, upper = prediction.interval(0.9)
print("progression   90 % interval   true")
for row in range(5):
    print(
        f"{float(prediction.mean[row]):11.0f}   {float(lower[row]):5.0f} to {float(upper[row]):3.0f}   {float(y_test[row]):6.0f}"
    )

# %% [markdown]
# ## 3. Are the intervals honest?
#
# A 90 % interval should contain 90 % of the test rows, and more certain rows should have smaller errors. The CRPS scores the whole prediction in the units of the target; lower is better.
# The normalised CRPS says how much of that is due to error bars that differ by row: 0 % for one constant error bar, 100 % for the ideal one.

# %%
constant = metrics.constant_variance(posterior.predict(x_val).mean, y_val)
print(f"RMSE {metrics.rmse(prediction, y_test):.1f}, CRPS {metrics.crps(prediction, y_test):.1f}")
for level in (0.5, 0.9, 0.95):
    print(
        f"{level:.0%} intervals contain {metrics.coverage(prediction, y_test, level):.0%} of the {len(y_test)} test rows"
    )
print(f"uncertainty skill: {metrics.normalised_crps(prediction, y_test, constant):.0f} %")

# %%
figure, ax = plt.subplots(
    figsize=(6, 4), label="Fraction of targets below each predicted quantile: it should follow the diagonal"
)
bn.plots.CalibrationPlot.from_predictive(prediction, y_test).draw(ax)

# %% [markdown]
# Of 100 rows, 93 lie in the 90 % intervals. With 100 rows, chance alone moves this number by 3 percentage points or so.
# The skill is small: with 242 training rows, the error bars are nearly as good as one constant error bar for all rows.

# %% [markdown]
# ## 4. Two parts of the variance
#
# The variance of a prediction is the sum of an *epistemic* part, which more data could reduce, and an *aleatoric* part, the noise.
# A patient far from all training patients should have a larger epistemic part. We let the body mass index grow beyond the table.

# %%
patient = x_test[:1].repeat(6, 1)
patient[:, 2] = torch.linspace(25, 75, 6)  # the training rows have 18 to 42
what_if = posterior.predict(patient)
print("body mass index   mean   epistemic std   noise std")
for row in range(6):
    print(
        f"{float(patient[row, 2]):15.0f}{float(what_if.mean[row]):7.0f}{float(what_if.epistemic[row].sqrt()):16.1f}"
        f"{float(what_if.aleatoric[row].sqrt()):12.1f}"
    )

# %% [markdown]
# The epistemic part doubles outside of the table. It does not jump at the border, and it was large before. `calibrate` fits the total variance, not its two parts:
# a larger epistemic part with less noise can score the same. Compare the epistemic part between rows; do not read it as a number on its own.

# %% [markdown]
# ## 5. Noise that depends on the row
#
# One noise level for all rows is rarely the truth. A network with a second output can predict it. `with_noise_head` adds the output, and `HeteroscedasticGaussian` uses it.

# %%
likelihood = bn.HeteroscedasticGaussian()
two_outputs = bn.with_noise_head(network)  # a copy of the trained network, with a second output
train(two_outputs, scaled, loss=likelihood.loss, epochs=20, batch_size=32, weight_decay=0.01)
by_row = bn.MCBN(batch_size=32).fit(two_outputs, scaled[0], likelihood)
by_row = bn.calibrate(by_row, *model.standardise(x_val, y_val))

x_scaled, y_scaled = model.standardise(x_test, y_test)
predicted = by_row.predict(x_scaled)
unit = float(model.y_std)  # from standardised values to the units of the target
noise = predicted.aleatoric.sqrt() * unit
print(
    f"noise std: {float(noise.min()):.0f} to {float(noise.max()):.0f}, one level for all rows: {float(prediction.aleatoric[0].sqrt()):.0f}"
)
print(
    f"CRPS {metrics.crps(predicted, y_scaled) * unit:.1f}, one level for all rows: {metrics.crps(prediction, y_test):.1f}"
)
print(f"90% intervals contain {metrics.coverage(predicted, y_scaled, 0.9):.0%} of the test rows")

# %% [markdown]
# The noise level now differs by row, by a factor of four. The scores hardly change: 242 rows are too few to learn it well.
# Judge such a change on your own test rows, as here.

# %% [markdown]
# ## Next
#
# - [Noise models](../how_to/noise_models.md): heavy tails, learned noise, several targets.
# - [Epistemic and aleatoric](../explanation/epistemic_and_aleatoric.md): what the two parts mean, and what not.
# - [Quickstart: your table](../getting_started/your_table.md): `bayesnorm fit` does all of this for a CSV file.
