"""Image sets and the sheets they are stored in."""

import numpy as np
import pytest
import torch

from bayesnorm.errors import FileFormatError
from experiments.data import CIFAR10_CLASSES, find, load_cifar10, to_network_input

COUNT = 250  # two and a half rows of a sheet with 100 images to a row


@pytest.fixture
def small_cifar10(data_folder):
    """A CIFAR-10 folder of 250 random test images; returns what was put in."""
    image_module = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install pillow")
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
    labels = generator.integers(0, 10, COUNT).astype(np.uint8)
    sheet = np.zeros((3 * 32, 100 * 32, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        top, left = 32 * (i // 100), 32 * (i % 100)
        sheet[top : top + 32, left : left + 32] = image
    folder = data_folder / "cifar10"
    folder.mkdir()
    image_module.fromarray(sheet).save(folder / "test_first2000.webp", lossless=True)
    np.savez(folder / "labels.npz", test_first2000=labels)
    return images, labels


def test_sheet_is_cut_exactly(small_cifar10):
    images, labels = load_cifar10("test")
    np.testing.assert_array_equal(images, small_cifar10[0])
    np.testing.assert_array_equal(labels, small_cifar10[1])
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: path.write_bytes(path.read_bytes()[:-5000]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("no picture"),
        lambda path: np.savez(path.with_name("labels.npz"), test_first2000=np.zeros(301, np.uint8)),
    ],
)
def test_damaged_or_unfitting_sheet_is_a_clear_error(damage, small_cifar10):
    damage(find("cifar10/test_first2000.webp"))
    with pytest.raises(FileFormatError, match=r"test_first2000\.webp cannot be read as a WebP sheet"):
        load_cifar10("test")


@pytest.mark.parametrize(("split", "count"), [("test", 2000), ("train", 5000)])
def test_real_cifar10(split, count, require):
    require("cifar10/labels.npz", "cifar10/test_first2000.webp", "cifar10/train_first5000.webp")
    images, labels = load_cifar10(split)
    assert images.shape == (count, 32, 32, 3)
    assert labels.shape == (count,)
    # CIFAR-10's well-known first images: cat, ship, ship, airplane / frog, truck, truck, deer.
    first = [CIFAR10_CLASSES[label] for label in labels[:4]]
    assert first == {"test": ["cat", "ship", "ship", "airplane"], "train": ["frog", "truck", "truck", "deer"]}[split]
    # First pixel of the first image, as in the original batch files.
    assert images[0, 0, 0].tolist() == {"test": [158, 112, 49], "train": [59, 62, 63]}[split]


def test_network_input_is_normalised_per_channel():
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    x = to_network_input(images)
    assert x.shape == (3, 3, 5, 4)
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    expected = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / std
    torch.testing.assert_close(x, expected)
