"""The tutorial on segmentation: `python docs/tutorials/segmentation.py`."""

# %% [markdown]
# # Segmentation maps
#
# A network gives every pixel a class. This tutorial draws a map of where it may be wrong, and measures how many wrong pixels a person finds by looking at a few of them.
# The images are drawn by the program, so that it runs in seconds and we know the truth.

# %% [markdown]
# ## 1. Images and a trained network
#
# Discs and squares on a noisy background: three classes. The network stands for yours. It predicts one set of logits for every pixel.

# %%
import torch
from matplotlib import pyplot as plt
from torch import nn

import bayesnorm as bn
from bayesnorm import metrics


def scenes(count, seed, noise=0.35):
    """Return noisy images (count, 1, 32, 32) and the class of every pixel: 0 background, 1 disc, 2 square."""
    generator = torch.Generator().manual_seed(seed)
    row, column = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    labels = torch.zeros(count, 32, 32, dtype=torch.long)
    for shape in (1, 2, 1, 2):
        top, left, radius = (
            low + width * torch.rand(count, 1, 1, generator=generator) for low, width in ((4, 24), (4, 24), (3, 4))
        )
        down, across = (row - top).abs(), (column - left).abs()
        inside = down**2 + across**2 < radius**2 if shape == 1 else torch.maximum(down, across) < 0.8 * radius
        labels[inside] = shape
    brightness = torch.tensor([0.0, 0.7, 1.0])[labels]
    return (brightness + noise * torch.randn(count, 32, 32, generator=generator)).unsqueeze(1), labels


x_train, y_train = scenes(100, seed=1)
x_val, y_val = scenes(40, seed=2)
x_test, y_test = scenes(40, seed=3)


def block(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()


torch.manual_seed(0)
network = nn.Sequential(
    *block(1, 12),
    nn.MaxPool2d(2),
    *block(12, 24),
    *block(24, 24),
    nn.Upsample(scale_factor=2),
    *block(24, 12),
    nn.Conv2d(12, 3, 1),
)
bn.training.train(
    network, x_train, y_train, loss=nn.functional.cross_entropy, epochs=8, batch_size=10, learning_rate=0.005
)
network.eval()

# %% [markdown]
# ## 2. Fit, calibrate, predict
#
# Use `keep="summary"`: the samples of images are large, and a summary adds them up instead of storing them.

# %%
posterior = bn.MCBN(batch_size=10).fit(network, x_train, bn.Categorical())
posterior = bn.calibrate(posterior, x_val, y_val)
maps = posterior.predict(x_test, keep="summary")
print(f"accuracy {metrics.accuracy(maps, y_test):.3f}, mean IoU {metrics.mean_iou(maps, y_test):.3f}")
print(f"NLL {metrics.nll(maps, y_test):.3f}, calibration error {metrics.ece(maps, y_test):.3f}")

# %% [markdown]
# ## 3. Look at the maps
#
# `entropy` is the total uncertainty of a pixel, `mutual_information` its epistemic part.

# %%
columns = {"image": x_test[:3, 0], "true class": y_test[:3], "prediction": maps.label[:3], "entropy": maps.entropy[:3]}
figure, axes = plt.subplots(
    3, 4, figsize=(8, 6), label="Three images, their true classes, the predictions, and the entropy"
)
for column, (title, pictures) in enumerate(columns.items()):
    for row in range(3):
        axes[row, column].imshow(pictures[row].numpy(), cmap="viridis" if title == "entropy" else "gray")
        axes[row, column].axis("off")
    axes[0, column].set_title(title)

# %% [markdown]
# The entropy is large at the borders of shapes, where the noise hides which pixel belongs to what.

# %% [markdown]
# ## 4. How many wrong pixels does a check find?
#
# A person looks at the pixels with the largest entropy. The AUROC is the probability that a wrong pixel has a larger entropy than a right one.

# %%
wrong = maps.label != y_test
score = maps.entropy
print(f"wrong pixels: {wrong.float().mean():.1%}, AUROC {metrics.auroc(score[~wrong], score[wrong]):.2f}")
for share in (0.02, 0.05, 0.1):
    checked = score >= score.flatten().quantile(1 - share)
    print(f"checking {share:.0%} of the pixels finds {(wrong & checked).sum() / wrong.sum():.0%} of the wrong ones")

# %% [markdown]
# ## 5. Images that training has not seen
#
# A new camera has twice the noise. The uncertainty rises, and `drift` notices without labels.

# %%
noisy, truth = scenes(40, seed=4, noise=0.7)
new = posterior.predict(noisy, keep="summary")
print(f"mean entropy {float(maps.entropy.mean()):.3f}, new camera {float(new.entropy.mean()):.3f}")
print(f"wrong pixels {float(wrong.float().mean()):.1%}, new camera {float((new.label != truth).float().mean()):.1%}")
print(
    f"p-value of drift: {bn.drift(posterior, x_test).p_value:.2g}, new camera {bn.drift(posterior, noisy).p_value:.2g}"
)

# %% [markdown]
# The entropy rises, but less than the error: a network cannot know how wrong it is on images of another kind. The drift test is the reliable sign.
# [My model is in production and the data change](production.md) shows what to do next.

# %% [markdown]
# ## Next
#
# - [Segmentation](../how_to/segmentation.md): large images in tiles, and `bayesnorm maps` for a folder of images without code.
# - [What real street scenes show](../benchmarks/papers/kendall.md).
