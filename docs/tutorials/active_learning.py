"""The tutorial on active learning: `python docs/tutorials/active_learning.py`."""

# %% [markdown]
# # Active learning
#
# Labels are expensive. You have 1,200 images of digits without labels, and time to label 60. Which ones?
# This tutorial lets the network choose, compares the choice with chance, and shows the pictures that it asks for. All code runs as it stands, in seconds on a CPU.

# %% [markdown]
# ## 1. A pool of images, and a function that trains
#
# The learner calls `fit` with the labelled images after every round. It trains a small network from the beginning and returns a posterior.

# %%
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import bayesnorm as bn
from bayesnorm import active, metrics

digits, labels = load_digits(return_X_y=True)
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
x, y = torch.tensor(digits / 16).float()[order], torch.tensor(labels)[order]
pool, truth, x_test, y_test = x[:1200], y[:1200], x[1200:], y[1200:]


def fit(images, answers):
    """Train a network on the labelled images, and return a posterior."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    epochs = 200 * 10 // len(images) + 1  # about 200 steps
    bn.training.train(network, images, answers, loss=nn.functional.cross_entropy, epochs=epochs, batch_size=10)
    return bn.MCBN(batch_size=10, states=64).fit(network.eval(), images, bn.Categorical())


# %% [markdown]
# ## 2. Two ways to choose
#
# `BatchBALD` chooses twenty images whose labels together would tell most about the network. `Random` is the baseline: always compare with it.
# `oracle` asks a person; here it looks the label up.


# %%
def test_accuracy(posterior):
    return float(metrics.accuracy(posterior.predict(x_test), y_test))


def learn(acquisition, seed):
    """Label 60 images, twenty in a round; return the number of labels and the test accuracy after every round."""
    rounds = []
    learner = active.ActiveLearner(
        pool, oracle=lambda rows, images: truth[rows], fit=fit, acquisition=acquisition,
        budget=60, batch=20, initial=20, candidates=400, seed=seed,
        on_fit=lambda count, posterior: rounds.append((count, test_accuracy(posterior))),
    )  # fmt: skip
    learner.run()
    return learner, rounds


chosen = {name: [learn(acquisition, seed) for seed in (0, 1)] for name, acquisition in
          {"BatchBALD": active.BatchBALD(), "random": active.Random()}.items()}  # fmt: skip
for name, runs in chosen.items():
    accuracies = torch.tensor([[accuracy for _, accuracy in rounds] for _, rounds in runs])
    print(f"{name:10} accuracy with 20, 40 and 60 labels:", " ".join(f"{value:.2f}" for value in accuracies.mean(0)))

# %% [markdown]
# Each row is the mean of two runs. Here, random choice comes out ahead. Two runs with few labels prove nothing in either direction, so compare on your own data with several seeds.
# [The benchmark](../benchmarks/active_learning.md) with ten runs, ten labels in a round and 150 labels in total finds a gain of 0.022 ± 0.005 in the mean accuracy.

# %%
figure, ax = plt.subplots(
    figsize=(6, 3.5), label="Test accuracy against the number of labels, two runs of each way to choose"
)
for name, runs in chosen.items():
    for run, (_, rounds) in enumerate(runs):
        counts, accuracies = zip(*rounds, strict=True)
        ax.plot(
            counts, accuracies, marker="o", color="C0" if name == "random" else "C1", label=name if run == 0 else None
        )
ax.set_xlabel("labels")
ax.set_ylabel("test accuracy")
ax.legend()

# %% [markdown]
# ## 3. What does it ask for?
#
# Ten of the images that BatchBALD chose in the first run, after the 20 random ones.

# %%
learner = chosen["BatchBALD"][0][0]
figure, axes = plt.subplots(1, 10, figsize=(10, 1.4), label="Ten images that BatchBALD asked a person to label")
for ax, row in zip(axes, learner.rows[20:30].tolist(), strict=True):
    ax.imshow(pool[row].reshape(8, 8).numpy(), cmap="gray_r")
    ax.set_title(int(truth[row]))
    ax.axis("off")

# %% [markdown]
# ## Before you rely on it
#
# - Keep a random validation set. Images that were chosen are not a random sample, so scores on them are misleading.
# - Pass `path="labels.safetensors"`, so that no label is lost if the program stops.
#
# More: [Active learning](../how_to/active_learning.md) lists all ways to choose.
