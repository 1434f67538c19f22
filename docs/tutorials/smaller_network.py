"""The tutorial on compression: `python docs/tutorials/smaller_network.py`."""

# %% [markdown]
# # A smaller network
#
# A trained network is too slow or too large for its device. This tutorial removes half of its channels and fine-tunes what is left, without labels.
# Then it trains the network again under a sparsity prior, which gives a much smaller file. All code runs as it stands, in seconds on a CPU.

# %% [markdown]
# ## 1. A trained network
#
# The images are scikit-learn's digits, 8 x 8 pixels. The network stands for yours.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn

import bayesnorm as bn
from bayesnorm.training import distill, train

digits, labels = load_digits(return_X_y=True)
images = torch.tensor(digits / 16).float().reshape(-1, 1, 8, 8)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
x_train, x_val, x_test = images[order].split([1000, 300, 497])
y_train, y_val, y_test = torch.tensor(labels)[order].split([1000, 300, 497])


def block(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()


def test_error(network):
    with torch.no_grad():
        return float((network(x_test).argmax(1) != y_test).float().mean())


torch.manual_seed(0)
network = nn.Sequential(
    *block(1, 16),
    *block(16, 32),
    nn.MaxPool2d(2),
    *block(32, 32),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 10),
)
train(network, x_train, y_train, loss=nn.functional.cross_entropy, epochs=8, batch_size=50)
network.eval()
print(f"test error {test_error(network):.1%}, {sum(p.numel() for p in network.parameters()):,} weights")

# %% [markdown]
# ## 2. Remove channels, then fine-tune without labels
#
# `prune_channels` removes the least important channels until the given share of multiply-adds is left. `distill` trains the smaller network on the outputs of the original one.

# %%
posterior = bn.MCBN(batch_size=50).fit(network, x_train, bn.Categorical())
pruned = bn.compression.prune_channels(posterior, x_train, multiply_adds=0.5)
print(f"after pruning: test error {test_error(pruned.network):.1%}")
distill(pruned.network, network, x_train, epochs=5, batch_size=50)
print(f"after fine-tuning: test error {test_error(pruned.network):.1%}")
print(pruned.report(x_test, y_test))

# %% [markdown]
# The network needs half of the multiply-adds and a third of the weights. The error rises from 1.6 % to 2.4 %: four more of 497 images are wrong.

# %% [markdown]
# ## 3. Train with a sparsity prior, then compress
#
# If you can train again, a prior shows which units and bits the network needs. `compress` removes the others. Validation images choose the thresholds and bits.

# %%
torch.manual_seed(0)
hidden = [nn.Linear(64, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 50), nn.BatchNorm1d(50), nn.ReLU()]
perceptron = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(50, 10))
train(perceptron, x_train, y_train, loss=nn.functional.cross_entropy, epochs=10, batch_size=50)
print(f"before: test error {test_error(perceptron.eval()):.1%}")
method = bn.GroupNormalJeffreys(epochs=20, kl_warmup=10, learning_rate=0.01, batch_size=50, start="trained")
sparse = method.fit(perceptron, (x_train, y_train), bn.Categorical())
small = bn.compress(sparse, x_val, y_val)
print(small.report(x_test, y_test))

# %% [markdown]
# The weights take 1/38 of the bytes. The price is the test error: 2.4 % before, 4.6 % after training with the prior, 5.6 % after units and bits are removed.
# Longer training with the prior leaves fewer units and lower errors ([LeNet-5 on MNIST](../benchmarks/compression.md): 0.88 % before, 0.97 % after).

# %% [markdown]
# ## 4. The small network gets uncertainty too
#
# The result is an ordinary network. Fit a posterior on it as on any other.

# %%
again = bn.MCBN(batch_size=50).fit(small.network, x_train, bn.Categorical())
prediction = again.predict(x_test)
wrong = prediction.label != y_test
print(
    f"mean entropy of wrong answers {prediction.entropy[wrong].mean():.2f}, of right answers {prediction.entropy[~wrong].mean():.2f}"
)
small.save("small.safetensors")

# %% [markdown]
# ## Next
#
# - [A smaller network](../how_to/smaller_network.md): which way to choose, and advice.
# - [Compression, measured](../benchmarks/compression.md): ResNet-32, VGG and LeNet-5, with what pruning does to the uncertainty.
