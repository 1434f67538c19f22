"""The tutorial on classifiers: `python docs/tutorials/classifier.py`."""

# %% [markdown]
# # A classifier that knows when to ask
#
# A trained classifier reads handwritten digits. This tutorial gives its predictions an honest probability, finds the images on which it is likely to be wrong, and leaves
# those to a person. The network needs no new training. All code runs as it stands, in seconds on a CPU.

# %% [markdown]
# ## 1. A trained network, and three sets of images
#
# The images are scikit-learn's digits, 8 x 8 pixels. We train a small convolutional network with batch norm. It stands for yours.
# Three sets of images have different tasks: the network learns from the first, validation images choose the temperature and the threshold, and test images are scored once.

# %%
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import bayesnorm as bn
from bayesnorm import metrics

digits, labels = load_digits(return_X_y=True)
images = torch.tensor(digits / 16).float().reshape(-1, 1, 8, 8)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
x_train, x_val, x_test = images[order].split([400, 600, 797])
y_train, y_val, y_test = torch.tensor(labels)[order].split([400, 600, 797])

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
    nn.Linear(512, 10),
)  # fmt: skip
bn.training.train(network, x_train, y_train, loss=nn.functional.cross_entropy, epochs=15, batch_size=32)
network.eval()

# %% [markdown]
# ## 2. Fit and calibrate
#
# `fit` runs the network on batches of training images and records the statistics of its batch-norm layers. `batch_size` is the batch size of training.
# `calibrate` fits a temperature on the validation images.

# %%
posterior = bn.MCBN(batch_size=32).fit(network, x_train, bn.Categorical())
posterior = bn.calibrate(posterior, x_val, y_val)
prediction = posterior.predict(x_test)
print(prediction)

# %% [markdown]
# ## 3. Is it better than what you have?
#
# Always compare with the plain network and with temperature scaling, which costs one forward pass.
# The negative log likelihood (NLL) judges the probabilities. The calibration error (ECE) is the mean difference between confidence and accuracy. For both, lower is better.

# %%
plain = bn.deterministic(network, bn.Categorical())
scaled = bn.calibrate(plain, x_val, y_val)
predictions = {
    "plain network": plain.predict(x_test),
    "temperature scaling": scaled.predict(x_test),
    "MCBN with temperature": prediction,
}
print(f"{'':24}{'accuracy':>9}{'NLL':>8}{'ECE':>8}")
for name, predicted in predictions.items():
    scores = [float(score(predicted, y_test)) for score in (metrics.accuracy, metrics.nll, metrics.ece)]
    print(f"{name:24}{scores[0]:9.3f}{scores[1]:8.3f}{scores[2]:8.3f}")

# %% [markdown]
# On these images a temperature gives nearly all of the gain. Samples add little to the probabilities of a network that has seen such images.
# They add the epistemic part of the uncertainty, and a test for drift. If you need neither, use temperature scaling.

# %% [markdown]
# ## 4. Which images does it find hard?
#
# `entropy` is the total uncertainty of a prediction in nats. `mutual_information` is its epistemic part: how much the samples disagree.

# %%
hardest = prediction.entropy.argsort(descending=True)[:8]
figure, axes = plt.subplots(1, 8, figsize=(10, 1.9), label="The eight test images with the largest entropy")
for ax, number in zip(axes, hardest.tolist(), strict=True):
    ax.imshow(x_test[number, 0].numpy(), cmap="gray_r")
    ax.set_title(
        f"{int(prediction.label[number])}, {prediction.confidence[number]:.0%}\ntrue: {int(y_test[number])}", fontsize=9
    )
    ax.axis("off")

# %% [markdown]
# ## 5. Answer, or ask a person?
#
# Suppose that people can look at 5 % of the images. The threshold is the 95 % quantile of the entropy on validation images.
# The test images show what it achieves.

# %%
threshold = posterior.predict(x_val).entropy.quantile(0.95)
answered = prediction.entropy <= threshold
wrong = prediction.label != y_test
print(f"It answers {answered.float().mean():.1%} of the test images.")
print(
    f"Errors: {wrong.float().mean():.1%} of all images, {wrong[answered].float().mean():.1%} of those that it answers."
)
print(f"A person sees {int((wrong & ~answered).sum())} of the {int(wrong.sum())} wrong answers.")

# %%
figure, ax = plt.subplots(
    figsize=(6, 4), label="Error rate of the remaining images after the most uncertain ones are left to a person"
)
bn.plots.RetentionPlot.from_predictive(prediction, y_test).draw(ax)

# %% [markdown]
# ## 6. Save it
#
# The file holds the posterior: no weights and no images. Load it with the network.

# %%
posterior.save("digits.bayesnorm")
again = bn.load("digits.bayesnorm", network).predict(x_test)
assert torch.equal(again.probs, prediction.probs)

# %% [markdown]
# ## Next
#
# - [Act on uncertainty](../how_to/act_on_uncertainty.md): thresholds with guarantees, and inputs that are not digits at all.
# - [My model is in production and the data change](production.md): what to do when nobody labels the images any more.
# - The same steps for a ResNet on CIFAR-10: [trained_resnet.py](../../examples/trained_resnet.py).
